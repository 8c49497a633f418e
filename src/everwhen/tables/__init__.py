"""Tables in and out: what inputs of `run` may be, and its answer as tables, text, HTML and pictures."""
