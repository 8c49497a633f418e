"""Rows of partitions: their order, how changes cut and join them, and how much is searched anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.nodes import MatchRecognize
from everwhen.core.time import INF, NEVER
from everwhen.operators.pattern.kept_rows import KeptRows
from everwhen.operators.pattern.loops.layout import DIRTY
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner

S = ew.source("S", {"t": "int64", "s": "string"})
Row = tuple[int | None, str | None]


class Kept:
    """Kept rows of one partition, written and read as Python values."""

    def __init__(self, query: ew.Stream) -> None:
        assert isinstance(query.node, MatchRecognize)
        self.codec = RowCodec(S.schema.select(query.node.reads), Interner())
        self.kept = KeptRows(query.node, self.codec)
        self.kept.grow(1)

    def change(self, *changes: tuple[int, int, int, Row]) -> int:
        """Let rows come and go; how many searches are done again for those that were there."""
        lo, hi, weight = (np.array([each[i] for each in changes], np.int64) for i in range(3))
        columns = [pa.array([each[3][j] for each in changes], type_) for j, type_ in enumerate(self.codec.schema.types)]
        records = self.kept.tables.records(lo, hi, self.codec.encode(columns, len(changes)))
        batch = self.kept.sorted(np.zeros(len(changes), np.int64), records, weight)
        _, spans = self.kept.affected(batch, NEVER)
        again = int(self.kept.runs.records[:, DIRTY].sum()) if self.kept.rows else 0
        self.kept.apply(batch)
        self.kept.search(batch.keys, spans, True)
        return again

    def rows(self) -> list[tuple[Any, ...]]:
        records, _ = self.kept.gather(np.array([0]))
        columns = self.codec.decode(records[:, 9 : 9 + self.codec.width])
        lo, hi = self.kept.lifetimes(records)
        return list(zip(lo.tolist(), hi.tolist(), *(column.to_pylist() for column in columns), strict=True))


def pairs(**parts: Any) -> Kept:
    return Kept(S.match_recognize("A B", "t", measures={"s": ew.patterns.last("s")}, **parts))


def test_rows_are_in_order_nulls_last_and_ties_by_value_nulls_first() -> None:
    kept = pairs()
    kept.change((0, 9, 1, (2, "b")), (0, 9, 1, (None, "x")), (0, 9, 1, (1, "c")))
    kept.change((0, 9, 1, (2, "a")), (0, 9, 1, (2, None)), (0, 9, 1, (0, "d")))
    assert [row[2:] for row in kept.rows()] == [(0, "d"), (1, "c"), (2, None), (2, "a"), (2, "b"), (None, "x")]


def test_order_may_fall() -> None:
    kept = pairs(descending="t")
    kept.change(*((0, 9, 1, (t, "a")) for t in (1, 3, 2)))
    assert [row[2] for row in kept.rows()] == [3, 2, 1]


def test_a_change_is_cut_out_of_an_equal_row() -> None:
    kept = pairs()
    kept.change((0, 20, 1, (1, "a")))
    kept.change((5, 8, -1, (1, "a")), (10, 12, -1, (1, "a")))
    assert sorted(kept.rows()) == [(0, 5, 1, "a"), (8, 10, 1, "a"), (12, 20, 1, "a")]
    kept.change((8, 10, -1, (1, "a")), (12, 20, -1, (1, "a")))
    assert kept.rows() == [(0, 5, 1, "a")] and kept.kept.rows == 1


def test_lifetimes_that_touch_are_one() -> None:
    kept = pairs()
    kept.change((0, 5, 1, (1, "a")))
    kept.change((5, 8, 1, (1, "a")), (8, 9, 1, (1, "a")), (0, 9, 1, (1, "b")))
    assert kept.rows() == [(0, 9, 1, "a"), (0, 9, 1, "b")]


def test_a_row_that_is_not_there_cannot_go() -> None:
    kept = pairs()
    kept.change((0, 5, 1, (1, "a")))
    with pytest.raises(ew.EverwhenError, match="not there"):
        kept.change((3, 6, -1, (1, "a")))


def test_only_searches_that_a_row_concerns_are_done_again() -> None:
    """Of a hundred rows in a window of five ticks."""
    kept = pairs()
    kept.change(*((t, t + 5, 1, (t, "a")) for t in range(100)))
    assert kept.change((100, 105, 1, (100, "a"))) == 1  # the last one has no partner yet
    assert kept.change((50, 55, 1, (50, "b"))) <= 6  # a late one: those that looked at its place or may go on with it
    assert kept.change((97, 102, -1, (97, "a"))) <= 6
    assert kept.change((200, 205, 1, (-1, "a"))) == 0  # before all others, at another time


def test_rows_that_have_ended_go() -> None:
    kept = pairs()
    kept.change(*((t, t + 5, 1, (t, "a")) for t in range(10)))
    assert kept.kept.due(4).tolist() == [] and kept.kept.due(5).tolist() == [0]
    empty, last = kept.kept.drop(np.array([0]), np.array([8]))
    assert (len(empty), last, kept.kept.rows) == (0, 8, 6)
    empty, last = kept.kept.drop(np.array([0]), np.array([INF]))
    assert (empty.tolist(), last, kept.kept.rows) == ([0], 14, 0)


def test_codes_may_change() -> None:
    kept = pairs()
    kept.change((0, 9, 1, (1, "b")), (0, 9, 1, (1, "c")), (0, 9, 1, (2, "z")))
    kept.codec.pool.dictionary(pa.string()).encode(pa.array([f"unused {i}" for i in range(50)]))
    kept.codec.pool.collect(force=True)
    kept.change((0, 9, 1, (1, "a")), (0, 9, 1, (1, "bb")))
    assert [row[3] for row in kept.rows()] == ["a", "b", "bb", "c", "z"]
