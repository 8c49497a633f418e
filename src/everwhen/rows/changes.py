"""What flows inside: a batch of signed segments.

A segment says "this payload, `weight` more times, during `[lo, hi)`".  An insert is `+[vs, ve)`; an adjust is
`-[vnew, ve)` or `+[ve, vnew)`.  A segment is legal exactly when `lo` is not before the CTI, so what a CTI freed is
never needed again.  In *event form* (what AlterLifetime needs) an adjust is `-[vs, ve)` and `+[vs, vnew)` instead:
every segment is a whole event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everwhen.rows.codec import RowCodec


@dataclass(frozen=True, eq=False, slots=True)
class Changes:
    """Signed segments; `rows` are coded payloads of `codec`.

    `group`: where an operator's answer is made of groups with one row each at any instant, the number of the group of
    each segment.  Segments of a group stand together, in the order of time: first what is taken back, then what is
    said, each once.  `closed` are the numbers of groups that are over: another group may come to have them.
    """

    codec: RowCodec
    lo: np.ndarray
    hi: np.ndarray
    weight: np.ndarray
    rows: np.ndarray
    group: np.ndarray | None = None
    closed: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lo)

    def take(self, picked: np.ndarray | slice) -> Changes:
        """The segments at positions, in a part, or where a mask is true."""
        group = None if self.group is None else self.group[picked]
        lo, hi, weight, rows = self.lo[picked], self.hi[picked], self.weight[picked], self.rows[picked]
        return Changes(self.codec, lo, hi, weight, rows, group, self.closed)

    def with_rows(self, codec: RowCodec, rows: np.ndarray) -> Changes:
        return Changes(codec, self.lo, self.hi, self.weight, rows)

    def negated(self) -> Changes:
        return Changes(self.codec, self.lo, self.hi, -self.weight, self.rows)


_NONE = np.empty(0, np.int64)


def no_changes(codec: RowCodec) -> Changes:
    """An empty batch."""
    return Changes(codec, _NONE, _NONE, _NONE, codec.empty())


def concat(first: Changes, second: Changes) -> Changes:
    """Both batches as one, with the first one's codec."""
    if not len(second):
        return first
    if not len(first):
        return Changes(first.codec, second.lo, second.hi, second.weight, second.rows)
    return concat_all(first.codec, [first, second])


def concat_all(codec: RowCodec, parts: Sequence[Changes]) -> Changes:
    """All batches as one."""
    if len(parts) < 2:
        return parts[0] if parts else no_changes(codec)
    return Changes(
        codec,
        np.concatenate([part.lo for part in parts]),
        np.concatenate([part.hi for part in parts]),
        np.concatenate([part.weight for part in parts]),
        np.concatenate([part.rows for part in parts]),
    )


def first_met(pieces: Changes, group: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For spans of groups the position of the first piece of its group that each may meet, and whether it does; pieces
    of a group are disjoint."""
    assert pieces.group is not None, "pieces are those of an operator that knows groups"
    # the first one that ends after a span's start is the one to look at
    order = np.lexsort((pieces.hi, pieces.group))
    ends = np.concatenate([pieces.hi[order], lo])
    of = np.concatenate([pieces.group[order], group])
    both = np.lexsort((np.arange(len(of)) >= len(order), ends, of))
    following = np.where(both < len(order), both, len(order))
    following = np.minimum.accumulate(following[::-1])[::-1]
    piece = np.empty(len(of), np.int64)
    piece[both] = following
    piece = piece[len(order) :]
    there = piece < len(order)
    at = order[np.minimum(piece, len(order) - 1)]
    return at, there & (pieces.group[at] == group) & (pieces.lo[at] < hi)
