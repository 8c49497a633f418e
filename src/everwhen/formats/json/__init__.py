"""JSON lines: a fast reader on Arrow, an exact one in Python, the writer, inference of schemas."""
