"""The public test helpers: table literals, comparisons, batches."""

from __future__ import annotations

import datetime
import math
import random

import pyarrow as pa
import pytest

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import InputError
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, batches, stream_from_table


def types_of(table: str) -> list[str]:
    return [str(type_) for type_ in stream_from_table(table).schema.types]


# --- tables -----------------------------------------------------------------------------------------------------------


def test_all_kinds_of_elements() -> None:
    stream = stream_from_table(
        """
        op     | vs | ve  | vnew | item | name
        insert | 1  | 5   |      | 7    | x
        insert | -2 |     |      |      | y
               | 3  | inf |      | 8    |
        adjust | 1  | 5   | 1    | 7    | x
        adjust | 3  | ∞   | 9    | 8    |
        punct  |    |     |      | 7    |
        punct  | 6  |     |      | 7    | y
        cti    | 4
        cti    | ∞  |     |      |      |
        """
    )
    assert stream.elements == [
        Insert(1, 5, {"item": 7, "name": "x"}),
        Insert(-2, -1, {"item": None, "name": "y"}),
        Insert(3, INF, {"item": 8, "name": None}),
        Adjust(1, 5, 1, {"item": 7, "name": "x"}),
        Adjust(3, INF, 9, {"item": 8, "name": None}),
        Punct(Punctuation({"item": OneOf((7,))}, INF)),
        Punct(Punctuation({"item": OneOf((7,)), "name": OneOf(("y",))}, 6)),
        Cti(4),
        Cti(INF),
    ]
    assert list(stream) == stream.elements
    assert len(stream) == len(stream.batch()) == 9
    assert [(vs, ve) for vs, ve, _ in stream.history().events()] == [(-2, -1), (3, 9)]


def test_types_are_inferred_per_column() -> None:
    assert types_of("vs | a | b | c | d | e\n1 | 1 | 1 | true | x | \n2 | | 2.5 | | 3 | ") == [
        "int64",
        "double",
        "bool",
        "string",
        "string",
    ]
    assert types_of("vs | a\n1 | '1'\n2 | '2'") == ["string"]
    assert types_of("vs | a\n1 | 1\n2 | true") == ["string"]
    assert types_of("vs | a\n1 | nan\n2 | 1e3") == ["double"]


def test_quotes_and_borders() -> None:
    stream = stream_from_table("| vs | a |\n| 1 | \"\" |\n| 2 | ' b' |")
    assert [element.row for element in stream if isinstance(element, Insert)] == [{"a": ""}, {"a": " b"}]


def test_a_given_schema_decides() -> None:
    schema = Schema.of([("d", pa.date32()), ("x", pa.float64()), ("s", pa.string())])
    stream = stream_from_table("vs | s | x | d\n1 | 7 | 2 | 2024-01-31\n2 | | |", schema)
    first, second = stream.elements
    assert isinstance(first, Insert) and isinstance(second, Insert)
    assert first.row == {"d": datetime.date(2024, 1, 31), "x": 2.0, "s": "7"}
    assert second.row == {"d": None, "x": None, "s": None}
    assert list(first.row) == ["d", "x", "s"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "an empty table"),
        ("ve | a\n1 | 2", "line 1: a table of elements needs a column 'vs'; there is ve, a"),
        ("vs | a\n1 | 2 | 3", "line 2: 3 cells under 2 column names"),
        ("vs | a\nx | 2", "line 2: 'x' in column 'vs' is no time"),
        ("vs | a\n1 | 2\n\n | 2", "line 4: '' in column 'vs' is no time"),
        ("op | vs | a\nremove | 1 | 2", "line 2: unknown op 'remove'"),
        ("op | vs | ve | a\nadjust | 1 | 2 | 3", "line 2: '' in column 'vnew' is no time"),
    ],
)
def test_wrong_tables(table: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stream_from_table(table)


def test_wrong_values_for_a_schema() -> None:
    with pytest.raises(InputError, match="line 3: 'x' is not of type int64"):
        stream_from_table("vs | a\n1 | 1\n2 | x", Schema.of([("a", pa.int64())]))
    with pytest.raises(InputError, match=r"the table has the attributes \['a'\], the schema is \(b int64\)"):
        stream_from_table("vs | a\n1 | 1", Schema.of([("b", pa.int64())]))


# --- comparing --------------------------------------------------------------------------------------------------------

SPLIT = stream_from_table("vs | ve | x\n0 | 4 | 1\n4 | 9 | 1\n2 | 3 | 2")
WHOLE = stream_from_table("op | vs | ve | vnew | x\n| 2 | 3 | | 2\n| 0 | 5 | | 1\nadjust | 0 | 5 | 9 | 1\ncti | ∞")


def test_histories_are_compared_by_their_snapshots() -> None:
    for left in (SPLIT, SPLIT.elements, SPLIT.batch(), SPLIT.history(), iter(SPLIT)):
        assert_same_history(left, WHOLE)
    assert_same_history([], [Cti(3)])


def test_the_first_difference_is_told() -> None:
    other = stream_from_table("vs | ve | x\n0 | 9 | 1\n2 | 3 | 3\n2 | 3 | 3\n7 | 8 | 4")
    with pytest.raises(AssertionError) as failure:
        assert_same_history(other, SPLIT)
    assert str(failure.value).splitlines() == [
        "the histories differ first at instant 2",
        "  missing: x=2",
        "  extra: x=3  (2 times)",
    ]


def test_tolerance_is_for_floats() -> None:
    a = stream_from_table("vs | x | n\n0 | 1.0 | 1\n0 | nan | 1")
    b = stream_from_table("vs | x | n\n0 | 1.0000001 | 1\n0 | nan | 1")
    assert_same_history(a, b, tolerance=1e-6)
    with pytest.raises(AssertionError, match="instant 0"):
        assert_same_history(a, b)
    with pytest.raises(AssertionError, match="instant 0"):
        assert_same_history(a, stream_from_table("vs | x | n\n0 | 1.0 | 2\n0 | nan | 1"), tolerance=1.0)


def test_nan_equals_nan() -> None:
    assert_same_history([Insert(0, 1, {"x": float("nan")})], [Insert(0, 1, {"x": math.nan})])


def test_validity() -> None:
    report = assert_valid(WHOLE)
    assert report.closed and not report.perfect
    with pytest.raises(AssertionError, match=r"line 2: adjust .* adjusts an event that is not there"):
        assert_valid([Insert(0, 3, {"x": 1}), Adjust(0, 4, 2, {"x": 1})])


# --- batches ----------------------------------------------------------------------------------------------------------


def test_batches_of_one_size_of_given_sizes_and_of_random_ones() -> None:
    elements: list[Element] = [*WHOLE, *WHOLE, *WHOLE]
    assert [len(batch) for batch in batches(elements, WHOLE.schema, 5)] == [5, 5, 2]
    assert [len(batch) for batch in batches(elements, WHOLE.schema, [1, 4])] == [1, 4, 1, 4, 1, 1]
    assert [len(batch) for batch in batches([], WHOLE.schema, 5)] == []
    cut = batches(elements, WHOLE.schema, random.Random(1))
    assert len(cut) > 1
    assert [element for batch in cut for element in batch.elements()] == elements
    assert cut[-1].line(0) == 1 + sum(len(batch) for batch in cut[:-1])
    assert History.of(cut) == History.of(elements)
