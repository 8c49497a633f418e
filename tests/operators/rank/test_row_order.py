"""The order of rows of all kinds of values: that of the definition, also after codes have changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from everwhen.algebra.nodes import Ordering
from everwhen.operators.rank.loops.order import compare
from everwhen.operators.rank.row_order import RowOrder
from everwhen.reference.ranks.rank import sort_rows
from operators.stepping import codec_of

VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "i": (pa.int64(), (-(2**63), -1, 0, 7, None)),
    "u": (pa.uint64(), (0, 1, 2**64 - 1, None)),
    "f": (pa.float64(), (float("-inf"), -1.5, 0.0, 2.5, float("nan"), None)),
    "s": (pa.string(), ("", "a", "ab", "b", "é", None)),
    "b": (pa.binary(), (b"", b"\x00", b"\x00\xff", b"a", None)),
    "d": (pa.decimal128(9, 2), (Decimal("-1.00"), Decimal("0.50"), Decimal("10.00"), None)),
    "t": (pa.bool_(), (False, True, None)),
}


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_ordered_as_by_definition(seed: int) -> None:
    rng = random.Random(seed)
    codec = codec_of({name: type_ for name, (type_, _) in VALUES.items()})
    named = rng.sample(list(VALUES), rng.randint(0, 3))
    order = tuple(Ordering(name, rng.random() < 0.5, rng.random() < 0.5) for name in named)
    ties = [name for name in VALUES if name not in named]
    rows = [{name: rng.choice(values) for name, (_, values) in VALUES.items()} for _ in range(40)]
    columns = [pa.array([row[name] for row in rows], type_) for name, (type_, _) in VALUES.items()]
    coded = codec.encode(columns, len(rows))
    found = RowOrder(order, ties, codec, 0)
    found.note(coded)
    arrays = found.arrays

    def compared(i: int, j: int) -> int:
        return int(compare(coded, i, coded, j, arrays, len(arrays.columns)))

    sorted_ = [rows[i] for i in sorted(range(len(rows)), key=cmp_to_key(compared))]
    sort_rows(rows, order, ties)
    assert repr(sorted_) == repr(rows)


def test_new_values_come_between_old_ones() -> None:
    codec = codec_of({"d": pa.decimal128(9, 2)})
    found = RowOrder((Ordering("d"),), (), codec, 0)

    def coded(*values: str) -> np.ndarray:
        return codec.encode([pa.array([Decimal(value) for value in values], pa.decimal128(9, 2))], len(values))

    ends = coded("1.00", "3.00")
    found.note(ends)
    assert compare(ends, 0, ends, 1, found.arrays, 1) == -1
    middle = coded("2.00")
    found.note(middle)
    assert compare(ends, 0, middle, 0, found.arrays, 1) == -1
    assert compare(middle, 0, ends, 1, found.arrays, 1) == -1
    found.forget()
    found.note(np.concatenate([ends, middle]))
    assert compare(middle, 0, ends, 1, found.arrays, 1) == -1
