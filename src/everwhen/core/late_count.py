"""How many rows of a source came behind what it had promised, and what is said of that.

>>> LateCount(rows=2000, dropped=40, moved=2).words("Bid")
'Bid: 42 of 2,000 rows (2.1 %) came behind what the stream had promised: 40 dropped, 2 moved to the promise'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SHARE: Final = 0.01
"""Late rows are many if they are more than this share of the rows of their source, of all so far or of those since the
last look,"""
LEAST: Final = 100
"""where these are at least so many, so that one of a few is no alarm."""


@dataclass(frozen=True, slots=True)
class LateCount:
    """Rows that came (inserts and adjusts), and those among them that were late: dropped or moved."""

    rows: int = 0
    dropped: int = 0
    moved: int = 0

    def __add__(self, other: LateCount) -> LateCount:
        return LateCount(self.rows + other.rows, self.dropped + other.dropped, self.moved + other.moved)

    @property
    def late(self) -> int:
        return self.dropped + self.moved

    @property
    def is_much(self) -> bool:
        """Whether late rows are many."""
        return self.rows >= LEAST and self.late > SHARE * self.rows

    def since(self, before: LateCount) -> LateCount:
        """What has come since an earlier count."""
        return LateCount(self.rows - before.rows, self.dropped - before.dropped, self.moved - before.moved)

    def words(self, name: str) -> str:
        """What became of the late rows of a source, in a sentence."""
        done = [f"{self.dropped:,} dropped"] * bool(self.dropped)
        done += [f"{self.moved:,} moved to the promise"] * bool(self.moved)
        share = f"{100 * self.late / max(self.rows, 1):.2g} %"
        return (
            f"{name}: {self.late:,} of {self.rows:,} rows ({share}) came behind what the stream had promised: "
            f"{', '.join(done)}"
        )


@dataclass
class LateWarnings:
    """Says once per source that late rows are many, and again whenever their number has doubled."""

    _told: dict[str, int] = field(default_factory=dict)
    _before: dict[str, LateCount] = field(default_factory=dict)

    def look(self, counts: Mapping[str, LateCount]) -> list[str]:
        """What is to be said now."""
        found = []
        for name, count in counts.items():
            fresh = count.since(self._before.get(name, LateCount()))
            self._before[name] = count
            if (count.is_much or fresh.is_much) and count.late >= 2 * self._told.get(name, 0):
                self._told[name] = count.late
                found.append(
                    f"{count.words(name)} so far; widen the bound of the disorder (WITHIN, --within), or sort the input"
                )
        return found
