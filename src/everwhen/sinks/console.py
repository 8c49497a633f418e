"""A sink for the eye: the elements of every epoch as a table in the terminal.

It remembers nothing beyond the process; after a restart the last epoch may be shown again.
"""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from everwhen.core.schema import Schema
from everwhen.core.time import show
from everwhen.sinks.base import EpochSink, PlacelessSink
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch


class ConsoleSink(PlacelessSink, EpochSink):
    """Shows at most `rows` elements of an epoch, and says how many more there were; quiet epochs are not shown.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], s.schema)
    >>> sink = ew.spark.ConsoleSink(rows=10)
    >>> sink.prepare(s.schema)
    >>> sink.commit(0, batch)  # doctest: +NORMALIZE_WHITESPACE
    epoch 0
    <BLANKLINE>
               from   to   x
     ────────────────────────
      insert      0    5   1
      cti         3
    <BLANKLINE>
    """

    def __init__(self, rows: int = 20, console: Console | None = None) -> None:
        self.rows = rows
        self._console = console

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if epoch <= self._last:
            return
        if len(batch):
            console = self._console or Console()
            console.print(_picture(epoch, batch, self.rows))
        self._last = epoch


def _picture(epoch: int, batch: ElementBatch, rows: int) -> Table:
    more = len(batch) - rows
    caption = f"and {more} more" if more > 0 else None
    table = Table(title=f"epoch {epoch}", caption=caption, box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("", "from", "to", *batch.schema.names):
        table.add_column(Text(name), justify="right" if name in ("from", "to") else "left")
    for element in batch.slice(0, rows).elements():
        table.add_row(*(Text(cell) for cell in _cells(element, batch.schema)))
    return table


def _cells(element: Element, schema: Schema) -> list[str]:
    match element:
        case Insert(vs, ve, row):
            return ["insert", show(vs), show(ve), *(_value(row[name]) for name in schema.names)]
        case Adjust(vs, ve, vnew, row) if vnew == vs:
            return ["remove", show(vs), show(ve), *(_value(row[name]) for name in schema.names)]
        case Adjust(vs, ve, vnew, row):
            return ["adjust", show(vs), f"{show(ve)} → {show(vnew)}", *(_value(row[name]) for name in schema.names)]
        case Cti(t):
            return ["cti", show(t)]
        case _:
            return [str(element)]


def _value(value: object) -> str:
    return "null" if value is None else str(value)
