"""Families of scalar functions beyond the basic ones: the calendar, formats of times, zones, JSON in texts, bits."""
