"""What was measured of an operator or an input in a window, as numbers that can be added; and the items made of them.

A sample is a sum wherever it can be one, so the samples of partitions make that of the whole (`together`).  An item is
what somebody subscribes to: a name, a unit, and a function of a sample; None where there is nothing to tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError

Value = float | int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """An operator or an input in a window of `elapsed` seconds.

    `changes`: how many were looked at, of which `taken` take something back.  `lived`, `ended`: the time that what was
    said has been alive, and how much of it has come to an end.  `promise` and `tau` are those of now, and so are `keys`
    and the state, if anybody asked for them.
    """

    elapsed: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    changes: int = 0
    taken: int = 0
    late: int = 0
    seconds: float = 0.0
    starts: int = 0
    first: int = INF
    last: int = NEVER
    granule: int = 0
    lived: float = 0.0
    ended: int = 0
    tau: int = NEVER
    promise: int = NEVER
    keys: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def together(samples: Sequence[Sample]) -> Sample:
    """The parts of one stream as one: numbers are added, the largest start counts, and the least promise.

    >>> both = together([Sample(2.0, 10, 4, promise=5, granule=6), Sample(1.0, 20, 8, promise=3, granule=4)])
    >>> both.elapsed, both.rows_in, both.rows_out, both.promise, both.granule
    (2.0, 30, 12, 3, 2)
    """
    if not samples:
        return Sample()
    found: dict[str, Any] = {}
    for each in fields(Sample):
        values = [value for sample in samples if (value := getattr(sample, each.name)) is not None]
        found[each.name] = _JOINED.get(each.name, sum)(values) if values else None
    return Sample(**found)


_JOINED: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "elapsed": max, "first": min, "last": max, "tau": max, "promise": min, "granule": lambda values: math.gcd(*values),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """What can be subscribed to.  `stream`: whether every change must be looked at for it; `now`: whether it is a
    matter of the moment, not of the window; `adds`: whether parts of it add up to the whole."""

    name: str
    unit: str
    text: str
    value: Callable[[Sample], Value]
    stream: bool = False
    now: bool = False
    adds: bool = False


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _distance(s: Sample) -> float | None:
    return (s.last - s.first) / (s.starts - 1) if s.starts > 1 else None


def lag(s: Sample) -> int | None:
    """How far the promise is behind the largest start; None before either is there, and after the end."""
    return None if s.tau in (NEVER, INF) or s.promise in (NEVER, INF) else max(s.tau - s.promise, 0)


_ITEMS: Final = (
    Item("distance", "ticks", "mean distance of successive starts", _distance, stream=True),
    Item(
        "lifetime", "ticks", "mean length of what is said",
        lambda s: max(s.lived, 0.0) / s.ended if s.ended > 0 else None, stream=True,
    ),
    Item("granule", "ticks", "all starts and ends are multiples of it", lambda s: s.granule or None, stream=True),
    Item("rate_in", "rows/s", "rows that come", lambda s: _share(s.rows_in, s.elapsed), adds=True),
    Item("rate_out", "rows/s", "rows that are said", lambda s: _share(s.rows_out, s.elapsed), adds=True),
    Item("selectivity", "", "rows said per row that came", lambda s: _share(s.rows_out, s.rows_in)),
    Item("corrections", "", "the share of what is said that takes something back",
         lambda s: _share(s.taken, s.changes), stream=True),
    Item("late", "", "the share of rows that came behind what was promised", lambda s: _share(s.late, s.rows_in)),
    Item("lag", "ticks", "how far the promise is behind the largest start", lag, now=True),
    Item("keys", "", "keys of which something is kept", lambda s: s.keys, now=True, adds=True),
    Item("cpu", "s/s", "seconds that its steps take per second", lambda s: _share(s.seconds, s.elapsed), adds=True),
    Item("state_rows", "rows", "what is kept", lambda s: s.state_rows, now=True, adds=True),
    Item("state_bytes", "bytes", "the memory for it", lambda s: s.state_bytes, now=True, adds=True),
)  # fmt: skip
ITEMS: Final[Mapping[str, Item]] = {each.name: each for each in _ITEMS}
"""What can be subscribed to, by name."""


def items_named(names: Sequence[str]) -> tuple[Item, ...]:
    """Items by their names; all of them if none is named.

    >>> [item.name for item in items_named(["lag", "keys"])]
    ['lag', 'keys']
    """
    unknown = [name for name in names if name not in ITEMS]
    if unknown:
        raise QueryError(f"there is no metadata called {unknown[0]!r}; there is {', '.join(ITEMS)}")
    return tuple(ITEMS[name] for name in names) or _ITEMS
