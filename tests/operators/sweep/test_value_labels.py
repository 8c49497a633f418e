"""Labels compare as values do, and lead back to them, also when new values come between."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from everwhen.operators.sweep.value_labels import Labels, RankedLabels, labels_of
from everwhen.rows.codec import encode_column
from everwhen.rows.interner import Interner

ORDERED: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -5, 0, 7, 2**63 - 1],
    pa.uint64(): [0, 7, 2**63, 2**64 - 1],
    pa.float64(): [-math.inf, -2.5, -1e-300, 0.0, 1e-300, 3.0, math.inf],
    pa.string(): ["", "a", "ab", "b", "ä"],
    pa.decimal128(9, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("10.00")],
}


@pytest.mark.parametrize("type_", ORDERED, ids=str)
def test_labels_have_the_order_of_the_values(type_: pa.DataType) -> None:
    pool, values = Interner(), ORDERED[type_]
    labels = labels_of(type_, True, pool)
    codes = encode_column(pa.array(values[::-1], type_), type_, pool)[::-1].copy()
    if isinstance(labels, RankedLabels):
        labels.note(codes)
    found = labels.of(codes)
    assert found.tolist() == sorted(set(found.tolist()))
    assert labels.codes(found).tolist() == codes.tolist()


def test_a_new_value_moves_the_labels_of_others() -> None:
    pool = Interner()
    labels = labels_of(pa.string(), True, pool)
    assert isinstance(labels, RankedLabels)
    b, d, a = encode_column(pa.array(["b", "d", "a"]), pa.string(), pool).tolist()
    assert labels.note(np.array([b, d])) is None, "there were none"
    before = labels.of(np.array([b, d]))
    renewed = labels.note(np.array([d, a]))
    assert renewed is not None and renewed[before].tolist() == labels.of(np.array([b, d])).tolist() == [1, 2]
    assert labels.note(np.array([a, b])) is None, "all are known"
    assert labels.codes(np.array([-1, 0, 2])).tolist() == [0, a, d]
    labels.clear()
    assert labels.codes(np.array([-1])).tolist() == [0]


def test_what_is_only_told_from_others_is_its_own_label() -> None:
    for given in (labels_of(None, True, Interner()), labels_of(pa.string(), False, Interner())):
        assert type(given) is Labels and given.of(np.array([3, 1])).tolist() == [3, 1]
