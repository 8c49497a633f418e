"""Promises at a join: what it says of its answer, when it may say so, and for how long it keeps one that waits."""

from __future__ import annotations

import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF
from everwhen.operators.join.join import JoinOperator
from everwhen.rows.interner import Interner
from operators.stepping import Stepped, codec_of

Said = set[tuple[tuple[tuple[str, str], ...], int]]


def join() -> Stepped:
    pool = Interner()
    left = codec_of({"k": pa.int64(), "a": pa.int64()}, pool)
    right = codec_of({"j": pa.int64(), "b": pa.int64()}, pool)
    pair = codec_of({"k": pa.int64(), "a": pa.int64(), "j": pa.int64(), "b": pa.int64()}, pool)
    return Stepped(lambda: JoinOperator(left, right, pair, ["k"], ["j"]), left, right)


def promises(trial: Stepped) -> Said:
    return {
        (tuple((name, str(p)) for name, p in sorted(each.match.items())), each.t) for each in trial.frontier.promises
    }


def about(name: str, value: int, t: int = INF) -> Punctuation:
    return Punctuation.constants({name: value}, t)


def said(name: str, value: int, t: int = INF) -> tuple[tuple[tuple[str, str], ...], int]:
    ((column, pattern),) = about(name, value).match.items()
    return ((column, str(pattern)),), t


def test_what_one_side_has_promised_alone_holds_if_no_row_of_it_is_kept() -> None:
    """A left row with k = 1 could still meet a new right row."""
    trial = join()
    trial.step([(0, 10, 1, 2, 5)])
    trial.step(promises=[[about("k", 1)]])
    assert said("k", 1) in promises(trial) and said("j", 1) in promises(trial), "both columns have that value"


def test_it_waits_for_rows_that_are_kept() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 5)])
    trial.step(promises=[[about("k", 1)]])
    assert promises(trial) == set()
    trial.restart()
    trial.step(ctis=[5, 10])  # the right side has passed the row's end
    assert said("k", 1) in promises(trial)


def test_what_both_sides_promise_holds_for_the_shorter_time_at_least() -> None:
    trial = join()
    trial.step([(0, 100, 1, 1, 5)], [(0, 100, 1, 1, 6)])
    trial.step(promises=[[about("k", 1, 30)], [about("j", 1, 20)]])
    assert {t for match, t in promises(trial) if match == said("k", 1)[0]} == {20}


def test_other_columns_are_promised_when_their_rows_are_gone() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 5)])
    trial.step(promises=[[about("a", 5)]])
    assert promises(trial) == set()
    trial.step(ctis=[0, 10])
    assert promises(trial) == {said("a", 5)}


def test_rows_that_come_after_the_other_side_s_promise_are_not_kept() -> None:
    trial = join()
    trial.step(promises=[(), [about("j", 1)]])
    assert trial.step([(0, 10, 1, 1, 5), (0, 10, 1, 2, 5)]) == {}
    assert trial.rows == 1
