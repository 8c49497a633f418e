"""Where the LMerge paper's algorithms go wrong as printed, and what the general operator does.  The slips of R0 to R2
are in `operators/merge/test_in_order.py`, those of C2 and of theorem 1 in `test_lmerge_paper.py`."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.merge.merging import SCHEMA, Merge, a, history, m, physical, snapshots, texts

LAZY, FIRST, LEADER = MergePolicy(lazy=True), MergePolicy(), MergePolicy(leader=True)
POLICIES = [LAZY, FIRST, LEADER, MergePolicy(quorum=2), MergePolicy(final=True)]


def said(policy: MergePolicy, since: list[int], *epochs: tuple[int, list[Element]]) -> Merge:
    merge = Merge(since, policy, True)
    for port, elements in epochs:
        merge.take({port: elements})
    assert_valid(merge.out)
    return merge


def events(merge: Merge) -> list[tuple[int, int, str]]:
    return sorted((vs, ve, row[0]) for vs, ve, row in History.of(merge.out, SCHEMA).events())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_an_input_that_lacks_a_half_frozen_event(policy: MergePolicy) -> None:
    """V-C: R3 would remove the event behind its own stable.  It is cut at the promise."""
    merge = said(policy, [NEVER, NEVER], (0, [a("A", 6, 20), Cti(10)]), (1, [Cti(15)]))
    assert events(merge) == [(6, 10, "A")]
    merge.take({0: [m("A", 6, 20, 30), Cti(40)]})
    assert_valid(merge.out)
    assert (15, 30, "A") in events(merge), "R4 would ignore for ever what is said of it later"


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_copy_that_joined_late_says_an_event_under_another_start(policy: MergePolicy) -> None:
    """A copy that joined at 40 knows A from 6 on as A from 40 on."""
    merge = said(policy, [NEVER, 40], (0, [a("A", 6, INF), Cti(45)]), (1, [a("A", 40, INF), Cti(60)]))
    merge.take({1: [m("A", 40, INF, 70), Cti(80)]})
    assert_valid(merge.out)
    assert [set(each) for each in snapshots(merge.out)[11:]] == [{("A",)}] * 39
    assert max(ve for _, ve, _ in events(merge)) == 70


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_joining_input_is_looked_at_again_when_it_has_joined(policy: MergePolicy) -> None:
    """V-B: its stables are held until the merge has come to 40, then they count."""
    merge = said(policy, [NEVER, 40], (0, [a("A", 6, 30), Cti(20)]), (1, [a("B", 41, 50), Cti(45)]))
    assert merge.operator.promise == 20
    assert merge.take({0: [Cti(40)]})[-1] == Cti(45)
    assert (6, 30, "A") in events(merge)
    assert [vs for vs, _, p in events(merge) if p == "B"] == [41]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_restarted_input_leaves_nothing_of_its_first_life(policy: MergePolicy) -> None:
    """An id that is used again: what the first one said of X does not keep X alive."""
    merge = Merge([NEVER, NEVER], policy, True)
    merge.take({1: [a("X", 50, 60)], 0: [Cti(1)]})
    merge.take({}, (1,))
    merge.begin_anew(1, NEVER)
    merge.take({0: [a("Y", 51, 60)]})
    merge.take({1: [a("Y", 51, 60), Cti(70)]})
    assert_valid(merge.out)
    assert events(merge) == [(51, 60, "Y")]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_removed_event_is_not_counted(policy: MergePolicy) -> None:
    """R4 counts an event whose end was moved to its start."""
    merge = said(policy, [NEVER, NEVER], (0, [a("A", 6, 20), m("A", 6, 20, 6), a("A", 6, 9)]), (1, [a("A", 6, 9)]))
    merge.take({0: [Cti(30)]})
    assert events(merge) == [(6, 9, "A")]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_stale_end_of_a_laggard_changes_nothing(policy: MergePolicy) -> None:
    """V-A, every adjust: ends below the promise are ignored."""
    merge = said(policy, [NEVER, NEVER], (0, [a("A", 6, 20), Cti(15)]), (1, [a("A", 6, 10)]))
    assert merge.take({1: [m("A", 6, 10, 12)]}) == []
    merge.take({1: [m("A", 6, 12, 20)]})
    merge.take({0: [Cti(30)]})
    assert_valid(merge.out)
    assert events(merge) == [(6, 20, "A")]


def test_line_10_of_r3_stands_outside_the_if() -> None:
    """An event that another input has said keeps the end of each: the second one is believed when it promises."""
    merge = said(LAZY, [NEVER, NEVER], (0, [a("A", 6, 9)]), (1, [a("A", 6, 12)]), (1, [Cti(20)]))
    assert texts(merge.out) == texts([a("A", 6, 9), m("A", 6, 9, 12), Cti(20)])


# -- other cuts --------------------------------------------------------------------------------------------------------


def cut(rng: random.Random, found: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The same history in other pieces."""
    pieces = []
    for p, vs, ve in found:
        while rng.random() < 0.5 and (ve == INF or ve - vs > 1):
            at = vs + 1 + rng.randrange(min(ve - vs, 12) - 1) if ve - vs > 2 else vs + 1
            pieces.append((p, vs, at))
            vs = at
        pieces.append((p, vs, ve))
    return pieces


@pytest.mark.parametrize("form", [False, True], ids=["segments", "events"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_copies_that_cut_lifetimes_differently(policy: MergePolicy, form: bool, seed: int) -> None:
    """Up to 8 copies, duplicates among them: valid, and the history at every instant."""
    rng = random.Random(seed)
    n = rng.randrange(2, 9)
    found = history(rng, False)
    streams = [physical(rng, cut(rng, found)) for _ in range(n)]
    merge = Merge([NEVER] * n, policy, form)
    places = [0] * n
    while any(at < len(each) for at, each in zip(places, streams, strict=True)):
        epoch = {}
        for port in range(n):
            step = rng.choice([0, 0, 1, 3])
            epoch[port] = streams[port][places[port] : places[port] + step]
            places[port] += step
        merge.take(epoch)
        if rng.random() < 0.1:
            merge.restart()
    assert_valid(merge.out)
    assert snapshots(merge.out) == snapshots([a(*each) for each in found])
    assert merge.operator.state_size().rows == 0
    assert {type(e) for e in merge.out} <= {Insert, Adjust, Cti}
