"""A sink takes the output of a query epoch by epoch and remembers which epochs it has.

Guarantee of every sink: after `commit(n)` returned, all elements of epoch `n` are in, and committing `n` or an earlier
epoch again changes nothing.  If `commit` raises, nothing of the epoch is in, and it may be tried again.  An epoch may
be committed again after a crash, because the runtime learns only from the sink whether it was in: with such a sink,
"at least once" becomes "exactly once".  Sinks that cannot keep the promise say so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from everwhen.core.schema import Schema
from everwhen.stream.element_batch import ElementBatch


class Sink(ABC):
    """Call order: `resume` where epochs were published before, `prepare`, then `committed` and any number of `commit`,
    then `close`.

    A sink holds no connection and no open file before `prepare`, so that it can be pickled until then.
    """

    lasting: ClassVar[bool] = False
    """Whether what it has taken outlives the process."""

    def resume(self, published: int) -> None:  # noqa: B027 - most sinks find out in `prepare`
        """Told before `prepare` that the epochs up to `published` were taken by this sink, in an earlier run.  A sink
        that finds out that it has lost them raises `SinkLostError`, and leaves its place as it is."""

    @abstractmethod
    def prepare(self, schema: Schema) -> None:
        """Makes the place ready for rows of the schema; if it cannot be used, a `SinkError` says why."""

    @abstractmethod
    def committed(self) -> int:
        """The last epoch that is in; -1 if there is none."""

    def close(self) -> None:  # noqa: B027 - most sinks hold nothing
        """Gives back what `prepare` took; a closed sink may be prepared again."""


class EpochSink(Sink):
    """A sink of elements.  Its methods are called in the order of every `Sink`.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], s.schema)
    >>> class Counter(ew.spark.EpochSink):
    ...     rows, last = 0, -1
    ...     def prepare(self, schema): pass
    ...     def committed(self): return self.last
    ...     def commit(self, epoch, batch):
    ...         if epoch > self.last:
    ...             self.rows, self.last = self.rows + len(batch), epoch
    ...
    >>> sink = Counter()
    >>> sink.commit(0, batch)
    >>> sink.commit(0, batch)
    >>> sink.rows
    2
    """

    @abstractmethod
    def commit(self, epoch: int, batch: ElementBatch) -> None:
        """Takes all elements of an epoch, CTIs included; one that is in already changes nothing."""


class PlacelessSink(Sink):
    """A sink without a place to make ready: it knows the last epoch as long as it lives."""

    _last = -1

    def prepare(self, schema: Schema) -> None:
        """There is nothing to make ready."""

    def committed(self) -> int:
        return self._last


class PartedSink(EpochSink):
    """A sink that takes an epoch in parts, each where it is made: nothing of it has to pass through the driver."""

    @abstractmethod
    def write_part(self, epoch: int, partition: int, batch: ElementBatch) -> str:
        """Takes the elements of one partition and returns the name of the part; "" if there is none."""

    @abstractmethod
    def commit_parts(self, epoch: int, parts: Sequence[str], tail: ElementBatch) -> None:
        """Makes an epoch of parts that were written, in this order, and of the elements that come after them."""
