"""What the columns of a DataFrame mean, and what is checked of them."""
