"""Payload values in JSON and back; what cannot be is said."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.scalars import (
    Unfit,
    expected,
    from_python,
    json_texts,
    json_values,
    python_values,
    read_values,
    sql_name,
)
from everwhen.errors import QueryError
from everwhen.formats.column_checks import fitting_name
from everwhen.language.binding.types import TYPES, type_named
from stream.element_strategies import VALUES


@given(data=st.data(), type_=st.sampled_from(list(VALUES)))
def test_values_survive_json(data: st.DataObject, type_: pa.DataType) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type_], max_size=5))
    column = pa.array(values, type_)
    again = read_values(json.loads(json.dumps(json_values(column))), type_)
    assert again.type == type_
    assert repr(python_values(again)) == repr(python_values(column))
    assert [json.loads(text) for text in json_texts(column)] == json_values(column)
    assert repr(python_values(from_python(python_values(column), type_))) == repr(python_values(column))


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([1.0, float("nan"), float("-inf"), 1e300, None]), ["1.0", '"NaN"', '"-Infinity"', "1e+300", "null"]),
        (pa.array([2**63 - 1, None]), ["9223372036854775807", "null"]),
        (pa.array(['a"b', "ä\n"]), ['"a\\"b"', '"ä\\n"']),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ['"x"', '"y"', '"x"']),
        (pa.array([[1.5, float("inf")], None, []]), ['[1.5,"Infinity"]', "null", "[]"]),
        (pa.array([b"ab"], pa.binary(2)), ['"YWI="']),
        (pa.array([None, None]), ["null", "null"]),
        (pa.array([5], pa.duration("ms")), ["5"]),
        (pa.array([0.5], pa.float16()), ["0.5"]),
        (pa.array(["x"], pa.large_string()), ['"x"']),
    ],
)
def test_how_values_look(column: pa.Array, texts: list[str]) -> None:
    assert json_texts(column) == texts


def test_the_first_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(Unfit) as caught:
        read_values([1, None, "x", True], pa.int64())
    assert caught.value.index == 2
    assert caught.value.problem == 'the text "x" is not of type INT'


@pytest.mark.parametrize(
    "type_", [*VALUES, pa.uint16(), pa.null(), pa.binary(3), pa.timestamp("s", "UTC"), pa.date64()]
)
def test_every_type_says_what_it_expects(type_: pa.DataType) -> None:
    assert expected(type_)
    with pytest.raises(Unfit):
        read_values([{"an": "object"}], type_)


def test_integer_ranges_are_said_exactly() -> None:
    assert expected(pa.int8()).startswith("a whole number from -128 to 127,")
    assert expected(pa.uint64()).startswith("a whole number from 0 to 18446744073709551615,")


@pytest.mark.parametrize("value", ["1.5", "1e5", 7, 0.1])
def test_decimals_take_text_and_short_numbers(value: Any) -> None:
    assert float(read_values([value], pa.decimal128(20, 3))[0].as_py()) == float(value)


def test_what_has_no_form_in_json_is_refused() -> None:
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(QueryError, match="no form in JSON"):
        json_texts(maps)
    with pytest.raises(QueryError, match="no form in JSON"):
        read_values([{"a": 1}], maps.type)


def test_structures_are_objects() -> None:
    type_ = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.date32())])))])
    structs = pa.array([{"a": 1, "b": [{"c": date(2024, 2, 29)}, None]}, None, {"a": None, "b": None}], type_)
    texts = json_texts(structs)
    assert texts == ['{"a":1,"b":[{"c":"2024-02-29"},null]}', "null", '{"a":null,"b":null}']
    assert read_values([json.loads(text) for text in texts], type_).equals(structs)
    assert read_values([{"b": [], "more": 1}], type_).to_pylist() == [{"a": None, "b": []}]


def test_a_declaration_may_name_a_type_as_errors_do() -> None:
    for type_ in {*TYPES.values(), pa.decimal128(10, 2)}:
        assert type_named(sql_name(type_)) == type_


@pytest.mark.parametrize(
    ("text", "name"),
    [("11.5", "DOUBLE"), ("9" * 20, "DECIMAL(20, 0)"), ("nan", "TEXT"), ("x", "TEXT")],
)
def test_a_type_that_a_text_fits(text: str, name: str) -> None:
    assert fitting_name(text) == name


ZONED = ("12:30:00.5+02:00", "12:30:00.5", None, "10:30:00.5Z", "11:30:00.5+01")


def test_timestamps_with_a_zone_are_in_utc_beside_others_without_one() -> None:
    at = datetime(2024, 5, 1, 10, 30, 0, 500_000)
    assert read_values([text and f"2024-05-01 {text}" for text in ZONED], pa.timestamp("us")).to_pylist() == [
        at,
        at.replace(hour=12),
        None,
        at,
        at,
    ]
    assert read_values(["2024-05-01", "2024-05-01T10:30Z"], pa.timestamp("s")).to_pylist()[0] == datetime(2024, 5, 1)
    for wrong in ("x+02:00", "2024-05-01T10:30:00 UTC", "2024-05-01T10:30:00.5Z"):
        with pytest.raises(Unfit, match="is not of type TIMESTAMP"):
            read_values(["2024-05-01T10:30:00Z", wrong], pa.timestamp("s"))
