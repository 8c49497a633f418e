"""Queries that come and go while one dataflow runs."""
