"""GenMig (algorithm 25 of the thesis), its two optimisations, and Parallel Track (28.1).

A strategy is told of every piece and says what leaves.  `begin` starts a migration; `done` tells when it is over.  ε is
half an instant, so the split is neither a start nor an end of anything (remark 29.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from everwhen.core.time import INF
from everwhen.reference.migration.boxes import Box, Piece
from everwhen.reference.migration.fork_fuse import Fuse, MendedFuse, fork

EPSILON = 0.5


class Strategy(ABC):
    """From an old box to a new one, which has no state yet."""

    def __init__(self, old: Box, new: Box, ports: int) -> None:
        self.old, self.new = old, new
        self.done = False
        self._ports = ports
        self._begun = False

    def begin(self) -> None:
        """A migration starts."""
        self._begun = True

    def take(self, port: int, piece: Piece) -> list[Piece]:
        """What leaves because a piece came."""
        if not self._begun:
            return self.old.take(port, piece._replace(new=False))
        return self.new.take(port, piece) if self.done else self._during(port, piece)

    @abstractmethod
    def _during(self, port: int, piece: Piece) -> list[Piece]:
        """What leaves while both boxes are there."""

    def finish(self) -> list[Piece]:
        """What leaves when no more will come."""
        return self.new.finish() if self.done else self.old.finish()

    def kept(self) -> int:
        """How many pieces are kept."""
        boxes = [self.old] if not self._begun else [self.new] if self.done else [self.old, self.new]
        return sum(1 for box in boxes for _ in box.kept()) + (0 if self.done else self._waiting())

    def _waiting(self) -> int:
        return 0

    def compared(self) -> int:
        """How many comparisons were made."""
        return self.old.compared() + self.new.compared()


class GenMig(Strategy):
    """Algorithm 25.  The split is the largest start plus the window; with `by_ends` the largest end that entered the
    old box (29.4.2).  `reference_point`: whole pieces to the old box, and results of the new one that start at the
    split are dropped (29.4.1).

    The old box is given up when the starts of all inputs have passed the split: that is the printed end.
    """

    def __init__(
        self,
        old: Box,
        new: Box,
        ports: int,
        window: float = 0,
        by_ends: bool = False,
        reference_point: bool = False,
        fuse: Callable[[float], Fuse] = MendedFuse,
    ) -> None:
        super().__init__(old, new, ports)
        self.split: float | None = None
        self._window, self._by_ends, self._reference_point = window, by_ends, reference_point
        self._made, self._fuse = fuse, fuse(INF)
        self._starts: dict[int, float] = {}
        self._largest_end = float("-inf")

    def take(self, port: int, piece: Piece) -> list[Piece]:
        self._largest_end = max(self._largest_end, piece.end)
        return super().take(port, piece)

    def _during(self, port: int, piece: Piece) -> list[Piece]:
        self._starts[port] = max(piece.start, self._starts.get(port, piece.start))
        if self.split is None:  # lines 1 to 5: the old box goes on alone until every input has been heard
            found = self.old.take(port, piece)
            if len(self._starts) == self._ports:
                latest = self._largest_end if self._by_ends else max(self._starts.values()) + self._window
                self.split = latest if latest == INF else latest + EPSILON
                self._fuse = self._made(self.split)
            return found
        found = self._shared(port, piece, self.split)
        if min(self._starts.values()) >= self.split:  # lines 9 to 16
            found += self._ended(self.split)
        return found

    def _shared(self, port: int, piece: Piece, split: float) -> list[Piece]:
        before, after = fork(piece, split)
        if self._reference_point and before is not None:
            before = piece
        found: list[Piece] = []
        for each in self.old.take(port, before) if before is not None else ():
            found += self._joined(0, each, split)
        for each in self.new.take(port, after) if after is not None else ():
            found += self._joined(1, each, split)
        return found

    def _joined(self, box: int, piece: Piece, split: float) -> list[Piece]:
        if self._reference_point:
            return [piece] if box == 0 or piece.start > split else []
        return self._fuse.take(box, piece)

    def _ended(self, split: float) -> list[Piece]:
        found = [said for each in self.old.finish() for said in self._joined(0, each, split)]
        found += [] if self._reference_point else self._fuse.flush()
        self.done = True
        return found

    def finish(self) -> list[Piece]:
        if self.done or self.split is None:
            return super().finish()
        found = [said for each in self.old.finish() for said in self._joined(0, each, self.split)]
        found += [said for each in self.new.finish() for said in self._joined(1, each, self.split)]
        return found + ([] if self._reference_point else self._fuse.flush())

    def _waiting(self) -> int:
        return self._fuse.kept()


class ParallelTrack(Strategy):
    """28.1: both boxes get all.  Results of the old box that are all new are dropped; those of the new box wait until
    the old one holds nothing old."""

    def __init__(self, old: Box, new: Box, ports: int) -> None:
        super().__init__(old, new, ports)
        self._buffer: list[Piece] = []

    def _during(self, port: int, piece: Piece) -> list[Piece]:
        piece = piece._replace(new=True)
        found = [each for each in self.old.take(port, piece) if not each.new]
        self._buffer += self.new.take(port, piece)
        if all(each.new for each in self.old.kept()):
            found += self._buffer
            self._buffer, self.done = [], True
        return found

    def finish(self) -> list[Piece]:
        if self.done or not self._begun:
            return super().finish()
        return [each for each in self.old.finish() if not each.new] + self._buffer + self.new.finish()

    def _waiting(self) -> int:
        return len(self._buffer)
