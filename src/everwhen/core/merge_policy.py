"""What a merge of copies says from its promise on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """FIRST, LEADER, QUORUM k or FINAL, each EAGER or LAZY.

    `quorum`: how many inputs must say it; 1 is FIRST.  With `leader` one input is followed, with `final` nothing is
    said before it is final.
    """

    quorum: int = 1
    leader: bool = False
    final: bool = False
    lazy: bool = False

    def __str__(self) -> str:
        if self.final:
            return "FINAL"
        name = "LEADER" if self.leader else "FIRST" if self.quorum == 1 else f"QUORUM {self.quorum}"
        return f"{name}, {'LAZY' if self.lazy else 'EAGER'}"


FIRST = MergePolicy()
LEADER = MergePolicy(leader=True)
FINAL = MergePolicy(final=True)
