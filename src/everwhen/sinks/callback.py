"""A sink that hands every epoch to a function.

Within one run the function gets every epoch once.  After a restart it may get the last epoch again, with the same
elements and the same number: at least once.  A function that stores the number beside what it does makes that once.
"""

from __future__ import annotations

from collections.abc import Callable

from everwhen.errors import EverwhenError, SinkError
from everwhen.sinks.base import EpochSink, PlacelessSink
from everwhen.stream.element_batch import ElementBatch


class CallbackSink(PlacelessSink, EpochSink):
    """Calls `fn(epoch, batch)`; an error of the function means that the epoch is not in.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], s.schema)
    >>> seen = []
    >>> sink = ew.spark.CallbackSink(lambda epoch, batch: seen.append((epoch, len(batch))))
    >>> sink.prepare(s.schema)
    >>> sink.commit(0, batch)
    >>> seen, sink.committed()
    ([(0, 2)], 0)
    """

    def __init__(self, fn: Callable[[int, ElementBatch], None]) -> None:
        self.fn = fn

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if epoch <= self._last:
            return
        try:
            self.fn(epoch, batch)
        except EverwhenError:
            raise
        except Exception as bad:
            name = getattr(self.fn, "__qualname__", repr(self.fn))
            raise SinkError(f"the sink function {name} failed on epoch {epoch}: {type(bad).__name__}: {bad}") from bad
        self._last = epoch
