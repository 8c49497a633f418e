"""Where the output of a temporal operator can change, given where its input does.

Not part of any definition: it tells `LogicalStream` at which instants to look, so that the oracle works with times in
milliseconds too.  Leaving an instant out would be a mistake, listing one too many would not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from everwhen.core.time import INF, NEVER
from everwhen.reference.logical import Instants, LogicalStream
from everwhen.reference.order import Row


def same_as(*inputs: LogicalStream) -> Instants:
    """Snapshot-reducible operators change only where an input does."""
    return Instants(
        lambda t: sorted(set(chain.from_iterable(s.changes(s.start, t) for s in inputs))),
        max(s.settled for s in inputs),
    )


def of_time_window(s: LogicalStream, size: int, slide: int) -> Instants:
    """`W(t) - W(t - 1) = S(t) - S(t - size)`: the window changes where these two differ, seen at the next slide."""

    def shown(t: int) -> int:
        return -(-(t + 1) // slide) * slide - 1

    def changing(until: int) -> Iterator[int]:
        changes = s.changes(s.start, until)
        cuts = sorted({*changes, *(t + size for t in changes if size != INF and t + size <= until)})
        for vs, ve in zip(cuts, [*cuts[1:], until + 1], strict=False):
            moves = bool(s.at(vs)) if size == INF else s.at(vs) != s.at(vs - size)
            yield from range(vs, ve) if moves else (vs,)

    last = s.settled
    if last not in (INF, NEVER):
        if size != INF:
            last = shown(last + size)
        elif s.at(last):
            last = INF
    return Instants(lambda t: sorted({shown(u) for u in changing(t) if shown(u) <= t}), last)


def of_rows_window(s: LogicalStream, rows: int, slide: int, partition: tuple[int, ...]) -> Instants:
    """Every instant at which a row is alive adds rows.

    Rows that live for ever are added at every instant from the last change on.  The window stays as it is once it is
    full of them, unless with a slide each instant shows another part of them.
    """

    def until(t: int) -> list[int]:
        changes = s.changes(s.start, t)
        spans = zip(changes, [*changes[1:], t + 1], strict=False)
        return [u for vs, ve in spans for u in (range(vs, ve) if s.at(vs) else (vs,))]

    last = s.settled
    if last not in (INF, NEVER) and s.at(last):
        alive: defaultdict[Row, list[Row]] = defaultdict(list)
        for row in s.at(last).elements():
            alive[tuple(row[i] for i in partition)].append(row)
        rests = all(len(a) % slide == 0 or rows % len(a) == 0 or len(set(a)) == 1 for a in alive.values())
        last = last + rows + slide if rests else INF
    return Instants(until, last)


def of_granularity(s: LogicalStream, granule: int) -> Instants:
    """A change shows at the start of the next granule."""

    def shown(t: int) -> int:
        return -(-t // granule) * granule

    last = s.settled if s.settled in (INF, NEVER) else shown(s.settled)
    return Instants(lambda t: sorted({shown(u) for u in s.changes(s.start, t) if shown(u) <= t}), last)


def of_difference(s: LogicalStream) -> Instants:
    """What came or went at a change is gone one instant later."""
    last = s.settled if s.settled in (INF, NEVER) else s.settled + 1

    def until(t: int) -> list[int]:
        changes = s.changes(s.start, t)
        return sorted({*changes, *(u + 1 for u in changes if u < t)})

    return Instants(until, last)
