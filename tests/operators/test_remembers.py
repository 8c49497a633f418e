"""What operators remember of their inputs, against the definition: the port's history restricted to an instant and
later.  Checked after every step of every plan, with late rows, corrections, promises about data, and restores."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import everwhen as ew
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.node import Step
from everwhen.operators.contract import Operator
from everwhen.stream.element import Adjust, Cti, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing.step_invariants import Function, _add, _from, _function, _nothing, _same
from operators.differential import EMITS, SCHEMA, epochs, sources, streams_of
from operators.punctuated import punctuated
from plans import PLANS, Plan, S, T
from state_files import through_file


class Remembering:
    """Keeps all that came at every port, and asks operators after each step what they remember of it."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()
        self.since: dict[tuple[int, int], int] = {}
        self._came: dict[tuple[int, int], Function] = {}

    def begin(self, number: int, operator: Operator) -> None:
        """A restored one goes on."""

    def after(self, step: Step) -> None:
        for port, changes in enumerate(step.inputs):
            came = self._came.setdefault((step.at, port), _nothing())
            _add(came, changes)
            found = step.operator.remembers(port)
            if found is None:
                continue
            since, known = found
            assert since < INF
            name = type(step.operator).__name__
            assert (known.lo < known.hi).all()
            _same(_from(came, since), _from(_function(known), since), f"{name} does not know port {port}")
            self.told[f"{name} {port}"] += len(known) > 0
            self.since[step.at, port] = since


def some_history(rng: random.Random, infinite: bool) -> History:
    events = []
    for _ in range(rng.randint(2, 7)):
        vs = rng.randint(0, 10)
        row = {"k": rng.choice(["a", "b", "b", None]), "x": rng.choice([0, 1, 2, None])}
        ve = INF if infinite and rng.random() < 0.1 else vs + rng.randint(1, 8)
        events.append(Insert(vs, ve, row))
    return History.of([*events], SCHEMA)


def run(query: ew.Stream, emit: str, rng: random.Random, infinite: bool, promises: bool) -> Remembering:
    check = Remembering()
    streams = streams_of({name: some_history(rng, infinite) for name in sources(query)}, rng, infinite)
    if promises:
        streams = punctuated(streams, rng, SCHEMA)
    runtime = LocalRuntime(query, emit=emit, check=check)
    for epoch in epochs(streams, rng):
        runtime.push(epoch)
        if rng.random() < 0.15:
            state = through_file(runtime.snapshot())
            runtime = LocalRuntime(query, emit=emit, check=check)
            runtime.restore(state)
        if rng.random() < 0.1:
            runtime.plan.pool.collect(force=True)
    return check


@pytest.mark.property
@pytest.mark.parametrize("promises", [False, True], ids=["times", "promises"])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_what_is_remembered_is_what_came(plan: Plan, promises: bool) -> None:
    rng = random.Random(f"{plan.name} {promises}")
    for emit in rng.sample(EMITS, 1):
        run(plan.build(), emit, rng, plan.infinite, promises)


k, x = ew.col("k"), ew.col("x")
TELL: dict[str, tuple[ew.Stream, tuple[str, ...]]] = {
    "join": (S.join(T, on="k"), ("JoinOperator 0", "JoinOperator 1")),
    "product": (S.product(T), ("JoinOperator 0", "JoinOperator 1")),
    "distinct": (S.distinct(), ("CountsOperator 0",)),
    "difference": (S.difference(T), ("CountsOperator 0", "CountsOperator 1")),
    "rows": (S.now().rows(3), ("RowsOperator 0",)),
    "rows by k": (S.now().rows(2, partition_by=["k"]), ("RowsOperator 0",)),
    "maximum": (S.group_by("k").agg(m=ew.max("x")), ("AggregateOperator 0",)),
}


@pytest.mark.parametrize("name", TELL)
def test_who_tells(name: str) -> None:
    query, expected = TELL[name]
    told: Counter[str] = Counter()
    for seed in range(3):
        told += run(query, "current", random.Random(seed), infinite=False, promises=False).told
    assert all(told[each] for each in expected), told


A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}


def test_a_join_remembers_from_the_other_side_s_promise_on() -> None:
    check = Remembering()
    runtime = LocalRuntime(S.range(10).join(T.range(10), on="k"), check=check)
    runtime.push({"S": batch_of([Insert(0, 1, A), Cti(7)], SCHEMA), "T": batch_of([Insert(0, 1, A), Cti(4)], SCHEMA)})
    assert sorted(check.since.items())[-2:] == [((2, 0), 4), ((2, 1), 7)]


def test_a_join_does_not_know_rows_without_a_key() -> None:
    check = Remembering()
    runtime = LocalRuntime(S.join(T, on="k"), check=check)
    runtime.push({"S": batch_of([Insert(0, 9, {"k": None, "x": 1}), Insert(0, 20, A), Cti(5)], SCHEMA)})
    assert check.since[0, 0] == 9
    runtime.push({"S": batch_of([Insert(6, INF, {"k": None, "x": 1})], SCHEMA)})
    assert runtime.plan.operators[0].operator.remembers(0) is None
    assert runtime.plan.operators[0].operator.remembers(1) is not None


def test_windows_of_rows_remember_rows_before_the_promise() -> None:
    check = Remembering()
    runtime = LocalRuntime(S.now().rows(2), check=check)
    runtime.push({"S": batch_of([*(Insert(t, t + 1, A) for t in range(10)), Cti(9)], SCHEMA)})
    known = [since for (at, _), since in check.since.items() if at == max(check.since)[0]]
    assert NEVER < known[0] < 9


def test_a_total_keeps_no_rows() -> None:
    runtime = LocalRuntime(S.group_by("k").agg(t=ew.sum("x")))
    runtime.push({"S": batch_of([Insert(0, 9, A), Adjust(0, 9, 8, A)], SCHEMA)})
    assert runtime.plan.operators[-1].operator.remembers(0) is None


def test_what_is_taken_back_before_a_promise_about_its_key_is_not_known() -> None:
    """T has promised `a` until 50, so of -[30, 100) a join keeps the part from 50 on: it knows S, and what it has said,
    from there on only."""
    check = Remembering()
    runtime = LocalRuntime(S.join(T, on="k"), check=check)
    promise = Punct(Punctuation({"k": OneOf(("a",))}, 50))
    runtime.push({"T": batch_of([Insert(0, 100, A), promise], SCHEMA, "T")})
    runtime.push({"S": batch_of([Insert(0, 100, A)], SCHEMA, "S")})
    runtime.push({"S": batch_of([Adjust(0, 100, 30, A)], SCHEMA, "S")})
    assert check.since[0, 0] == 50
    standing = runtime.plan.operators[0].operator.standing([])
    assert standing is not None
    assert standing[0] == 50
