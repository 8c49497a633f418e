"""Queries that join a running session: from when on they are right, what they share, what is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import everwhen as ew
from engine.small_session import A, B, kinds, one, sums, texts
from everwhen.algebra.nodes import RowsWindow
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import reorder
from everwhen.testing.strategies import histories
from operators.differential import EMITS, FIRST, LAST, SCHEMA, Said, assert_snapshots
from plans import UNARY, Plan, S, T, col

# --- the answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", UNARY, ids=str)
@settings(max_examples=4)
@given(data=st.data(), emit=st.sampled_from(EMITS), seed=st.integers(0, 2**32))
def test_a_query_says_what_it_says_alone(plan: Plan, data: st.DataObject, emit: str, seed: int) -> None:
    """Element for element, whatever else runs: also a stream whose time is far ahead."""
    history = data.draw(histories(SCHEMA, max_events=6, allow_infinite=plan.infinite))
    rng = random.Random(seed)
    elements = reorder(history, rng, disorder=4, corrections=0.4, infinite=plan.infinite)
    session, alone = Session(emit=emit), LocalRuntime(plan.build(), emit=emit)
    session.register("other", T.union(T).range(3).aggregate(n=ew.count()))
    session.register("filtered", plan.build().where(~col(plan.build().schema.names[0]).is_null()))
    session.register("mine", plan.build())
    session.push(one(Insert(1000, 2000, A), name="T"))
    for at in range(0, len(elements), 3):
        batch = one(*elements[at : at + 3])
        assert sorted(texts(session.push(batch)["mine"])) == sorted(texts(alone.push(batch)["out"]))
    assert sorted(texts(session.close()["mine"])) == sorted(texts(alone.close()["out"]))


def insert_only_pairs() -> list[tuple[ew.Stream, ew.Stream]]:
    r = ew.source("R", SCHEMA, insert_only=True)
    grouped = r.range(4).group_by("k").agg(n=ew.count(), m=ew.max("x"))
    return [
        (r, r.where(col("x") > 0)),
        (r.range(3), r.range(3).distinct()),
        (r.range(3), r.range(5, slide=2).group_by("k").agg(n=ew.count())),
        (grouped, grouped.where(col("n") > 1)),
        (grouped, grouped.aggregate(s=ew.sum("n"))),
        (grouped, r.range(2).join(grouped, on="k")),
        (r.range(4), r.range(4).join(r.range(2), on="k", how="anti")),
        (r.granularity(3), r.granularity(3).istream()),
        (r.rows(2), r.rows(2).aggregate(n=ew.count(), m=ew.min("x"))),
        (r.rstream(), r.lifetime(hop=2, length=5)),
        (r, r.lifetime(shift=-2)),
    ]


@pytest.mark.parametrize("pair", range(len(insert_only_pairs())))
@settings(max_examples=15)
@given(history=histories(SCHEMA, max_events=10, max_time=20, allow_infinite=False), data=st.data())
def test_joining_a_source_that_keeps_nothing(pair: int, history: History, data: st.DataObject) -> None:
    """The largest end that has passed says from when on the answer is right."""
    emit = data.draw(st.sampled_from(EMITS))
    first, later = insert_only_pairs()[pair]
    # in `ended` a window of rows says other things below an operator than at the top, so there are two of them
    assume(emit != "ended" or not isinstance(first.node, RowsWindow))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    elements = reorder(history, rng, disorder=rng.choice((0, 3)), corrections=0.0, wrong=0.0, ctis=0.3)
    at = data.draw(st.integers(0, len(elements) - 1))  # the last one ends the input
    session = Session(emit=emit)
    session.register("first", first)
    session.push({"R": batch_of(elements[:at], SCHEMA)})
    handle = session.register("later", later)
    assert handle.valid_from < INF
    said = Said(later.schema)
    for i in range(at, len(elements), 3):
        said.take(session.push({"R": batch_of(elements[i : i + 3], SCHEMA)})["later"])
    said.take(session.close()["later"])
    oracle = evaluate(later.node, {"R": history})
    assert_snapshots(said, oracle, range(max(handle.valid_from, FIRST), LAST), f"valid from {handle.valid_from}")
    assert_snapshots(
        said, evaluate(later.node, {"R": History(SCHEMA, {})}), range(FIRST, min(handle.valid_from, LAST)), "before"
    )


def test_where_the_past_is_kept_the_answer_is_right_from_the_cti_on() -> None:
    session = Session()
    session.register("sums", sums())
    session.push(one(Insert(0, 1, A), Insert(3, 4, B), Cti(2)))
    late = session.register("late", sums().where(col("t") > 0))
    assert late.valid_from == 2
    assert texts(session.push({})["late"]) == ["insert [2, ∞) k='a' t=1", "insert [3, ∞) k='b' t=2", "cti 2"]
    # what was said before it joined is corrected under the name by which it knows it
    assert texts(session.push(one(Insert(2, 3, A)))["late"]) == [
        "adjust [2, ∞ -> 2) k='a' t=1",
        "insert [2, ∞) k='a' t=2",
    ]
    window = session.register("window", S.range(10))
    assert window.valid_from == 2 + 10 - 1
    assert session.register("all", S.where(col("x") > 1)).valid_from == 2


def test_without_a_cti_everything_is_kept() -> None:
    session = Session()
    session.register("s", S)
    session.push(one(Insert(0, 1, A), Insert(3, 4, B)))
    for query in (S.rows(2), S.unbounded(), S.deletes()):
        assert session.register(None, query).valid_from == NEVER
    found = session.close()
    assert texts(found["q2"]) == ["insert [0, ∞) k='a' x=1", "insert [3, ∞) k='b' x=2", "cti ∞"]
    assert texts(found["q3"]) == ["insert [1, ∞) k='a' x=1", "insert [4, ∞) k='b' x=2", "cti ∞"]
    assert History.of(found["q1"], SCHEMA).snapshot(4) == {("a", 1): 1, ("b", 2): 1}


@pytest.mark.parametrize(
    ("query", "culprit"),
    [
        (S.rows(2), "'rows window'"),
        (S.unbounded().distinct(), "'window'"),
        (S.deletes(), "'deletes'"),
        (S.inserts(), "'alter lifetime'"),
    ],
)
def test_what_needs_all_of_the_past_is_refused(query: ew.Stream, culprit: str) -> None:
    session = Session()
    session.register("s", S)
    session.push(one(Insert(0, 1, A), Cti(5)))
    before = session.metadata().keys()
    match = f"cannot join now.*{culprit} needs all of the past.*Register it before"
    with pytest.raises(QueryError, match=match) as told:
        session.register("late", query)
    assert "insert_only" not in str(told.value)  # it would not help
    assert session.metadata().keys() == before and [each.name for each in session.queries()] == ["s"]
    session.push(one(Insert(6, 7, A), Cti(INF)))


def test_endless_events_of_a_source_that_keeps_nothing() -> None:
    r = ew.source("R", SCHEMA, insert_only=True)
    session = Session()
    session.register("r", r.range(3).group_by("k").agg(n=ew.count()))
    session.push({"R": batch_of([Insert(0, INF, A), Cti(2)], SCHEMA)})
    with pytest.raises(QueryError, match=r"some of what R said has no end, and is not kept.*insert_only=False"):
        session.register("late", r.distinct())


def test_joining_an_input_that_has_ended() -> None:
    session = Session()
    session.register("s", S)
    session.push(one(Insert(0, 4, A), Cti(1)))
    session.close_input("S")
    late = session.register("late", S.distinct())
    assert late.valid_from == 4
    assert texts(session.push({})["late"]) == ["cti ∞"]
    assert session.register("same", S.distinct()).valid_from == 4
    session.register("t", T)
    session.push(one(Insert(0, INF, A), Cti(INF), name="T"))
    with pytest.raises(QueryError, match="T has ended, and some of what it said has no end"):
        session.register("later", T.distinct())


# --- sharing ----------------------------------------------------------------------------------------------------------


def test_equal_plans_run_once() -> None:
    session = Session()
    for at in range(20):
        session.register(f"q{at}", sums().where(col("t") > at))
    session.register("more", sums().select("k", "t", big=col("t") > 3).where(col("big")))
    session.register("count", sums().aggregate(n=ew.count()))
    assert kinds(session) == [
        "window",
        "aggregate",
        "aggregate",
        "aggregate",
    ]  # at the output, below another, the count
    found = session.metadata()
    assert len(found["1 aggregate"].queries) == 21 and found["0 window"].queries[-1] == "count"
    out = session.push(one(Insert(0, 1, {"k": "a", "x": 5}), Insert(1, 2, {"k": "a", "x": 7}), Cti(9)))
    for at in range(20):
        history = History.of(out[f"q{at}"], sums().schema)
        assert [history.snapshot(t) for t in (0, 1, 4)] == [
            {("a", total): 1} if total > at else {} for total in (5, 12, 7)
        ]


def test_other_parameters_are_other_operators() -> None:
    session = Session()
    for size in (3, 4):
        session.register(None, S.range(size).distinct())
    for bound in (1, 1.0, True):
        session.register(None, S.select(y=ew.lit(bound)).distinct())
    assert kinds(session).count("window") == 2 and kinds(session).count("map") == 3


def test_python_functions_are_shared_if_they_are_the_same() -> None:
    def double(x: int) -> int:
        return 2 * x

    def doubled(function: object) -> ew.Stream:
        return S.select("k", y=ew.udf(function, col("x"), type="int64")).distinct()

    session = Session()
    for function in (double, double, lambda x: 2 * x):
        session.register(None, doubled(function))
    assert kinds(session) == ["map", "distinct"] * 2


@pytest.mark.parametrize("emit", EMITS)
def test_many_equal_filters(emit: str) -> None:
    """A bank of filters gives what each of them gives, with more conditions behind, for numbers and texts."""
    rng = random.Random(7)
    alone: dict[str, ew.Stream] = {}
    for at in range(8):
        alone[f"x{at}"] = S.where(col("x") == at)
        alone[f"y{at}"] = S.where(ew.lit(at) == col("x")).where(col("k") != "a")
        alone[f"k{at}"] = S.where(col("k") == "abcdefgh"[at]).select("x", "k")
        alone[f"g{at}"] = sums().where(col("k") == "abcdefgh"[at])
        alone[f"f{at}"] = S.where(col("x") == float(at))
    session = Session(emit=emit)
    late: dict[str, int] = {}
    for name, query in list(alone.items())[:30]:
        session.register(name, query)
    runtime = LocalRuntime(alone, emit=emit)
    said = {name: Said(query.schema) for name, query in alone.items()}
    expected = {name: Said(query.schema) for name, query in alone.items()}
    for epoch in range(12):
        if epoch == 6:
            late = {name: session.register(name, query).valid_from for name, query in list(alone.items())[30:]}
        rows = [{"k": rng.choice([*"abcdx", None]), "x": rng.choice([*range(6), None])} for _ in range(30)]
        batch = one(
            *(Insert(4 * epoch + i % 4, 4 * epoch + i % 4 + 2, row) for i, row in enumerate(rows)), Cti(4 * epoch)
        )
        for name, found in session.push(batch).items():
            said[name].take(found)
        for name, found in runtime.push(batch).items():
            expected[name].take(found)
    for name, found in session.close().items():
        said[name].take(found)
    for name, found in runtime.close().items():
        expected[name].take(found)
        for t in range(late.get(name, 0), 60):
            assert said[name].at(t) == expected[name].at(t), (name, t)
