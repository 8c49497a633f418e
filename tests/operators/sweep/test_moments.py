"""Sums and variances of floats after a large value has left: what stays counts as if it were alone."""

from __future__ import annotations

import math
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.engine.local import LocalRuntime
from everwhen.reference import history as reference_history
from everwhen.stream.element import Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, reorder
from operators.differential import EMITS, in_turn, run_all

FLOATS = Schema.of([("g", pa.int64()), ("v", pa.float64())])
F = ew.source("S", FLOATS)
QUERY = F.aggregate(
    t=ew.sum("v"), a=ew.avg("v"), s=ew.stddev("v"), p=ew.stddev_pop("v"), q=ew.variance("v"), n=ew.count("v")
)


def rows(*values: tuple[int, int, float]) -> list[Element]:
    return [Insert(vs, ve, {"g": 0, "v": v}) for vs, ve, v in values]


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize("large", [1e7, 1e17, 1e40, 1e100, 1e160, 1e300, -1e17, 1e-30])
def test_a_large_value_leaves_no_trace(large: float, size: int, emit: str) -> None:
    events = rows((0, 20, 1.0), (1, 4, large), (2, 20, 2.0), (3, 20, 4.0), (5, 6, large * 3), (7, 20, 4.0))
    out = run_all(QUERY, emit, in_turn(events, size, "S", FLOATS))
    expected = reference_history(QUERY.node, {"S": History.of(events, FLOATS)})
    assert_same_history(History.of(out, QUERY.schema), expected, tolerance=1e-14)


def test_seven_numbers_of_very_different_size() -> None:
    values = [1e-8, 3.3e-8, 1e16, -0.1, 7e11, 2.5e-3, 1e5]
    events = rows(*((i, 30 - 4 * (i % 3) if v < 1 else 10 + i, v) for i, v in enumerate(values)))
    query = F.aggregate(t=ew.sum("v"))
    out = run_all(query, "final", in_turn(events, 10, "S", FLOATS))
    for event in History.of(out, query.schema).events():
        alive = [e.row["v"] for e in events if e.vs <= event[0] < e.ve]
        assert abs(event[2][0] - math.fsum(alive)) <= 2**-52 * math.fsum(map(abs, alive))


@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_what_is_alive_is_all_that_counts(data: st.DataObject, seed: int) -> None:
    """The error is a share of the absolute values alive (of their squares, for a variance), whatever has left."""
    rng = random.Random(seed)
    number = st.builds(lambda m, e: m * 10.0**e, st.floats(-10, 10), st.integers(-30, 100)) | st.floats(-100, 100)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), number), min_size=1, max_size=12))
    history = History.of(rows(*((vs, vs + n, v) for vs, n, v in drawn)), FLOATS)
    query = F.aggregate(t=ew.sum("v"), q=ew.variance_pop("v"), s=ew.stddev_pop("v"))
    for emit in EMITS:
        out = run_all(query, emit, in_turn(reorder(history, rng, infinite=False), 4, "S", FLOATS))
        for vs, _, (t, q, s) in History.of(out, query.schema).events():
            alive = [row[1] for lo, hi, row in history.events() if lo <= vs < hi]
            exact = query.node  # the definition, on what is alive
            (_, _, (t0, q0, s0)), *_ = reference_history(
                exact, {"S": History.of(rows(*((0, 1, v) for v in alive)), FLOATS)}
            ).events()
            squares = math.fsum(v * v for v in alive) / len(alive)
            assert abs(t - t0) <= 2**-52 * math.fsum(map(abs, alive))
            assert abs(q - q0) <= 2**-51 * q0 + 2**-100 * squares
            # squares below the smallest float are zero, so what is below its root does not count
            assert abs(s - s0) <= 2**-51 * s0 + 2**-50 * math.sqrt(squares) + 2**-530


def test_classes_of_magnitude_are_restored() -> None:
    events = rows((0, 9, 1.0), (1, 6, 1e17), (1, 9, 2.0), (3, 9, 4.0), (4, 9, math.nan))
    first = LocalRuntime(QUERY, emit="all")
    out = list(first.push({"S": batch_of(events[:3], FLOATS)})["out"].elements())
    second = LocalRuntime(QUERY, emit="all")
    second.restore(first.snapshot())
    out += second.push({"S": batch_of([*events[3:], ew.Cti(ew.INF)], FLOATS)})["out"].elements()
    expected = reference_history(QUERY.node, {"S": History.of(events, FLOATS)})
    assert_same_history(History.of(out, QUERY.schema), expected, tolerance=1e-14)


def test_the_batches_do_not_change_a_bit() -> None:
    """Sums of values that no float holds exactly, with corrections, in any cut."""
    rng = random.Random(3)
    values = [rng.uniform(-1, 1) * 10.0 ** rng.randrange(-6, 7) for _ in range(300)]
    events = rows(*((i, i + rng.randrange(1, 90), v) for i, v in enumerate(values)))
    history = History.of(events, FLOATS)
    expected = History.of(run_all(QUERY, "final", in_turn(events, 400, "S", FLOATS)), QUERY.schema)
    for size in (1, 7, 60):
        out = run_all(QUERY, "final", in_turn(reorder(history, rng, infinite=False), size, "S", FLOATS))
        assert_same_history(History.of(out, QUERY.schema), expected, tolerance=0.0)


def test_nulls_after_a_large_value() -> None:
    events: list[Element] = [*rows((0, 9, 1.0), (1, 3, 1e40)), Insert(2, 9, {"g": 0, "v": None}), *rows((4, 9, 5.0))]
    out = run_all(QUERY, "final", in_turn(events, 1, "S", FLOATS))
    expected = reference_history(QUERY.node, {"S": History.of(events, FLOATS)})
    assert_same_history(History.of(out, QUERY.schema), expected, tolerance=1e-14)


def test_a_deviation_may_be_where_its_square_is_too_large() -> None:
    events = rows((0, 5, 1e200), (0, 5, -1e200))
    out = run_all(F.aggregate(s=ew.stddev_pop("v")), "final", in_turn(events, 2, "S", FLOATS))
    assert [e.row["s"] for e in out if isinstance(e, Insert)] == [1e200]
