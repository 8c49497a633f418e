"""Ranks and frames, by definition."""
