"""ORDER BY at a sink."""
