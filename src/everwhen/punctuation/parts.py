"""One column's constants, or its ranges, with their times: what tables of punctuation consist of.

The keys are whole arrays.  Constants are ranks, where the type has some (`values/order.py`), else an Arrow column.
Ranges are pieces, which are rows of a first rank, a last rank and a time, else runs of byte strings (`values/sets.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import AttributePattern, OneOf, Range
from everwhen.core.scalars import python_values
from everwhen.core.time import NEVER
from everwhen.rows.dictionary import freeze
from everwhen.values.order import Kind, ValueOrder, constants
from everwhen.values.sets import Run, pattern_of, run_of

NO_INTS: Final = np.empty(0, np.int64)
FEW: Final = 64
"""So few constants and ranges are put into words as they are; more are put together first."""
_LISTED: Final = 1024
"""So many constants a list that is given out has at most."""


class Part(NamedTuple):
    """Constants or ranges of one column.

    `null`: until when a null is promised (constants only).  `of`: which punctuation said each, where that was asked.
    """

    order: ValueOrder
    keys: Any
    times: np.ndarray
    null: int = NEVER
    of: np.ndarray = NO_INTS

    def __bool__(self) -> bool:
        return len(self.times) > 0 or self.null != NEVER

    def column(self) -> tuple[pa.Array, np.ndarray]:
        """Constants as an Arrow column, null last, and their times."""
        values = self.order.column(self.keys) if self.order.kind is Kind.RANK else self.keys
        if self.null == NEVER:
            return values, self.times
        return pa.concat_arrays([values, pa.nulls(1, self.order.type)]), np.append(self.times, self.null)

    def runs(self) -> list[Run]:
        """Ranges as runs of keys."""
        if self.order.kind is not Kind.RANK:
            return self.keys
        end = self.order.hi
        return [(lo, None if hi == end else hi + 1) for lo, hi, _ in self.keys.tolist()]

    def pieces(self) -> np.ndarray | None:
        """Constants or ranges as pieces; None: the values have no ranks, or a null is promised."""
        if self.order.kind is not Kind.RANK or self.null != NEVER:
            return None
        return self.keys if self.keys.ndim == 2 else np.array((self.keys, self.keys, self.times)).T.copy()

    def pattern_count(self) -> int:
        """How many patterns say this; 0: that is not plain to see."""
        if self.order.kind is not Kind.RANK or self.null != NEVER or len(self.times) >= FEW:
            return 0
        if self.keys.ndim == 1:
            return len({*self.times.tolist()}) == 1
        ends = [self.order.lo, self.order.hi]
        return 0 if any(run[:2] == ends for run in self.keys.tolist()) else len(self.times)

    def after(self, t: int) -> Part:
        """Those with a later time."""
        found = self.taken(np.flatnonzero(self.times > t))
        return found._replace(null=self.null if self.null > t else NEVER)

    def taken(self, at: np.ndarray) -> Part:
        """Some of them, and the null."""
        return self._replace(
            keys=taken(self.keys, at), times=self.times[at], of=self.of[at] if len(self.of) else self.of
        )

    def moved(self, to: Callable[[int], int]) -> Part:
        """The same with other times."""
        known, of = np.unique(self.times, return_inverse=True)
        times = np.array([to(t) for t in known.tolist()], np.int64)[of]
        keys = np.column_stack((self.keys[:, :2], times)) if getattr(self.keys, "ndim", 1) == 2 else self.keys
        return self._replace(keys=keys, times=times, null=self.null if self.null == NEVER else to(self.null))


def constants_part(order: ValueOrder, column: pa.Array, times: np.ndarray, of: np.ndarray = NO_INTS) -> Part:
    """Constants in a column, nulls among them."""
    null = NEVER
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        null, column, times = int(times[missing].max()), column.drop_null(), times[~missing]
        of = of[~missing] if len(of) else of
    return Part(order, order.keys(column), times, null, of)


def parts_of(pattern: AttributePattern, order: ValueOrder, t: int, name: str = "") -> tuple[Part | None, Part | None]:
    """The constants and the ranges of one pattern that matches something."""
    if isinstance(pattern, OneOf):
        return constants_part(order, constants(pattern.values, order.type, name), np.full(len(pattern.values), t)), None
    assert isinstance(pattern, Range)
    run = run_of(pattern, order, name)
    return None, None if run is None else ranges_part(order, [run], np.array([t], np.int64))


def ranges_part(order: ValueOrder, runs: Sequence[Run], times: np.ndarray, of: np.ndarray = NO_INTS) -> Part:
    """Ranges by their runs of keys."""
    if order.kind is not Kind.RANK:
        return Part(order, list(runs), times, NEVER, of)
    pieces = np.empty((len(times), 3), np.int64)
    for i, (lo, hi) in enumerate(runs):
        pieces[i, 0], pieces[i, 1] = lo, order.hi if hi is None else hi - 1
    pieces[:, 2] = times
    return pieces_part(order, pieces, of)


def pieces_part(order: ValueOrder, pieces: np.ndarray, of: np.ndarray = NO_INTS) -> Part:
    """Ranges of ranks by their pieces."""
    return Part(order, pieces, pieces[:, 2], NEVER, of)


def taken(keys: Any, at: np.ndarray) -> Any:
    """Some of the keys."""
    if isinstance(keys, np.ndarray):
        return keys[at]
    return keys.take(pa.array(at)) if isinstance(keys, pa.Array) else [keys[i] for i in at.tolist()]


def joined_parts(parts: Sequence[Part]) -> Part:
    """Several parts of one column as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    keys: Any = [part.keys for part in parts]
    if isinstance(first.keys, np.ndarray):
        keys = np.concatenate(keys)
    elif isinstance(first.keys, pa.Array):
        keys = pa.concat_arrays(keys)
    else:
        keys = [run for some in keys for run in some]
    return Part(first.order, keys, np.concatenate([part.times for part in parts]), max(part.null for part in parts))


def constant_patterns(part: Part) -> Iterator[tuple[AttributePattern, int]]:
    """Constants as lists by their time, the latest first, in order."""
    order = part.order
    until: dict[Any, tuple[int, Any]] = {}
    keys = part.keys.tolist() if order.kind is Kind.RANK else python_values(part.keys)
    for key, t in zip(keys, part.times.tolist(), strict=True):
        hashed = freeze(key) if order.kind is Kind.OPAQUE else key
        if hashed not in until or t > until[hashed][0]:
            until[hashed] = t, key
    by_time: dict[int, list[Any]] = {part.null: []} if part.null != NEVER else {}
    for t, key in until.values():
        by_time.setdefault(t, []).append(key)
    for t, keys in sorted(by_time.items(), key=itemgetter(0), reverse=True):
        if order.kind is not Kind.OPAQUE:
            keys.sort()
        ranked = order.kind is Kind.RANK and not order.whole and keys
        values = order.values(np.array(keys, np.int64)) if ranked else keys
        listed = [None, *values] if t == part.null else values
        for first in range(0, len(listed), _LISTED):
            yield OneOf(tuple(listed[first : first + _LISTED])), t


def range_patterns(part: Part) -> Iterator[tuple[AttributePattern, int]]:
    """Ranges as patterns."""
    for run, t in zip(part.runs(), part.times.tolist(), strict=True):
        for pattern in shown(run, part.order):
            yield pattern, t


def shown(run: Run, order: ValueOrder) -> list[AttributePattern]:
    """A range as patterns that have a form in JSON: all values of a temporal type are those before and after 1970."""
    pattern = pattern_of(*run, order)
    if run[1] is not None or pattern != Range():
        return [pattern]
    if order.kind is Kind.BYTES:
        return [Range(ge=order.of_bytes([run[0]])[0])]
    if pa.types.is_temporal(order.type):
        (middle,) = order.values(np.zeros(1, np.int64))
        return [Range(lt=middle), Range(ge=middle)] if order.lo < 0 else [Range(ge=middle)]
    return [Range(ge=order.values(np.array([order.lo]))[0])]
