"""Aggregates over whole groups: order statistics against sorted lists, and a user's functions."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.operators.sweep.holistic import order_ranks
from everwhen.stream.element import Insert
from operators.stepping import codec_of


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [None, -1, 3, 7]),
        (pa.uint64(), [None, 0, 1, 2**63]),
        (pa.float64(), [None, -math.inf, -2.5, 0.0, 2.5, math.nan]),
        (pa.string(), [None, "", "ab", "b"]),
    ],
    ids=str,
)
def test_ranks_have_the_order_of_values_nulls_first_and_nan_last(type_: pa.DataType, values: list[Any]) -> None:
    codec = codec_of({"x": type_})
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(values))
        given = pa.array([values[at] for at in order], type_)
        ranks = order_ranks(codec, codec.encode([given], len(values)), 0)
        assert order[np.argsort(ranks)].tolist() == list(range(len(values)))


def test_they_are_those_of_a_sorted_list() -> None:
    rng = random.Random(1)
    values = [rng.choice([None, *range(8)]) for _ in range(21)]
    source = ew.source("S", {"x": "int64", "t": "int64"})
    query = source.aggregate(
        m=ew.median("x"), q=ew.quantile("x", 0.25), d=ew.count_distinct("x"), top=ew.top_k("x", 3),
        f=ew.first("x", by="t"), l=ew.last("x", by="t"),
    )  # fmt: skip
    rows = [Insert(0, 9, {"x": x, "t": t}) for t, x in enumerate(values)]
    rng.shuffle(rows)
    (found,) = [each.row for each in ew.run(query, {"S": rows}) if isinstance(each, Insert)]
    known = sorted(x for x in values if x is not None)
    at = 0.25 * (len(known) - 1)
    low, high = known[math.floor(at)], known[math.ceil(at)]
    assert found["m"] == (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    assert found["q"] == low + (high - low) * (at - math.floor(at))
    assert found["d"] == len(set(known)) and found["top"] == known[:-4:-1]
    assert found["f"] == values[0] and found["l"] == values[-1]
