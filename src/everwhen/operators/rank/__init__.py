"""Rows of partitions in an order: ranks, limits, and functions over frames."""
