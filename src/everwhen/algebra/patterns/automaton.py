"""The automaton of a pattern: one state per place at which a variable stands in it (Glushkov's construction).

After the variable at a place has taken a row, the places in `follow` may take the next one; `first` may take the first;
at an `accepting` place the match may end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everwhen.algebra.patterns.pattern import Alternation, Concatenation, Pattern, Repeat, Symbol, variables
from everwhen.errors import QueryError

MOST_PLACES: Final = 1000


@dataclass(frozen=True, slots=True)
class Automaton:
    """See the module; `labels` is the number of the variable at each place."""

    labels: tuple[int, ...]
    first: frozenset[int]
    follow: tuple[frozenset[int], ...]
    accepting: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Part:
    """What a part of a pattern begins and ends with, and whether it may be nothing."""

    first: frozenset[int]
    last: frozenset[int]
    nothing: bool


def automaton(pattern: Pattern) -> Automaton:
    """The automaton; what repeats a limited number of times is written out."""
    builder = _Builder(variables(pattern))
    whole = builder.part(pattern)
    follow = tuple(frozenset(each) for each in builder.follow)
    return Automaton(tuple(builder.labels), whole.first, follow, whole.last)


class _Builder:
    def __init__(self, names: tuple[str, ...]) -> None:
        self._number = {name: at for at, name in enumerate(names)}
        self.labels: list[int] = []
        self.follow: list[set[int]] = []

    def part(self, pattern: Pattern) -> _Part:
        match pattern:
            case Symbol(name):
                if len(self.labels) >= MOST_PLACES:
                    raise QueryError(
                        f"the pattern has more than {MOST_PLACES} places when what repeats is written out; write a "
                        "condition on COUNT instead of {m,n}"
                    )
                self.labels.append(self._number[name])
                self.follow.append(set())
                place = frozenset({len(self.labels) - 1})
                return _Part(place, place, False)
            case Concatenation(parts):
                found = _Part(frozenset(), frozenset(), True)
                for each in parts:
                    found = self._behind(found, self.part(each))
                return found
            case Alternation(parts):
                ways = [self.part(each) for each in parts]
                first, last = (frozenset().union(*(getattr(way, end) for way in ways)) for end in ("first", "last"))
                return _Part(first, last, any(way.nothing for way in ways))
            case Repeat(part, least, most):
                return self._repeated(part, least, most)

    def _behind(self, one: _Part, other: _Part) -> _Part:
        for place in one.last:
            self.follow[place] |= other.first
        first = one.first | other.first if one.nothing else one.first
        last = one.last | other.last if other.nothing else other.last
        return _Part(first, last, one.nothing and other.nothing)

    def _repeated(self, part: Pattern, least: int, most: int | None) -> _Part:
        found = _Part(frozenset(), frozenset(), True)
        written = max(least, 1) if most is None else most
        for time in range(1, written + 1):
            again = self.part(part)
            if most is None and time == written:
                for place in again.last:
                    self.follow[place] |= again.first
            found = self._behind(found, _Part(again.first, again.last, again.nothing or time > least))
        return found
