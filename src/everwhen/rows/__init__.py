"""Rows as integers: the codec, the interner for values that are not numbers, and changes as signed segments."""
