"""The sweep's compiled loops."""
