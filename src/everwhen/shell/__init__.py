"""SQL typed at a terminal, or a script of it."""
