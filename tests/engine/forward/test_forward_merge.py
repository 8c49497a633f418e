"""A merge's inputs that lag are fast-forwarded to its promise: the answer is the same, and what lags is skipped."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import everwhen as ew
from engine.forward.forwarded import NAMES, Forwarded, Heard, floors, kept, lagging, unwilling
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.testing import assert_valid
from operators.differential import FIRST, LAST, SCHEMA, Said
from plans import col

POLICIES = (
    None, MergePolicy(), MergePolicy(lazy=True), MergePolicy(leader=True), MergePolicy(leader=True, lazy=True),
    MergePolicy(quorum=2), MergePolicy(final=True),
)  # fmt: skip
COPIES: dict[str, Callable[[ew.Stream], ew.Stream]] = {
    "sources": lambda s: s,
    "filters": lambda s: s.where(col("x") >= 0).select("k", "x"),
    "lifetimes": lambda s: s.lifetime(length=4),
    "windows": lambda s: s.range(5, slide=2),
    "groups": lambda s: s.group_by("k").agg(n=ew.count(), t=ew.sum("x")),
    "groups of windows": lambda s: s.range(4).group_by("k").agg(n=ew.count()),
    "distinct": lambda s: s.select("k").distinct(),
    "rows": lambda s: s.rows(2),
}
STATELESS = ("sources", "filters", "lifetimes", "windows")
ROW = {"k": "a", "x": 1}


def merged(copy: Callable[[ew.Stream], ew.Stream], policy: MergePolicy | None) -> ew.Stream:
    return ew.lmerge(*(copy(ew.source(name, SCHEMA)) for name in NAMES), policy=policy)


@pytest.mark.property
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("copy", COPIES)
def test_the_answer_is_the_same(copy: str, policy: MergePolicy | None) -> None:
    """Whatever lags, with restarts and copies that end early.

    All of it after every epoch; but where copies have state, and more than the leader is heard, only what is promised:
    a copy that has skipped the past says what it knows of the future as soon as it knows it.
    """
    query = merged(COPIES[copy], policy)
    everything = copy in STATELESS or policy is None or policy.leader or policy.final
    skipped = False
    for seed in range(2):
        rng = random.Random(f"{copy} {policy} {seed}")
        plain, runtime = unwilling(LocalRuntime(query)), LocalRuntime(query)
        expected, said = Said(query.schema), Said(query.schema)
        some = lagging(rng)
        ends = {rng.randrange(len(some)): rng.choice(NAMES)} if rng.random() < 0.3 else {}
        gone: set[str] = set()
        for number, epoch in enumerate(some):
            if number in ends:
                gone.add(ends[number])
                expected.take(plain.close_input(ends[number])["out"])
                said.take(runtime.close_input(ends[number])["out"])
            epoch = {name: batch for name, batch in epoch.items() if name not in gone}
            expected.take(plain.push(epoch)["out"])
            said.take(runtime.push(epoch)["out"])
            skipped |= any(floor > runtime.progress[name] for name, floor in floors(runtime).items())
            assert said.cti == expected.cti
            for u in range(FIRST, LAST if everything and not gone else min(LAST, said.cti)):
                assert said.at(u) == expected.at(u), f"{seed}, after epoch {number}, at {u}"
            if rng.random() < 0.2:
                state, runtime = runtime.snapshot(), LocalRuntime(query)
                runtime.restore(state)
        expected.take(plain.close()["out"])
        said.take(runtime.close()["out"])
        for u in range(FIRST, LAST):
            assert said.at(u) == expected.at(u), f"{seed}, at the end, at {u}"
        assert_valid(said.elements)
    assert skipped or copy == "rows"


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("copy", COPIES)
def test_fast_forward_of_a_merge(copy: str, policy: MergePolicy | None) -> None:
    """Asked from outside: all copies are cut, and the merge has decided what nobody cares for."""
    query = merged(COPIES[copy], policy)
    rng = random.Random(f"{copy} {policy}")
    some = lagging(rng, ctis=0.2)
    Forwarded(query, "current", rng).run(some, {rng.randrange(len(some)): rng.randrange(2, 30)})


@pytest.mark.parametrize("copy", [each for each in COPIES if each not in STATELESS or each == "windows"])
def test_copies_with_promises_about_data(copy: str) -> None:
    """What a copy that lags promises of rows is true of it from the merge's promise on."""
    for policy in (None, MergePolicy(), MergePolicy(final=True)):
        rng = random.Random(f"{copy} {policy}")
        query = merged(COPIES[copy], policy)
        plain, runtime = unwilling(LocalRuntime(query)), LocalRuntime(query)
        expected, said = Heard(query.schema), Heard(query.schema)
        for epoch in lagging(rng, promises=0.3):
            expected.take(plain.push(epoch)["out"])
            said.take(runtime.push(epoch)["out"])
            assert said.cti == expected.cti
            for u in range(FIRST, min(LAST, said.cti)):
                assert said.at(u) == expected.at(u)
        expected.take(plain.close()["out"])
        said.take(runtime.close()["out"])
        for u in range(FIRST, LAST):
            assert said.at(u) == expected.at(u), f"{policy}, at {u}"
        assert_valid(said.all)


def test_an_audit_hears_everything() -> None:
    """What inputs have said is compared, so nothing of it is skipped, whoever asks."""
    query = merged(COPIES["sources"], MergePolicy(audit=True))
    runtime = LocalRuntime(query)
    runtime.push({"a": batch_of([Insert(0, 5, ROW), Cti(20)], SCHEMA)})
    runtime.fast_forward(30)
    assert set(floors(runtime).values()) == {NEVER}


def test_what_lags_is_skipped() -> None:
    """Behind the promise nothing is read, kept or said, and adjusts of what was skipped are right."""
    query = merged(COPIES["sources"], None)
    runtime = LocalRuntime(query)
    runtime.push({"a": batch_of([Insert(0, 30, ROW), Insert(3, 9, ROW), Cti(20)], SCHEMA)})
    assert floors(runtime) == dict.fromkeys(NAMES, 20)
    late: list[Element] = [Insert(at, at + 5, {"k": f"k{at}", "x": at}) for at in range(10)]
    before = kept(runtime)
    assert not list(
        runtime.push({"b": batch_of([*late, Insert(0, 2, ROW), Insert(3, 9, ROW)], SCHEMA)})["out"].elements()
    )
    assert kept(runtime) == before
    runtime.push({"b": batch_of([Adjust(0, 2, 30, ROW)], SCHEMA)})
    said = runtime.push({"b": batch_of([Cti(40)], SCHEMA)})["out"]
    assert [str(e) for e in said.elements()] == ["cti 40"]  # b says what a has said


def test_an_input_that_others_read_is_read_for_them() -> None:
    a, b = (ew.source(name, SCHEMA) for name in "ab")
    queries = {"merged": ew.lmerge(a, b), "count": b.range(10).aggregate(n=ew.count())}
    runtime = LocalRuntime(queries)
    runtime.push({"a": batch_of([Cti(50)], SCHEMA)})
    assert floors(runtime) == {"a": 50, "b": NEVER}
    said = runtime.push({"b": batch_of([Insert(1, 2, ROW)], SCHEMA)})
    assert [str(e) for e in said["count"].elements()] == ["insert [1, ∞) n=1"]
    runtime.fast_forward(70)
    assert floors(runtime) == {"a": 70, "b": 61}


def test_events_read_by_a_merge_and_by_others_are_left_alone() -> None:
    """They would know them by different starts."""
    a, b = (ew.source(name, SCHEMA) for name in "ab")
    runtime = LocalRuntime({"merged": ew.lmerge(a, b), "b": b})
    runtime.fast_forward(70)
    assert floors(runtime) == {"a": 70, "b": NEVER}


def test_a_merge_that_has_ended_needs_nothing() -> None:
    query = merged(COPIES["groups"], None)
    runtime = LocalRuntime(query)
    runtime.push({"a": batch_of([Insert(0, 5, ROW), Cti(INF)], SCHEMA)})
    assert floors(runtime)["b"] == INF
    said = runtime.push({"b": batch_of([Insert(0, 5, ROW), Insert(90, INF, ROW), Cti(7)], SCHEMA)})
    assert not list(said["out"].elements()) and kept(runtime) == 0
