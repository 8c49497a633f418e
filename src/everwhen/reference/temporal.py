"""The operators that look at more than one instant: windows, granularity, CQL's relation-to-stream operators.

Each is a function of the input stream and an instant; numbers in brackets are the thesis's formulas.  Times may be
negative, so where a formula has `max{…, 0}` there is no clamp: nothing is alive before a stream's start anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from everwhen.core.time import INF
from everwhen.reference.logical import LogicalStream, Snapshot
from everwhen.reference.order import Row, row_order


def time_window(s: LogicalStream, size: int, slide: int, t: int) -> Snapshot:
    """(8.17), (17.1): what was alive during the `size` instants up to the last one before a multiple of `slide`."""
    window_end = (t + 1) // slide * slide
    return s.during(s.start if size == INF else window_end - size, window_end - 1)


def rows_window(s: LogicalStream, rows: int, slide: int, partition: tuple[int, ...], t: int) -> Snapshot:
    """(8.18), (8.19), (17.2): the last rows so far, per partition.

    Every instant at which a row is alive counts as one row.  Rows are numbered by instant, and those of one instant by
    their values.  The window ends at the last number that is a multiple of `slide`.
    """
    seen: Counter[Row] = Counter()
    for e, n in s.during(s.start, t).items():
        seen[_key(e, partition)] += n
    window: Snapshot = Counter()
    for key, n in seen.items():
        newest = (e for e in _newest_first(s, t) if _key(e, partition) == key)
        window.update(islice(newest, n % slide, n % slide + rows))
    return window


def _key(row: Row, partition: tuple[int, ...]) -> Row:
    return tuple(row[i] for i in partition)


def _newest_first(s: LogicalStream, t: int) -> Iterator[Row]:
    for vs, ve, snapshot in reversed(list(s.pieces(s.start, t))):
        for _ in range(ve - vs):
            yield from sorted(snapshot.elements(), key=row_order, reverse=True)


def granularity(s: LogicalStream, granule: int, t: int) -> Snapshot:
    """Γ holds the snapshot of the last granule's start (Algorithm 24; (20.1) says the same at those instants only)."""
    return s.at(t // granule * granule)


def relation_to_stream(s: LogicalStream, kind: Literal["istream", "dstream", "rstream"], t: int) -> Snapshot:
    match kind:
        case "istream":  # (17.3): what came
            return s.at(t) - s.at(t - 1)
        case "dstream":  # (17.4): what went, reported at the first instant at which it is gone
            return s.at(t - 1) - s.at(t)
        case "rstream":  # all that is there, as chronons: the snapshots are the same
            return s.at(t)
