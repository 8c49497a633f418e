"""Punctuation that follows from rows and declared schemes."""
