"""A fixed plan goes over to another one while it runs."""
