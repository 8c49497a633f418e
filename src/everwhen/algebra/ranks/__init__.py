"""Orders of the rows alive: ranks, limits, functions over frames."""
