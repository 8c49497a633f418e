"""What a scenario is, and how its elements arrive: columns with a moment of arrival, cut into epochs.

**Guarantee.**  The streams are a pure function of size and seed, and valid: no CTI is contradicted, every adjust names
an event that is there.  `Epoch.now` is the moment at which the epoch's last elements arrive, in the application's own
time, so that one can say how late an answer was.  The epochs are equally long; some are empty.

It is no model of a network: delays are drawn element by element, or for a whole site at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

NO_PROMISE: Final = -1
"""Times of the scenarios begin at 0, so this CTI would say nothing."""


@dataclass(frozen=True)
class Arrivals:
    """The inserts and adjusts of one stream, in any order, each with its moment of arrival (`at`)."""

    schema: Schema
    at: np.ndarray
    op: np.ndarray
    vs: np.ndarray
    ve: np.ndarray
    vnew: np.ndarray
    columns: tuple[np.ndarray, ...]

    @classmethod
    def inserts(
        cls, schema: Schema, at: np.ndarray, vs: np.ndarray, ve: np.ndarray, columns: tuple[np.ndarray, ...]
    ) -> Arrivals:
        return cls(schema, at, np.full(len(at), INSERT, np.uint8), vs, ve, np.zeros_like(vs), columns)

    def removals(self, which: np.ndarray, at: np.ndarray) -> Arrivals:
        """The adjusts that take these inserts back."""
        op, vs = np.full(len(which), ADJUST, np.uint8), self.vs[which]
        return Arrivals(self.schema, at, op, vs, self.ve[which], vs, tuple(column[which] for column in self.columns))

    def and_also(self, *others: Arrivals) -> Arrivals:
        parts = (self, *others)
        at, op, vs, ve, vnew = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("at", "op", "vs", "ve", "vnew")
        )
        columns = tuple(np.concatenate(each) for each in zip(*(p.columns for p in parts), strict=True))
        return Arrivals(self.schema, at, op, vs, ve, vnew, columns)

    def in_order(self) -> Arrivals:
        """By arrival; what arrives at one moment stays as it stands."""
        order = np.argsort(self.at, kind="stable")
        at, op, vs, ve, vnew = (getattr(self, name)[order] for name in ("at", "op", "vs", "ve", "vnew"))
        return Arrivals(self.schema, at, op, vs, ve, vnew, tuple(column[order] for column in self.columns))

    @property
    def sync(self) -> np.ndarray:
        """The first instant that each element says something about."""
        found: np.ndarray = np.where(self.op == ADJUST, np.minimum(self.ve, self.vnew), self.vs)
        return found

    def __len__(self) -> int:
        return len(self.at)

    def batch(self, first: int, end: int, cti: int, source: str) -> ElementBatch:
        """The elements from `first` to `end`, and a CTI behind them if there is one."""
        part, more = slice(first, end), [cti] if cti > NO_PROMISE else []
        mask = np.arange(end - first + len(more)) >= end - first
        op, vs, ve, vnew = (
            np.append(array[part], np.array(more, np.int64)) for array in (self.op, self.vs, self.ve, self.vnew)
        )
        if more:
            op[-1] = CTI
        columns = tuple(
            pa.array(np.append(column[part], column[:1].repeat(len(more))), type_, mask=mask)
            for column, type_ in zip(self.columns, self.schema.types, strict=True)
        )
        return ElementBatch(self.schema, op.astype(np.uint8), vs, ve, vnew, columns, source=source)


@dataclass(frozen=True)
class Epoch:
    """What arrives up to a moment."""

    now: int
    batches: Mapping[str, ElementBatch]

    @property
    def elements(self) -> int:
        return sum(int((batch.op <= ADJUST).sum()) for batch in self.batches.values())


PunctuationTable = Callable[[str, Arrivals, np.ndarray], np.ndarray]
"""The CTI of a stream at each of these moments."""


def all_that_holds(name: str, stream: Arrivals, moments: np.ndarray) -> np.ndarray:
    """A source that knows what is still under way promises all that it can."""
    sync = np.append(np.minimum.accumulate(stream.sync[::-1])[::-1], np.iinfo(np.int64).max)
    found: np.ndarray = np.minimum(sync[np.searchsorted(stream.at, moments, side="right")], moments)
    return found


def no_promise(name: str, stream: Arrivals, moments: np.ndarray) -> np.ndarray:
    """A source that cannot know promises nothing."""
    return np.full(len(moments), NO_PROMISE, np.int64)


@dataclass(frozen=True)
class Scenario:
    """A story as streams and a query.

    `text` is the query in SQL, in ticks of `tick`.  `draw` makes the streams of about so many events from a seed;
    `promises` what they promise when.  `disorder` is how late anything can be.  An answer is about what its columns
    `key` say; `amount` is the column that is added up to say how far off an answer is (without it, rows are counted).
    """

    name: str
    story: str
    text: str
    tick: str
    disorder: int
    every: int
    key: tuple[str, ...]
    amount: str | None
    draw: Callable[[int, np.random.Generator], dict[str, Arrivals]]
    promises: PunctuationTable

    def epochs(self, events: int, seed: int = 7, every: int | None = None) -> Iterator[Epoch]:
        """The streams, an epoch every so many ticks."""
        if events < 1:
            raise QueryError(f"the scenario {self.name} has at least one event, not {events}")
        length = self.every if every is None else every
        streams = {name: stream.in_order() for name, stream in self.draw(events, np.random.default_rng([seed])).items()}
        last = max(int(stream.at[-1]) for stream in streams.values() if len(stream))
        moments = np.arange(length, last + length, length)
        cuts = {name: np.searchsorted(s.at, moments, side="right") for name, s in streams.items()}
        promised = {
            name: np.maximum.accumulate(self.promises(name, stream, moments)) for name, stream in streams.items()
        }
        for i, now in enumerate(moments.tolist()):
            yield Epoch(
                now,
                {
                    name: stream.batch(
                        int(cuts[name][i - 1]) if i else 0, int(cuts[name][i]), int(promised[name][i]), name
                    )
                    for name, stream in streams.items()
                },
            )
