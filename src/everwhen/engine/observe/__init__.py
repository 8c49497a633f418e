"""What a dataflow at work has done and keeps, and why it is silent."""
