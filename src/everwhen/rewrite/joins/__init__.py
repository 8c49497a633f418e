"""Rules about joins and subqueries."""
