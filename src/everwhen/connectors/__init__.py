"""Connectors: where the streams of a job come from, and where its answers go."""
