"""Recursive queries as plans: which names are loops, their forms, their fixed points."""
