"""SQL's names of types: what they are, and which are refused because they would be read in two ways."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.errors import QueryError
from everwhen.language.binding.types import type_named


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
    ],
)
def test_names_of_types(text: str, type_: pa.DataType) -> None:
    assert type_named(text) == type_ == type_named(text, declared=True)


def test_the_length_of_a_text_is_a_remark_in_a_declaration_only() -> None:
    assert type_named("VARCHAR(20)", declared=True) == pa.string()
    with pytest.raises(QueryError, match=r"does not cut the text; write left\(x, 20\)"):
        type_named("VARCHAR(20)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INT8", "8 bits to some and 8 bytes to others"),
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
