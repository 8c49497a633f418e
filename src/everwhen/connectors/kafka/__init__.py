"""Kafka in and out: topics of JSON rows, of elements, or of Debezium's envelopes."""

from everwhen.connectors.kafka.connector import SINKS, SOURCES

__all__ = ["SINKS", "SOURCES"]
