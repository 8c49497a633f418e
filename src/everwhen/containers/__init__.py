"""Flat data structures for compiled loops: tables, run pools, calendars.  They know nothing of streams."""
