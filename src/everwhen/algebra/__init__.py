"""The logical algebra: immutable nodes that are valid once built, expressions, aggregates."""
