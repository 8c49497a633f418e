"""A program's tables: the automaton in bits, bits and slots of rows, ranks when they are needed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.algebra.nodes import MatchRecognize
from everwhen.operators.pattern.loops.layout import BITS, NULLS, PLACES_PER_WORD, ROW
from everwhen.operators.pattern.tables import RowTables, states
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner

p, col = ew.patterns, ew.col
S = ew.source("S", {"k": "string", "x": "int64"})


def tables(query: ew.Stream) -> RowTables:
    node = query.node
    assert isinstance(node, MatchRecognize)
    return RowTables(node, RowCodec(S.schema.select(node.reads), Interner()))


def test_the_automaton_in_bits() -> None:
    found = states(tables(S.match_recognize("A B* | A", "x")).program)
    assert found.follow.tolist() == [[0b010], [0b010], [0], [0b101]]
    assert found.labels.tolist() == [[0b101], [0b010]]
    assert found.accepting.tolist() == [0b111] and found.going.tolist() == [0b011]


def test_many_places_take_several_words() -> None:
    found = states(tables(S.match_recognize("A{100}", "x")).program)
    assert found.follow.shape == (101, 2)
    assert found.accepting.tolist() == [0, 1 << (99 - PLACES_PER_WORD)]


def test_conditions_of_a_row_alone_are_bits_and_computed_values_are_slots() -> None:
    query = S.match_recognize(
        "A B C",
        "x",
        define={"A": col("x") > 1, "B": (col("x") > 1) & (col("x") * 2 < p.prev("x") + 1)},
        measures={"m": p.max(col("x") * 2)},
    )
    found = tables(query)
    rows = found.codec.encode([pa.array([1, 2, None])], 3)
    records = found.records(np.zeros(3, np.int64), np.ones(3, np.int64), rows)
    assert records[:, BITS].tolist() == [0b100, 0b111, 0b100]  # null is not true
    assert records.shape[1] == ROW + found.codec.width + 2  # x * 2, and PREV(x) + 1 as of its own row
    assert {tuple(column) for column in records[:, ROW + found.codec.width :].T.tolist()} == {(2, 4, 0), (2, 3, 0)}
    assert records[:, NULLS].tolist() == [0, 0, 0b11]


def test_ranks_are_made_when_they_are_needed() -> None:
    found = tables(S.match_recognize("A", "x", measures={"k": col("k")}))
    records = found.records(
        np.zeros(2, np.int64), np.ones(2, np.int64), found.codec.encode([pa.array(["b", "a"]), pa.array([1, 1])], 2)
    )
    found.ranking.note(records)
    assert found.ranking.order.ranks_at.tolist() == [-1]
    found.ranking.need()
    found.ranking.note(records)
    order = found.ranking.order
    codes = records[:, ROW + found.codec.words + found.codec.schema.index("k")]
    assert order.ranks[order.ranks_at[0] + codes].tolist() == [1, 0]


def test_conditions_that_compare_texts_have_ranks_from_the_start() -> None:
    found = tables(S.match_recognize("A", "x", define={"A": col("k") < p.prev("k")}))
    records = found.records(
        np.zeros(2, np.int64), np.ones(2, np.int64), found.codec.encode([pa.array(["b", "a"]), pa.array([1, 1])], 2)
    )
    found.ranking.note(records)
    assert found.ranking.order.ranks_at.tolist() == [0]
