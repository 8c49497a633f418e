"""Rows in the order asked for: which of them are near to a change.  What comes and goes: `test_ranked_rows.py`."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from everwhen.algebra.nodes import Ordering
from everwhen.core.time import INF
from everwhen.operators.rank.loops.reach import Reach
from everwhen.operators.rank.loops.row_tree import ROW
from everwhen.operators.rank.loops.tree import HI, LO
from everwhen.operators.rank.ordered_rows import OrderedRows
from everwhen.operators.rank.row_order import RowOrder
from everwhen.rows.changes import Changes
from operators.stepping import changes, codec_of

CODEC = codec_of({"x": pa.int64()})


def kept(*segments: tuple[int, int, int]) -> OrderedRows:
    """Rows of one key: start, end and value of each."""
    found = OrderedRows(CODEC, RowOrder((Ordering("x"),), (), CODEC, ROW))
    found.grow(1)
    found.share = 0  # type: ignore[misc]
    come(found, *segments)
    return found


def batch_of(*segments: tuple[int, int, int]) -> Changes:
    return changes(CODEC, *((lo, hi, 1, x) for lo, hi, x in segments))


def come(rows: OrderedRows, *segments: tuple[int, int, int]) -> None:
    batch = batch_of(*segments)
    rows.apply(np.zeros(len(batch), np.int64), batch.lo, batch.hi, batch.weight, batch.rows)


def near(rows: OrderedRows, reach: int, *segments: tuple[int, int, int]) -> list[list[int]]:
    """The values near to changes, per span."""
    batch = batch_of(*segments)
    touched = rows.touched(np.zeros(len(batch), np.int64), batch.lo, batch.hi)
    found = rows.near(touched, batch, Reach(reach))
    assert not found.whole.any()
    parts = [found.records[a:b] for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]
    return [sorted(CODEC.decode(rows.pool[part, ROW:])[0].to_pylist()) for part in parts]


def test_of_rows_that_stay_the_nearest_ones_are_near() -> None:
    rows = kept(*((0, INF, x) for x in range(0, 100, 10)))
    assert near(rows, 1, (3, 9, 45)) == [[30, 40, 50, 60]]
    assert near(rows, 1, (3, 9, 50)) == [[30, 40, 60, 70]], "equal rows of changed ones do not count"
    assert near(rows, 1, (3, 9, 45), (4, 6, 65)) == [[30, 40, 50, 60, 70, 80]]
    assert near(rows, 1, (1, 2, 5), (7, 9, 85)) == [[0, 10, 20], [70, 80, 90]], "each span has its own"
    assert near(rows, 0, (3, 9, 45)) == [[]]


def test_where_a_near_row_ends_others_take_its_place() -> None:
    rows = kept((0, 5, 1), (0, 4, 2), (0, 6, 3), (0, 3, 4), (0, 9, 5), (0, 7, 6), (0, INF, 7), (0, INF, 8))
    assert near(rows, 1, (2, 9, 0)) == [[1, 2, 3, 5, 6, 7]], "4 ends when two nearer ones are alive"
    assert near(rows, 1, (2, 5, 0)) == [[1, 2, 3]]


@pytest.mark.parametrize("seed", range(8))
def test_at_each_instant_so_many_rows_on_each_side_are_near(seed: int) -> None:
    rng = random.Random(seed)
    rows = kept(*((lo := rng.randrange(20), lo + rng.randrange(1, 20), x) for x in range(0, 60, 2)))
    alive = rows.gather(np.zeros(1, np.int64))[0]
    value = {int(record[-1]): (int(record[LO]), int(record[HI])) for record in alive}
    lo, x, reach = rng.randrange(20), rng.randrange(0, 60) | 1, rng.choice((1, 2))
    hi = lo + rng.randrange(1, 20)
    (found,) = near(rows, reach, (lo, hi, x))
    for t in range(lo, hi):
        there = [y for y, (start, end) in value.items() if start <= t < end]
        low, high = sorted(y for y in there if y < x)[-2 * reach :], sorted(y for y in there if y > x)[: 2 * reach]
        assert {*low, *high} <= {*found}


def test_where_most_rows_may_be_near_all_are_walked_along() -> None:
    rows = kept(*((0, INF, x) for x in range(30)))
    del rows.share
    for reach, whole in ((1, False), (4, True)):
        batch = batch_of((2, 3, 15))
        touched = rows.touched(np.zeros(1, np.int64), batch.lo, batch.hi)
        assert rows.near(touched, batch, Reach(reach)).whole.tolist() == [whole]
