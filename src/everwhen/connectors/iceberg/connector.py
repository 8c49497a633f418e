"""Iceberg's options in SQL, and how its sink is opened.

CREATE SINK best INTO iceberg('shop.best', 'sqlite:////lake/catalog.db', warehouse = '/lake', key = 'item') AS …
"""

from __future__ import annotations

from typing import Final

from everwhen.connectors.iceberg.sink import Catalog, IcebergRows
from everwhen.connectors.options import Option, OptionError, Options
from everwhen.connectors.registry import SinkConnector, SinkPlace, SourceConnector, needs
from everwhen.sinks.rows import RowSink

_WRITE: Final = (
    Option("table", "text", "the table, with its namespace: 'shop.best'", required=True),
    Option(
        "catalog", "text", "the catalogue: a database as 'sqlite:////lake/catalog.db', or an address", required=True
    ),
    Option("warehouse", "text", "where new tables are put"),
    Option("id", "text", "the writer's name in the table's properties (default: the job and the sink)"),
)


def open_rows(options: Options, place: SinkPlace) -> RowSink:
    """A table as a sink of rows."""
    needs("pyiceberg", "pyiceberg", "iceberg", "iceberg")
    table = options.text("table")
    if "." not in table.strip("."):
        raise OptionError(f"iceberg: a table has a namespace, as 'shop.best', and not {table!r}", "table")
    catalog = Catalog(table, options.text("catalog"), options.maybe("warehouse"))
    return IcebergRows(catalog, place.form, place.key, options.maybe("id") or place.writer or place.name)


SOURCES: Final[tuple[SourceConnector, ...]] = ()
SINKS: Final = (
    SinkConnector(
        "iceberg",
        "an Iceberg table, one commit per epoch",
        _WRITE,
        ("append", "upsert", "retract"),
        None,
        open_rows,
        promise="exactly once: a commit sets its epoch as a property of the table",
    ),
)
