"""Delta tables in and out: appended rows, the change feed, a table as a relation; a commit per epoch."""

from everwhen.connectors.delta.connector import SINKS, SOURCES

__all__ = ["SINKS", "SOURCES"]
