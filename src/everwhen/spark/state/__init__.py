"""Versioned state on a file system."""
