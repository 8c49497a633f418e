"""What is known of the past when a plan joins, and how the plan is given it."""
