"""The keyed sweep over edges in time: aggregates, multiplicities."""
