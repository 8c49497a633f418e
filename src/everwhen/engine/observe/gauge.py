"""A stream under observation: what it brought within a window of the clock, or of application time.

A window is a ring of panes.  A pane has the sums of what came while the clock, or the largest start, was in it, and
the counters as they were when it began; so a window's numbers are those of its panes, and differences of counters.  It
slides by whole panes: it is at most a sixteenth longer or shorter than was asked for.

A gauge is on an operator only as long as somebody has subscribed to something of it: without one a step costs nothing
more, and with one it costs the loop over its output (`measure.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from everwhen.core.time import NEVER
from everwhen.engine.observe.measure import (
    CHANGES,
    ENDED,
    FIRST,
    GRANULE,
    LAST,
    OPEN,
    STARTS,
    TAKEN,
    Measure,
    measure_apart,
    measure_changes,
)
from everwhen.engine.observe.sample import Sample
from everwhen.errors import QueryError
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.rows.changes import Changes

PANES: Final = 16
_MANY: Final = 512
"""From so many rows on it pays to find out that they have been measured."""


@dataclass(frozen=True, slots=True)
class Window:
    """The last `seconds` of the clock, or the last `ticks` of application time; neither: all since it began.

    >>> Window(seconds=10), Window(ticks=500).pane(0.0, 1000)
    (Window(seconds=10, ticks=None, stream=True), 32)
    """

    seconds: float | None = None
    ticks: int | None = None
    stream: bool = True
    """Whether every change is looked at."""

    def __post_init__(self) -> None:
        if self.seconds is not None and self.ticks is not None:
            raise QueryError("a window of metadata is of the clock (seconds=) or of application time (ticks=)")
        if self.seconds is not None and not self.seconds > 0:
            raise QueryError(f"a window of metadata has some length, not {self.seconds} seconds")
        if self.ticks is not None and self.ticks < 1:
            raise QueryError(f"a window of metadata has some length, not {self.ticks} ticks")

    def pane(self, now: float, tau: int) -> int:
        """The number of the pane that is filled now."""
        if self.seconds is not None:
            return int(now * PANES // self.seconds)
        if self.ticks is not None and tau != NEVER:
            return tau * PANES // self.ticks
        return 0

    def to_plain(self) -> list[float | int | None]:
        """As JSON has it."""
        return [self.seconds, self.ticks, self.stream]


@dataclass(frozen=True, slots=True)
class Counters:
    """What is counted of a stream since it began: rows in and out, late rows, the time that it took."""

    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    seconds: float = 0.0

    def minus(self, other: Counters) -> Counters:
        rows = (self.rows_in - other.rows_in, self.rows_out - other.rows_out, self.late - other.late)
        return Counters(*rows, self.seconds - other.seconds)


@dataclass(slots=True)
class _Pane:
    number: int
    clock: float
    tau: int
    alive: int
    before: Counters
    measure: Measure


class Recording:
    """A stream in one window.  `turns_at`: when its pane is over, by the clock or by application time."""

    def __init__(self, window: Window, now: float) -> None:
        self.window, self.began = window, now
        self.measure = Measure.empty()
        self.by_clock = window.ticks is None
        self.turns_at: float = -math.inf
        self._panes: deque[_Pane] = deque()
        self._alive, self.tau = 0, NEVER

    def turn(self, now: float, tau: int, counted: Counters) -> None:
        """A pane begins, if it does, and those that are over go; `counted` is as it was before what comes now."""
        window, panes = self.window, self._panes
        number = window.pane(now, tau)
        if panes and panes[-1].number == number:
            self.turns_at = self._end(number)
            return
        if panes:
            self._alive += int(panes[-1].measure.counts[OPEN])
        panes.append(_Pane(number, now, self.tau, self._alive, counted, Measure.empty()))
        self.measure, self.turns_at = panes[-1].measure, self._end(number)
        while panes[0].number <= number - PANES:
            panes.popleft()

    def _end(self, number: int) -> float:
        if self.window.seconds is not None:
            return (number + 1) * self.window.seconds / PANES
        return math.inf if self.window.ticks is None else -(-(number + 1) * self.window.ticks // PANES)

    def read(self, now: float, tau: int, counted: Counters) -> Sample:
        """What was measured until now."""
        number = self.window.pane(now, tau)
        kept = [each for each in self._panes if each.number > number - PANES]
        if not kept:
            return Sample(self._elapsed(now, now), tau=tau)
        first, total = kept[0], Measure.empty()
        for each in kept:
            total.merge(each.measure)
        since, counts = counted.minus(first.before), total.counts
        return Sample(
            self._elapsed(now, first.clock), since.rows_in, since.rows_out, int(counts[CHANGES]), int(counts[TAKEN]),
            since.late, since.seconds, int(counts[STARTS]), int(counts[FIRST]), int(counts[LAST]), int(counts[GRANULE]),
            total.lived(first.alive, first.tau, tau), int(counts[ENDED]), tau,
        )  # fmt: skip

    def _elapsed(self, now: float, first: float) -> float:
        if self.window.seconds is None:
            return now - (self.began if self.window.ticks is None else first)
        pane = self.window.seconds / PANES
        return now - max(self.began, (now // pane - (PANES - 1)) * pane)

    def snapshot(self, now: float, counted: Counters) -> dict[str, Any]:
        """As plain data; times are told by how long ago they were, counters by what came since."""
        here = self.window.pane(now, NEVER)
        return {
            "window": self.window.to_plain(), "age": now - self.began, "alive": self._alive, "tau": self.tau,
            "panes": [
                {
                    "number": each.number - here, "age": now - each.clock, "tau": each.tau, "alive": each.alive,
                    "since": _plain(counted.minus(each.before)), **each.measure.snapshot(),
                }
                for each in self._panes
            ],
        }  # fmt: skip

    @classmethod
    def of(cls, state: Mapping[str, Any], now: float, counted: Counters) -> Recording:
        """As it was, now."""
        found = cls(Window(*state["window"]), now - state["age"])
        found._alive, found.tau = state["alive"], state["tau"]
        here = found.window.pane(now, NEVER)
        for each in state["panes"]:
            before = counted.minus(Counters(*each["since"]))
            number, clock = each["number"] + here, now - each["age"]
            found._panes.append(_Pane(number, clock, each["tau"], each["alive"], before, Measure.of(each)))
        if found._panes:
            found.measure = found._panes[-1].measure
        return found


def _plain(counted: Counters) -> list[float | int]:
    return [counted.rows_in, counted.rows_out, counted.late, counted.seconds]


class Gauge:
    """The recordings of a stream, one per window that somebody asked for.  `counters` tells what is counted of it
    anyway; `clock` is read once per epoch by whoever steps (`Ticking`)."""

    def __init__(self, clock: Ticking, counters: Callable[[], Counters]) -> None:
        self._clock, self.counters = clock, counters
        self.recordings: dict[Window, Recording] = {}
        self._each: list[Recording] = []

    def take(self, given: Changes, tau: int) -> None:
        """Count a batch of changes, before the counters do."""
        lo, now = given.lo, self._clock.now
        for each in self._each:
            if (now if each.by_clock else tau) >= each.turns_at:
                each.turn(now, tau, self.counters())
            each.tau = tau
            if len(lo) and each.window.stream:
                measure = each.measure
                if len(lo) < _MANY:
                    measure_changes(lo, given.hi, given.weight, measure.counts, measure.sums)
                else:
                    self._clock.measure(given, measure)

    def take_elements(self, given: CheckedBatch, tau: int) -> None:
        """Count a batch of elements, before the counters do."""
        now = self._clock.now
        for each in self._each:
            if (now if each.by_clock else tau) >= each.turns_at:
                each.turn(now, tau, self.counters())
            each.tau = tau
            if len(given.op) and each.window.stream:
                each.measure.add(given)

    def open(self, window: Window, tau: int) -> None:
        """Measure in a window from now on; the present is `tau`."""
        if window not in self.recordings:
            made = self.recordings[window] = Recording(window, self._clock.now)
            if window.ticks is None or tau != NEVER:
                made.turn(self._clock.now, tau, self.counters())
        self._each = list(self.recordings.values())

    def close(self, window: Window) -> None:
        """Measure in a window no more."""
        self.recordings.pop(window, None)
        self._each = list(self.recordings.values())

    def read(self, window: Window, tau: int) -> Sample:
        """What was measured in a window until now; the present is `tau`."""
        return self.recordings[window].read(self._clock.now, tau, self.counters())

    def snapshot(self) -> list[dict[str, Any]]:
        counted = self.counters()
        return [each.snapshot(self._clock.now, counted) for each in self.recordings.values()]

    def recall(self, window: Window, state: Any) -> None:
        """Have what was measured in a window before, as a snapshot tells it."""
        for part in state or ():
            if Window(*part["window"]) == window and window not in self.recordings:
                self.recordings[window] = Recording.of(part, self._clock.now, self.counters())


class Ticking:
    """The time of an epoch: a clock is read when an epoch begins, and all gauges have the same."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.now = clock, clock()
        self._last: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self._alone = Measure.empty()

    def measure(self, given: Changes, into: Measure) -> None:
        """Count a large batch.  Maps and selections hand its times on as they are: then it is measured once."""
        lo, hi, weight, alone = given.lo, given.hi, given.weight, self._alone
        if (last := self._last) is not None and last[0] is lo and last[1] is hi and last[2] is weight:
            into.merge(alone)
            return
        self._last = lo, hi, weight
        measure_apart(lo, hi, weight, alone.counts, alone.sums, into.counts, into.sums)

    def tick(self) -> float:
        self.now, self._last = self.clock(), None
        return self.now
