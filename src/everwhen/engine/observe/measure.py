"""What is measured of a stream: sums over the changes that it brings, in one pass, compiled.

    distance    of successive starts, d: the span of the starts through their number less one
    lifetime    the mean length l.  Pieces without an end count by Little's law: the time that all of them were alive,
                through the number of those that have ended
    granule     the largest g of which every start and end is a multiple
    corrections what takes something back

Sums can be added, so a window of time is a list of panes (`gauge.py`), and a stream in partitions is their sum.  Krämer
(13.4.1, 22.2) describes a stream by d, l and g; that adjusts and rows without end are part of them is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from everwhen.compiled.njit import loop
from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.rows.changes import Changes

CHANGES, TAKEN, STARTS, ENDED, OPEN, FIRST, LAST, GRANULE = range(8)
LIVED, OPENED = range(2)
_EMPTY: Final = np.array([0, 0, 0, 0, 0, INF, NEVER, 0], np.int64)
_INF: Final = np.int64(INF)
_NEVER: Final = np.int64(NEVER)
_HALF: Final = np.int64(32)
_LOW: Final = np.int64((1 << 32) - 1)
_UNIT: Final = float(1 << 32)
_LONG: Final = np.int64((1 << 40) - 1)
_FIRST: Final = 16
"""So many tell what is to be expected of the others."""
_SHORT: Final = 1 << 20
"""The sum of so many lifetimes up to `_LONG` does not overflow."""


@loop
def common(granule: Any, t: Any) -> Any:
    """The largest common divisor of a granule, and an instant or a length."""
    a, b = granule, abs(t)
    while b:
        a, b = b, a % b
    return a


@loop
def add_plain(lo: Any, hi: Any, counts: Any, sums: Any) -> Any:
    """Add lifetimes that are said once each, if none of them is long or without a beginning or an end; whether it was
    so.  That is the usual case, and four sums of whole numbers: several lifetimes at once."""
    first, last, total, longest = counts[5], counts[6], np.int64(0), np.int64(0)
    for i in range(len(lo)):
        length = hi[i] - lo[i]
        first = min(first, lo[i])
        last = max(last, lo[i])
        total += length
        longest |= length  # also if one is negative
    if longest < 0 or longest > _LONG:
        return False
    count_units(lo, hi, counts, 0, 0)
    counts[5], counts[6] = first, last
    sums[0] += np.float64(total)
    return True


@loop
def said_once(weight: Any) -> Any:
    """Whether all weights are 1."""
    others = np.int64(0)
    for i in range(len(weight)):
        others |= weight[i] ^ np.int64(1)
    return others == 0


@loop
def count_units(lo: Any, hi: Any, counts: Any, taken: Any, still: Any) -> None:
    """Count lifetimes that are said once each, or taken back; `still`: how many more are without an end then."""
    if counts[7] != 1:
        counts[7] = common_of(lo, hi, counts[7])
    said = len(lo) - taken
    counts[0] += len(lo)
    counts[1] += taken
    counts[2] += said
    counts[3] += said - still
    counts[4] += still


@loop
def add_ended(lo: Any, hi: Any, weight: Any, counts: Any, sums: Any) -> Any:
    """Add lifetimes, if they are said or taken back once each, and none is long or without a beginning or an end;
    whether it was so.  What an aggregate over a window says."""
    first, last, taken, lived, longest = counts[5], counts[6], np.int64(0), np.int64(0), np.int64(0)
    others = np.int64(0)
    for i in range(len(lo)):
        a = lo[i]
        length = hi[i] - a
        sign = weight[i] >> np.int64(63)
        others |= ((weight[i] ^ sign) - sign) ^ np.int64(1)
        first = min(first, a ^ (sign & (a ^ _INF)))
        last = max(last, a ^ (sign & (a ^ _NEVER)))
        taken -= sign
        lived += (length ^ sign) - sign
        longest |= length  # also if one is negative
    if others != 0 or longest < 0 or longest > _LONG:
        return False
    count_units(lo, hi, counts, taken, 0)
    counts[5], counts[6] = first, last
    sums[0] += np.float64(lived)
    return True


@loop
def add_units(lo: Any, hi: Any, weight: Any, counts: Any, sums: Any) -> Any:
    """Add lifetimes, if they are said or taken back once each, none is long or without a beginning, and all start near
    each other; whether it was so.  What an aggregate says: also several at once, without a product."""
    first, last, lowest, highest, zero = counts[5], counts[6], _INF, _NEVER, np.int64(0)
    taken, still, lived, opened, longest, others = zero, zero, zero, zero, zero, zero
    base = lo[0]
    for i in range(len(lo)):
        a, b = lo[i], hi[i]
        sign = weight[i] >> np.int64(63)
        others |= ((weight[i] ^ sign) - sign) ^ np.int64(1)
        length = zero if b == _INF else b - a
        since = a - base if b == _INF else zero
        goes_on = weight[i] if b == _INF else zero
        lowest = min(lowest, a)
        highest = max(highest, a)
        first = min(first, a if sign == 0 else _INF)
        last = max(last, a if sign == 0 else _NEVER)
        taken -= sign
        still += goes_on
        lived += (length ^ sign) - sign
        opened += (since ^ sign) - sign
        longest |= length
    if others != 0 or longest < 0 or longest > _LONG or lowest == _NEVER or highest - lowest > _LONG:
        return False
    count_units(lo, hi, counts, taken, still)
    counts[5], counts[6] = first, last
    sums[0] += np.float64(lived)
    sums[1] += np.float64(opened) + np.float64(base) * still
    return True


@loop
def measure_changes(lo: Any, hi: Any, weight: Any, counts: Any, sums: Any) -> None:
    """Add signed segments to what is counted.  One loop without branches, and sums of whole numbers in two halves, so
    that they do not overflow: then the compiler does several rows at once."""
    if len(lo) <= _SHORT:
        plain, all_end = True, True
        for i in range(min(_FIRST, len(lo))):
            plain = plain and weight[i] == 1
            all_end = all_end and hi[i] < _INF
        if plain and said_once(weight) and add_plain(lo, hi, counts, sums):
            return
        if all_end and add_ended(lo, hi, weight, counts, sums):
            return
        if add_units(lo, hi, weight, counts, sums):
            return
    first, last, lowest, zero = counts[5], counts[6], _INF, np.int64(0)
    taken, starts, ended, still = zero, zero, zero, zero
    lived, lived_high, opened, opened_high = zero, zero, zero, zero
    base = lo[0]
    for i in range(len(lo)):
        a, b, w = lo[i], hi[i], weight[i]
        said = max(w, zero)
        goes_on = w if b == _INF else zero
        lowest = min(lowest, a)
        taken += np.int64(w < 0)
        starts += said
        first = min(first, a if w > 0 else _INF)
        last = max(last, a if w > 0 else _NEVER)
        still += goes_on
        ended += said - goes_on
        length = zero if b == _INF else w * (b - a)
        lived += length & _LOW
        lived_high += length >> _HALF
        since = goes_on * (a - base) if b == _INF else zero
        opened += since & _LOW
        opened_high += since >> _HALF
    if lowest == _NEVER:
        measure_odd(lo, hi, weight, counts, sums)
        return
    if counts[7] != 1:
        counts[7] = common_of(lo, hi, counts[7])
    counts[0] += len(lo)
    counts[1] += taken
    counts[2] += starts
    counts[3] += ended
    counts[4] += still
    counts[5], counts[6] = first, last
    sums[0] += lived + lived_high * _UNIT
    sums[1] += opened + opened_high * _UNIT + np.float64(base) * still


@loop
def common_of(lo: Any, hi: Any, granule: Any) -> Any:
    """The granule of segments; done as soon as it is 1."""
    length = np.int64(0)
    for i in range(len(lo)):
        if granule == 0 or lo[i] % granule:
            granule = common(granule, lo[i])
        if hi[i] != _INF and hi[i] - lo[i] != length:
            length = hi[i] - lo[i]
            if granule == 0 or length % granule:
                granule = common(granule, length)
        if granule == 1:
            break
    return granule


@loop
def measure_odd(lo: Any, hi: Any, weight: Any, counts: Any, sums: Any) -> None:
    """The same, without what has no beginning."""
    counts[0] += len(lo)
    for i in range(len(lo)):
        a, b, w = lo[i], hi[i], weight[i]
        counts[1] += w < 0
        if a == _NEVER:
            continue
        if w > 0:
            counts[2] += w
            counts[5], counts[6] = min(counts[5], a), max(counts[6], a)
        if b == _INF:
            counts[3] -= min(w, 0)
            counts[4] += w
            sums[1] += w * np.float64(a)
        else:
            counts[3] += max(w, 0)
            sums[0] += w * np.float64(b - a)
        if counts[7] != 1:
            counts[7] = common(common(counts[7], a), b - a if b != _INF else 0)


@loop
def measure_elements(op: Any, vs: Any, ve: Any, vnew: Any, counts: Any, sums: Any) -> None:
    """Add inserts (0) and adjusts (1) to what is counted: an adjust takes the event back and says it as it is."""
    first, last = counts[5], counts[6]
    taken, starts, ended, still = 0, 0, 0, 0
    lived, opened = 0.0, 0.0
    for i in range(len(op)):
        a, b = vs[i], ve[i]
        if op[i] == 1:
            taken += 1
            if b == _INF:
                still -= 1
                opened -= np.float64(a)
            else:
                ended -= 1
                lived -= np.float64(b - a)
            b = vnew[i]
            if a == b:
                starts -= 1
                continue
        else:
            starts += 1
            first, last = min(first, a), max(last, a)
        if b == _INF:
            still += 1
            opened += np.float64(a)
        else:
            ended += 1
            lived += np.float64(b - a)
    if counts[7] != 1:
        granule = common_of(vs, ve, counts[7])
        counts[7] = common_of(vs, vnew, granule) if taken else granule
    counts[0] += len(op)
    counts[1] += taken
    counts[2] += starts
    counts[3] += ended
    counts[4] += still
    counts[5], counts[6] = first, last
    sums[0] += lived
    sums[1] += opened


@loop
def measure_inserts(vs: Any, ve: Any, counts: Any, sums: Any) -> None:
    """The same where all are inserts, several at once."""
    if len(vs) <= _SHORT and add_plain(vs, ve, counts, sums):
        return
    first, last, zero = counts[5], counts[6], np.int64(0)
    still, lived, lived_high, opened, opened_high = zero, zero, zero, zero, zero
    base = vs[0]
    for i in range(len(vs)):
        a, b = vs[i], ve[i]
        first, last = min(first, a), max(last, a)
        still += np.int64(b == _INF)
        length = zero if b == _INF else b - a
        lived += length & _LOW
        lived_high += length >> _HALF
        since = a - base if b == _INF else zero
        opened += since & _LOW
        opened_high += since >> _HALF
    if counts[7] != 1:
        counts[7] = common_of(vs, ve, counts[7])
    counts[0] += len(vs)
    counts[2] += len(vs)
    counts[3] += len(vs) - still
    counts[4] += still
    counts[5], counts[6] = first, last
    sums[0] += lived + lived_high * _UNIT
    sums[1] += opened + opened_high * _UNIT + np.float64(base) * still


@loop
def add_counts(mine: Any, own: Any, counts: Any, sums: Any) -> None:
    """Add what was counted of one batch."""
    for i in range(5):
        mine[i] += counts[i]
    mine[5], mine[6] = min(mine[5], counts[5]), max(mine[6], counts[6])
    if mine[7] != 1:
        mine[7] = common(mine[7], counts[7])
    own[0] += sums[0]
    own[1] += sums[1]


@loop
def measure_apart(lo: Any, hi: Any, weight: Any, counts: Any, sums: Any, mine: Any, own: Any) -> None:
    """Count what one batch brings, alone, and add it to what was counted."""
    for i in range(8):
        counts[i] = 0
    counts[5], counts[6] = _INF, _NEVER
    sums[0], sums[1] = 0.0, 0.0
    measure_changes(lo, hi, weight, counts, sums)
    add_counts(mine, own, counts, sums)


@dataclass(slots=True)
class Measure:
    """Sums that grow: `counts` and `sums` are as the names above say."""

    counts: np.ndarray
    sums: np.ndarray

    @classmethod
    def empty(cls) -> Measure:
        """Of nothing."""
        return cls(_EMPTY.copy(), np.zeros(2))

    def add(self, given: Changes | CheckedBatch) -> None:
        """Count what a stream brings."""
        if isinstance(given, Changes):
            measure_changes(given.lo, given.hi, given.weight, self.counts, self.sums)
        elif given.adjusts:
            measure_elements(given.op, given.vs, given.ve, given.vnew, self.counts, self.sums)
        else:
            measure_inserts(given.vs, given.ve, self.counts, self.sums)

    def merge(self, other: Measure) -> None:
        """Count what another one has counted, too."""
        add_counts(self.counts, self.sums, other.counts, other.sums)

    def lived(self, alive: int, since: int, tau: int) -> float:
        """How long all that was said has been alive, if `alive` pieces without an end were there when the present was
        `since`; it is `tau`."""
        lived = float(self.sums[LIVED])
        if tau != NEVER:
            lived += int(self.counts[OPEN]) * tau - float(self.sums[OPENED])
            lived += alive * (tau - since) if alive and since != NEVER else 0
        return lived

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        return {"counts": self.counts.tolist(), "sums": self.sums.tolist()}

    @classmethod
    def of(cls, state: Any) -> Measure:
        """As it was."""
        return cls(np.array(state["counts"], np.int64), np.array(state["sums"], np.float64))
