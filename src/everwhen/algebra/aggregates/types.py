"""The types of sums."""

from __future__ import annotations

import pyarrow as pa

from everwhen.core.kinds import MAX_DIGITS, kind


def sum_type(type_: pa.DataType) -> pa.DataType:
    match kind(type_):
        case "integer":
            return pa.int64()
        case "float":
            return pa.float64()
        case _:
            return pa.decimal128(MAX_DIGITS, type_.scale)
