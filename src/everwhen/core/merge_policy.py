"""What a merge of copies says from its promise on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everwhen.errors import QueryError

KERNELS: Final = ("R0", "R1", "R2", "R3", "R4")
"""The classes of the LMerge paper, by how much of its inputs is known; each has a kernel of its own."""


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """FIRST, LEADER, QUORUM k or FINAL, each EAGER or LAZY.

    `quorum`: how many inputs must say it; 1 is FIRST.  With `leader` one input is followed, with `final` nothing is
    said before it is final.  `audit`: what inputs have promised is compared, and a difference is an error.  `kernel`:
    run this one (`KERNELS`), not the one that follows from what is known of the inputs.

    >>> print(MergePolicy(leader=True), "|", MergePolicy(quorum=2, lazy=True))
    LEADER, EAGER | QUORUM 2, LAZY
    """

    quorum: int = 1
    leader: bool = False
    final: bool = False
    lazy: bool = False
    audit: bool = False
    kernel: str | None = None

    def __post_init__(self) -> None:
        if self.quorum < 1:
            raise QueryError(f"a quorum of {self.quorum} inputs is none; at least one must say it")
        if (self.quorum > 1) + self.leader + self.final > 1:
            raise QueryError("of quorum, leader and final a merge follows one; leave the others out")
        if self.kernel is not None and self.kernel not in KERNELS:
            raise QueryError(f"a merge has no kernel {self.kernel!r}; there are {', '.join(KERNELS)}")

    def __str__(self) -> str:
        name = "LEADER" if self.leader else "FIRST" if self.quorum == 1 else f"QUORUM {self.quorum}"
        words = ["FINAL"] if self.final else [name, "LAZY" if self.lazy else "EAGER"]
        words += ["AUDIT"] if self.audit else []
        words += [self.kernel] if self.kernel else []
        return ", ".join(words)
