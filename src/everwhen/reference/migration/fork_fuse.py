"""Fork and fuse (algorithms 26 and 27 of the thesis): what stands before and behind two boxes during GenMig.

`Fuse` is as printed.  It has two slips: a match inserts one half instead of the whole, and what may leave is decided
anew, as nothing, with every piece.  `MendedFuse` has neither.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush

from everwhen.reference.migration.boxes import Piece, Row


def fork(piece: Piece, split: float) -> tuple[Piece | None, Piece | None]:
    """Algorithm 26: the part of a piece before the split, for the old box, and that from there on, for the new one."""
    if piece.start >= split:
        return None, piece
    if piece.end <= split:
        return piece, None
    return piece._replace(end=split), piece._replace(start=split)


class Fuse:
    """Algorithm 27 as printed."""

    def __init__(self, split: float) -> None:
        self._split = split
        self._waiting: tuple[dict[Row, list[Piece]], ...] = (defaultdict(list), defaultdict(list))
        self._queue: list[tuple[float, int, Piece]] = []
        self._count = 0

    def take(self, port: int, piece: Piece) -> list[Piece]:
        """A piece of the old box (0) or of the new one (1): what leaves because of it."""
        may_leave = 0.0
        if piece.end < self._split or piece.start > self._split:
            self._put(piece)
        else:
            others = self._waiting[1 - port][piece.row]
            if others:
                other = others.pop(0)
                self._put(self._both(port, piece, other))
                if port == 1:
                    may_leave = other.start
            else:
                self._waiting[port][piece.row].append(piece)
        return self._leaving(self._allowed(port, piece, may_leave))

    def _both(self, port: int, piece: Piece, other: Piece) -> Piece:
        """What a match puts into the queue."""
        return piece

    def _allowed(self, port: int, piece: Piece, may_leave: float) -> float:
        """Up to which start pieces leave."""
        return may_leave

    def _put(self, piece: Piece) -> None:
        heappush(self._queue, (piece.start, self._count, piece))
        self._count += 1

    def _leaving(self, until: float) -> list[Piece]:
        found = []
        while self._queue and self._queue[0][0] <= until:
            found.append(heappop(self._queue)[2])
        return found

    def flush(self) -> list[Piece]:
        """The migration is finished."""
        return self._leaving(float("inf"))

    def kept(self) -> int:
        """How many pieces wait."""
        return len(self._queue) + sum(len(some) for each in self._waiting for some in each.values())


class MendedFuse(Fuse):
    """Algorithm 27 as it is meant: a match gives the whole, and what can have no predecessor any more leaves."""

    def __init__(self, split: float) -> None:
        super().__init__(split)
        self._reached = float("-inf")

    def _both(self, port: int, piece: Piece, other: Piece) -> Piece:
        return Piece(piece.row, min(piece.start, other.start), max(piece.end, other.end), piece.new and other.new)

    def _allowed(self, port: int, piece: Piece, may_leave: float) -> float:
        if port == 0:  # the old box speaks in order
            self._reached = max(self._reached, piece.start)
        first = min((each.start for some in self._waiting[0].values() for each in some), default=float("inf"))
        return min(self._reached, first)

    def flush(self) -> list[Piece]:
        for each in self._waiting:
            for some in each.values():
                for piece in some:
                    self._put(piece)
            each.clear()
        return super().flush()
