"""The contract's own words: policies as clips, progress that never goes back, and what an operator without state is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.clip import CUT, ENDED, ENDING, INFINITE, KNOWN
from everwhen.operators.contract import Operator, Output, Policy, StateSize, advance
from everwhen.rows.changes import Changes, no_changes
from operators.stepping import codec_of

CODEC = codec_of({"k": pa.int64()})


class Identity(Operator):
    """Hands everything on."""

    ports = 2
    codec = CODEC

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        return Output(inputs[0], frontiers[0])


@pytest.mark.parametrize(
    ("policy", "clip"),
    [
        (Policy(Emit.FINAL), (CUT, 4)),
        (Policy(Emit.FINAL, cut=True), (CUT, 4)),
        (Policy(Emit.ENDED), (ENDED, 7)),
        (Policy(Emit.ENDED, cut=True), (CUT, 7)),
        (Policy(Emit.CURRENT), (KNOWN, 7)),
        (Policy(Emit.CURRENT, open_end=True), (INFINITE, 7)),
        (Policy(Emit.CURRENT, cut=True), (CUT, 8)),
        (Policy(Emit.ALL), (CUT, INF)),
        (Policy(Emit.ALL, cut=True), (ENDING, 8)),
    ],
)
def test_policies_are_clips(policy: Policy, clip: tuple[int, int]) -> None:
    """The largest start is 7, and everything before 4 is promised."""
    assert policy.clip(7, 4) == clip


def test_the_present_is_no_earlier_than_the_promise() -> None:
    assert Policy(Emit.CURRENT).clip(7, 20) == (KNOWN, 20)
    assert Policy(Emit.ENDED, cut=True).clip(7, 20) == (CUT, 20)
    assert Policy(Emit.CURRENT, cut=True).clip(NEVER, NEVER) == (CUT, NEVER)


def test_what_comes_next_begins_where_the_slowest_way_moves_it() -> None:
    policy = Policy(Emit.ENDED, moves=(((4, 0),), ((1, 3), (2, 0))))
    assert policy.ended_by(7) == 4, "to the hop of 4; the other way gives 10"
    assert policy.ended_by(INF) == INF and Policy(Emit.ENDED).ended_by(7) == 7


def test_progress_never_goes_back() -> None:
    promise = Punctuation.constants({"k": 1}, 30)
    behind = advance(Identity(), [no_changes(CODEC)], [Frontier(3, (promise,))], 0, reached=10)
    assert behind.frontier.time == 10 and behind.frontier.promises == (promise,)
    ahead = advance(Identity(), [no_changes(CODEC)], [Frontier(12)], 0, reached=10)
    assert ahead.frontier.time == 12


def test_an_operator_waits_for_the_ports_that_are_last() -> None:
    operator = Identity()
    assert operator.waits_for([Frontier(3), Frontier(5)]) == (0,)
    assert operator.waits_for([Frontier(5), Frontier(5)]) == (0, 1)
    assert operator.waits_for([Frontier(INF), Frontier(INF)]) == ()


def test_an_operator_without_state_has_nothing_to_restore() -> None:
    operator = Identity()
    assert operator.stateless and operator.snapshot() == {} and operator.state_size() == StateSize()
    operator.restore({})
    with pytest.raises(AssertionError, match="nothing to restore"):
        operator.restore({"rows": 1})


def test_sizes_are_added_up() -> None:
    assert StateSize(1, 10) + StateSize(2, 5) == StateSize(3, 15)
