"""Recursion: the loop as one operator, its heads, its body, its progress."""
