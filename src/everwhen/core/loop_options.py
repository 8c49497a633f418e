"""How a recursive query runs: rounds per epoch, how progress is detected, where it is taken to diverge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from everwhen.errors import QueryError

ProgressStrategy = Literal["hybrid", "probing", "high water mark"]
"""The three of the Flying Fixed-Point paper (3.5, 5.3)."""

MAX_LEVEL: Final = 10_000
"""Rounds in one epoch after which a loop is taken to diverge, unless the query says otherwise."""
MAX_ROWS: Final = 10_000_000
"""Rows that go round in one epoch after which it is."""


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """`rounds`: None runs an epoch until nothing circulates (staged); a number runs so many rounds of insertions per
    epoch, and the rest rides with later input (flying).  A loop that takes more than `max_level` rounds in an epoch, or
    sends more than `max_rows` rows round, is taken to diverge.  `across`: on Spark its rounds go through all
    partitions, a job per round, where it would else run inside one stage; the answer is the same.

    >>> LoopOptions(rounds=2).flying
    True
    """

    rounds: int | None = None
    progress: ProgressStrategy = "hybrid"
    max_level: int = MAX_LEVEL
    max_rows: int = MAX_ROWS
    across: bool = False

    def __post_init__(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise QueryError(f"rounds={self.rounds} would bring a loop nowhere; give at least 1, or leave it out")
        for what, most in (("a recursion level", self.max_level), ("a number of rows", self.max_rows)):
            if most < 1:
                raise QueryError(f"{what} of {most} at most leaves nothing; give at least 1")
        if self.across and self.rounds is not None:
            raise QueryError(
                f"a recursion with ROUNDS {self.rounds} cannot run ACROSS PARTITIONS: there every epoch runs until "
                "nothing circulates; leave out one of the two"
            )
        if self.progress not in get_args(ProgressStrategy):
            known = ", ".join(map(repr, get_args(ProgressStrategy)))
            raise QueryError(f"progress={self.progress!r} is no strategy; there are {known}")

    @property
    def flying(self) -> bool:
        """Whether an epoch may end while rows still circulate."""
        return self.rounds is not None


STAGED: Final = LoopOptions()
"""Each epoch until nothing circulates."""
