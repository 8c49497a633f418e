"""Iceberg tables as sinks: one commit per epoch."""

from everwhen.connectors.iceberg.connector import SINKS, SOURCES

__all__ = ["SINKS", "SOURCES"]
