"""Runs over files, with checkpoints."""
