"""Progress as promises `(pattern, t)`: no later change touches a matching payload at an instant before `t`.

A CTI(t) is `(*, t)`; Tucker's punctuation is `(p, ∞)`.  What operators read is the `Frontier` of a port: for a
payload `x` the largest `t` promised, `F(x)`.  The time-only case, which every operator handles on its fast path, is a
frontier with no patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from everwhen.model.time import INF, NEVER, show


@dataclass(frozen=True, slots=True)
class Range:
    """Values between two bounds; a missing bound is `None`."""

    ge: Any = None
    gt: Any = None
    le: Any = None
    lt: Any = None

    def matches(self, value: Any) -> bool:
        if value is None:
            return False
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a list of values; a null is matched only if the list holds it."""

    values: tuple[Any, ...]

    def matches(self, value: Any) -> bool:
        return any(value is None if v is None else value == v for v in self.values)


@dataclass(frozen=True, slots=True)
class Nothing:
    """The empty pattern."""

    def matches(self, value: Any) -> bool:
        return False


AttributePattern = Range | OneOf | Nothing


@dataclass(frozen=True, slots=True)
class Promise:
    """`(match, t)`; attributes left out of `match` are wildcards."""

    match: Mapping[str, AttributePattern] = field(default_factory=dict)
    t: int = INF

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether the promise concerns this payload."""
        return all(pattern.matches(row[name]) for name, pattern in self.match.items())


@dataclass(frozen=True, slots=True)
class Frontier:
    """What a port has promised: everything before `time`, and more for payloads that match a pattern."""

    time: int = NEVER
    promises: tuple[Promise, ...] = ()

    def __str__(self) -> str:
        return show(self.time)


NO_PROGRESS = Frontier()
