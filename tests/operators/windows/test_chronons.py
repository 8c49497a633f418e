"""Lifetimes as single instants: cut when the present reaches them, and what is not cut is kept."""

from __future__ import annotations

import pyarrow as pa

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF
from everwhen.operators.contract import Policy
from everwhen.operators.windows.chronons import ChrononsOperator
from operators.stepping import Stepped, codec_of, said

CODEC = codec_of({"k": pa.int64()})


def chronons(emit: Emit) -> Stepped:
    return Stepped(lambda: ChrononsOperator(CODEC, Policy(emit)), CODEC)


def test_instants_come_with_the_present() -> None:
    trial = chronons(Emit.CURRENT)
    assert trial.step([(0, INF, 2, 1)], tau=1) == {(0, 1, 1): 2, (1, 2, 1): 2}
    assert trial.step(tau=3) == {(2, 3, 1): 2, (3, 4, 1): 2}
    trial.restart()
    assert trial.step([(2, INF, -2, 1)], tau=3) == {(2, 3, 1): -2, (3, 4, 1): -2}
    assert trial.step(ctis=[INF]) == {} and trial.rows == 0


def test_final_instants_come_with_the_promise() -> None:
    trial = chronons(Emit.FINAL)
    assert trial.step([(0, 3, 1, 1)], tau=9) == {}
    assert trial.rows > 0
    assert trial.step(ctis=[2], tau=9) == {(0, 1, 1): 1, (1, 2, 1): 1}
    assert trial.step(ctis=[INF], tau=9) == {(2, 3, 1): 1} and trial.rows == 0


def test_a_promise_that_reaches_what_lives_for_ever_says_nothing() -> None:
    """It would let out instants without end."""
    trial = chronons(Emit.FINAL)
    trial.step([(0, INF, 1, 1), (0, 2, 1, 2)])
    found = trial.step(promises=[[Punctuation.constants({"k": 1}), Punctuation.constants({"k": 2})]])
    assert found == {(0, 1, 2): 1, (1, 2, 2): 1}
    assert [each.match["k"].matches(2) for each in trial.frontier.promises] == [True]


def test_a_laxer_policy_brings_the_present_out() -> None:
    trial = chronons(Emit.FINAL)
    trial.step([(0, 2, 1, 1)], ctis=[1], tau=0)
    more = trial.operator.emitting(Emit.ALL, [trial.frontier])
    assert more is not None and said(more) == {(1, 2, 1): 1}
