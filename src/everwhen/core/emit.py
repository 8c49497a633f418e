"""Emission policies: how much of an answer is emitted before it is final."""

from __future__ import annotations

from enum import Enum


class Emit(Enum):
    """How much of the answer is said: what stands before θ (design: answer the present, correct the past).

    FINAL: what promises have settled.  ENDED: also pieces that ended by τ, the largest start seen.  CURRENT: also the
    piece open at τ.  ALL: everything known, the future too; it is corrected when it comes otherwise (minimum latency).
    """

    FINAL = "final"
    ENDED = "ended"
    CURRENT = "current"
    ALL = "all"

    @property
    def rank(self) -> int:
        """How much is said: of two policies the one with the higher rank says all that the other does, and more."""
        return tuple(Emit).index(self)
