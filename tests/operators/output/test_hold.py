"""Hold and InOrder alone: nothing goes out before its time, nothing that went out comes back."""

from __future__ import annotations

import pyarrow as pa

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF
from everwhen.operators.contract import Policy
from everwhen.operators.output.hold import HoldOperator, InOrderOperator
from operators.stepping import Stepped, codec_of, said

CODEC = codec_of({"k": pa.int64()})


def hold() -> Stepped:
    return Stepped(lambda: HoldOperator(CODEC), CODEC)


def in_order() -> Stepped:
    return Stepped(lambda: InOrderOperator(CODEC, Policy(Emit.ENDED)), CODEC)


def test_a_segment_goes_out_as_far_as_it_is_promised() -> None:
    trial = hold()
    assert trial.step([(0, 10, 1, 7)]) == {}
    assert trial.step(ctis=[4]) == {(0, 4, 7): 1}
    assert trial.step(ctis=[4]) == {}, "said once"
    assert trial.step(ctis=[INF]) == {(4, 10, 7): 1}
    assert trial.rows == 0


def test_corrections_are_cut_out_while_they_wait() -> None:
    trial = hold()
    trial.step([(0, 10, 2, 7)], ctis=[2])
    assert trial.step([(5, 10, -1, 7), (6, 8, 1, 8)]) == {}
    trial.restart()
    assert trial.step(ctis=[INF]) == {(2, 5, 7): 1, (2, 10, 7): 1, (6, 8, 8): 1}


def test_a_row_that_is_promised_for_longer_goes_out_for_longer() -> None:
    trial = hold()
    trial.step([(0, 10, 1, 7), (0, 10, 1, 8)])
    assert trial.step(ctis=[3], promises=[[Punctuation.constants({"k": 7}, 20)]]) == {(0, 10, 7): 1, (0, 3, 8): 1}
    assert trial.rows == 1
    assert trial.step(ctis=[5]) == {(3, 5, 8): 1}


def test_under_a_laxer_policy_all_that_waits_goes_on_and_nothing_waits_again() -> None:
    trial = hold()
    trial.step([(0, 10, 1, 7)], ctis=[4])
    assert trial.operator.emitting(Emit.FINAL, [Frontier(4)]) is None
    more = trial.operator.emitting(Emit.CURRENT, [Frontier(4)])
    assert more is not None and said(more) == {(4, 10, 7): 1}
    assert trial.rows == 0
    assert trial.step([(6, 9, 1, 8)]) == {(6, 9, 8): 1}


def test_segments_go_out_when_they_begin() -> None:
    trial = in_order()
    assert trial.step([(0, 5, 1, 1), (3, 8, 1, 1), (6, 9, 1, 2)], tau=2) == {(0, 5, 1): 1}
    assert trial.rows == 2
    trial.restart()
    assert trial.step(tau=3) == {(3, 8, 1): 1}
    assert trial.step(ctis=[7], tau=3) == {(6, 9, 2): 1}, "a promise lets it out as well"
    assert trial.rows == 0


def test_a_row_that_was_corrected_no_longer_waits() -> None:
    """Not even the part that lies ahead: it would be a second correction of the same row."""
    trial = in_order()
    assert trial.step([(0, 20, 1, 1), (10, 30, 1, 2)], tau=0) == {(0, 20, 1): 1}
    assert trial.step([(4, 20, -1, 1), (12, 20, 1, 1)], tau=1) == {(4, 12, 1): -1}
    assert trial.step([(15, 40, 1, 1)], tau=2) == {(15, 40, 1): 1}
    assert trial.step(tau=10) == {(10, 30, 2): 1}
