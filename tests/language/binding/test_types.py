"""SQL's names of types: what they are, and which are refused because they would be read in two ways."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.errors import QueryError
from everwhen.language.binding.types import length_named, type_named


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("INT", pa.int64()),
        ("tinyint", pa.int8()),
        ("Real", pa.float64()),
        ("double   precision", pa.float64()),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("numeric( 5 )", pa.decimal128(5, 0)),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("interval", pa.duration("us")),
        ("INT8", pa.int64()),
        ("int4", pa.int32()),
        ("INT2", pa.int16()),
        ("float8", pa.float64()),
        ("FLOAT4", pa.float32()),
        ("bytea", pa.binary()),
        ("TIMESTAMPTZ", pa.timestamp("us")),
        ("TIMESTAMP_LTZ(3)", pa.timestamp("ms")),
        ("TIMESTAMP_NTZ", pa.timestamp("us")),
        ("TIMESTAMP WITH LOCAL TIME ZONE", pa.timestamp("us")),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.timestamp("ms")),
        ("BPCHAR", pa.string()),
        ("timestamp with time zone", pa.timestamp("us")),
        ("TIMESTAMP(3) WITH TIME ZONE", pa.timestamp("ms")),
    ],
)
def test_names_of_types(text: str, type_: pa.DataType) -> None:
    assert type_named(text) == type_


@pytest.mark.parametrize("text", ["VARCHAR(20)", "char( 20 )", "CHARACTER VARYING(20)"])
def test_the_length_of_a_text(text: str) -> None:
    assert type_named(text) == pa.string()
    assert length_named(text) == 20 and length_named("DECIMAL(20)") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DECIMAL", "needs its digits"),
        ("DECIMAL(39, 2)", "a decimal has 1 to 38 digits"),
        ("DECIMAL(4, 5)", "its scale is not larger"),
        ("TIMESTAMP(4)", r"unknown type TIMESTAMP\(4\)"),
        ("integr", "did you mean INTEGER?"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        type_named(text)
