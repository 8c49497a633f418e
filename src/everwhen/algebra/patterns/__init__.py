"""Patterns over neighbouring rows: the pattern, what its conditions read, the logical node, the compiled conditions."""
