"""A sink in the memory of this process: for tests, notebooks and small results.

It forgets with the process; within the process every epoch is in exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator

from everwhen.core.schema import Schema
from everwhen.sinks.base import EpochSink
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History


class MemorySink(EpochSink):
    """Keeps every epoch's batch in `epochs`.

    >>> import pyarrow as pa
    >>> from everwhen.stream.element import Cti, Insert
    >>> from everwhen.stream.element_batch import batch_of
    >>> schema = Schema.of([("x", pa.int64())])
    >>> sink = MemorySink()
    >>> sink.prepare(schema)
    >>> sink.commit(0, batch_of([Insert(0, 5, {"x": 1}), Cti(3)], schema))
    >>> sink.commit(0, batch_of([Insert(0, 5, {"x": 1}), Cti(3)], schema))
    >>> [str(element) for element in sink.elements()], sink.committed()
    (['insert [0, 5) x=1', 'cti 3'], 0)
    """

    def __init__(self) -> None:
        self.schema = Schema(())
        self.epochs: dict[int, ElementBatch] = {}

    def prepare(self, schema: Schema) -> None:
        self.schema = schema

    def committed(self) -> int:
        return max(self.epochs, default=-1)

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if epoch > self.committed():
            self.epochs[epoch] = batch

    def batches(self) -> Iterator[ElementBatch]:
        """The batches in the order of their epochs."""
        yield from (self.epochs[epoch] for epoch in sorted(self.epochs))

    def elements(self) -> Iterator[Element]:
        """All elements one by one, in order."""
        for batch in self.batches():
            yield from batch.elements()

    def history(self) -> History:
        """What the elements say so far."""
        return History.of(self.batches(), self.schema)
