"""Rules about projections, constants, duplicates and common subplans."""
