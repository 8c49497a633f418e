"""A plan cut at exchanges, for engines with partitions."""
