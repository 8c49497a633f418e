"""Inserts that wait in the order of their starts: what Align keeps as long as nothing else has come.

They stand in pieces, as they came, so that to wait costs nothing and to go on one copy at most, whatever waits behind.
A piece that is cut stays where it is; if it is cut again and less than half is left, the rest is written anew.  So
memory is that of what waits, twice at most, and of one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.containers.sort_by_time import by_time, pick
from everwhen.core.time import INF, NEVER
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.rows import restored
from everwhen.rows.codec import RowCodec

_SMALL: Final = 64
"""So few are sorted anew, however few have come."""
_PIECE: Final = 512
"""Pieces are put together up to about this size."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Inserts in order, and how many there were before it was cut."""

    vs: np.ndarray
    ve: np.ndarray
    rows: np.ndarray
    held: int

    def __len__(self) -> int:
        return len(self.vs)

    @staticmethod
    def joined(pieces: Sequence[Piece]) -> Piece:
        if len(pieces) == 1:
            return pieces[0]
        vs, ve, rows = (np.concatenate([getattr(p, part) for p in pieces]) for part in ("vs", "ve", "rows"))
        return Piece(vs, ve, rows, len(vs))

    def before(self, n: int) -> Piece:
        return Piece(self.vs[:n], self.ve[:n], self.rows[:n], self.held)

    def after(self, n: int) -> Piece:
        """What is left when the first `n` have gone."""
        vs, ve, rows, left = self.vs[n:], self.ve[n:], self.rows[n:], len(self.vs) - n
        if len(self.vs) == self.held or 2 * left >= self.held:
            return Piece(vs, ve, rows, self.held)
        return Piece(vs.copy(), ve.copy(), rows.copy(), left)

    def sorted(self) -> Piece:
        n = len(self.vs)
        (vs, ve), rows = np.empty((2, n), np.int64), np.empty_like(self.rows)
        pick(by_time(self.vs), self.vs, self.ve, self.rows, vs, ve, rows)
        return Piece(vs, ve, rows, n)

    def guarded(self, codec: RowCodec) -> CheckedBatch:
        vnew = self.vs  # which says nothing without adjusts
        return CheckedBatch(codec, np.zeros(len(vnew), np.uint8), self.vs, self.ve, vnew, self.rows, 0, ordered=True)


class SortedBuffer:
    """Inserts in order.  Those that start together go on as they came."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._pieces: deque[Piece] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    @property
    def lowest(self) -> int:
        """The first start; infinity if nothing waits."""
        return int(self._pieces[0].vs[0]) if self._pieces else INF

    @property
    def nbytes(self) -> int:
        return sum(8 * piece.held * (2 + self.codec.width) for piece in self._pieces)

    def take(self, arrived: CheckedBatch) -> bool:
        """Let inserts wait; False if too many that wait already would have to be moved for it."""
        if not len(arrived.vs):
            return True
        piece = Piece(arrived.vs, arrived.ve, arrived.rows, len(arrived.vs))
        first = int(piece.vs[0] if arrived.ordered else piece.vs.min())
        behind = self._behind(first, 4 * len(piece) + _SMALL)
        if behind is None:
            return False
        piece = Piece.joined([*behind, piece])
        self._pieces.append(piece if arrived.ordered and not behind else piece.sorted())
        self._put_together()
        return True

    def _put_together(self) -> None:
        """Small pieces become larger ones, each element a few times, so that single elements are not dear to keep."""
        pieces = self._pieces
        while len(pieces) > 1 and len(pieces[-2]) < 2 * len(pieces[-1]) <= _PIECE:
            last = pieces.pop()
            pieces[-1] = Piece.joined([pieces[-1], last])

    def _behind(self, start: int, most: int) -> list[Piece] | None:
        """Take out what starts after `start`; None, and nothing is changed, if that is more than `most`."""
        n, whole = 0, 0
        for piece in reversed(self._pieces):
            if piece.vs[-1] <= start or n > most:
                break
            at = int(piece.vs.searchsorted(start, "right"))
            n += len(piece) - at
            whole += 1
        if n > most:
            return None
        found = [self._pieces.pop() for _ in range(whole)][::-1]
        if found:
            at = int(found[0].vs.searchsorted(start, "right"))
            if at:
                self._pieces.append(found[0].before(at))
                found[0] = found[0].after(at)
        return found

    def due(self, limit: int) -> CheckedBatch:
        """What starts at `limit` or before goes on."""
        going: list[Piece] = []
        while self._pieces and self._pieces[0].vs[-1] <= limit:
            going.append(self._pieces.popleft())
        if self._pieces:
            first = self._pieces[0]
            n = int(first.vs.searchsorted(limit, "right"))
            if n:
                going.append(first.before(n))
                self._pieces[0] = first.after(n)
        return self._guarded(going)

    def all(self) -> CheckedBatch:
        return self._guarded(list(self._pieces))

    def clear(self) -> None:
        self._pieces.clear()

    def _guarded(self, pieces: Sequence[Piece]) -> CheckedBatch:
        if pieces:
            return Piece.joined(pieces).guarded(self.codec)
        nothing = np.empty(0, np.int64)
        return Piece(nothing, nothing, self.codec.empty(), 0).guarded(self.codec)

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(piece.rows, self.codec.pooled) for piece in self._pieces]

    def snapshot(self) -> dict[str, Any]:
        """As plain data, in the form of `EventIndex`: (start, end, -∞, start)."""
        every = self.all()
        fields = np.stack([every.vs, every.ve, np.full_like(every.vs, NEVER), every.vs], axis=1)
        return {"least": NEVER, "fields": fields, "rows": self.codec.decode(every.rows)}

    def restore(self, state: Mapping[str, Any]) -> None:
        fields = state["fields"]
        restored.records(fields, 4)
        vs, ve = fields[:, 0].copy(), fields[:, 1].copy()
        piece = Piece(vs, ve, restored.rows(self.codec, state["rows"], len(vs)), len(vs))
        self._pieces = deque([piece.sorted()] if len(vs) else [])
