"""The body alone: operators stepped in order, round by round, and only those that have something to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.loop.body import BodyOperator, LoopBody
from everwhen.rows.changes import Changes
from everwhen.rows.interner import Interner
from operators.stepping import Segment, changes, codec_of, said
from state_files import through_file

POOL = Interner()
LEFT = codec_of({"k": pa.int64()}, POOL)
RIGHT = codec_of({"j": pa.int64(), "m": pa.int64()}, POOL)
PAIR = codec_of({"j": pa.int64(), "m": pa.int64(), "k": pa.int64()}, POOL)


class Watched(Operator):
    """An operator, and what it was stepped with."""

    def __init__(self, inner: Operator) -> None:
        self.inner = inner
        self.codec = inner.codec
        self.ports = inner.ports
        self.steps: list[tuple[list[Frontier], int]] = []

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        self.steps.append((list(frontiers), tau))
        return self.inner.step(inputs, frontiers, tau)

    def snapshot(self) -> dict[str, Any]:
        return self.inner.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        self.inner.restore(state)


def joined() -> tuple[LoopBody, Watched]:
    """Input 0 meets input 1, the loop, in a join."""
    join = Watched(JoinOperator(RIGHT, LEFT, PAIR, ["j"], ["k"]))
    return LoopBody([BodyOperator("join", join, (-1, -2))], 0, join.codec), join


def output(codec: Any, *segments: Segment, frontier: int = NEVER, promises: Sequence[Punctuation] = ()) -> Output:
    return Output(changes(codec, *segments), Frontier(frontier, tuple(promises)))


def test_a_round_gives_what_follows() -> None:
    body, _ = joined()
    assert said(body.step([output(RIGHT, (0, 9, 1, 1, 2)), output(LEFT)], NEVER)) == {}
    assert said(body.step([output(RIGHT), output(LEFT, (3, 5, 1, 1))], NEVER)) == {(3, 5, 1, 2, 1): 1}
    assert said(body.step([output(RIGHT), output(LEFT)], NEVER)) == {}, "what a round gave is not given again"


def test_the_result_may_be_an_input() -> None:
    body = LoopBody([], -1, LEFT)
    assert said(body.step([output(LEFT, (0, 9, 1, 4)), output(LEFT)], NEVER)) == {(0, 9, 4): 1}


def test_an_operator_without_news_is_not_stepped() -> None:
    body, join = joined()
    body.step([output(RIGHT, frontier=3), output(LEFT)], NEVER)
    assert len(join.steps) == 1
    body.step([output(RIGHT, frontier=3), output(LEFT)], NEVER)
    assert len(join.steps) == 1
    body.step([output(RIGHT, frontier=4), output(LEFT)], NEVER)
    body.step([output(RIGHT, frontier=4), output(LEFT)], 7)
    body.step([output(RIGHT, frontier=4), output(LEFT, (5, 6, 1, 1))], 7)
    assert len(join.steps) == 4


def test_promises_about_data_are_news_in_one_round() -> None:
    """What came from outside with a promise: the operator hears it once, and is stepped again without it."""
    body, join = joined()
    promise = Punctuation.constants({"j": 1}, INF)
    body.step([output(RIGHT, (0, 9, 1, 1, 2), promises=[promise]), output(LEFT)], NEVER)
    body.step([output(RIGHT), output(LEFT)], NEVER)
    body.step([output(RIGHT), output(LEFT, (3, 5, 1, 1))], NEVER)
    assert [len(frontiers[0].promises) for frontiers, _ in join.steps] == [1, 0]


def test_a_promise_never_goes_back() -> None:
    """The lowest of the ports, as in every join."""
    body, _ = joined()
    seen = []
    for external, loop in ((5, 3), (5, 5), (9, 5), (9, 9)):
        inputs = [output(RIGHT, frontier=external), output(LEFT, frontier=loop)]
        body.step(inputs, NEVER)
        seen.append(body._given(body._result, inputs).frontier.time)
    assert seen == [3, 5, 5, 9]


def test_it_goes_on_from_a_file() -> None:
    body, _ = joined()
    body.step([output(RIGHT, (0, 9, 1, 1, 2), frontier=1), output(LEFT)], NEVER)
    state = through_file(body.snapshot())
    other, join = joined()
    other.restore(state)
    assert other.state_size() == body.state_size()
    other.step([output(RIGHT, frontier=1), output(LEFT)], NEVER)
    assert join.steps == [], "it knows what it was stepped with"
    assert said(other.step([output(RIGHT, frontier=1), output(LEFT, (3, 5, 1, 1))], NEVER)) == {(3, 5, 1, 2, 1): 1}
    assert [each.name for each in other.operators] == ["join"]
