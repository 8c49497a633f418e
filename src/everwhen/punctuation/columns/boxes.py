"""The promises that bind the same several columns: some by constants, the others by ranges.

The constants of a promise are its key, in a flat hash table.  Without ranges the table holds the time itself.  With
ranges it holds the number of a chain of boxes, one closed interval per ranged column: `item = 7 and hour < 4` and
`item = 7 and 4 <= hour < 9` are found by the item and become one box.  Costs: a look-up is O(1) and the length of the
chain, which is one for promises that grow; promises that have no constant at all share one chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.containers.int_table import PointTable
from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation
from everwhen.core.scalars import python_values
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.punctuation.columns.box_loops import add_boxes, most_around, raise_in_boxes
from everwhen.punctuation.columns.codes import KeyCodes, Moves, Ruler
from everwhen.punctuation.columns.column import shown
from everwhen.punctuation.values.order import Kind, order_of
from everwhen.punctuation.values.sets import Run

_LEAST: Final = 16
_NO_CONSTANTS: Final = -1


@dataclass(frozen=True)
class Shape:
    """Which columns are bound by constants and which by ranges."""

    constants: tuple[str, ...]
    ranges: tuple[str, ...]


@dataclass(frozen=True)
class Entries:
    """Promises of one shape: the constants as columns, a run per ranged column and promise, the times."""

    columns: Sequence[pa.Array]
    runs: Sequence[Sequence[Run]]
    times: np.ndarray

    def __len__(self) -> int:
        return len(self.times)

    def filter(self, kept: np.ndarray, times: np.ndarray | None = None) -> Entries:
        mask, which = pa.array(kept), np.flatnonzero(kept).tolist()
        runs = [[runs[i] for i in which] for runs in self.runs]
        return Entries([c.filter(mask) for c in self.columns], runs, (self.times if times is None else times)[kept])


class BoxTable:
    """Promises of one shape."""

    def __init__(self, schema: Schema, shape: Shape) -> None:
        self.shape = shape
        self._schema = schema
        self._types = [schema.field(name).type for name in shape.ranges]
        self._rulers = [Ruler(order_of(t)) if order_of(t).kind is Kind.BYTES else None for t in self._types]
        self._codes = KeyCodes([schema.field(name).type for name in shape.constants])
        self._keys = PointTable(self._codes.width)
        self._dims = len(shape.ranges)
        self._heads = np.full(_LEAST, -1, np.int64)
        self._links = np.empty(_LEAST, np.int64)
        self._boxes = np.empty((_LEAST, 2 * self._dims + 1), np.int64)
        self._count = 0
        self._credit = 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self._live)) if self._dims else len(self._keys)

    @property
    def _live(self) -> np.ndarray:
        return self._boxes[: self._count, -1] != NEVER

    @property
    def nbytes(self) -> int:
        boxes = self._heads.nbytes + self._links.nbytes + self._boxes.nbytes if self._dims else 0
        return self._keys.nbytes + self._codes.nbytes + boxes + sum(r.nbytes for r in self._rulers if r is not None)

    def add(self, entries: Entries) -> None:
        n = len(entries)
        if not n:
            return
        self._credit += n
        if not self._dims:
            self._keys.add(self._codes.encode(entries.columns, n), entries.times)
            return
        if self._count + n > len(self._boxes) and 2 * self._credit >= self._count:
            self._rebuild(NEVER)
        boxes = np.empty((n, 2 * self._dims + 1), np.int64)
        for d, runs in enumerate(entries.runs):
            boxes[:, 2 * d : 2 * d + 2] = self._intervals(d, runs)
        boxes[:, -1] = entries.times
        self._link(self._codes.encode(entries.columns, n), boxes)

    def raise_to(self, columns: Mapping[str, pa.Array], out: np.ndarray) -> None:
        """Raises `out` to what is promised for each row."""
        n = len(out)
        rows = self._codes.find([columns[name] for name in self.shape.constants], n)
        found = self._keys.find(rows)
        if not self._dims:
            np.maximum(out, found, out=out)
            return
        keys = np.where(found == NEVER, _NO_CONSTANTS, found)
        points = np.empty((n, self._dims), np.int64)
        for d, name in enumerate(self.shape.ranges):
            column, ruler = columns[name], self._rulers[d]
            points[:, d] = order_of(self._types[d]).ranks(column) if ruler is None else ruler.positions(column)
            if column.null_count:
                keys[column.is_null().to_numpy(zero_copy_only=False)] = _NO_CONSTANTS
        raise_in_boxes(self._heads, self._links, self._boxes, keys, points, out)

    def around(self, constants: Sequence[pa.Array], runs: Sequence[Run]) -> int:
        """What is promised by one box for all of another: its constants in columns of length one, and its runs."""
        found = self._keys.find(self._codes.find(constants, 1))
        if not self._dims or found[0] == NEVER:
            return int(found[0])
        box = np.empty(2 * self._dims, np.int64)
        for d, run in enumerate(runs):
            box[2 * d : 2 * d + 2] = self._intervals(d, [run])[0]
        return int(most_around(self._heads, self._links, self._boxes, int(found[0]), box))

    def forget(self, c: int) -> None:
        """Drops what says no more than `c`, when it pays."""
        self._credit += 1
        if 2 * self._credit >= (self._count if self._dims else len(self._keys)):
            self._rebuild(c)

    def entries(self) -> Entries:
        """All promises."""
        if not self._dims:
            rows, times = self._keys.entries()
            return Entries(self._codes.columns(rows), [], times)
        rows, boxes = self._chained()
        runs = [self._runs(d, boxes) for d in range(self._dims)]
        return Entries(self._codes.columns(rows), runs, boxes[:, -1].copy())

    def promises(self, c: int = NEVER) -> Iterator[Punctuation]:
        """All promises that say more than `c`."""
        entries = self.entries()
        yield from promises_of(entries.filter(entries.times > c), self.shape, self._schema)

    def _intervals(self, d: int, runs: Sequence[Run]) -> list[tuple[int, int]]:
        ruler = self._rulers[d]
        if ruler is None:
            end = order_of(self._types[d]).hi
            return [(lo, end if hi is None else hi - 1) for lo, hi in runs]
        self._move(d, ruler.grow(runs))
        return [ruler.interval(run) for run in runs]

    def _runs(self, d: int, boxes: np.ndarray) -> list[Run]:
        ruler = self._rulers[d]
        bounds = boxes[:, 2 * d : 2 * d + 2].tolist()
        if ruler is not None:
            return [ruler.run(lo, hi) for lo, hi in bounds]
        end = order_of(self._types[d]).hi
        return [(lo, None if hi == end else hi + 1) for lo, hi in bounds]

    def _move(self, d: int, moves: Moves | None) -> None:
        if moves is not None:
            for side, moved in enumerate(moves):
                at = self._boxes[: self._count, 2 * d + side]
                at[:] = moved[at]

    def _link(self, rows: np.ndarray, boxes: np.ndarray) -> None:
        known = self._keys.number(rows)
        if len(self._keys) > len(self._heads):
            more = np.full(2 * len(self._keys) - len(self._heads), -1, np.int64)
            self._heads = np.concatenate((self._heads, more))
        if self._count + len(boxes) > len(self._boxes):
            size = 2 * (self._count + len(boxes))
            grown, links = np.empty((size, self._boxes.shape[1]), np.int64), np.empty(size, np.int64)
            grown[: self._count], links[: self._count] = self._boxes[: self._count], self._links[: self._count]
            self._boxes, self._links = grown, links
        self._count = int(add_boxes(self._heads, self._links, self._boxes, known, boxes, self._count))

    def _chained(self) -> tuple[np.ndarray, np.ndarray]:
        """The row of constants and the box of every promise."""
        rows, numbers = self._keys.entries()
        by_number = np.empty_like(rows)
        by_number[numbers] = rows
        keys = np.full(self._count, -1, np.int64)
        heads = self._heads[: len(rows)]
        at, number = heads[heads >= 0], np.flatnonzero(heads >= 0)
        while len(at):  # one step along all chains at once
            keys[at] = number
            further = self._links[at]
            at, number = further[further >= 0], number[further >= 0]
        return by_number[keys[keys >= 0]], self._boxes[: self._count][keys >= 0]

    def _rebuild(self, c: int) -> None:
        """Drops what says no more than `c`, and constants and bounds that nothing uses any more."""
        self._credit = 0
        if not self._dims:
            rows, times = self._keys.entries()
            kept = times > c
            if not kept.all():
                self._keys.replace(self._codes.keep(rows[kept]), times[kept])
            return
        rows, boxes = self._chained()
        kept = boxes[:, -1] > c
        rows, self._boxes, self._count = self._codes.keep(rows[kept]), boxes[kept], int(kept.sum())
        for d, ruler in enumerate(self._rulers):
            if ruler is not None:
                starts, ends = self._boxes[:, 2 * d], self._boxes[:, 2 * d + 1]
                self._move(d, ruler.shrink(np.union1d(starts[starts > 0] - 1, ends[ends < ruler.last])))
        boxes = self._boxes
        self._keys, self._heads = PointTable(self._codes.width), np.full(_LEAST, -1, np.int64)
        self._boxes, self._links, self._count = boxes[:0], np.empty(0, np.int64), 0
        self._link(rows, boxes)


def promises_of(entries: Entries, shape: Shape, schema: Schema) -> Iterator[Punctuation]:
    """Entries as promises."""
    constants = [python_values(column) for column in entries.columns]
    for i, t in enumerate(entries.times.tolist()):
        fixed: dict[str, AttributePattern] = {
            name: OneOf((values[i],)) for name, values in zip(shape.constants, constants, strict=True)
        }
        choices: list[dict[str, AttributePattern]] = [fixed]
        for name, runs in zip(shape.ranges, entries.runs, strict=True):
            found = shown(runs[i], order_of(schema.field(name).type))
            choices = [{**match, name: pattern} for match in choices for pattern in found]
        for match in choices:
            yield Punctuation({name: match[name] for name in schema.names if name in match}, t)


def state_of(entries: Entries) -> dict[str, Any]:
    """Entries as plain data."""
    return {"columns": list(entries.columns), "runs": [list(runs) for runs in entries.runs], "times": entries.times}
