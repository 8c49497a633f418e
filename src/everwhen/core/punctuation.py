"""Progress as promises `(pattern, t)`: no later change touches a matching payload at an instant before `t`.

A CTI(t) is `(*, t)`; Tucker's punctuation is `(p, ∞)`.  What operators are handed is the `Frontier` of a port: how
far everything is promised, and the promises with patterns that are new in this step, mostly as columns
(`PunctuationTable`).  Those said before stand; an operator that needs them again keeps them, in a `PunctuationStore`.
`F(x)` is the largest `t` promised for a payload `x`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everwhen.core.time import INF, NEVER, show


def less(a: Any, b: Any) -> bool:
    """`a < b` for values of one type; NaN is above every number."""
    return bool(a < b or (b != b and a == a))


def same(a: Any, b: Any) -> bool:
    """Whether two values of one type are one payload; NaN is NaN, and a null is only a null."""
    return bool(a == b or (a != a and b != b))


@dataclass(frozen=True, slots=True)
class Range:
    """Values between two bounds; a missing bound is `None`.  A null is in no range.

    >>> hours = Range(ge=0, lt=4)
    >>> hours.matches(3), hours.matches(4), hours.matches(None)
    (True, False, False)
    """

    ge: Any = None
    gt: Any = None
    le: Any = None
    lt: Any = None

    def matches(self, value: Any) -> bool:
        if value is None:
            return False
        return (
            (self.ge is None or not less(value, self.ge))
            and (self.gt is None or less(self.gt, value))
            and (self.le is None or not less(self.le, value))
            and (self.lt is None or less(value, self.lt))
        )


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a list of values; a null is matched only if the list holds it.

    >>> some = OneOf((7, 9))
    >>> some.matches(9), some.matches(8), some.matches(None)
    (True, False, False)
    """

    values: tuple[Any, ...]

    def matches(self, value: Any) -> bool:
        return any(value is None if v is None else value is not None and same(value, v) for v in self.values)


@dataclass(frozen=True, slots=True)
class Nothing:
    """The empty pattern.

    >>> Nothing().matches(7)
    False
    """

    def matches(self, value: Any) -> bool:
        return False


AttributePattern = Range | OneOf | Nothing


@dataclass(frozen=True, slots=True)
class Punctuation:
    """A punctuation `(match, t)`: no later element changes a matching row before `t`.  Other columns match any value.

    >>> closed = Punctuation({"item": OneOf((7,))})
    >>> closed.matches({"item": 7, "price": 3}), closed.matches({"item": 8, "price": 3})
    (True, False)
    """

    match: Mapping[str, AttributePattern] = field(default_factory=dict)
    t: int = INF

    @staticmethod
    def constants(values: Mapping[str, Any], t: int = INF) -> Punctuation:
        """A punctuation that binds columns to single values."""
        return Punctuation({name: OneOf((value,)) for name, value in values.items()}, t)

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether the pattern matches this row."""
        return all(pattern.matches(row[name]) for name, pattern in self.match.items())


@dataclass(frozen=True, slots=True)
class Frontier:
    """What a port promises: everything before `time`, and from now on more for payloads that match a pattern."""

    time: int = NEVER
    promises: Sequence[Punctuation] = ()

    def __str__(self) -> str:
        return show(self.time)


NO_PROGRESS = Frontier()
