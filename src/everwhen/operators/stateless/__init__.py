"""Operators without state: filter, map, union, time windows, lifetimes."""
