"""What rewrite rules ask of expressions, plans and join pairs."""
