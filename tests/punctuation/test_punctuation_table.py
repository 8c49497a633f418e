"""Tables of punctuation: keys taken out of them and put into them, times and names changed."""

from __future__ import annotations

import pyarrow as pa

from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.punctuation.api import PunctuationTable, read_promises

PAIR = Schema.of([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])


def test_keys_are_taken_out_that_bind_all_key_columns_and_no_others() -> None:
    both = [Punctuation({"a": OneOf((i,)), "b": OneOf((f"k{i}",))}, 5 + i) for i in range(3)]
    others = [
        Punctuation({"a": OneOf((7,)), "b": Range(ge="x")}, 9),
        Punctuation({"a": OneOf((7,)), "c": OneOf((1,))}, 9),
        Punctuation({"a": OneOf((8,))}, 4),
    ]
    columns, times, rest = read_promises([*both, *others], PAIR).split_keys(["b", "a"])
    assert [column.to_pylist() for column in columns] == [["k0", "k1", "k2"], [0, 1, 2]]
    assert times.tolist() == [5, 6, 7]
    assert sorted(map(str, rest)) == sorted(map(str, others))
    assert PunctuationTable.of_keys(PAIR, ["b", "a"], columns, times) == both


def test_a_key_column_that_the_table_does_not_know_is_bound_by_nothing() -> None:
    said = read_promises([Punctuation({"a": OneOf((1,)), "b": OneOf(("k",))})], PAIR)
    columns, times, rest = said.split_keys(["a", "b", "z"])
    assert not columns and not len(times) and rest == said


def test_keys_of_one_column_keep_their_null() -> None:
    said = read_promises([Punctuation({"a": OneOf((1, None, 3))}, 5), Punctuation({"a": Range(ge=9)}, 6)], PAIR)
    (column,), times, rest = said.split_keys(["a"])
    assert column.to_pylist() == [1, 3, None] and times.tolist() == [5, 5, 5]
    assert list(rest) == [Punctuation({"a": Range(ge=9)}, 6)]
    again = PunctuationTable.of_keys(PAIR, ["a"], [column], times)
    assert list(again) == [Punctuation({"a": OneOf((None, 1, 3))}, 5)]


def test_times_are_moved_cut_and_compared() -> None:
    said = read_promises(
        [
            Punctuation({"a": OneOf((1, 2))}, 5),
            Punctuation({"b": Range(lt="m")}, 8),
            Punctuation({"a": OneOf((1,)), "c": Range(ge=3)}, 9),
            Punctuation({}, 2),
        ],
        PAIR,
    )
    assert said.span == (2, 9)
    assert sorted(p.t for p in said.after(5)) == [8, 9]
    assert sorted(p.t for p in said.until(6)) == [2, 5, 6, 6]
    assert sorted(p.t for p in said.moved(lambda t: t + 1)) == [3, 6, 9, 10]
    renamed = said.renamed({"a": "z", "b": "y", "c": "x"}, Schema.of([(n, pa.int64()) for n in "xyz"]))
    assert Punctuation({"x": Range(ge=3), "z": OneOf((1,))}, 9) in list(renamed)


def test_ranges_that_meet_are_one_with_the_later_time_where_they_overlap() -> None:
    said = read_promises([Punctuation({"a": Range(ge=0, lt=10)}, 5), Punctuation({"a": Range(ge=5, lt=20)}, 7)], PAIR)
    assert list(said.united()) == [
        Punctuation({"a": Range(ge=0, le=4)}, 5),
        Punctuation({"a": Range(ge=5, le=19)}, 7),
    ]
    found = said.pieces(2)
    assert found is not None
    assert [each.tolist() for each in found["a"]] == [[[0, 9, 5], [5, 19, 7]], [0, 1]]
    assert said.pieces(1) is None
