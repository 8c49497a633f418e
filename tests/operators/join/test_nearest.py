"""Points and intervals that meet, against all pairs; and which conditions are read so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everwhen.algebra.expressions.build import Expr, col
from everwhen.algebra.nodes import Join
from everwhen.core.schema import Schema
from everwhen.operators.join.loops.nearest import Spans
from everwhen.operators.join.nearest import Nearest, meeting


def some(rng: np.random.Generator, n: int, wide: bool) -> Spans:
    """Keys, values and lifetimes; of points, or of intervals that may be wide or empty."""
    low = rng.integers(0, 40, n).astype(np.float64)
    high = low + rng.integers(-1, 9, n) if wide else low
    lo = rng.integers(0, 60, n)
    open_ = wide & (rng.random(n) < 0.2)
    return Spans(rng.integers(0, 3, n), low, np.where(open_, np.inf, high), lo, lo + rng.integers(1, 20, n))


@pytest.mark.parametrize("seed", range(6))
def test_all_that_meet_are_found_and_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = (0, 1, 40, 700, 3000, 3000)[seed]
    points, intervals = some(rng, n, False), some(rng, 60, True)
    found = {pair for part in meeting(points, intervals, 64) for pair in zip(*(p.tolist() for p in part), strict=True)}
    p, i = (Spans(*(each[at] for each in spans)) for spans, at in (
        (points, (slice(None), None)), (intervals, (None, slice(None)))
    ))  # fmt: skip
    meets = (p.ids == i.ids) & (i.low <= p.low) & (p.low <= i.high) & (p.lo < i.hi) & (i.lo < p.hi)
    assert found == set(zip(*(each.tolist() for each in np.nonzero(meets)), strict=True))


@pytest.mark.parametrize(
    ("condition", "types", "expected"),
    [
        ((col("t") >= col("a")) & (col("b").is_null() | (col("t") < col("b"))), "iii", (0, 0, 1, True)),
        ((col("b").is_null() | (col("t") >= col("b"))) & (col("t") < col("a")), "fii", (0, 0, 1, False)),
        ((col("t") >= col("a")) & (col("b").is_null() | (col("t") < col("b"))), "sss", None),
        ((col("t") >= col("a")) & (col("b").is_null() | (col("t") < col("b"))), "dtt", None),
        ((col("t") >= col("a")) & (col("b").is_null() | (col("t") <= col("b"))), "iii", None),
        ((col("t") >= col("a")) & (col("a").is_null() | (col("t") < col("b"))), "iii", None),
        ((col("a") <= col("t")) & (col("b").is_null() | (col("t") < col("b"))), "iii", None),
        ((col("t") >= col("a")) & (col("t") < col("b")), "iii", None),
    ],
)
def test_conditions_that_are_read_so(condition: Expr, types: str, expected: tuple[int, int, int, bool] | None) -> None:
    known = {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "d": pa.date32(), "t": pa.timestamp("us")}
    t, a, b = (known[each] for each in types)
    left, right = Schema.of([("t", t)]), Schema.of([("a", a), ("b", b)])
    found = Nearest.of(condition, left, right, Join.pair_names(left, right))
    assert found == (None if expected is None else Nearest(*expected))
