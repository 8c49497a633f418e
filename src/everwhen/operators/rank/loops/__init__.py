"""Compiled loops over ordered partitions."""
