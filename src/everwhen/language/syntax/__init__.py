"""The syntax tree: what was written, with places; nothing is resolved yet."""
