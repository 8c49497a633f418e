"""Rules about windows."""
