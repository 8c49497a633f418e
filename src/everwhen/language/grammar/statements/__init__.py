"""Statements: CREATE, DROP, ALTER, INSERT INTO, and queries to be answered, with their clauses."""
