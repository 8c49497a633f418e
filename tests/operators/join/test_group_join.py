"""Groups that are read at single instants: the one operator against the oracle, and where lowering chooses it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.core.emit import Emit
from everwhen.core.kinds import type_of
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.errors import EvaluationError
from everwhen.operators.join.group_join import GroupJoinOperator
from everwhen.plan.lower import lower
from everwhen.stream.element import Cti, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing.strategies import histories
from example_counts import examples_per_case
from operators.differential import EMITS, SCHEMA, Trial, epochs, sources, streams_of
from plans import COLUMNS, Plan, col, plan
from state_files import through_file

S = ew.source("S", COLUMNS)
T = ew.source("T", COLUMNS, keys="k")
INSTANTS = T.istream()
FEW = settings(max_examples=examples_per_case(12))


def best(rows: Stream = S) -> Stream:
    return rows.group_by("k").agg(hi=ew.max("x"), lo=ew.min("x"))


def joined(left: Stream, right: Stream, kind: n.JoinKind = "inner", null_safe: bool = False) -> Stream:
    return Stream(n.Join(left.node, right.node, ("k",), ("k",), None, kind, null_safe))


PLANS = (
    plan("extremes of lifetimes", lambda: best().join(INSTANTS, on="k")),
    plan("extremes in a window", lambda: best(S.lifetime(length=4)).join(INSTANTS, on="k")),
    plan(
        "counts, sums and averages",
        lambda: S.lifetime(length=5).group_by("k").agg(
            n=ew.count(), nx=ew.count("x"), t=ew.sum("x"), a=ew.avg("x"), m=ew.max("x")
        ).join(INSTANTS, on="k"),
    ),
    plan("the instants first", lambda: INSTANTS.join(best(), on="k")),
    plan("nulls meet nulls", lambda: joined(best(), INSTANTS, null_safe=True)),
    plan("a semi-join", lambda: joined(best(), INSTANTS, "semi")),
    plan("instants that are ends", lambda: best().join(T.dstream(), on="k")),
    plan("instants of whole events", lambda: best().join(T.lifetime(length=1), on="k")),
    plan("both from one stream", lambda: best(T).join(INSTANTS, on="k")),
    plan(
        "two columns, the other way round",
        lambda: Stream(
            n.Join(
                S.lifetime(length=3).group_by("x", "k").agg(c=ew.count()).node, INSTANTS.node, ("k", "x"), ("k", "x")
            )
        ),
    ),
    plan(
        "instants that a semi-join leaves",
        lambda: best().join(joined(S.range(3).select("k").distinct(), INSTANTS, "semi"), on="k"),
    ),
    plan("then a sum", lambda: best().join(INSTANTS, on="k").aggregate(t=ew.sum("hi"), n=ew.count())),
)  # fmt: skip


def group_joins(query: Stream, emit: Emit = Emit.CURRENT) -> int:
    return sum(isinstance(each.operator, GroupJoinOperator) for each in lower({"q": query.node}, emit).operators)


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("plan", PLANS, ids=str)
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_stream_gives_the_oracle_s_snapshots(plan: Plan, emit: str, data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    query = plan.build()
    assert group_joins(query, Emit(emit)) == 1
    drawn = histories(SCHEMA, max_events=9, max_time=12) | crowded()
    given_ = {name: data.draw(drawn, label=name) for name in sources(query)}
    if "semi-join" in plan.name:  # with other plans a KEY that does not hold costs time, not correctness
        given_["T"] = first_of_each_key(given_["T"])
    trial = Trial(query, emit, given_)
    for epoch in epochs(streams_of(given_, rng), rng):
        trial.push(epoch)
        match rng.randrange(8):
            case 0:
                trial.restart(through_file)
            case 1:
                trial.collect()
    trial.close()
    assert trial.runtime._dataflow.flow.state_size().rows == 0


def first_of_each_key(history: History) -> History:
    found: dict[object, Insert] = {}
    for vs, ve, row in history.events():
        found.setdefault(row[0], Insert(vs, ve, dict(zip(SCHEMA.names, row, strict=True))))
    return History.of(list(found.values()), SCHEMA)


@st.composite
def crowded(draw: st.DrawFn) -> History:
    """Few keys and values, lifetimes that overlap: many rows of one group, ties, extremes that are taken back."""
    row = st.fixed_dictionaries({"k": st.sampled_from(["a", "b", None]), "x": st.sampled_from([1, 2, 3, -7, None])})
    events = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6) | st.just(INF), row), max_size=10))
    elements = [Insert(vs, INF if length == INF else vs + length, values) for vs, length, values in events]
    return History.of(elements, SCHEMA)


TYPES = {
    "int64": [-(2**63), -1, 0, 2**63 - 1, None],
    "uint64": [0, 1, 2**63, 2**64 - 1, None],
    "float64": [float("-inf"), -0.0, 0.0, 1.5, float("inf"), float("nan"), None],
    "bool": [True, False, None],
    "timestamp[us]": [0, 5, -5, None],
    "date32": [0, 1, -1, None],
}


@pytest.mark.parametrize("type_", TYPES)
@FEW
@given(data=st.data())
def test_extremes_of_every_type_are_those_of_the_two_operators_apart(type_: str, data: st.DataObject) -> None:
    s = ew.source("S", {"k": "int64", "x": type_})
    t = ew.source("T", {"k": "int64"}, chronons=True, keys="k")
    groups = s.range(6).group_by("k").agg(hi=ew.max("x"), lo=ew.min("x"))
    together = groups.join(t, on="k")
    apart = groups.where(col("k") == col("k")).join(t, on="k")  # a filter in between keeps them apart
    assert (group_joins(together), group_joins(apart)) == (1, 0)
    events = data.draw(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(TYPES[type_])), max_size=12))
    rows = pa.array([value for _, value in events], type_of(type_))
    batch = batch_of(
        [Insert(vs, vs + 1, {"k": 1, "x": x}) for (vs, _), x in zip(events, rows.to_pylist(), strict=True)], s.schema
    )
    reads = batch_of([Insert(7, 8, {"k": 1}), Insert(3, 4, {"k": 1})], t.schema)
    answers = []
    for query in (together, apart):
        runtime = LocalRuntime(query, emit="final")
        runtime.push({"S": batch, "T": reads})
        answers.append(repr(list(runtime.close()["out"].elements())))
    assert answers[0] == answers[1]


def test_it_stands_where_each_group_is_read_once() -> None:
    chronons = ew.source("T", COLUMNS, chronons=True, keys="k")
    windowed = S.lifetime(length=4)
    assert group_joins(best().join(chronons, on="k")) == 1
    assert group_joins(windowed.group_by("k").agg(t=ew.sum("x")).join(chronons, on="k")) == 1
    # read again and again, at many instants
    assert group_joins(best().join(ew.source("T", COLUMNS, chronons=True), on="k")) == 0
    assert group_joins(best().join(chronons.range(2), on="k")) == 0
    assert group_joins(best().join(ew.source("T", COLUMNS, keys="k"), on="k")) == 0
    # sums that fold rows which may never end; floats, whose sums depend on the order
    assert group_joins(S.group_by("k").agg(t=ew.sum("x")).join(chronons, on="k")) == 0
    assert (
        group_joins(windowed.select("k", x=col("x") * 1.5).group_by("k").agg(t=ew.sum("x")).join(chronons, on="k")) == 0
    )
    assert group_joins(windowed.group_by("k").agg(m=ew.median("x")).join(chronons, on="k")) == 0
    # an instant that reads several groups, or asks for more
    assert group_joins(S.group_by("k", "x").agg(n=ew.max("x")).join(chronons, on="k")) == 0
    assert group_joins(best().join(chronons, on="k", where=col("hi") > col("x"))) == 0


def test_it_stands_there_whatever_else_reads_the_groups() -> None:
    """Which operators a query has, and how they are called, does not depend on who else runs."""
    chronons = ew.source("T", COLUMNS, chronons=True, keys="k")
    groups = best()
    read = groups.join(chronons, on="k").node
    for queries in ({"groups": groups.node, "read": read}, {"read": read, "groups": groups.node}, {"read": read}):
        found = [each for each in lower(queries, Emit.ALL).operators if isinstance(each.operator, GroupJoinOperator)]
        assert len(found) == 1


def test_nothing_is_said_of_groups_that_are_not_read() -> None:
    chronons = ew.source("T", COLUMNS, chronons=True, keys="k")
    runtime = LocalRuntime(best().join(chronons, on="k"), emit="current")
    rows = [Insert(0, 9, {"k": "a", "x": x}) for x in range(50)]
    assert not list(runtime.push({"S": batch_of(rows, SCHEMA)})["out"].elements())
    read = batch_of([Insert(5, 6, {"k": "a", "x": 0})], SCHEMA)
    (said,) = runtime.push({"T": read})["out"].elements()
    assert said.row == {"k": "a", "hi": 49, "lo": 0, "x": 0} and (said.vs, said.ve) == (5, 6)


def test_a_sum_that_may_not_fit_is_an_error_only_where_it_is_read() -> None:
    chronons = ew.source("T", COLUMNS, chronons=True, keys="k")
    query = S.lifetime(length=4).group_by("k").agg(t=ew.sum("x")).join(chronons, on="k")
    runtime = LocalRuntime(query)
    rows = [Insert(0, 9, {"k": k, "x": x}) for k, x in (("big", 2**62), ("big", 2**62), ("small", 1))]
    runtime.push({"S": batch_of(rows, SCHEMA)})
    (said,) = runtime.push({"T": batch_of([Insert(1, 2, {"k": "small", "x": 0})], SCHEMA)})["out"].elements()
    assert said.row["t"] == 1
    with pytest.raises(EvaluationError, match="may not fit 64 bits"):
        runtime.push({"T": batch_of([Insert(1, 2, {"k": "big", "x": 0})], SCHEMA)})


def test_state_goes_when_both_sides_have_passed_it() -> None:
    chronons = ew.source("T", COLUMNS, chronons=True, keys="k")
    runtime = LocalRuntime(best(S.lifetime(length=4)).join(chronons, on="k"))
    operator = next(e.operator for e in runtime.plan.operators if isinstance(e.operator, GroupJoinOperator))
    runtime.push({"S": batch_of([Insert(0, 9, {"k": "a", "x": 1})], SCHEMA)})
    runtime.push({"T": batch_of([Insert(2, 3, {"k": "a", "x": 0}), Cti(8)], SCHEMA)})
    assert operator.state_size().rows == 2  # a late row before 8 may still join the group
    runtime.push({"S": batch_of([Cti(3)], SCHEMA)})
    assert operator.state_size().rows == 1
    runtime.push({"S": batch_of([Cti(4)], SCHEMA)})
    assert operator.state_size().rows == 0


def test_a_promise_of_both_sides_about_a_key_frees_its_group_and_goes_on() -> None:
    chronons = ew.source("T", COLUMNS, chronons=True, keys="k")
    runtime = LocalRuntime(best(S.lifetime(length=4)).join(chronons, on="k"))
    operator = next(e.operator for e in runtime.plan.operators if isinstance(e.operator, GroupJoinOperator))
    closed = Punct(Punctuation.constants({"k": "a"}))
    rows = [Insert(0, 9, {"k": k, "x": 1}) for k in ("a", "b")]
    runtime.push({"S": batch_of(rows, SCHEMA), "T": batch_of([Insert(2, 3, {"k": "a", "x": 0})], SCHEMA)})
    assert not [e for e in runtime.push({"S": batch_of([closed], SCHEMA)})["out"].elements() if isinstance(e, Punct)]
    assert operator.state_size().rows == 3  # an instant of a may still come
    said = [e for e in runtime.push({"T": batch_of([closed], SCHEMA)})["out"].elements() if isinstance(e, Punct)]
    assert any(dict(e.promise.match) == dict(closed.promise.match) for e in said)
    assert operator.state_size().rows == 1  # the row of b
    found = operator.standing([Frontier(), Frontier()])
    assert found is not None and found[0] == 3 and not len(found[1])  # what was said of the instant 2 is forgotten
