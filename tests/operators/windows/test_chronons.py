"""Lifetimes as single instants: cut when the present reaches them, and what is not cut is kept."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.operators.contract import Policy
from everwhen.operators.windows.chronons import ChrononsOperator, Counted
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
    at_once = chronons(Emit.FINAL)
    assert at_once.step([(0, INF, 1, 1)], promises=[[Punctuation.constants({"k": 1})]]) == {}
    assert at_once.frontier.promises == ()


def test_a_laxer_policy_brings_the_present_out() -> None:
    trial = chronons(Emit.FINAL)
    trial.step([(0, 2, 1, 1)], ctis=[1], tau=0)
    more = trial.operator.emitting(Emit.ALL, [trial.frontier])
    assert more is not None and said(more) == {(1, 2, 1): 1}


def of_window(rows: int, slide: int, *partition: str) -> Stepped:
    counted = Counted(rows, slide, partition)
    return Stepped(lambda: ChrononsOperator(CODEC, Policy(Emit.FINAL), counted), CODEC)


def test_at_the_end_of_the_stream_a_window_of_rows_needs_no_more_instants_than_fill_it() -> None:
    trial = of_window(2, 1)
    found = trial.step([(0, INF, 1, 1), (1, 3, 1, 2)], ctis=[INF])
    assert {t for t, _, k in found if k == 2} == {1, 2}
    assert {t for t, _, k in found if k == 1} == set(range(7))  # the last change is at 3
    assert trial.rows == 0


def test_rows_for_ever_that_a_slide_shows_in_turn_are_refused_at_the_end_of_the_stream() -> None:
    endless = [(0, INF, 1, 1), (0, INF, 1, 2), (0, INF, 1, 3)]
    with pytest.raises(QueryError, match="3 different rows live for ever: a window of 1 rows that slides by 2 over"):
        of_window(1, 2).step(endless, ctis=[INF])
    for window in (of_window(3, 2), of_window(1, 3), of_window(1, 2, "k")):  # all of them, a whole slide, equal rows
        assert window.step(endless, ctis=[INF])


@pytest.mark.parametrize("emit", [Emit.ALL, Emit.FINAL])
def test_a_row_for_ever_counts_up_to_the_last_instant_that_was_cut_before(emit: Emit) -> None:
    """`all` says finite rows at once, a promise about data too: at the end of the stream the row for ever stood still
    at the present, and the window showed the finite ones beyond it."""
    counted = Counted(1, 1, ())
    trial = Stepped(lambda: ChrononsOperator(CODEC, Policy(emit), counted), CODEC)
    promised = [Punctuation.constants({"k": 2})] if emit is Emit.FINAL else []
    found = trial.step([(6, INF, 1, 1), (7, 21, 1, 2)], tau=7, promises=[promised])
    assert max(t for t, _, k in found if k == 2) == 20
    trial.restart()
    assert {t for t, _, k in trial.step(ctis=[INF]) if k == 1} >= set(range(8, 22))
