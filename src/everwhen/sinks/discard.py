"""A sink that takes everything and keeps nothing: for measuring, and for queries of which only the progress counts.

Like Spark's own `noop`, it lets answers go where they are made.  After a restart it does not know what it has had.
"""

from __future__ import annotations

from collections.abc import Sequence

from everwhen.sinks.base import PartedSink, PlacelessSink
from everwhen.stream.element_batch import ElementBatch


class DiscardSink(PlacelessSink, PartedSink):
    """Discards every epoch.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], s.schema)
    >>> sink = ew.spark.DiscardSink()
    >>> sink.prepare(s.schema)
    >>> sink.commit(0, batch)
    >>> sink.committed()
    0
    """

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        self._last = max(self._last, epoch)

    def write_part(self, epoch: int, partition: int, batch: ElementBatch) -> str:
        return ""

    def commit_parts(self, epoch: int, parts: Sequence[str], tail: ElementBatch) -> None:
        self._last = max(self._last, epoch)
