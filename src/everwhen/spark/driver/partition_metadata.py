"""Metadata of a query on Spark: what the partitions note, per partition and in sum, to subscribe to.

    wanted = handle.metadata().subscribe("rate_in", "state_rows", seconds=30)
    wanted.read()         {"1: 0 window": {"rate_in": 5120.0, …}}     the sum over all partitions
    wanted.partitions()   {"1: 0 window": [{…}, {…}]}                 of each
    wanted.skew()         {"1: 0 window": 1.3}                        the largest partition's rows through the mean

Which windows are measured is told to the tasks of the next epoch, and ends with the last subscription.  A stream that
is copied to all partitions counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from everwhen.core.emit import Emit
from everwhen.engine.observe.analyze import Observed
from everwhen.engine.observe.gauge import Window
from everwhen.engine.observe.observer import Published, asked_for
from everwhen.engine.observe.sample import ITEMS, Item, Sample, Value, together
from everwhen.plan.stages.model import StagePlan
from everwhen.spark.exchange.messages import TaskNote
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.partition_gauges import stream_label

Parts = dict[str, dict[int, Sample]]
"""By name and partition."""


@dataclass(eq=False)
class PartitionSubscription:
    """Items that the partitions measure, from the next epoch on, until `cancel`."""

    items: tuple[Item, ...]
    window: Window
    of: frozenset[str]
    _observer: PartitionObserver
    every: float = 0.0
    then: Callable[[Published], None] | None = None
    error: Exception | None = None
    told: float = field(default=0.0, repr=False)

    def samples(self) -> dict[str, list[Sample]]:
        """What each partition has measured, after the last epoch; nothing before the first one."""
        parts = self._observer.parts.get(self.window, {})
        return {
            name: [each for _, each in sorted(parts.get(name, {}).items())]
            for name in self._observer.names
            if (not self.of or name in self.of) and name in parts
        }

    def read(self) -> dict[str, dict[str, Value]]:
        """The items of each operator and input, over all partitions."""
        whole = {name: together(parts) for name, parts in self.samples().items()}
        return {name: {item.name: item.value(each) for item in self.items} for name, each in whole.items()}

    def partitions(self) -> dict[str, list[dict[str, Value]]]:
        """The items of each partition."""
        return {
            name: [{item.name: item.value(each) for item in self.items} for each in parts]
            for name, parts in self.samples().items()
        }

    def skew(self) -> dict[str, float]:
        """How many times the mean the partition with the most rows has got; what got none is left out."""
        return {name: found for name, parts in self.samples().items() if (found := _skew(parts)) is not None}

    def observed(self) -> tuple[Observed, ...]:
        """All that was measured, for ANALYZE."""
        samples, found = self.samples(), []
        for name, reads, keeps in self._observer.described:
            if name in samples:
                kind, parts = ("operator" if reads else "input"), samples[name]
                found.append(Observed(name, kind, reads, together(parts), keeps, _skew(parts) if reads else None))
        return tuple(found)

    def cancel(self) -> None:
        """Measure no more."""
        self._observer.subscriptions = [each for each in self._observer.subscriptions if each is not self]

    def __enter__(self) -> PartitionSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


def _skew(parts: Sequence[Sample]) -> float | None:
    rows = [each.rows_in for each in parts]
    return max(rows) * len(rows) / sum(rows) if sum(rows) else None


class PartitionObserver:
    """The subscriptions of a query, and what its partitions told last."""

    def __init__(self, plan: StagePlan, emit: Emit, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.subscriptions: list[PartitionSubscription] = []
        self.parts: dict[Window, Parts] = {}
        self.analyzed: PartitionSubscription | None = None
        """That of ANALYZE, once it was asked for."""
        self.described = list(_described(plan, emit))
        self.names = tuple(name for name, _, _ in self.described)
        self._copied = {stream_label(s) for stage in plan.stages for s in stage.inputs if s.by is None}

    @property
    def windows(self) -> tuple[Window, ...]:
        """What the next epoch measures."""
        return tuple(dict.fromkeys(each.window for each in self.subscriptions))

    def note(self, notes: Iterable[TaskNote], windows: tuple[Window, ...]) -> None:
        """What partitions tell of an epoch in which they measured in these windows."""
        self.parts = {window: {} for window in windows}
        for note in notes:
            for window, told in zip(windows, note.measured, strict=False):
                for name, plain in told.items():
                    at = 0 if name in self._copied else note.partition
                    self.parts[window].setdefault(name, {})[at] = Sample(**plain)
        now = self._clock()
        for each in self.subscriptions:
            if each.then is not None and now - each.told >= each.every and each.window in self.parts:
                each.told = now
                try:
                    each.then(Published(now, each.read()))
                except Exception as bad:  # whatever it is: the query goes on
                    each.error = bad
                    each.cancel()

    def subscribe(
        self,
        *items: str,
        of: str | Sequence[str] = (),
        seconds: float | None = None,
        ticks: int | None = None,
        every: float = 1.0,
        then: Callable[[Published], None] | None = None,
    ) -> PartitionSubscription:
        """Measure items (all, if none is named) of operators and inputs (all, if none is named) from the next epoch on;
        as `Metadata.subscribe`."""
        chosen, names, window = asked_for(items, of, self.names, seconds, ticks)
        found = PartitionSubscription(chosen, window, names, self, every, then, told=self._clock())
        self.subscriptions.append(found)
        return found

    def take_over(self, other: PartitionObserver) -> None:
        """Go on with the subscriptions of a query that is started again."""
        for each in other.subscriptions:
            each._observer = self
        self.subscriptions, self.analyzed = [*self.subscriptions, *other.subscriptions], other.analyzed

    @property
    def items(self) -> tuple[str, ...]:
        """What can be subscribed to."""
        return tuple(ITEMS)


def _described(plan: StagePlan, emit: Emit) -> Iterable[tuple[str, tuple[str, ...], str]]:
    """Names, what they read, what they keep: inputs first, then operators stage by stage."""
    inputs = dict.fromkeys(stream_label(stream) for stage in plan.stages for stream in stage.inputs)
    yield from ((name, (), "events that may still be corrected") for name in inputs)
    for stage in plan.stages:
        for each in StagePartition(stage, emit).gauges.operators:
            yield each.name, each.reads, each.keeps
