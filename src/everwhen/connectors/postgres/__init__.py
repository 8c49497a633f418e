"""PostgreSQL in and out: tables that are written, read once, or followed by logical decoding."""

from everwhen.connectors.postgres.connector import SINKS, SOURCES

__all__ = ["SINKS", "SOURCES"]
