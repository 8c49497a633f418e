"""The join alone: its three areas, corrections, what each side keeps until when, and a restart in mid-run."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.join.join import JoinOperator
from everwhen.rows.interner import Interner
from operators.stepping import Stepped, codec_of

col = ew.col


def join(keyed: bool = True, residual: ew.Expr | None = None, null_safe: bool = False) -> Stepped:
    pool = Interner()
    left = codec_of({"k": pa.int64(), "a": pa.int64()}, pool)
    right = codec_of({"j": pa.int64(), "b": pa.int64()}, pool)
    pair = codec_of({"k": pa.int64(), "a": pa.int64(), "j": pa.int64(), "b": pa.int64()}, pool)
    keys = (["k"], ["j"]) if keyed else ((), ())
    return Stepped(lambda: JoinOperator(left, right, pair, *keys, residual, null_safe), left, right)


@pytest.mark.parametrize(
    ("keyed", "residual", "area"),
    [
        (True, None, "keyed"),
        (False, col("k") == col("j"), "sorted"),
        (False, (col("k") == col("j")) | (col("k") > col("j") + 1000), "list"),
    ],
)
def test_pairs_live_as_long_as_both_in_any_area(keyed: bool, residual: ew.Expr | None, area: str) -> None:
    """One condition, said in three ways: whichever area looks for partners, the pairs are the same."""
    trial = join(keyed, residual)
    assert trial.operator.area == area  # type: ignore[attr-defined]
    assert trial.step([(0, 10, 1, 1, 7), (0, 10, 1, 2, 8)], [(5, 20, 2, 1, 9)]) == {(5, 10, 1, 7, 1, 9): 2}
    assert trial.step([(12, 14, 1, 1, 6), (20, 30, 1, 1, 5)]) == {(12, 14, 1, 6, 1, 9): 2}
    # the right row ends at 8: what lies behind is taken back from both pairs
    assert trial.step((), [(8, 20, -2, 1, 9)]) == {(8, 10, 1, 7, 1, 9): -2, (12, 14, 1, 6, 1, 9): -2}


def test_a_null_has_no_partner_unless_nulls_are_equal() -> None:
    rows = [(0, 5, 1, None, 1)], [(0, 5, 1, None, 2)]
    assert join().step(*rows) == {}
    assert join(null_safe=True).step(*rows) == {(0, 5, None, 1, None, 2): 1}


def test_what_a_condition_cannot_decide_is_no_pair() -> None:
    trial = join(residual=col("a") < col("b"))
    given = [(0, 5, 1, 1, None), (0, 5, 1, 1, 3)], [(0, 5, 1, 1, 4), (0, 5, 1, 1, 3)]
    assert trial.step(*given) == {(0, 5, 1, 3, 1, 4): 1}


def test_a_side_keeps_rows_until_the_other_has_passed_their_ends() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 1), (0, 20, 1, 2, 1)], [(0, 30, 1, 9, 1)])
    assert trial.rows == 3
    trial.step(ctis=[NEVER, 10])
    assert trial.rows == 2, "the left row that ended at 10 meets nobody any more"
    trial.step(ctis=[INF, 10])
    assert trial.rows == 1, "no left row will come: no right row is kept"
    assert trial.frontier.time == 10, "the side that is behind"
    trial.step(ctis=[INF, INF])
    assert trial.rows == 0 and trial.frontier.time == INF


def test_a_promise_about_a_key_frees_the_other_side_s_rows_and_goes_on() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 1), (0, 10, 1, 2, 1)])
    trial.step(promises=[(), [Punctuation.constants({"j": 1}, 20)]])
    assert trial.rows == 1, "of key 1 nothing can come from the right before 20"
    assert trial.step((), [(0, 10, 1, 2, 5)]) == {(0, 10, 2, 1, 2, 5): 1}
    trial.step(promises=[[Punctuation.constants({"k": 1}, 20)]])
    matched = [{name: str(pattern) for name, pattern in p.match.items()} for p in trial.frontier.promises]
    assert matched and all(set(each) <= {"k", "j"} for each in matched), "the answer has neither k = 1 nor j = 1"


def test_a_restart_is_invisible() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 1), (0, 20, 3, 2, None)], [(5, 9, 1, 1, 4)], ctis=[0, 2])
    trial.restart()
    assert trial.rows == 3
    assert trial.step((), [(1, 15, 1, 2, 8)]) == {(1, 15, 2, None, 2, 8): 3}
    since, standing = trial.operator.standing([trial.frontier, trial.frontier])  # type: ignore[misc]
    assert since == 2 and standing.weight.sum() == 4
