"""Boxes: plans over streams in the order of their starts, as chapters 28 to 30 of the thesis use them.

A box takes one piece at a time and says pieces.  It is one of the thesis's operators over boxes, which end in ports.
Every piece carries a flag, for Parallel Track: whether all that it was made of came after the start of a migration.
The boxes count pieces kept and comparisons made, as nested loops would make them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

Row = tuple[Any, ...]


class Piece(NamedTuple):
    """A row that is alive on [start, end).  `new`: all of it came after the start of a migration."""

    row: Row
    start: float
    end: float
    new: bool = False


class Box(ABC):
    """A plan with numbered ports."""

    work: int = 0
    """Comparisons so far, of this operator."""

    @abstractmethod
    def take(self, port: int, piece: Piece) -> list[Piece]:
        """What is said because a piece came, in the order of starts."""

    @abstractmethod
    def finish(self) -> list[Piece]:
        """What is said because no more will come."""

    @abstractmethod
    def kept(self) -> Iterator[Piece]:
        """All pieces in the states of its operators."""

    @abstractmethod
    def compared(self) -> int:
        """Comparisons so far, of all its operators."""


class Port(Box):
    """Where a stream comes in."""

    def __init__(self, number: int) -> None:
        self.number = number

    def take(self, port: int, piece: Piece) -> list[Piece]:
        return [piece] if port == self.number else []

    def finish(self) -> list[Piece]:
        return []

    def kept(self) -> Iterator[Piece]:
        return iter(())

    def compared(self) -> int:
        return 0


class _InOrder:
    """What an operator has to say, until no input can bring anything that starts earlier."""

    def __init__(self, inputs: int) -> None:
        self._reached = [float("-inf")] * inputs
        self._queue: list[tuple[float, int, Piece]] = []
        self._count = 0

    def put(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            heappush(self._queue, (piece.start, self._count, piece))
            self._count += 1

    def leaving(self, side: int, start: float) -> list[Piece]:
        """What leaves, now that an input has come so far."""
        self._reached[side] = max(self._reached[side], start)
        return self.all(min(self._reached))

    def all(self, until: float = float("inf")) -> list[Piece]:
        found = []
        while self._queue and self._queue[0][0] <= until:
            found.append(heappop(self._queue)[2])
        return found

    def kept(self) -> Iterator[Piece]:
        return (each[2] for each in self._queue)


class Join(Box):
    """An equi-join over sweep areas (11.5.4): a key of each side.

    An area gives a piece up when the other side's starts have passed its end.  With `evict` it does so that long after
    the piece's start, as Parallel Track's boxes do, which know no ends: that is what makes PT last 2w.
    """

    def __init__(
        self,
        left: Box,
        right: Box,
        left_key: Callable[[Row], Any],
        right_key: Callable[[Row], Any],
        evict: float | None = None,
    ) -> None:
        self._boxes = (left, right)
        self._keys = (left_key, right_key)
        self._areas: tuple[dict[Any, list[Piece]], ...] = (defaultdict(list), defaultdict(list))
        self._ends: tuple[list[tuple[float, int, Any, Piece]], ...] = ([], [])
        self._count = 0
        self._evict = evict
        self._out = _InOrder(2)

    def take(self, port: int, piece: Piece) -> list[Piece]:
        found: list[Piece] = []
        for side, box in enumerate(self._boxes):
            for each in box.take(port, piece):
                self._out.put(self._met(side, each))
                found += self._out.leaving(side, each.start)
        return found

    def _until(self, piece: Piece) -> float:
        return piece.end if self._evict is None else piece.start + self._evict

    def _met(self, side: int, piece: Piece) -> list[Piece]:
        other = 1 - side
        self._purge(other, piece.start)
        self.work += len(self._ends[other])
        found = []
        for each in self._areas[other].get(self._keys[side](piece.row), ()):
            start, end = max(each.start, piece.start), min(each.end, piece.end)
            if start < end:
                row = piece.row + each.row if side == 0 else each.row + piece.row
                found.append(Piece(row, start, end, piece.new and each.new))
        key = self._keys[side](piece.row)
        self._areas[side][key].append(piece)
        heappush(self._ends[side], (self._until(piece), self._count, key, piece))
        self._count += 1
        return found

    def _purge(self, side: int, now: float) -> None:
        area, ends = self._areas[side], self._ends[side]
        while ends and ends[0][0] <= now:
            _, _, key, piece = heappop(ends)
            area[key].remove(piece)
            if not area[key]:
                del area[key]

    def finish(self) -> list[Piece]:
        for side, box in enumerate(self._boxes):
            for each in box.finish():
                self._out.put(self._met(side, each))
        return self._out.all()

    def kept(self) -> Iterator[Piece]:
        for box in self._boxes:
            yield from box.kept()
        for area in self._areas:
            for some in area.values():
                yield from some
        yield from self._out.kept()

    def compared(self) -> int:
        return self.work + sum(box.compared() for box in self._boxes)


class _Unary(Box):
    """An operator over one box."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._area: list[Piece] = []
        self._out = _InOrder(1)

    def take(self, port: int, piece: Piece) -> list[Piece]:
        found = []
        for each in self._box.take(port, piece):
            self._out.put(self._took(each))
            found += self._out.leaving(0, each.start)
        return found

    @abstractmethod
    def _took(self, piece: Piece) -> list[Piece]:
        """What is to be said because of a piece."""

    def _rest(self) -> list[Piece]:
        """What is to be said at the end."""
        return []

    def finish(self) -> list[Piece]:
        for each in self._box.finish():
            self._out.put(self._took(each))
        self._out.put(self._rest())
        return self._out.all()

    def kept(self) -> Iterator[Piece]:
        yield from self._box.kept()
        yield from self._area
        yield from self._out.kept()

    def compared(self) -> int:
        return self.work + self._box.compared()


class Distinct(_Unary):
    """Duplicate elimination (algorithm 7): of each piece the part that no earlier one has covered."""

    def _took(self, piece: Piece) -> list[Piece]:
        self._area = [each for each in self._area if each.end > piece.start]
        self.work += len(self._area)
        equal = [each for each in self._area if each.row == piece.row]
        start = max((each.end for each in equal), default=piece.start)
        if piece.end <= start:
            return []
        found = Piece(piece.row, start, piece.end, piece.new)
        self._area.append(found)
        return [found]


class Count(_Unary):
    """COUNT(*) (algorithm 9): partial counts that new pieces split, said when starts have passed their ends."""

    def _took(self, piece: Piece) -> list[Piece]:
        self.work += len(self._area)
        left = [each for each in self._area if each.end <= piece.start or piece.end <= each.start]
        covered = piece.start
        for each in sorted((each for each in self._area if each not in left), key=lambda each: each.start):
            both = each.new and piece.new
            inner = max(each.start, piece.start), min(each.end, piece.end)
            left += [Piece(each.row, each.start, inner[0], each.new)] if each.start < inner[0] else []
            left += [Piece((1,), covered, inner[0], piece.new)] if covered < inner[0] else []
            left.append(Piece((each.row[0] + 1,), *inner, both))
            left += [Piece(each.row, inner[1], each.end, each.new)] if inner[1] < each.end else []
            covered = inner[1]
        if covered < piece.end:
            left.append(Piece((1,), covered, piece.end, piece.new))
        self._area = [each for each in left if each.end > piece.start]
        return [each for each in left if each.end <= piece.start]

    def _rest(self) -> list[Piece]:
        found, self._area = self._area, []
        return found


class CountAtOnce(_Unary):
    """COUNT(*) by its definition, said when all has come: right in whatever order pieces come."""

    def _took(self, piece: Piece) -> list[Piece]:
        self._area.append(piece)
        return []

    def _rest(self) -> list[Piece]:
        ends = sorted({t for each in self._area for t in (each.start, each.end)})
        found = []
        for start, end in pairwise(ends):
            alive = [each for each in self._area if each.start <= start < each.end]
            if alive:
                found.append(Piece((len(alive),), start, end, all(each.new for each in alive)))
        return found


def snapshot(pieces: Iterable[Piece], t: float) -> Counter[Row]:
    """What is alive at an instant."""
    return Counter(each.row for each in pieces if each.start <= t < each.end)
