"""The story of single results, in words: said, corrected later, made final.

A correction changes what was answered for an instant that had been answered before.  Of these one at a time is
followed: which row held at that instant when it was first answered, which one holds since, and when a promise made it
final.
Times are those of the stream.  Only some corrections of an epoch are looked at, so that a busy query costs no more than
a quiet one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from everwhen.core.time import NEVER
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

_LOOKED_AT: Final = 20
"""So many corrections of an epoch are tried at most: some are taken back without anything in their place."""
_DWELL: Final = 3.0
"""So many seconds a story that is over stands alone, before the next one begins."""
_EPOCHS: Final = 64
"""An answer that was said longer ago is not looked for."""


@dataclass(frozen=True, slots=True)
class Plot:
    """How the results of a query are told: `first` and `then` are forms of sentences with the names of columns and
    `at`, the instant; rows that agree on the first `key_count` columns stand for each other."""

    first: str
    then: str
    columns: tuple[str, ...]
    key_count: int

    @property
    def keys(self) -> tuple[str, ...]:
        return self.columns[: self.key_count]


PLOTS: Final[Mapping[str, Plot]] = {
    "q5": Plot("item {itemID} closed at {at} for {price}", "to {price}", ("itemID", "sellerID", "price"), 2),
    "q4": Plot(
        "item {itemID} led at {at} with {bid_price}", "to item {itemID} with {bid_price}", ("itemID", "bid_price"), 0
    ),
}


@dataclass(frozen=True, slots=True)
class Story:
    """A result for the instant `at`: when it was said, and when it was corrected and made final, if it was."""

    query: str
    at: int
    said: Mapping[str, Any]
    said_at: int
    corrected: Mapping[str, Any]
    corrected_at: int
    final_at: int | None = None

    def told(self) -> tuple[str, str, str]:
        """Three parts of a sentence: what was said, how it was corrected, whether it is final.

        >>> Story("q5", 73_000, {"itemID": 5550, "price": 5700.8}, 73_100, {"price": 5912.1}, 73_500, 74_600).told()
        ('q5: item 5550 closed at 1:13.0 for 5,700.80', 'corrected 0.4 s later to 5,912.10', 'final 1.1 s after that')
        """
        plot = PLOTS[self.query]
        first = plot.first.format_map({**_words(self.said), "at": clock(self.at)})
        then = plot.then.format_map(_words(self.corrected))
        final = "not final yet"
        if self.final_at is not None:
            later = _later(self.corrected_at, self.final_at)
            final = "final at once" if self.final_at <= self.corrected_at else f"final {later} after that"
        return f"{self.query}: {first}", f"corrected {_later(self.said_at, self.corrected_at)} later {then}", final


def clock(time: int) -> str:
    """An instant in minutes, seconds and tenths.

    >>> clock(73_040), clock(3_723_400)
    ('1:13.0', '1:02:03.4')
    """
    tenths = time // 100
    minutes, hours = tenths // 600, tenths // 36_000
    seconds = f"{tenths // 10 % 60:02}.{tenths % 10}"
    return f"{hours}:{minutes % 60:02}:{seconds}" if hours else f"{minutes}:{seconds}"


def _later(since: int, until: int) -> str:
    return f"{max(until - since, 0) / 1000:.1f} s"


def _words(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{value:,.2f}" if isinstance(value, float) else str(value) for name, value in row.items()}


@dataclass
class Storyteller:
    """Follows one result after the other, so slowly that people can read; `stories` has those told to the end, the
    newest first.

    >>> Storyteller().told()
    ()
    """

    clock: Callable[[], float] = time.monotonic
    current: Story | None = None
    stories: deque[Story] = field(default_factory=lambda: deque(maxlen=2))
    _due: float = 0.0
    _past: dict[str, deque[tuple[int, ElementBatch]]] = field(default_factory=dict)

    def told(self) -> tuple[Story, ...]:
        """What is to be read: the result that is followed, then those before it."""
        return (*(() if self.current is None else (self.current,)), *self.stories)

    def take(self, name: str, batch: ElementBatch, before: int, now: int) -> None:
        """One epoch's output of a query; `before` and `now` are the latest instants before and after it."""
        if name not in PLOTS or batch.schema.names != PLOTS[name].columns:
            return
        past = self._past.setdefault(name, deque(maxlen=_EPOCHS))
        if self.current is None and before > NEVER and self.clock() >= self._due:
            self.current = self._begun(name, batch, before, now)
        elif self.current is not None and self.current.query == name:
            self.current = self._corrected(self.current, batch, now)
        if self.current is not None and self.current.query == name:
            self._finish(self.current, batch, now)
        past.append((now, batch))

    @staticmethod
    def _corrected(story: Story, batch: ElementBatch, now: int) -> Story | None:
        """The story after an epoch, which may have put another row in the place of the last one, or nothing at all."""
        gone = (batch.op == ADJUST) & (batch.vs <= story.at) & (batch.ve > story.at) & (batch.vnew <= story.at)
        keys = PLOTS[story.query].keys
        if any(_same(_row(batch, i), story.corrected, keys) for i in np.flatnonzero(gone).tolist()):
            instead = _holding(batch, story.at, story.corrected, keys)
            return None if instead is None else replace(story, corrected=instead, corrected_at=now)
        return story

    def _finish(self, story: Story, batch: ElementBatch, now: int) -> None:
        """A promise beyond the instant makes the result final."""
        promises = batch.vs[batch.op == CTI]
        if len(promises) and promises.max() > story.at:
            self.stories.appendleft(replace(story, final_at=now))
            self.current = None
            self._due = self.clock() + _DWELL

    def _begun(self, name: str, batch: ElementBatch, before: int, now: int) -> Story | None:
        """The first correction of an epoch that can be told."""
        keys = PLOTS[name].keys
        sync = np.minimum(batch.ve, batch.vnew)
        corrections = np.flatnonzero((batch.op == ADJUST) & (batch.vnew < batch.ve) & (sync <= before))
        for i in corrections[-_LOOKED_AT:].tolist():
            at, old = int(sync[i]), _row(batch, i)
            new = _holding(batch, at, old, keys)
            if new is None or new == old:
                continue
            said_at = next((then for then, said in self._past[name] if _was_said(said, at, old)), None)
            if said_at is not None and said_at < now:
                return Story(name, at, old, said_at, new, now)
        return None


def _row(batch: ElementBatch, i: int) -> dict[str, Any]:
    return {name: column[i].as_py() for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def _same(a: Mapping[str, Any], b: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    return all(a[key] == b[key] for key in keys)


def _holding(batch: ElementBatch, at: int, like: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The row that an epoch puts in the place of another one at an instant."""
    holds = np.flatnonzero((batch.op == INSERT) & (batch.vs <= at) & (batch.ve > at))
    return next((row for row in (_row(batch, i) for i in holds.tolist()) if _same(row, like, keys)), None)


def _was_said(batch: ElementBatch, at: int, row: Mapping[str, Any]) -> bool:
    holds = np.flatnonzero((batch.op == INSERT) & (batch.vs <= at) & (batch.ve > at))
    return any(_row(batch, i) == row for i in holds.tolist())
