"""What a merge of copies says from its promise on."""

from __future__ import annotations

from dataclasses import dataclass

from everwhen.errors import QueryError


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """FIRST, LEADER, QUORUM k or FINAL, each EAGER or LAZY.

    `quorum`: how many inputs must say it; 1 is FIRST.  With `leader` one input is followed, with `final` nothing is
    said before it is final.

    >>> print(MergePolicy(leader=True), "|", MergePolicy(quorum=2, lazy=True))
    LEADER, EAGER | QUORUM 2, LAZY
    """

    quorum: int = 1
    leader: bool = False
    final: bool = False
    lazy: bool = False

    def __post_init__(self) -> None:
        if self.quorum < 1:
            raise QueryError(f"a quorum of {self.quorum} inputs is none; at least one must say it")
        if (self.quorum > 1) + self.leader + self.final > 1:
            raise QueryError("of quorum, leader and final a merge follows one; leave the others out")

    def __str__(self) -> str:
        if self.final:
            return "FINAL"
        name = "LEADER" if self.leader else "FIRST" if self.quorum == 1 else f"QUORUM {self.quorum}"
        return f"{name}, {'LAZY' if self.lazy else 'EAGER'}"
