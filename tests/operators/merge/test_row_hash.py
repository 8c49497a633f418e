"""Hashes of rows follow from their values alone."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.operators.merge.audit import row_hashes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner

SCHEMA = Schema.of([
    ("n", pa.int64()), ("t", pa.string()), ("d", pa.decimal128(9, 2)), ("l", pa.list_(pa.int64())), ("f", pa.float64()),
])  # fmt: skip
ROWS = [
    (1, "a", Decimal("1.50"), [1, 2], 0.5), (1, "ab", Decimal("1.50"), [1, 2], 0.5), (None, "a", None, None, None),
    (1, None, None, [1], 0.0), (0, "", None, [], None), (1, "", Decimal("-1.50"), [2, 1], float("nan")),
]  # fmt: skip


def hashes(rows: list[tuple], before: list[str]) -> list[int]:
    """The hashes of rows after a pool has seen other values, which so have other codes."""
    codec = RowCodec(SCHEMA, Interner())
    codec.pool.dictionary(pa.string()).encode(pa.array(before, pa.string()))
    columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
    return row_hashes(codec, codec.encode(columns, len(rows))).tolist()


def test_equal_rows_have_equal_hashes_whatever_their_codes() -> None:
    found = hashes(ROWS, [])
    assert len(set(found)) == len(ROWS), "different rows differ"
    assert hashes(ROWS, ["x", "ab", "y"]) == found
    assert hashes(ROWS[::-1], ["ab"]) == found[::-1]
    assert hashes([*ROWS, ROWS[1]], [])[-1] == found[1]
