"""WAITING's law where rows go round: all strategies of progress, with and without ROUNDS.

With the high-water mark, and with some rounds an epoch, what a recursion says depends on what comes in one epoch.
There the promises that are named bring something together; whoever gives them one after the other asks again in
between.
"""

from __future__ import annotations

import random
from typing import get_args

import pytest

import everwhen as ew
from engine.observe.test_find_waiting import LEVELS, Silence, assert_law, brings, less
from everwhen.core.loop_options import ProgressStrategy
from everwhen.core.time import INF
from everwhen.engine.observe.silence.waiting import Waiting
from operators.differential import EMITS
from plans import RECURSIVE, SPREAD_LOOPS, Plan, S, T, col, looping, plan

U = ew.source("U", S.schema)


def _sums(stream: ew.Stream) -> ew.Stream:
    return stream.group_by("k").agg(t=ew.sum("x")).select("k", x=col("t") % 5)


def _by_links_of(links: ew.Stream, r: ew.Stream) -> ew.Stream:
    return r.join(links, on="k").select("k", x=(col("x") + col("x_right")) % 5)


STRATEGIES = get_args(ProgressStrategy)
THREE: tuple[Plan, ...] = (
    plan("by sums of two", lambda: ew.fixpoint(_sums(S), lambda r: _by_links_of(_sums(T.union(U)), r))),
    plan("by two", lambda: ew.fixpoint(_sums(S), lambda r: _by_links_of(T, r).union(_by_links_of(_sums(U), r)))),
    plan("of a recursion", lambda: ew.fixpoint(_sums(ew.fixpoint(_sums(S), lambda r: _by_links_of(T, r))),
                                               lambda r: _by_links_of(U, r))),
    plan("beside another", lambda: ew.fixpoint(_sums(S), lambda r: _by_links_of(T, r)).join(
        ew.fixpoint(_sums(U), lambda r: _by_links_of(T, r)), on="k")),
)  # fmt: skip
LOOPS = (*RECURSIVE, *SPREAD_LOOPS, *THREE)


def assert_law_together(silence: Silence) -> Waiting:
    waiting = silence.runtime.waiting()
    if waiting.reason != "promise":
        return assert_law(silence)
    named = {need.source.name: need.t for need in waiting.needs}
    assert brings(silence.copied(), named) == waiting.rows + waiting.corrections
    for need in waiting.needs:
        others = {name: t for name, t in named.items() if name != need.source.name}
        for early in ({}, others):
            assert not brings(silence.copied(), early | less(need))
        alone = silence.copied()
        if not brings(alone, {need.source.name: need.t}):
            then = alone.waiting()
            assert then.reason == "promise" and {each.source.name for each in then.needs} & set(others)
    follows, left = silence.copied(), waiting
    for _ in range(MOST):
        assert left.reason == "promise"
        need = left.needs[0]
        if brings(follows, {need.source.name: need.t}):
            return waiting
        left = follows.waiting()
    raise AssertionError(f"whoever does as told, again and again, hears nothing: {waiting}")


MOST = 30


def law_holds(loop: Plan, strategy: ProgressStrategy, case: str) -> Waiting:
    rng = random.Random(case)
    rounds = rng.choice((None, None, 1, 2))
    query = looping(loop.build(), progress=strategy, rounds=rounds)
    silence = Silence(query, rng.choice(LEVELS), rng.choice(EMITS))
    for _ in range(rng.randrange(1, 5)):
        silence.push(rng, loop.infinite)
    while silence.runtime.goes_on():
        silence.runtime.push({})
    if strategy == "high water mark" or rounds:
        return assert_law_together(silence)
    return assert_law(silence)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("loop", LOOPS, ids=str)
def test_the_law_of_a_recursion(loop: Plan, strategy: ProgressStrategy) -> None:
    for number in range(2):
        law_holds(loop, strategy, f"{loop.name} {number}")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("loop", LOOPS, ids=str)
def test_the_law_of_a_recursion_in_many_runs(loop: Plan, strategy: ProgressStrategy) -> None:
    for number in range(60):
        law_holds(loop, strategy, f"many {loop.name} {number}")


def test_more_of_one_promise_asks_for_more_of_another() -> None:
    """The rows that a promise of S lets into the loop raise its high-water mark, and T has to promise as much."""
    query = ew.fixpoint(_sums(S), lambda r: _by_links_of(T, r), progress="high water mark")
    silence = Silence(query, ew.consistency(0, INF), "final")
    row = {"k": "a", "x": 1}
    silence.runtime.push({
        "S": ew.ElementBatch.of([ew.Insert(1, 3, row), ew.Insert(6, 9, row), ew.Cti(0)], S.schema),
        "T": ew.ElementBatch.of([ew.Insert(0, 9, row), ew.Cti(0)], S.schema),
    })  # fmt: skip
    assert {need.source.name: need.t for need in assert_law_together(silence).needs} == {"S": 2, "T": 2}
