"""Aggregates: calls of them, their types, what they mean row by row, and those that give lists."""
