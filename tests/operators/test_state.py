"""State: after a CTI an operator keeps only what the purge condition in the table of operators leaves.

The expected number of rows is counted from the definition.  A sweep's unit is the edge: an instant after the promise at
which what it counts changes, plus one row per key that has something in force at the promise.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History, RowTuple
from everwhen.testing import reorder
from everwhen.testing.strategies import histories
from example_counts import examples_per_case, sampled_pairs
from operators.differential import EMITS, SCHEMA, epochs, sources, streams_of
from plans import PLANS, Plan, S, T, col

FEW = settings(max_examples=examples_per_case(3))
FINITE = histories(SCHEMA, max_events=8, allow_infinite=False)
CUTS = st.integers(-4, 14)


def fed(query: ew.Stream, given_: dict[str, History], ctis: dict[str, int], emit: str = "current") -> LocalRuntime:
    """A runtime that has seen the histories (in order, no corrections) and then the CTIs."""
    runtime = LocalRuntime(query, emit=emit)
    for name in runtime.inputs:
        events = given_[name].events()
        inserts = [Insert(vs, ve, dict(zip(SCHEMA.names, row, strict=True))) for vs, ve, row in events]
        runtime.push({name: batch_of(inserts, SCHEMA, name)})
    runtime.push({name: batch_of([Cti(ctis[name])], SCHEMA, name) for name in runtime.inputs})
    return runtime


def rows_of(runtime: LocalRuntime, *names: str) -> int:
    """The state rows of the operators with such names."""
    found = [each for each in runtime.metadata() if any(name in each.name for name in names)]
    assert found, f"no operator {names}: {[each.name for each in runtime.metadata()]}"
    return sum(each.state_rows for each in found)


def edges(keyed: Iterable[tuple[Hashable, int, int, int]], c: int) -> int:
    """How many edges of (key, lane, vs, ve) lie after `c`, plus the keys that have something in force at `c`."""
    change: defaultdict[Hashable, Counter[tuple[int, int]]] = defaultdict(Counter)
    for key, lane, vs, ve in keyed:
        change[key][max(vs, c), lane] += 1
        if ve > c:
            change[key][ve, lane] -= 1
        else:
            change[key][c, lane] -= 1
    return sum(len({t for (t, _), n in of_key.items() if n and t < INF}) for of_key in change.values())


def of_rows(history: History, lane: int = 0) -> list[tuple[Hashable, int, int, int]]:
    return [(row, lane, vs, ve) for vs, ve, row in history.events()]


# --- operators that keep nothing --------------------------------------------------------------------------------------

NOTHING_KEPT: dict[str, Callable[[], ew.Stream]] = {
    "filter": lambda: S.where(col("x") > 1),
    "map": lambda: S.select("k"),
    "union": lambda: S.union(T),
    "range": lambda: S.range(3),
    "slide": lambda: S.range(5, slide=3),
    "unbounded": lambda: S.unbounded(),
    "granularity": lambda: S.granularity(3),
    "lifetime": lambda: S.lifetime(hop=2, length=3),
    "deletes": lambda: S.deletes(),
}


@pytest.mark.parametrize("name", NOTHING_KEPT)
@settings(max_examples=8)
@given(s=FINITE, c=CUTS)
def test_linear_operators_keep_nothing(name: str, s: History, c: int) -> None:
    runtime = fed(NOTHING_KEPT[name](), {"S": s, "T": s}, {"S": c, "T": c})
    assert [each.state_rows for each in runtime.metadata()] == [0] * len(runtime.metadata())


# --- the guard --------------------------------------------------------------------------------------------------------


@FEW
@given(s=FINITE, c=CUTS)
def test_the_guard_keeps_events_until_they_ended_before_the_cti(s: History, c: int) -> None:
    """Strictly: an event that ends at the CTI may still grow."""
    runtime = fed(S, {"S": s}, {"S": c})
    assert runtime._ingress.inputs["S"].intake.guard.state_size().rows == sum(ve >= c for _, ve, _ in s.events())


@FEW
@given(s=FINITE, c=CUTS)
def test_an_insert_only_guard_keeps_nothing(s: History, c: int) -> None:
    runtime = fed(ew.source("S", SCHEMA, insert_only=True), {"S": s}, {"S": c})
    assert runtime._ingress.inputs["S"].intake.guard.state_size().rows == 0


# --- sweeps -----------------------------------------------------------------------------------------------------------


@FEW
@given(s=FINITE, c=CUTS)
def test_distinct_keeps_edges_after_the_cti(s: History, c: int) -> None:
    assert rows_of(fed(S.distinct(), {"S": s}, {"S": c}), "distinct") <= edges(of_rows(s), c)


@pytest.mark.parametrize("kind", ["difference", "strict_difference", "intersect", "max_union"])
@FEW
@given(s=FINITE, t=FINITE, c1=CUTS, c2=CUTS)
def test_set_operations_keep_edges_after_the_lower_cti(kind: str, s: History, t: History, c1: int, c2: int) -> None:
    runtime = fed(getattr(S, kind)(T), {"S": s, "T": t}, {"S": c1, "T": c2})
    kept = edges([*of_rows(s), *of_rows(t, 1)], min(c1, c2))
    assert rows_of(runtime, kind.replace("_", " ")) <= kept


@FEW
@given(s=FINITE, c=CUTS)
def test_sums_keep_edges_per_group(s: History, c: int) -> None:
    runtime = fed(S.group_by("k").agg(n=ew.count(), t=ew.sum("x")), {"S": s}, {"S": c})
    assert rows_of(runtime, "aggregate") <= edges(
        [(row[0], i, vs, ve) for i, (vs, ve, row) in enumerate(s.events())], c
    )


@FEW
@given(s=FINITE, c=CUTS)
def test_min_and_max_also_keep_live_rows(s: History, c: int) -> None:
    runtime = fed(S.group_by("k").agg(m=ew.max("x")), {"S": s}, {"S": c})
    live = sum(ve > c for _, ve, _ in s.events())
    most = edges([(row[0], i, vs, ve) for i, (vs, ve, row) in enumerate(s.events())], c) + live
    assert rows_of(runtime, "aggregate") <= most


@pytest.mark.parametrize("kind", ["istream", "dstream"])
@FEW
@given(s=FINITE, c=CUTS)
def test_relation_to_stream_keeps_edges_after_the_cti(kind: str, s: History, c: int) -> None:
    """The stream and itself a tick later: edges of both."""
    runtime = fed(getattr(S, kind)(), {"S": s}, {"S": c})
    later = [(row, 1, vs + 1, ve + 1) for vs, ve, row in s.events()]
    assert rows_of(runtime, kind) <= edges([*of_rows(s), *later], c)


@pytest.mark.parametrize("kind", ["rstream", "split"])
@FEW
@given(s=FINITE, c=CUTS)
def test_chronons_keep_the_uncut_rest(kind: str, s: History, c: int) -> None:
    runtime = fed(S.rstream() if kind == "rstream" else S.split(1), {"S": s}, {"S": c})
    assert rows_of(runtime, kind) <= edges(of_rows(s), c)


# --- joins ------------------------------------------------------------------------------------------------------------

JOINS: dict[str, Callable[[], ew.Stream]] = {
    "keyed": lambda: S.join(T, on="k"),
    "sorted": lambda: S.join(T, where=col("x") < col("x_right")),
    "list": lambda: S.product(T),
}


@pytest.mark.parametrize("area", JOINS)
@FEW
@given(s=FINITE, t=FINITE, c1=CUTS, c2=CUTS)
def test_joins_keep_each_side_until_the_other_s_cti(area: str, s: History, t: History, c1: int, c2: int) -> None:
    """Side 1 until ve ≤ c2, side 2 until ve ≤ c1; a null key has no partner and is not kept at all."""
    runtime = fed(JOINS[area](), {"S": s, "T": t}, {"S": c1, "T": c2})

    def kept(history: History, c: int) -> int:
        return sum(ve > c and not (area == "keyed" and row[0] is None) for _, ve, row in history.events())

    assert rows_of(runtime, f"join ({area})") == kept(s, c2) + kept(t, c1)


@pytest.mark.parametrize("how", ["semi", "anti", "left", "full"])
@FEW
@given(s=FINITE, t=FINITE, c1=CUTS, c2=CUTS)
def test_composed_joins_stay_within_the_sum_of_their_parts(how: str, s: History, t: History, c1: int, c2: int) -> None:
    """No part of a semi-, anti- or outer join keeps an event that ended before both CTIs."""
    runtime = fed(S.join(T, on="k", how=how), {"S": s, "T": t}, {"S": c1, "T": c2})  # type: ignore[arg-type]
    m = min(c1, c2)
    alive = sum(ve > m for _, ve, _ in chain(s.events(), t.events()))
    assert sum(each.state_rows for each in runtime.metadata()) <= 2 * alive * len(runtime.metadata())
    if not alive:
        assert sum(each.state_rows for each in runtime.metadata()) == 0


# --- windows of rows, coalesce, the chain -----------------------------------------------------------------------------


def chronons(history: History) -> list[tuple[int, RowTuple]]:
    """Instant and row, in the order in which rows are ranked."""
    found = [(t, row) for vs, ve, row in history.events() for t in range(vs, ve)]
    return sorted(found, key=lambda each: (each[0], [(value is not None, value) for value in each[1]]))


@pytest.mark.parametrize("partitioned", [False, True])
@FEW
@given(
    s=histories(SCHEMA, max_events=6, max_time=8, allow_infinite=False),
    c=CUTS,
    rows=st.integers(1, 3),
    a=st.integers(1, 3),
)
def test_rows_windows_keep_what_a_change_may_move(partitioned: bool, s: History, c: int, rows: int, a: int) -> None:
    """Rows at or after the CTI, and earlier ones whose output end is not before it."""
    runtime = fed(S.rows(rows, slide=a, partition_by=["k"] if partitioned else []), {"S": s}, {"S": c})
    ranked: defaultdict[object, list[int]] = defaultdict(list)
    for t, row in chronons(s):
        if t <= max((vs for vs, _, _ in s.events()), default=c) or t < c:  # the present
            ranked[row[0] if partitioned else None].append(t)
    expected = 0
    for instants in ranked.values():
        for rank in range(1, len(instants) + 1):
            leaves = -(-(rank + rows) // a) * a
            end = instants[leaves - 1] if leaves <= len(instants) else INF
            expected += end >= c
    assert rows_of(runtime, "rows window") == expected


@FEW
@given(s=histories(SCHEMA, max_events=8), c=CUTS)
def test_coalesce_keeps_intervals_until_they_ended_before_the_cti(s: History, c: int) -> None:
    runtime = fed(S.coalesce(), {"S": s}, {"S": c})
    assert rows_of(runtime, "coalesce") == sum(ve >= c for _, ve, _ in s.coalesced().events())


@FEW
@given(s=FINITE, c=CUTS)
def test_the_hold_keeps_what_is_not_settled(s: History, c: int) -> None:
    """`final`: segments until ve ≤ c."""
    runtime = fed(S, {"S": s}, {"S": c}, "final")
    assert rows_of(runtime, "emit final") == sum(ve > c for _, ve, _ in s.events())


@FEW
@given(s=FINITE, c=CUTS)
def test_the_chain_keeps_what_may_be_taken_back(s: History, c: int) -> None:
    runtime = fed(S.range(1), {"S": s}, {"S": c})
    (sink,) = runtime.plan.sinks
    assert sink.encoder.state_size().rows == sum(ve > c for _, ve, _ in s.events())


# --- the end, and the long run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("plan", "emit"), sampled_pairs(PLANS, EMITS))
@settings(max_examples=3)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_at_the_end_nothing_is_left(plan: Plan, emit: str, data: st.DataObject, seed: int) -> None:
    """After CTI(∞) on all inputs there is no state, not even of lifetimes without end."""
    rng = random.Random(seed)
    query = plan.build()
    some = histories(SCHEMA, max_events=6, allow_infinite=plan.infinite)
    given_ = {name: data.draw(some) for name in sources(query)}
    runtime = LocalRuntime(query, emit=emit)
    for epoch in epochs(streams_of(given_, rng, plan.infinite), rng):
        runtime.push(epoch)
    assert runtime.state_size().rows == 0
    filters = sum(sink.filter is not None for sink in runtime.plan.sinks)
    assert len(runtime.metadata()) == len(runtime.plan.operators) + filters


LONG: dict[str, Callable[[], ew.Stream]] = {
    "sliding sum": lambda: S.range(20).group_by("k").agg(t=ew.sum("x"), n=ew.count()),
    "sliding max": lambda: S.range(20).group_by("k").agg(t=ew.max("x")),
    "distinct": lambda: S.range(20).distinct(),
    "difference": lambda: S.range(20).difference(S.range(10)),
    "join": lambda: S.range(10).join(S, on="k"),
    "anti-join": lambda: S.join(S.range(5).where(col("x") > 2), on="k", how="anti"),
    "band join": lambda: S.range(5).join(S.range(5), where=col("x") < col("x_right")),
    "rows": lambda: S.rows(5),
    "istream": lambda: S.range(7).istream(),
    "coalesce": lambda: S.coalesce(10),
    "window": lambda: S.range(20),
}


@pytest.mark.property
@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("name", LONG)
def test_state_stays_bounded_in_the_long_run(name: str, emit: str) -> None:
    """200 batches with ever new keys, late events, corrections and CTIs: as much is kept at the end as after 40."""
    rng = random.Random(7)
    runtime = LocalRuntime(LONG[name](), emit=emit)
    rows, size, pooled = [], [], []
    for now in range(0, 1000, 5):
        events = [
            Insert(t, t + rng.choice([1, 1, 3]), {"k": f"k{t // 10}", "x": rng.randrange(5)})
            for t in range(now, now + 5)
        ]
        elements = reorder(events, rng, disorder=3, infinite=False, close=False, ctis=0.0)
        runtime.push({"S": batch_of([*elements, Cti(now + 2)], SCHEMA, "S")} if now else {})
        if now:
            state = runtime.state_size()
            rows.append(state.rows)
            size.append(state.bytes)
            runtime.plan.pool.collect(force=True)
            pooled.append(runtime.plan.pool.size)
    assert max(rows[40:]) <= 1.5 * max(rows[:40]) + 8
    assert size[-1] <= 2 * max(size[:40])
    assert max(pooled[40:]) <= 2 * max(pooled[:40]) + 8
