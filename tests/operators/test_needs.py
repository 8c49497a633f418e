"""`needs`, the inverse of each operator's rule for promises: given just what it says, and no rows, an operator promises
so much; with one tick less at any port (of a merge: at all of them) it does not."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import pytest

import everwhen as ew
from everwhen.core.loop_options import ProgressStrategy
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, MIN_TIME, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.node import OperatorNode
from everwhen.plan.physical import Port
from everwhen.rows.changes import no_changes
from everwhen.rows.codec import RowCodec
from operators.differential import EMITS, epochs, sources, streams_of
from operators.test_remembers import some_history
from plans import PLANS, RECURSIVE, Plan, S, T, looping


class Halted:
    """A query that was given some random epochs."""

    def __init__(self, query: ew.Stream, emit: str, rng: random.Random, infinite: bool) -> None:
        self.query, self.emit = query, emit
        self.runtime = LocalRuntime(query, emit=emit)
        streams = streams_of({name: some_history(rng, infinite) for name in sources(query)}, rng, infinite)
        whole = list(epochs(streams, rng))
        for epoch in whole[: rng.randint(1, len(whole))]:
            self.runtime.push(epoch)
        self._state = self.runtime.snapshot()

    def promises(self, at: int, times: list[int]) -> int:
        """What the operator at a position promises if its ports promise so much and nothing comes."""
        copy = LocalRuntime(self.query, emit=self.emit)
        copy.restore(self._state)
        node = copy.operators[at]
        inputs = [no_changes(self._codec(copy, port)) for port in node.placed.inputs]
        output = node.placed.operator.step(inputs, [Frontier(t) for t in times], node.tau)
        return max(output.frontier.time, node.output.frontier.time)

    def _codec(self, copy: LocalRuntime, port: Port) -> RowCodec:
        if port.source is None:
            return copy.operators[port.operator].placed.operator.codec
        return copy.plan.codecs[port.source]


def earlier(t: int, than: int) -> int:
    """One tick less, but not less than what is promised."""
    return max(than, MIN_TIME if t == INF else t - 1)


def assert_inverse(halted: Halted, at: int, node: OperatorNode, t: int) -> str:
    operator = node.placed.operator
    needs = operator.needs(t)
    assert len(needs) == len(node.frontiers) == operator.ports
    now = [each.time for each in node.frontiers]
    name = type(operator).__name__
    if operator.merges:
        for port, need in enumerate(needs):
            if need < INF or t == INF:
                only = [max(each, need) if i == port else each for i, each in enumerate(now)]
                assert halted.promises(at, only) >= t, (name, t, needs, now)
        less = [earlier(t, each) for each in now]
        assert max(less) >= t or halted.promises(at, less) < t, (name, t, needs, now)
        return name
    met = [max(each, need) for each, need in zip(now, needs, strict=True)]
    assert halted.promises(at, met) >= t, (name, t, needs, now)
    for port, need in enumerate(needs):
        if need > now[port]:
            less = [earlier(each, now[i]) if i == port else INF for i, each in enumerate(met)]
            assert halted.promises(at, less) < t, (name, t, needs, now)
    return name


def check_inverse(plan: Plan, rng: random.Random) -> None:
    halted = Halted(plan.build(), rng.choice(EMITS), rng, plan.infinite)
    for at, node in enumerate(halted.runtime.operators):
        reached = node.output.frontier.time
        if reached < INF:
            first = rng.randint(-3, 5) if reached == NEVER else reached + 1
            for t in (first, first + rng.randint(1, 9), INF):
                assert_inverse(halted, at, node, t)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_needs_is_the_inverse_of_the_promise(plan: Plan) -> None:
    check_inverse(plan, random.Random(plan.name))


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_needs_is_the_inverse_of_the_promise_in_many_runs(plan: Plan) -> None:
    rng = random.Random(f"many {plan.name}")
    for _ in range(20):
        check_inverse(plan, rng)


@pytest.mark.parametrize("strategy", get_args(ProgressStrategy))
def test_loops_of_every_strategy(strategy: ProgressStrategy) -> None:
    """The high-water mark is promised as a whole."""
    rng = random.Random(strategy)
    for plan in RECURSIVE:
        for _ in range(2):
            check_inverse(replace(plan, build=lambda plan=plan: looping(plan.build(), progress=strategy)), rng)


def test_the_rules_that_move_time() -> None:
    """Windows that slide, granules and shifts ask for another time than they promise."""
    found = {}
    for query in (S.range(5, slide=3), S.granularity(4), S.lifetime(shift=3), S.lifetime(hop=4, length=8)):
        (node,) = [each for each in LocalRuntime(query).operators if each.placed.operator.needs(10) != (10,)]
        found[str(query)] = node.placed.operator.needs(10)[0]
    assert list(found.values()) == [9, 9, 7, 12]


def test_a_merge_needs_any_one_of_its_inputs() -> None:
    merged = ew.lmerge(ew.source("a", S.schema), ew.source("b", T.schema))
    (node,) = LocalRuntime(merged).operators
    assert node.placed.operator.merges and node.placed.operator.needs(7) == (7, 7)
