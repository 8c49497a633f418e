"""A partition of a stage inside a Python worker, with the state that it owns."""
