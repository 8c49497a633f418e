"""Rules that move and merge filters."""
