"""The join: its state, its conditions, its punctuation; and the join of groups that are read once."""
