"""The parts of a table of promises: constants of a column, its ranges, promises over several columns, with their times.

They are put together, cut by time and put into words here; what they mean together is in `promises`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.scalars import python_values
from everwhen.core.time import NEVER
from everwhen.punctuation.columns.boxes import Entries, Shape
from everwhen.punctuation.columns.column import ColumnPunctuation
from everwhen.punctuation.columns.loops import FEW, unite
from everwhen.punctuation.values.order import Kind, ValueOrder, plain
from everwhen.punctuation.values.sets import Run, union

_NO_INTS: Final = np.empty(0, np.int64)


class Listed(NamedTuple):
    """Constants of one column, as ranks or (of other kinds) as values, and their times.

    `null`: until when a null is promised.  `of`: which promise said each constant, where that was asked for.
    """

    order: ValueOrder
    keys: Any
    times: np.ndarray
    null: int = NEVER
    of: np.ndarray = _NO_INTS

    @property
    def values(self) -> pa.Array:
        """The constants, null aside."""
        return self.order.column(self.keys) if self.order.kind is Kind.RANK else self.keys

    def column(self) -> tuple[pa.Array, np.ndarray]:
        """The constants, null last, and their times."""
        if self.null == NEVER:
            return self.values, self.times
        return pa.concat_arrays([self.values, pa.nulls(1, self.order.type)]), np.append(self.times, self.null)

    def taken(self, at: np.ndarray, times: np.ndarray) -> Listed:
        """Some of the constants, with times for all."""
        keys = self.keys[at] if self.order.kind is Kind.RANK else self.keys.take(pa.array(at))
        return Listed(self.order, keys, times[at], self.null)

    def after(self, t: int) -> Listed:
        """Those with a later time."""
        return self.taken(np.flatnonzero(self.times > t), self.times)._replace(
            null=self.null if self.null > t else NEVER
        )

    def numbered(self, first: int, last: int) -> Listed:
        """Those that the promises from `first` up to `last` have said, which is known; they are in order."""
        begin, end = np.searchsorted(self.of, (first, last)).tolist()
        return Listed(self.order, self.keys[begin:end], self.times[begin:end], NEVER, self.of[begin:end] - first)

    @property
    def at_once(self) -> int:
        """1 if few of them are said in one promise: whole numbers of one time (`by_value`); 0: that is not known."""
        return int(self.order.whole and self.null == NEVER and len(set(self.times.tolist())) == 1)

    def __bool__(self) -> bool:
        return len(self.times) > 0 or self.null != NEVER


def listed_of(order: ValueOrder, column: pa.Array, times: np.ndarray, of: np.ndarray = _NO_INTS) -> Listed:
    """Constants in a column, nulls among them."""
    null = NEVER
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        null, column, times = int(times[missing].max()), column.drop_null(), times[~missing]
        of = of[~missing] if len(of) else of
    keys = np.ascontiguousarray(order.ranks(plain(column))) if order.kind is Kind.RANK else plain(column)
    return Listed(order, keys, times, null, of)


class Ranged(NamedTuple):
    """Ranges of one column, as closed intervals of ranks (a matrix) or as runs of byte strings, and their times."""

    order: ValueOrder
    runs: Any
    times: np.ndarray
    of: np.ndarray = _NO_INTS

    def after(self, t: int) -> Ranged:
        """Those with a later time."""
        at = np.flatnonzero(self.times > t)
        runs = self.runs[at] if self.order.kind is Kind.RANK else [self.runs[i] for i in at.tolist()]
        return Ranged(self.order, runs, self.times[at])

    def numbered(self, first: int, last: int) -> Ranged:
        """Those that the promises from `first` up to `last` have said, which is known; they are in order."""
        begin, end = np.searchsorted(self.of, (first, last)).tolist()
        return Ranged(self.order, self.runs[begin:end], self.times[begin:end], self.of[begin:end] - first)

    def united(self) -> Ranged:
        """The same, those of one time that meet or touch as one."""
        if len(self.times) < 2:
            return self
        if self.order.kind is Kind.RANK:
            if len(self.times) <= FEW:
                runs, times = self.runs.copy(), self.times.copy()
            else:
                order = np.lexsort((self.runs[:, 0], -self.times))
                runs, times = self.runs[order], self.times[order]
            n = int(unite(runs, times))
            return Ranged(self.order, runs[:n], times[:n])
        by_time = _by_time(zip(self.runs, self.times.tolist(), strict=True))
        said = [(run, t) for t, runs in by_time for run in union(runs)]
        return Ranged(self.order, [run for run, _ in said], np.array([t for _, t in said], np.int64))

    @property
    def one_by_one(self) -> int:
        """How many there are, if each is said in one promise: those of whole numbers are; 0: that is not known."""
        return len(self.times) if self.order.whole else 0

    def listed_runs(self) -> list[Run]:
        """All ranges as runs of keys (`value_spans`)."""
        if self.order.kind is not Kind.RANK:
            return self.runs
        end = self.order.hi
        return [(lo, None if hi == end else hi + 1) for lo, hi in self.runs.tolist()]


@dataclass(frozen=True)
class WidePromise:
    """A promise that is kept as it is, with each of its patterns as a set of its own."""

    promise: Punctuation
    columns: Mapping[str, ColumnPunctuation]

    def raise_to(self, columns: Mapping[str, pa.Array], out: np.ndarray) -> None:
        inside = np.full(len(out), self.promise.t, np.int64)
        for name, column in self.columns.items():
            matched = np.full(len(out), NEVER, np.int64)
            column.raise_to(columns[name], matched)
            np.minimum(inside, matched, out=inside)
        np.maximum(out, inside, out=out)


def joined_lists(parts: Sequence[Listed]) -> Listed:
    if len(parts) == 1:
        return parts[0]
    order, keys = parts[0].order, [part.keys for part in parts]
    together = np.concatenate(keys) if order.kind is Kind.RANK else pa.concat_arrays(keys)
    return Listed(order, together, np.concatenate([p.times for p in parts]), max(part.null for part in parts))


def joined_ranges(parts: Sequence[Ranged]) -> Ranged:
    if len(parts) == 1:
        return parts[0]
    order = parts[0].order
    if order.kind is Kind.RANK:
        runs: Any = np.concatenate([part.runs for part in parts])
    else:
        runs = [run for part in parts for run in part.runs]
    return Ranged(order, runs, np.concatenate([part.times for part in parts]))


def joined_entries(parts: Sequence[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays(list(column)) for column in zip(*(part.columns for part in parts), strict=True)]
    runs = [[run for one in some for run in one] for some in zip(*(part.runs for part in parts), strict=True)]
    return Entries(columns, runs, np.concatenate([part.times for part in parts]))


def renamed_table(
    shape: Shape, entries: Entries, names: Mapping[str, str], place: Mapping[str, int]
) -> tuple[Shape, Entries]:
    """A table under other names, which stand in the order of their schema."""
    constants = sorted(
        zip((names[n] for n in shape.constants), entries.columns, strict=True), key=lambda c: place[c[0]]
    )
    ranges = sorted(zip((names[n] for n in shape.ranges), entries.runs, strict=True), key=lambda r: place[r[0]])
    renamed = Shape(tuple(name for name, _ in constants), tuple(name for name, _ in ranges))
    return renamed, Entries([column for _, column in constants], [runs for _, runs in ranges], entries.times)


def by_value(listed: Listed) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Constants by their time, the latest first, in order."""
    ranked = listed.order.kind is Kind.RANK
    if listed.order.whole and listed.null == NEVER and len(times := set(listed.times.tolist())) == 1:
        yield tuple(sorted(set(listed.keys.tolist()))), times.pop()
        return
    until: dict[Any, int] = {}
    keys = listed.keys.tolist() if ranked else python_values(listed.keys)
    for key, t in zip(keys, listed.times.tolist(), strict=True):
        until[key] = max(t, until.get(key, NEVER))
    by_time = dict(_by_time(until.items()))
    for t in sorted({*by_time, *([listed.null] if listed.null != NEVER else [])}, reverse=True):
        keys = sorted(by_time.get(t, ()))
        values = listed.order.values(np.array(keys, np.int64)) if ranked and keys else keys
        yield (None, *values) if t == listed.null else tuple(values), t


def _by_time(said: Iterable[tuple[Any, int]]) -> list[tuple[int, list[Any]]]:
    """What is said by its time, the latest first."""
    found: dict[int, list[Any]] = {}
    for value, t in said:
        found.setdefault(t, []).append(value)
    return sorted(found.items(), key=itemgetter(0), reverse=True)
