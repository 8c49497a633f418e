"""What a stream is known to be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from everwhen.algebra.properties.keys import (
    Key,
    Keys,
)
from everwhen.core.time import show_length

NO_KEYS: Final[Keys] = frozenset()


ONE_ROW: Final[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Properties:
    """What is known of a stream."""

    insert_only: bool = False
    """Nothing that has been said is taken back."""
    ordered: bool = False
    """Starts never decrease."""
    chronon: bool = False
    """Lifetimes are one tick, apart from neighbouring instants of equal rows that an operator has put together."""
    lifetime: int | None = None
    """Every event lives exactly so long (`INF`: for ever)."""
    end_ordered: bool = False
    """Whoever starts later does not end earlier."""
    no_duplicates: bool = False
    """No two events have the same start and the same row: (vs, payload) is a key."""
    keys: Keys = NO_KEYS
    """Minimal column sets on which no two rows alive at one instant agree.  The empty set: at most one row."""
    history_keys: Keys = NO_KEYS
    """Minimal column sets on which no two events of the whole history agree."""

    @property
    def at_most_one(self) -> bool:
        """At most one row is alive at any instant."""
        return ONE_ROW in self.keys

    @property
    def perfect(self) -> bool:
        """In order, and never corrected."""
        return self.insert_only and self.ordered

    def unique_on(self, columns: Iterable[str]) -> bool:
        """Whether rows alive together always differ in these columns: whether they cover a key."""
        given = frozenset(columns)
        return any(key <= given for key in self.keys)

    def words(self) -> str:
        """The properties for people, such as `insert-only, chronon, key(itemID)`; empty if nothing is known."""
        lifetime = self.lifetime if self.lifetime is not None and not self.chronon else None
        words = [
            "insert-only" if self.insert_only else "",
            "ordered" if self.ordered else "",
            "chronon" if self.chronon else "",
            f"lifetime {show_length(lifetime)}" if lifetime is not None else "",
            "ends in order" if self.end_ordered and self.lifetime is None and not self.at_most_one else "",
            "one row" if self.at_most_one else "",
            *sorted(f"key({', '.join(sorted(key))})" for key in self.keys if key),
            "no duplicates" if self.no_duplicates and not self.keys else "",
        ]
        return ", ".join(word for word in words if word)
