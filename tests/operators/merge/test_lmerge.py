"""LMerge against its rule, over random copies of one history: disorder, corrections, gaps, late joins, early ends."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.merge.merging import SCHEMA, Merge, a, history, m, physical, snapshots, texts

POLICIES = [
    MergePolicy(lazy=True), MergePolicy(), MergePolicy(leader=True), MergePolicy(leader=True, lazy=True),
    MergePolicy(quorum=2), MergePolicy(quorum=2, lazy=True), MergePolicy(final=True),
]  # fmt: skip


# -- the paper's tables ----------------------------------------------------------------------------------------------

PHY1 = [a("B", 8, INF), a("A", 6, 12), m("B", 8, INF, 10), Cti(11), Cti(INF)]
PHY2 = [a("A", 6, 7), a("B", 8, 15), m("A", 6, 7, 12), m("B", 8, 15, 10), Cti(INF)]
TABLE_1 = [(1, 0), (1, 1), (0, 0), (1, 2), (0, 1), (0, 2), (1, 3), (0, 3), (0, 4), (1, 4)]


def test_table_1() -> None:
    """Through R3: the first of each is emitted, adjusts when a promise needs them."""
    merge = Merge([NEVER, NEVER], MergePolicy(lazy=True), True)
    for port, at in TABLE_1:
        merge.take({port: [(PHY1, PHY2)[port][at]]})
    wanted = [a("A", 6, 7), a("B", 8, 15), m("A", 6, 7, 12), m("B", 8, 15, 10), Cti(11), Cti(INF)]
    assert texts(merge.out) == texts(wanted)


IN = [
    (0, a("A", 6, 10)),
    (1, a("A", 6, 12)),
    (1, a("B", 7, 14)),
    (0, m("A", 6, 10, 15)),
    (1, m("A", 6, 12, 15)),
    (1, Cti(16)),
]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (MergePolicy(), [a("A", 6, 10), m("A", 6, 10, 12), a("B", 7, 14), m("A", 6, 12, 15), Cti(16)]),
        (MergePolicy(final=True), [a("A", 6, 15), a("B", 7, 14), Cti(16)]),
        (MergePolicy(lazy=True), [a("A", 6, 10), a("B", 7, 14), m("A", 6, 10, 15), Cti(16)]),
    ],
)
def test_table_2(policy: MergePolicy, wanted: list[Element]) -> None:
    merge = Merge([NEVER, NEVER], policy, True)
    for port, element in IN:
        merge.take({port: [element]})
    assert texts(merge.out) == texts(wanted)


# -- random copies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [False, True], ids=["segments", "events"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_copies_become_one(policy: MergePolicy, events: bool, seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randrange(1, 5)
    found = history(rng, rng.random() < 0.5)
    streams = [physical(rng, found) for _ in range(n)]
    merge = Merge([NEVER] * n, policy, events)
    places = [0] * n
    while any(at < len(s) for at, s in zip(places, streams, strict=True)):
        epoch = {}
        for port in range(n):
            step = rng.choice([0, 0, 1, 3])
            epoch[port] = streams[port][places[port] : places[port] + step]
            places[port] += step
        merge.take(epoch)
        if rng.random() < 0.2:
            merge.restart()
    assert_valid(merge.out)
    assert snapshots(merge.out) == snapshots([a(p, vs, ve) for p, vs, ve in found])
    if events:
        assert History.of(merge.out, SCHEMA) == History.of([a(p, vs, ve) for p, vs, ve in found], SCHEMA)
    assert merge.operator.state_size().rows == 0


@pytest.mark.parametrize("events", [False, True], ids=["segments", "events"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_with_gaps_the_first_promise_decides(policy: MergePolicy, events: bool, seed: int) -> None:
    """Inputs that differ, join late and end early: the output is valid, and at every instant what that input says that
    first promised it."""
    rng = random.Random(seed)
    n = rng.randrange(2, 5)
    found = history(rng, rng.random() < 0.5)
    held = [[e for e in found if rng.random() < 0.7] for _ in range(n)]
    streams = [physical(rng, events_) for events_ in held]
    since = [NEVER, *(rng.choice([NEVER, NEVER, rng.randrange(15)]) for _ in range(n - 1))]
    lasts = [rng.choice([len(s), len(s), rng.randrange(len(s) + 1)]) for s in streams]
    streams = [s[:last] for s, last in zip(streams, lasts, strict=True)]
    merge = Merge(since, policy, events)
    places, ended, reached = [0] * n, set(), NEVER
    decided: dict[int, int] = {}
    promise = [NEVER] * n
    while len(ended) < n:
        epoch, over = {}, []
        for port in range(n):
            step = rng.choice([0, 0, 1, 3])
            epoch[port] = streams[port][places[port] : places[port] + step] if port not in ended else []
            places[port] += step
            if places[port] >= len(streams[port]) and port not in ended and rng.random() < 0.5:
                over.append(port)
        for port, elements in epoch.items():
            if port not in over:
                promise[port] = max([promise[port], *(e.t for e in elements if isinstance(e, Cti))])
        ended |= set(over)
        taus = [each.tau for each in merge.operator._inputs]
        said = merge.take(epoch, tuple(over))
        taus = [each.tau for each in merge.operator._inputs]
        while True:
            joined = [i for i in range(n) if i not in ended and since[i] <= reached]
            here = joined or [i for i in range(n) if since[i] <= reached]
            best = max(here, key=lambda i: (promise[i], taus[i], -i))
            until = promise[best] if joined else min([t for t in since if t > reached], default=INF)
            if until <= reached:
                break
            decided |= {t: best for t in range(max(reached, -5), min(until, 45))}
            reached = until
        assert all(not isinstance(e, Cti) or e.t == reached for e in said)
        if rng.random() < 0.2:
            merge.restart()
    assert_valid(merge.out)
    final = [snapshots(s) for s in streams]
    wanted = [final[decided[t]][t + 5] for t in range(-5, 45)]
    assert snapshots(merge.out) == wanted
    assert merge.operator.state_size().rows == 0


def test_events_that_began_before_the_promise_leave_nothing_behind() -> None:
    """The copy that promises lacks each event at first, so each is emitted under another start; that is forgotten."""
    merge = Merge([NEVER, NEVER], MergePolicy(leader=True), True)
    most = 0
    for t in range(0, 4000, 10):
        merge.take({0: [Cti(t + 5)]})
        merge.take({1: [a("A", t, t + 9), Cti(t + 8)]})  # the second one leads now, and has begun it before
        merge.take({0: [Cti(t + 10)], 1: [Cti(t + 10)]})
        most = max(most, merge.operator.state_size().rows)
    assert_valid(merge.out)
    assert len([e for e in merge.out if isinstance(e, Insert) and e.vs % 10 == 5]) == 400
    assert most < 100


# -- in a runtime ------------------------------------------------------------------------------------------------------


def test_an_idle_copy_is_not_forced_and_an_end_is_a_leave() -> None:
    """A copy that says nothing promises nothing; one that has ended takes nothing back."""
    now = [0.0]
    copies = [ew.source(name, {"p": "string"}) for name in "xy"]
    grouped = [each.group_by("p").agg(n=ew.count()) for each in copies]
    runtime = ew.LocalRuntime(ew.lmerge(*grouped), clock=lambda: now[0], idle=5.0)

    def said(name: str, *elements: Element) -> list[str]:
        return texts(list(runtime.push({name: ew.ElementBatch.of(elements, SCHEMA)})["out"].elements()))

    assert said("x", a("A", 0, 9), Cti(3)) == ["insert [0, 9) p='A' n=1", "cti 3"]
    now[0] = 100.0
    assert said("x", a("A", 4, 6), Cti(5))[-1] == "cti 5", "the other one is idle, and nothing is believed of it"
    assert runtime.close_input("y")["out"].op.tolist() == [], "it had said nothing"
    assert said("x", Cti(8)) == ["insert [6, 9) p='A' n=1", "cti 8"]
    assert texts(list(runtime.close()["out"].elements())) == ["cti ∞"]


def test_copies_must_have_the_same_columns() -> None:
    x, y = ew.source("x", {"p": "string"}), ew.source("y", {"p": "int64"})
    with pytest.raises(ew.QueryError, match="same columns on all inputs"):
        ew.lmerge(x, y)
    with pytest.raises(ew.QueryError, match="at least two"):
        ew.lmerge(x)
    with pytest.raises(ew.QueryError, match="takes streams"):
        ew.lmerge(x, "y")  # type: ignore[arg-type]
    other = ew.source("z", {"q": "string"})
    assert ew.lmerge(x, other).schema.names == ("p",), "columns meet by position"


def test_a_policy_is_one_of_them() -> None:
    with pytest.raises(ew.QueryError, match="quorum of 0"):
        ew.MergePolicy(quorum=0)
    with pytest.raises(ew.QueryError, match="follows one"):
        ew.MergePolicy(leader=True, final=True)


def test_rows_of_nothing_have_all_their_columns() -> None:
    """Events that are merged, and nothing comes: what stands above reads columns of no rows."""
    a, b = (ew.source(name, {"k": "int64", "v": "string"}) for name in "ab")
    query = ew.lmerge(a, b).deletes().join(a.deletes(), on=["k", "v"], how="full")
    runtime = ew.LocalRuntime(query)
    batch = ew.ElementBatch.of([ew.Cti(3)], a.schema)
    assert [str(e) for e in runtime.push({"a": batch})["out"].elements()] == ["cti 3"]
    assert [str(e) for e in runtime.close()["out"].elements()] == ["cti ∞"]
