"""Rows of partitions as trees: what comes, is cut, lives on and goes, against a plain multiset; and that trees are
well formed."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from everwhen.algebra.nodes import Ordering
from everwhen.core.time import INF
from everwhen.errors import EverwhenError
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.loops.row_tree import LATEST, SOONEST
from everwhen.operators.rank.loops.tree import EARLIEST, FIRST, HI, LEFT, LO, PRIORITY, RIGHT
from everwhen.operators.rank.ordered_rows import OrderedRows
from everwhen.operators.rank.ranked_rows import KeptRows
from everwhen.operators.rank.row_order import RowOrder
from operators.stepping import codec_of

CODEC = codec_of({"x": pa.int64(), "s": pa.string()})


BOTH = pytest.mark.parametrize("kind", [KeptRows, OrderedRows])


def kept(kind: type[KeptRows] = KeptRows) -> KeptRows:
    found = kind(CODEC, RowOrder((Ordering("x"),), ("s",), CODEC, kind.head))
    found.grow(4)
    return found


def apply(rows: KeptRows, *segments: tuple[int, int, int, int, int, str], bars: list[int] | None = None) -> None:
    """Segments (key, lo, hi, weight, x, s); bars are records."""
    key, lo, hi, weight = (np.array([each[c] for each in segments], np.int64) for c in range(4))
    columns = [pa.array([each[4] for each in segments]), pa.array([each[5] for each in segments])]
    coded = CODEC.encode(columns, len(segments))
    rows.note(coded)
    rows.apply(key, lo, hi, weight, coded, None if bars is None else np.array(bars), 2)


def lifetimes(rows: KeptRows, key: int) -> Counter[tuple[int, int, int, str]]:
    records, _ = rows.gather(np.array([key]))
    x, s = CODEC.decode(records[:, rows.head :])
    return Counter(zip(records[:, LO].tolist(), records[:, HI].tolist(), x.to_pylist(), s.to_pylist(), strict=True))


def multiset(rows: KeptRows, key: int) -> Counter[tuple[int, int, str]]:
    """How often each row is there at each instant of 0 … 19."""
    found: Counter[tuple[int, int, str]] = Counter()
    for (lo, hi, x, s), n in lifetimes(rows, key).items():
        for t in range(max(lo, 0), min(hi, 20)):
            found[t, x, s] += n
    return found


def assert_well_formed(rows: KeptRows, key: int) -> None:
    if isinstance(rows, OrderedRows):
        return assert_in_order(rows, key)
    pool, order = rows.pool, rows.order

    def visit(v: int) -> tuple[int, int, int]:
        """The number of records, the first one and the earliest start of a subtree."""
        n, first, earliest = 1, v, int(pool[v, LO])
        for side in (LEFT, RIGHT):
            child = int(pool[v, side])
            if child >= 0:
                assert pool[child, PRIORITY] <= pool[v, PRIORITY]
                assert pool[child, HI] <= pool[v, HI] if side == LEFT else pool[child, HI] >= pool[v, HI]
                more, other, start = visit(child)
                n, earliest = n + more, min(earliest, start)
                if (compare(pool, other, pool, first, order, 2), other) < (0, first):
                    first = other
        assert pool[v, FIRST] == first, "a record of this subtree, not one that has left it"
        assert pool[v, EARLIEST] == earliest
        return n, first, earliest

    root = int(rows.root[key])
    assert (visit(root)[0] if root >= 0 else 0) == rows.count[key]


def assert_in_order(rows: OrderedRows, key: int) -> None:
    """The tree is a heap, its records stand in order, and each knows the times of those below it."""
    pool, order = rows.pool, rows.order
    met: list[int] = []

    def visit(v: int) -> tuple[int, int, int]:
        """The least start, the largest end and the least end of a subtree."""
        times = [(int(pool[v, LO]), int(pool[v, HI]), int(pool[v, HI]))]
        for side in (LEFT, RIGHT):
            child = int(pool[v, side])
            if child >= 0:
                assert pool[child, PRIORITY] <= pool[v, PRIORITY]
                times.append(visit(child))
            if side == LEFT:
                met.append(v)
        starts, ends, first_ends = zip(*times, strict=True)
        found = min(starts), max(ends), min(first_ends)
        assert tuple(pool[v, [EARLIEST, LATEST, SOONEST]].tolist()) == found
        return found

    if rows.root[key] >= 0:
        visit(int(rows.root[key]))
    assert len(met) == rows.count[key]
    for one, two in pairwise(met):
        by = compare(pool, one, pool, two, order, 2)
        assert (by, *pool[one, [LO, HI]].tolist(), one) < (0, *pool[two, [LO, HI]].tolist(), two)


@BOTH
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_of_a_multiset(kind: type[KeptRows], seed: int) -> None:
    rng = random.Random(seed)
    rows = kept(kind)
    expected: Counter[tuple[int, int, str]] = Counter()
    for _ in range(120):
        x, s = rng.randrange(3), rng.choice("ab")
        lo = rng.randrange(0, 18)
        hi = rng.randrange(lo + 1, 20)
        weight = rng.choice((1, 1, 2, -1))
        if weight < 0 and any(expected[t, x, s] < 1 for t in range(lo, hi)):
            continue
        apply(rows, (1, lo, hi, weight, x, s))
        for t in range(lo, hi):
            expected[t, x, s] += weight
        assert multiset(rows, 1) == +expected
        assert_well_formed(rows, 1)
    until = 12
    _, last = rows.drop(np.array([1]), np.array([until]))
    assert last <= until
    assert_well_formed(rows, 1)
    assert all(hi > until for _, hi, _, _ in lifetimes(rows, 1))
    assert {each: n for each, n in multiset(rows, 1).items() if each[0] >= until} == {
        each: n for each, n in (+expected).items() if each[0] >= until
    }


@BOTH
def test_a_row_that_lives_on_is_one_record(kind: type[KeptRows]) -> None:
    rows = kept(kind)
    for t in range(5):
        apply(rows, (0, t, t + 1, 1, 7, "a"))
    assert lifetimes(rows, 0) == {(0, 5, 7, "a"): 1} and rows.rows == 1


@BOTH
def test_what_is_not_there_cannot_be_taken_back(kind: type[KeptRows]) -> None:
    rows = kept(kind)
    apply(rows, (0, 0, 5, 1, 7, "a"))
    with pytest.raises(EverwhenError, match="takes back a row that is not there"):
        apply(rows, (0, 0, 6, -1, 7, "a"))


@BOTH
def test_keys_are_due_when_their_first_row_ends(kind: type[KeptRows]) -> None:
    rows = kept(kind)
    apply(rows, (0, 0, 5, 1, 7, "a"), (1, 0, 9, 1, 7, "a"), (2, 0, INF, 1, 7, "a"))
    assert rows.due(4).tolist() == []
    assert rows.due(5).tolist() == [0]
    empty, last = rows.drop(np.array([0]), np.array([5]))
    assert (empty.tolist(), last, rows.rows) == ([0], 5, 2)
    assert rows.due(INF).tolist() == [1, 2]


def test_rows_behind_a_bar_are_idle_until_something_is_taken_back() -> None:
    rows = kept()
    apply(rows, (0, 0, INF, 1, 5, "a"), (1, 0, INF, 1, 5, "a"))
    bar = int(rows.root[0])
    apply(rows, (0, 1, 9, 1, 7, "a"), (1, 1, 9, 1, 7, "a"), (0, 2, 5, 1, 7, "b"), (0, 1, 9, 1, 4, "z"), bars=[bar, -1])
    assert rows.rows == 6 and rows.count[0] == 4
    assert lifetimes(rows, 0) == Counter({(0, INF, 5, "a"): 1, (1, 9, 7, "a"): 1, (2, 5, 7, "b"): 1, (1, 9, 4, "z"): 1})
    assert rows.due(5).tolist() == [0], "an idle row ends first"
    rows.drop(np.array([0]), np.array([5]))
    assert lifetimes(rows, 0) == Counter({(0, INF, 5, "a"): 1, (1, 9, 7, "a"): 1, (1, 9, 4, "z"): 1})
    apply(rows, (0, 3, INF, -1, 5, "a"))
    assert_well_formed(rows, 0)
    assert lifetimes(rows, 0) == Counter({(0, 3, 5, "a"): 1, (1, 9, 7, "a"): 1, (1, 9, 4, "z"): 1})
    apply(rows, (0, 1, 9, -1, 7, "a"), (0, 1, 9, -1, 4, "z"), (0, 0, 3, -1, 5, "a"))
    assert rows.empty(np.array([0, 1])).tolist() == [0]


def test_the_spans_of_changes_that_touch_are_one() -> None:
    rows = kept()
    ids, lo, hi = np.array([0, 0, 0, 1]), np.array([5, 0, 9, 3]), np.array([8, 6, 10, 4])
    touched = rows.touched(ids, lo, hi)
    spans = [touched.spans[a:b].tolist() for a, b in zip(touched.offsets[:-1], touched.offsets[1:], strict=True)]
    assert dict(zip(touched.keys.tolist(), spans, strict=True)) == {0: [[0, 8], [9, 10]], 1: [[3, 4]]}
    assert touched.changes.tolist() == [3, 1]
