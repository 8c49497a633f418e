"""Compiled loops of patterns."""
