"""Operators that are linear in segments: what they do to a sum of segments is the sum of what they do to each.

They keep nothing, so a correction is treated like any other segment.  Filter, map and union leave lifetimes alone;
windows, granularity and AlterLifetime map them, and map promises in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.expressions.build import Expr
from everwhen.compiled.njit import loop, njit
from everwhen.core.punctuation import Frontier
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.errors import QueryError, TimeRangeError
from everwhen.operators.contract import Operator, Output, lowest
from everwhen.punctuation.api import Intersection, make_frontier, moved
from everwhen.rows.changes import Changes, concat
from everwhen.rows.codec import RowCodec

MOST_LEVELS = 20_000_000
"""A window over long lifetimes has a level per instant; beyond so many per step it is surely not meant."""
MOST_PIECES = 1_000_000
"""The same for one lifetime that is cut into pieces."""
_INF: Final = np.int64(INF)
_SHORT: Final = 1 << 40
"""Slides up to this can be added to any time a few times."""


def within_time(lo: np.ndarray, hi: np.ndarray, what: str) -> None:
    """TimeRangeError if a start or a finite end is beyond the largest time."""
    if len(lo) and (lo.max() > MAX_TIME or hi[hi != INF].max(initial=MIN_TIME) > MAX_TIME):
        raise TimeRangeError(f"{what} reaches beyond the largest time, {MAX_TIME}")


def evaluate(expr: Expr, codec: RowCodec, rows: np.ndarray) -> pa.Array:
    """An expression over coded rows, as an Arrow array; only the columns it reads are decoded."""
    columns = {name: codec.column(rows, codec.schema.index(name)) for name in expr.columns()}
    return expr.evaluate(columns, len(rows))


class FilterOperator(Operator):
    """Segments whose row makes the predicate true."""

    def __init__(self, predicate: Expr, codec: RowCodec) -> None:
        self.codec = codec
        self._predicate = predicate

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        if len(batch):
            verdict = evaluate(self._predicate, self.codec, batch.rows)
            if verdict.null_count:
                verdict = verdict.fill_null(False)
            batch = batch.take(verdict.to_numpy(zero_copy_only=False))
        return Output(batch, frontiers[0])


class UnionOperator(Operator):
    """The sum of both inputs; `sign` -1 subtracts the second (inside anti- and outer joins).

    `second` has the second input's names, where they are others.
    """

    ports = 2

    def __init__(self, codec: RowCodec, sign: int = 1, second: Schema | None = None) -> None:
        self.codec = codec
        self._sign = sign
        self._meeting = Intersection(codec.schema, second)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        first, second = inputs
        if self._sign < 0:
            second = second.negated()
        frontier = make_frontier(lowest(frontiers), self._meeting.intersect(frontiers))
        return Output(replace(concat(first, second), codec=self.codec), frontier)

    def snapshot(self) -> dict[str, Any]:
        return {"promises": self._meeting.snapshot()} if len(self._meeting) else {}

    def restore(self, state: dict[str, Any]) -> None:
        if state:
            self._meeting.restore(state["promises"])


def rounded_up(t: np.ndarray, granule: int) -> np.ndarray:
    """The next multiple of the granule at or after `t`; infinity stays."""
    return np.where(t == INF, INF, -(-t // granule) * granule)


def rounded_up_time(t: int, granule: int, offset: int) -> int:
    """The next instant at or after `t` that is `offset` beyond a multiple of the granule; infinity stays."""
    return t if t in (INF, NEVER) else -((offset - t) // granule) * granule + offset


def least_rounded_up(t: int, granule: int, offset: int) -> int:
    """The least time that is rounded up to `t` or later.

    >>> least_rounded_up(8, 5, 0), least_rounded_up(10, 5, 0), least_rounded_up(11, 5, 0)
    (6, 6, 11)
    """
    return t if t in (INF, NEVER) else rounded_up_time(t, granule, offset) - granule + 1


class TimeWindowOperator(Operator):
    """RANGE w [SLIDE a]: each instant of a lifetime lives on for w; then sampled once per slide.

    A lifetime of n instants gives min(w, n) levels `[vs+k-1, ve+w-k)` (semantics, 6), one for a chronon.
    """

    def __init__(self, size: int, slide: int, codec: RowCodec) -> None:
        self.codec = codec
        self._size = size
        self._slide = slide

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        if len(batch):
            batch = self._windowed(batch)
        frontier = frontiers[0]
        if frontier.promises:
            return Output(batch, moved(frontier, lambda t: rounded_up_time(t, self._slide, -1)))
        return Output(batch, Frontier(rounded_up_time(frontier.time, self._slide, -1)))

    def needs(self, t: int) -> tuple[int, ...]:
        return (least_rounded_up(t, self._slide, -1),)

    def exact_from(self, since: int) -> int:
        """The window at t holds the `size` instants before the next but one multiple of the slide: all are known."""
        return INF if self._size == INF else rounded_up_time(since + self._size, self._slide, 0) - 1

    def _windowed(self, batch: Changes) -> Changes:
        w = self._size
        lo, hi = np.empty((2, len(batch)), np.int64)
        n, longest, last = windowed(batch.lo, batch.hi, w, self._slide, lo, hi)
        if longest > 1 and w > 1:
            batch = self._levels(batch)
            lo, hi = np.empty((2, len(batch)), np.int64)
            n, _, last = windowed(batch.lo, batch.hi, w, self._slide, lo, hi)
        if last > MAX_TIME:
            raise TimeRangeError(f"a window of {w} ticks moves an end beyond the largest time, {MAX_TIME}")
        if self._slide > 1 and (last > MAX_TIME - self._slide or batch.lo.max(initial=0) > MAX_TIME - self._slide):
            within_time(lo, hi, f"an end or a start that a slide of {self._slide} ticks rounds up")
        if n < len(lo):
            keep = lo < hi
            return Changes(self.codec, lo[keep], hi[keep], batch.weight[keep], batch.rows[keep])
        return Changes(self.codec, lo, hi, batch.weight, batch.rows)

    def _levels(self, batch: Changes) -> Changes:
        """Level k of a lifetime, without the window: `[vs+k-1, ve-k+1)`."""
        levels = np.minimum(np.where(batch.hi == INF, INF, batch.hi - batch.lo), self._size)
        total = float("inf") if (levels == INF).any() else int(levels.astype(np.float64).sum())
        if total > MOST_LEVELS:
            if self._size == INF and (batch.hi == INF).any():
                raise QueryError(
                    "an unbounded window over rows that never end: they stay without a window; leave the window out"
                )
            raise QueryError(
                f"a window over lifetimes counts every instant of them: this batch would need {total:.3g} levels. "
                "Put .istream() before the window to count each event once, or use .lifetime(length=…) on a source"
            )
        at = np.repeat(np.arange(len(levels)), levels)
        k = np.arange(len(at)) - np.repeat(np.cumsum(levels) - levels, levels)
        batch = batch.take(at)
        hi = np.where(batch.hi == INF, INF, batch.hi - k)
        return Changes(self.codec, batch.lo + k, hi, batch.weight, batch.rows)


@njit(cache=True, inline="always")
def _rounded_up(t: Any, slide: Any) -> Any:
    """The next instant at or after `t` that is one before a multiple of the slide."""
    return -((-1 - t) // slide) * slide - 1


@loop
def windowed(lo: Any, hi: Any, size: Any, slide: Any, starts: Any, ends: Any) -> Any:
    """Each lifetime `size - 1` longer, then both ends rounded up to the next instant that is one before a multiple of
    the slide: into `starts` and `ends`.

    Returns how many are not empty, the longest lifetime given, and the largest finite end before rounding.
    """
    longest: Any = np.int64(0)
    last: Any = np.int64(0)
    more = _INF if size == _INF else np.int64(size - 1)
    for i in range(len(lo)):
        a = lo[i]
        b = hi[i]
        longest = max(longest, _INF if b == _INF else b - a)
        b = _INF if b == _INF or more == _INF else b + more
        last = max(last, 0 if b == _INF else b)
        starts[i] = a
        ends[i] = b
    if slide > 1:
        _round_up(starts, slide)
        _round_up(ends, slide)
    left = np.int64(0)
    for i in range(len(lo)):
        left += np.int64(starts[i] < ends[i])
    return left, longest, last


@njit(cache=True, inline="always")
def _round_up(times: Any, slide: Any) -> None:
    """Round finite times up in place.  A division is dear: if the times of a batch are rounded to a few instants, the
    borders that each has passed are counted, else it is seen whether it is rounded as the one before."""
    least = _INF
    most = -_INF
    for i in range(len(times)):
        t = times[i]
        least = min(least, t)
        most = max(most, -_INF if t == _INF else t)
    up = _rounded_up(least, slide) if least < _INF else _INF
    if slide <= _SHORT and most <= up + 4 * slide:
        for i in range(len(times)):
            t = times[i]
            passed = np.int64(t > up) + np.int64(t > up + slide)
            passed += np.int64(t > up + 2 * slide) + np.int64(t > up + 3 * slide)
            times[i] = _INF if t == _INF else up + slide * passed
        return
    for i in range(len(times)):
        t = times[i]
        if t != _INF:
            if t > up or t <= up - slide:
                up = _rounded_up(t, slide)
            times[i] = up


class GranularityOperator(Operator):
    """Γ: both ends rounded up to a multiple of the granule (thesis, Algorithm 24); the empty vanish."""

    def __init__(self, granule: int, codec: RowCodec) -> None:
        self.codec = codec
        self._granule = granule

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        lo, hi = rounded_up(batch.lo, self._granule), rounded_up(batch.hi, self._granule)
        within_time(lo, hi, f"an end or a start that a granularity of {self._granule} ticks rounds up")
        keep = lo < hi
        out = Changes(self.codec, lo[keep], hi[keep], batch.weight[keep], batch.rows[keep])
        return Output(out, moved(frontiers[0], lambda t: rounded_up_time(t, self._granule, 0)))

    def needs(self, t: int) -> tuple[int, ...]:
        return (least_rounded_up(t, self._granule, 0),)

    def exact_from(self, since: int) -> int:
        return rounded_up_time(since, self._granule, 0)


class ShiftOperator(Operator):
    """The whole stream `by` ticks later: yesterday's snapshot beside today's (for Istream and Dstream)."""

    def __init__(self, by: int, codec: RowCodec) -> None:
        self.codec = codec
        self._by = by

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        lo = batch.lo + self._by
        hi = np.where(batch.hi == INF, INF, batch.hi + self._by)
        out = Changes(self.codec, lo, hi, batch.weight, batch.rows)
        return Output(out, moved(frontiers[0], lambda t: t if t in (INF, NEVER) else t + self._by))

    def needs(self, t: int) -> tuple[int, ...]:
        return (t if t in (INF, NEVER) else t - self._by,)

    def exact_from(self, since: int) -> int:
        return since + self._by


class ChopOperator(Operator):
    """Pieces of at most `length`, anchored at the segment's start.  Lifetimes must be finite.

    One lifetime may give at most `most` pieces in a step.
    """

    def __init__(self, length: int, codec: RowCodec, most: int = MOST_PIECES) -> None:
        self.codec = codec
        self._length = length
        self._most = most

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        if len(batch):
            if (batch.hi == INF).any():
                raise QueryError(
                    "an infinite lifetime cannot be cut into pieces; end it first: LIFETIME(LENGTH 1 HOUR), in Python "
                    ".lifetime(length='1 hour')"
                )
            n = -((batch.lo - batch.hi) // self._length)
            if (n > 1).any():
                longest, total = int(n.max()), n.astype(np.float64).sum()
                if longest > self._most or total > MOST_LEVELS:
                    many = f"{longest:.3g} of one lifetime" if longest > self._most else f"{total:.3g} in one step"
                    raise QueryError(
                        f"lifetimes cut into pieces of {self._length} {'tick' if self._length == 1 else 'ticks'} would "
                        f"be {many}; at most {self._most:,} of one and {MOST_LEVELS:,} in a step are made. Cut into "
                        "longer pieces, or make time coarser first: GRANULARITY(1 MINUTE), in Python "
                        ".granularity('1 minute')"
                    )
                at = np.repeat(np.arange(len(n)), n)
                k = np.arange(len(at)) - np.repeat(np.cumsum(n) - n, n)
                lo = batch.lo[at] + k * self._length
                hi = np.minimum(lo + self._length, batch.hi[at])
                batch = Changes(self.codec, lo, hi, batch.weight[at], batch.rows[at])
        return Output(batch, frontiers[0])


class AlterLifetimeOperator(Operator):
    """Π on events (event form in, event form out): see `everwhen.algebra.nodes.AlterLifetime`."""

    def __init__(self, hop: int, shift: int, length: int | None, codec: RowCodec, *, pieces: bool = False) -> None:
        """`pieces`: the events are those of lifetimes that are cut from their starts on (`coalesce(longest)`)."""
        self.codec = codec
        self._pieces = pieces
        self._hop = hop
        self._shift = shift
        self._length = length

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        lo = batch.lo // self._hop * self._hop + self._shift
        if self._length is None:
            hi = np.where(batch.hi == INF, INF, batch.hi + self._shift)
        elif self._length == INF:
            hi = np.full(len(lo), INF, np.int64)
        else:
            hi = lo + self._length
        finite = hi[hi != INF]
        if len(lo) and (lo.max() > MAX_TIME or lo.min() < MIN_TIME or (len(finite) and finite.max() > MAX_TIME)):
            raise TimeRangeError(f"a new lifetime reaches beyond the largest time, {MAX_TIME}, or before its negative")
        frontier = moved(frontiers[0], lambda t: t if t in (INF, NEVER) else t // self._hop * self._hop + self._shift)
        return Output(Changes(self.codec, lo, hi, batch.weight, batch.rows), frontier)

    def needs(self, t: int) -> tuple[int, ...]:
        return (t if t in (INF, NEVER) else rounded_up_time(t - self._shift, self._hop, 0),)

    def exact_from(self, since: int) -> int:
        """Events that began before `since` are missing, or begin there: what comes of them must be over.

        Where a lifetime is cut into pieces from its start on, all pieces depend on a start that is not known.
        """
        if self._pieces and (self._length is not None or self._hop > 1):
            return INF
        if self._length is None:
            return since + self._shift
        return INF if self._length == INF else since // self._hop * self._hop + self._shift + self._length


class DeletesOperator(Operator):
    """Every event's end, from then on for ever (event form)."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        ended = batch.take(batch.hi != INF)
        out = Changes(self.codec, ended.hi, np.full(len(ended), INF, np.int64), ended.weight, ended.rows)
        return Output(out, frontiers[0])

    def exact_from(self, since: int) -> int:
        return INF  # what ended before counts for ever
