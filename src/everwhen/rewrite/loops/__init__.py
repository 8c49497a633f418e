"""Rules about recursion, and what may stand on a loop."""
