"""Metadata by publish and subscribe (Krämer, 13.4.1): operators and inputs are found by name, and what nobody asks for
is not computed.

    metadata = runtime.metadata("out")             operators and inputs of a query, and what can be asked of them
    wanted = metadata.subscribe("selectivity", "lag", of="2 aggregate", seconds=10, every=1, then=print)
    wanted.read()                                  {"2 aggregate": {"selectivity": 0.25, "lag": 3}}
    wanted.cancel()

Subscriptions of equal windows share what is measured.  What was measured is part of a snapshot; whoever subscribes to
the same window after a restore goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everwhen.engine.observe.analyze import Observed
from everwhen.engine.observe.gauge import Ticking, Window
from everwhen.engine.observe.sample import ITEMS, Item, Sample, Value, items_named
from everwhen.engine.observe.subjects import Subject, sample
from everwhen.errors import QueryError

Values = Mapping[str, Mapping[str, Value]]
Scope = Callable[[], Sequence[Subject]]


@dataclass(frozen=True)
class Published:
    """What subscribers are told: the time of the clock, and the items of each operator and input by name."""

    at: float
    values: Values


@dataclass(eq=False)
class Subscription:
    """Items that are measured until `cancel`; it can be used in a `with` statement.

    `error`: what a subscriber raised when it was told something.  It is told nothing more then.
    """

    items: tuple[Item, ...]
    window: Window
    _scope: Scope
    _observer: Observer
    of: frozenset[str] = frozenset()
    every: float = 0.0
    then: Callable[[Published], None] | None = None
    error: Exception | None = None
    told: float = field(default=0.0, repr=False)

    def subjects(self) -> list[Subject]:
        """The operators and inputs that it is about, as they run now."""
        return [each for each in self._scope() if not self.of or each.name in self.of]

    def samples(self) -> dict[str, Sample]:
        """What was measured, before items are made of it."""
        self._observer.clock.tick()
        self._observer.attend(self)
        return {each.name: sample(each, self.window, self.items) for each in self.subjects()}

    def observed(self, elapsed: float | None = None) -> tuple[Observed, ...]:
        """All that was measured, of each; with `elapsed`, rows and time since it began, so many seconds ago."""
        samples, found = self.samples(), []
        for each in self.subjects():
            mine, counted = samples[each.name], each.counted()
            if elapsed is not None:
                since = mine if counted is None else replace(
                    mine, rows_in=counted.rows_in, rows_out=counted.rows_out, seconds=counted.seconds
                )  # fmt: skip
                mine = replace(since, elapsed=elapsed)
            found.append(Observed(each.name, each.kind, each.reads, mine, each.keeps))
        return tuple(found)

    def read(self) -> dict[str, dict[str, Value]]:
        """The items of each operator and input, now."""
        return {name: {item.name: item.value(each) for item in self.items} for name, each in self.samples().items()}

    def cancel(self) -> None:
        """Measure no more."""
        self._observer.dismiss(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class Observer:
    """The subscriptions of a runtime; `everything`: all that runs in it now."""

    def __init__(self, clock: Callable[[], float], everything: Scope) -> None:
        self.clock, self._everything = Ticking(clock), everything
        self.subscriptions: list[Subscription] = []

    def attend(self, wanted: Subscription) -> None:
        """Measure what is asked for, also of operators that have come since."""
        if wanted not in self.subscriptions:
            return
        for each in wanted.subjects():
            if each.gauge is None or wanted.window not in each.gauge.recordings:
                each.open(wanted.window, self.clock)

    def add(self, wanted: Subscription) -> None:
        self.clock.tick()
        wanted.told = self.clock.now
        self.subscriptions.append(wanted)
        self.attend(wanted)

    def dismiss(self, wanted: Subscription) -> None:
        """What nobody else asks for is not measured any more."""
        if wanted not in self.subscriptions:
            return
        self.subscriptions.remove(wanted)
        asked: dict[str | int, set[Window]] = {}
        for other in self.subscriptions:
            for each in other.subjects():
                asked.setdefault(each.key, set()).add(other.window)
        for each in self._everything():
            each.close(asked.get(each.key, set()))

    def begin(self) -> None:
        """An epoch begins."""
        if self.subscriptions:
            self.clock.tick()

    def publish(self) -> None:
        """An epoch is over: tell those who want to be told and have waited long enough."""
        for wanted in [each for each in self.subscriptions if each.then is not None]:
            if self.clock.now - wanted.told >= wanted.every and wanted.then is not None:
                wanted.told = self.clock.now
                try:
                    wanted.then(Published(self.clock.now, wanted.read()))
                except Exception as bad:  # whatever it is: the query goes on
                    wanted.error = bad
                    self.dismiss(wanted)


@dataclass(frozen=True)
class Metadata:
    """The operators and inputs of a query, and what can be asked of them.

    >>> import everwhen as ew
    >>> from everwhen.engine.local import LocalRuntime
    >>> s = ew.source("S", {"x": "int64"})
    >>> runtime = LocalRuntime(s.where(ew.col("x") > 1))
    >>> metadata = runtime.metadata("out")
    >>> metadata.names
    ('S', '0 filter')
    >>> wanted = metadata.subscribe("selectivity", "distance", of="0 filter")
    >>> rows = [ew.Insert(t, t + 4, {"x": t}) for t in range(4)]
    >>> _ = runtime.push({"S": ew.ElementBatch.of(rows, s.schema)})
    >>> wanted.read()
    {'0 filter': {'selectivity': 0.5, 'distance': 1.0}}
    """

    _observer: Observer
    _scope: Scope

    @property
    def names(self) -> tuple[str, ...]:
        """Inputs first, then operators, each after what it reads."""
        return tuple(each.name for each in self._scope())

    @property
    def items(self) -> tuple[str, ...]:
        """What can be subscribed to."""
        return tuple(ITEMS)

    def subscribe(
        self,
        *items: str,
        of: str | Sequence[str] = (),
        seconds: float | None = None,
        ticks: int | None = None,
        every: float = 1.0,
        then: Callable[[Published], None] | None = None,
    ) -> Subscription:
        """Measure items (all, if none is named) of operators and inputs (all, if none is named) from now on.

        `seconds`, `ticks`: in a window of so much of the clock, or of application time; without, since now.  `then` is
        called after an epoch, if at least `every` seconds have passed since it was called last.
        """
        chosen, names, window = asked_for(items, of, self.names, seconds, ticks)
        found = Subscription(chosen, window, self._scope, self._observer, names, every, then)
        self._observer.add(found)
        return found


def asked_for(
    items: Sequence[str], of: str | Sequence[str], there: Sequence[str], seconds: float | None, ticks: int | None
) -> tuple[tuple[Item, ...], frozenset[str], Window]:
    """What a subscription measures, of which operators and inputs among those that are there, in which window."""
    chosen, names = items_named(items), frozenset([of] if isinstance(of, str) else of)
    if unknown := sorted(names - set(there)):
        raise QueryError(f"there is no operator or input {unknown[0]!r}; there is {', '.join(there)}")
    return chosen, names, Window(seconds, ticks, any(item.stream for item in chosen))
