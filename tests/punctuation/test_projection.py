"""Projected promises never say more than holds, and say all that a cover of a dropped column allows."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.punctuation import pattern_index
from everwhen.punctuation import projection as projection_module
from everwhen.punctuation.api import Projection
from everwhen.punctuation.domain_cover import uncovered
from everwhen.punctuation.pattern_index import within
from promise_strategies import limit
from state_files import through_file

# Domains small enough to try every payload; a nullable boolean has three values, and a `uint8` is cut by few bounds.
ABC = Schema.of([("a", pa.bool_()), ("b", pa.bool_()), ("c", pa.uint8())])
KEPT = {"a": ("x", "y")}
BYTES = [0, 1, 2, 100, 254, 255]


def bools() -> st.SearchStrategy[AttributePattern]:
    lists = st.lists(st.sampled_from([None, False, True]), min_size=1, unique=True).map(lambda v: OneOf(tuple(v)))
    return lists | st.sampled_from([Range(ge=False), Range(lt=True), Range(gt=True), Nothing()])


def numbers() -> st.SearchStrategy[AttributePattern]:
    bounds = st.dictionaries(st.sampled_from(["ge", "lt", "le", "gt"]), st.sampled_from(BYTES), min_size=1, max_size=2)
    lists = st.lists(st.sampled_from([None, *BYTES]), min_size=1, max_size=3).map(lambda v: OneOf(tuple(v)))
    return bounds.map(lambda b: Range(**b)) | lists | st.just(OneOf((None, *range(100))))


@st.composite
def promises(draw: st.DrawFn) -> Punctuation:
    match: dict[str, AttributePattern] = {}
    if draw(st.booleans()):
        match["a"] = draw(bools())
    dropped = draw(st.sampled_from(["b", "c", "c", "bc", ""]))
    if "b" in dropped:
        match["b"] = draw(bools())
    if "c" in dropped:
        match["c"] = draw(numbers())
    return Punctuation(match, draw(st.sampled_from([INF, 1, 2])))


def inputs(a: Any, never_null: frozenset[str]) -> list[dict[str, Any]]:
    """Every input payload that a kept value may come from; between the bounds of `BYTES` one number stands for all."""
    bs = [False, True] if "b" in never_null else [None, False, True]
    cs = [*BYTES, 3, 50, 99, 101, 200] + ([] if "c" in never_null else [None])
    return [{"a": a, "b": b, "c": c} for b, c in product(bs, cs)]


def output_row(a: Any) -> dict[str, Any]:
    return {"x": a, "y": a}


@given(st.lists(promises(), max_size=14), st.sets(st.sampled_from("bc")), st.data())
@settings(max_examples=250, deadline=None)
def test_projection_is_sound_and_for_one_column_complete(
    given_: list[Punctuation], never_null: set[str], data: st.DataObject
) -> None:
    projection = Projection(ABC, KEPT, never_null)
    taken: list[Punctuation] = []
    said: list[Punctuation] = []
    while len(taken) < len(given_):
        batch = given_[len(taken) : len(taken) + data.draw(st.integers(1, 4))]
        if data.draw(st.booleans()):
            state = through_file(projection.snapshot())
            projection = Projection(ABC, KEPT, never_null)
            projection.restore(state)
        said += projection.project(batch)
        taken += batch
        for a in (None, False, True):
            rows = inputs(a, frozenset(never_null))
            found = limit(said, output_row(a))
            assert found <= min(limit(taken, row) for row in rows)
            for column in ("b", "c"):
                single = [p for p in taken if p.match.keys() <= {"a", column}]
                assert found >= min(limit(single, row) for row in rows)
            assert found >= min(limit(taken, row) for row in rows)  # few promises: exact for several columns, too


@pytest.mark.parametrize(
    ("type_", "cut"),
    [
        (pa.int64(), [-(2**63), 0, 2**63 - 1]),
        (pa.uint64(), [0, 2**63, 2**64 - 1]),
        (pa.float64(), [float("-inf"), 0.0, float("inf"), float("nan")]),
        (pa.string(), ["", "m", "m\0"]),
        (pa.binary(2), [b"\0\0", b"ab", b"\xff\xff"]),
        (pa.bool_(), [False, True]),
    ],
)
def test_every_type_is_covered_by_ranges_and_constants_that_meet(type_: pa.DataType, cut: list[Any]) -> None:
    schema = Schema.of([("k", pa.int64()), ("d", type_)])
    for left_out in [None, *range(len(cut) + 2)]:
        projection = Projection(schema, {"k": ["k"]})
        parts: list[AttributePattern] = [OneOf((None,)), Range(lt=cut[0])]
        for low, high in zip(cut, [*cut[1:], None], strict=True):
            parts += [OneOf((low,)), Range(gt=low) if high is None else Range(gt=low, lt=high)]
        if left_out is not None:  # some constant
            without = OneOf(((None, *cut)[left_out % len(cut)],))
            parts = [part for part in parts if part != without]
        said = projection.project(Punctuation({"k": OneOf((1,)), "d": part}, 5) for part in parts)
        assert said == ([Punctuation({"k": OneOf((1,))}, 5)] if left_out is None else [])


def test_what_goes_on_at_once() -> None:
    projection = Projection(ABC, {"a": ["x"], "c": ["c", "d"]})
    assert projection.project(
        [Punctuation({"a": OneOf((True,))}, 3), Punctuation({}, 2), Punctuation({"a": Nothing()})]
    ) == [
        Punctuation({}, 2),
        Punctuation({"x": OneOf((True,))}, 3),
    ]
    assert projection.project([Punctuation({"c": Range(ge=3)})]) == [Punctuation({"c": Range(ge=3), "d": Range(ge=3)})]
    assert len(projection) == 0


def test_a_wider_pattern_completes_narrower_ones() -> None:
    projection = Projection(ABC, {"c": ["c"], "a": ["a"]}, ["b"])
    assert projection.project([Punctuation({"c": OneOf((i,)), "b": OneOf((True,))}, 9) for i in range(3)]) == []
    assert projection.project([Punctuation({"c": Range(ge=1), "b": OneOf((False,))}, 4)]) == [
        Punctuation({"c": OneOf((1, 2))}, 4),
    ]
    assert projection.project([Punctuation({"c": Range(ge=1), "b": OneOf((False,))}, 6)]) == [
        Punctuation({"c": OneOf((1, 2))}, 6),
    ]


def test_what_is_said_for_good_is_no_state() -> None:
    schema = Schema.of([("hour", pa.int64()), ("sensor", pa.string())])
    projection = Projection(schema, {"hour": ["hour"]}, ["sensor"])
    for hour in range(200):
        for part in (Range(lt="m"), OneOf(("m",))):
            assert projection.project([Punctuation({"hour": OneOf((hour,)), "sensor": part})]) == []
        assert projection.project([Punctuation({"hour": OneOf((hour,)), "sensor": Range(gt="m")})]) == [
            Punctuation({"hour": OneOf((hour,))})
        ]
        assert projection.project([Punctuation({"hour": OneOf((hour,)), "sensor": OneOf(("late",))})]) == []
        assert len(projection) == 0
    assert projection.nbytes < 20_000


def test_ranges_that_are_said_for_good_are_no_state() -> None:
    schema = Schema.of([("hour", pa.int64()), ("sensor", pa.string())])
    projection = Projection(schema, {"hour": ["hour"]}, ["sensor"])
    for hour in range(0, 200, 2):
        kept = {"hour": Range(ge=hour, le=hour + 1)}
        assert projection.project([Punctuation({**kept, "sensor": Range(lt="m")})]) == []
        assert projection.project([Punctuation({**kept, "sensor": Range(ge="m")})]) == [Punctuation(kept)]
    assert len(projection) == 0 and not any(projection._index._broad.values())


def test_many_constants_of_a_dropped_column_stay_a_few_steps() -> None:
    schema = Schema.of([("k", pa.int64()), ("n", pa.int64())])
    projection = Projection(schema, {"k": ["k"]}, ["n"])
    projection.project(Punctuation({"k": OneOf((1,)), "n": OneOf((i,))}, 7) for i in range(2000))
    assert len(projection) == 3
    said = projection.project([Punctuation({"n": Range(lt=0)}, 9), Punctuation({"n": Range(ge=1500)}, 8)])
    assert said == [Punctuation({"k": OneOf((1,))}, 7)]


def comparisons(monkeypatch: pytest.MonkeyPatch, n: int) -> int:
    """How often two patterns are compared while `n` ranges and `n` constants inside them wait for their cover."""
    asked = 0

    def counted(inner: Any, outer: Any) -> bool:
        nonlocal asked
        asked += 1
        return within(inner, outer)

    schema = Schema.of([("k", pa.int64()), ("j", pa.int64()), ("d", pa.int64())])
    projection = Projection(schema, {"k": ["k"], "j": ["j"]}, ["d"])
    with monkeypatch.context() as patched:
        patched.setattr(pattern_index, "within", counted)
        for i in range(n):
            match = {"k": OneOf((i % 7,)), "j": Range(ge=10 * i, lt=10 * i + 10)}
            assert projection.project([Punctuation({**match, "d": Range(lt=5)})]) == []
            inside = {"k": OneOf((i % 7,)), "j": OneOf((10 * i + 3,))}
            assert projection.project([Punctuation({**inside, "d": Range(gt=7)})]) == []
        said = projection.project([Punctuation({"d": Range(ge=5, le=7)}, 9)])
    assert len(said) == n and {p.t for p in said} == {9}
    return asked


def test_what_waits_is_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of comparisons grows as the number of promises does, not as its square."""
    few, many = comparisons(monkeypatch, 50), comparisons(monkeypatch, 400)
    assert few > 50 and many < 9 * few


def test_a_gap_is_looked_for_again_when_it_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cover that has a gap costs nothing until the gap is closed, however many pieces there are."""
    asked = 0

    def counted(*given_: Any) -> Any:
        nonlocal asked
        asked += 1
        return uncovered(*given_)

    monkeypatch.setattr(projection_module, "uncovered", counted)
    schema = Schema.of([("k", pa.int64()), ("d", pa.int64())])
    projection = Projection(schema, {"k": ["k"]}, ["d"])
    assert projection.project([Punctuation({"k": Range(ge=0, lt=9), "d": Range(ge=10_000)})]) == []
    for i in range(500):
        assert projection.project([Punctuation({"k": OneOf((1,)), "d": OneOf((2 * i,))})]) == []
    assert asked < 20
    rest = [Range(lt=0), OneOf(tuple(range(1, 1000, 2))), Range(ge=1000, lt=10_000)]
    said = projection.project(Punctuation({"k": OneOf((1,)), "d": part}) for part in rest)
    assert said == [Punctuation({"k": OneOf((1,))})]


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(QueryError, match="unknown column 'z' in a projection"):
        Projection(ABC, {"z": ["z"]})
    with pytest.raises(QueryError, match="unknown column 'z' in a pattern"):
        Projection(ABC, KEPT).project([Punctuation({"z": OneOf((1,))})])
