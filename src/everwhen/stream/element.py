"""Elements: what flows outside.  An insert, an adjust of an event's end, or a promise about the rest.

`sync` is the earliest instant that an element changes: a later element with a smaller one is out of order, and one
whose sync lies before a CTI contradicts it (Goldstein/Hong, section 2; growing adjusts as in LMerge are legal).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everwhen.core.punctuation import Punctuation
from everwhen.core.scalars import show_value
from everwhen.core.time import show
from everwhen.punctuation.api import show_promise

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Insert:
    """The payload `row` is alive during `[vs, ve)`.

    >>> print(Insert(1, 5, {"x": 2}))
    insert [1, 5) x=2
    """

    vs: int
    ve: int
    row: Row

    @property
    def sync(self) -> int:
        return self.vs

    def __str__(self) -> str:
        return f"insert [{show(self.vs)}, {show(self.ve)}) {_show(self.row)}"


@dataclass(frozen=True, slots=True)
class Adjust:
    """The event `row` during `[vs, ve)` ends at `vnew` instead; `vnew == vs` removes it.

    >>> print(Adjust(1, 5, 3, {"x": 2}))
    adjust [1, 5 -> 3) x=2
    """

    vs: int
    ve: int
    vnew: int
    row: Row

    @property
    def sync(self) -> int:
        return min(self.ve, self.vnew)

    def __str__(self) -> str:
        return f"adjust [{show(self.vs)}, {show(self.ve)} -> {show(self.vnew)}) {_show(self.row)}"


@dataclass(frozen=True, slots=True)
class Cti:
    """No later element changes anything before the instant `t`.

    >>> print(Cti(8))
    cti 8
    """

    t: int

    @property
    def sync(self) -> int:
        return self.t

    def __str__(self) -> str:
        return f"cti {show(self.t)}"


@dataclass(frozen=True, slots=True)
class Punct:
    """The element of a punctuation: no later element changes a matching row at an instant before its time.

    >>> from everwhen import punctuation
    >>> print(Punct(punctuation.Punctuation({"x": punctuation.OneOf((7,))})))
    punct x = 7
    """

    promise: Punctuation

    def __str__(self) -> str:
        return show_promise(self.promise)


@dataclass(frozen=True, slots=True)
class ExternalCti:
    """CEDR's ExternalCTI: exactly `count` elements have a sync time in `[vs, ve)`; only Finalize reads it."""

    vs: int
    ve: int
    count: int

    def __str__(self) -> str:
        return f"external_cti [{show(self.vs)}, {show(self.ve)}) {self.count}"


Element = Insert | Adjust | Cti | Punct | ExternalCti


def _show(row: Row) -> str:
    return " ".join(f"{name}={show_value(value)}" for name, value in row.items())
