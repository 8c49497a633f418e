"""The turn of a loop in one partition: it does what it is told."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.punctuation import Frontier
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.operators.loop.bag import BagHead
from everwhen.operators.loop.head import with_birth
from everwhen.operators.loop.support import SetHead
from everwhen.operators.loop.turn import TurnOperator, TurnPhase, check_rounds
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from state_files import through_file

COLUMNS = Schema.of([("n", pa.string())])
Derivation = tuple[int, int, int, str, int]
"""lo, hi, weight, row, premise birth."""


class Turn:
    """The operator, with rows as values."""

    def __init__(self) -> None:
        self.pool = Interner()
        self.sent = RowCodec(with_birth(COLUMNS), self.pool)
        self.operator = TurnOperator(2, SetHead(RowCodec(COLUMNS, self.pool), self.sent))

    def step(
        self, phase: TurnPhase, derived: list[Derivation], external: int = 3, promise: int = NEVER
    ) -> list[Derivation]:
        lo, hi, weight = (np.array([each[at] for each in derived], np.int64) for at in range(3))
        payload = [
            pa.array([each[3] for each in derived], pa.string()),
            pa.array([each[4] for each in derived], pa.int64()),
        ]
        changes = Changes(self.sent, lo, hi, weight, self.sent.encode(payload, len(derived)))
        nothing = changes.take(slice(0, 0))
        self.operator.tell(phase, promise)
        output = self.operator.step([changes, nothing], [Frontier(NEVER), Frontier(external)], 0)
        assert output.frontier.time == self.operator._promise
        rows, born = (column.to_pylist() for column in self.sent.decode(output.changes.rows))
        found = output.changes
        return list(zip(found.lo.tolist(), found.hi.tolist(), found.weight.tolist(), rows, born, strict=True))


def test_what_is_derived_waits_until_all_partitions_insert() -> None:
    turn = Turn()
    assert turn.operator.unfinished
    assert turn.step("retract", [(0, 9, 1, "A", 0)]) == []
    assert turn.operator.external == 3
    assert turn.step("insert", []) == [(0, 9, 1, "A", 1)]
    assert turn.operator.sample == "at instant 0 the row (n='A')"
    assert turn.step("insert", [(0, 9, 1, "B", 1)]) == [(0, 9, 1, "B", 2)]
    assert turn.step("insert", [(0, 9, 1, "A", 2)]) == []  # it is there already
    assert turn.operator.sample == ""


def test_partitions_count_rounds_in_which_they_have_nothing_to_do() -> None:
    turn = Turn()
    turn.step("retract", [])
    for _ in range(3):
        assert turn.step("insert", []) == []
    assert turn.step("insert", [(0, 9, 1, "A", 3)]) == [(0, 9, 1, "A", 4)]


def test_a_cycle_that_has_lost_its_source_goes_and_does_not_come_back() -> None:
    turn = Turn()
    turn.step("retract", [(0, 9, 1, "A", 0)])
    turn.step("insert", [])
    turn.step("insert", [(0, 9, 1, "B", 1)])
    turn.step("insert", [(0, 9, 1, "A", 2)])
    turn.step("settle", [], promise=1)
    again = Turn()
    again.operator.restore(through_file(turn.operator.snapshot()))
    for each in (turn, again):  # the source shrinks to [0, 5)
        assert each.step("retract", [(5, 9, -1, "A", 0)]) == [(5, 9, -1, "A", 1)]
        assert each.step("retract", [(5, 9, -1, "B", 1)]) == [(5, 9, -1, "B", 2)]
        assert each.step("retract", [(5, 9, -1, "A", 2)]) == []
        assert each.step("insert", []) == []


def test_it_promises_what_it_is_told_when_all_has_settled() -> None:
    turn = Turn()
    turn.step("retract", [(0, 9, 1, "A", 0)], external=7)
    turn.step("insert", [], external=7)
    assert turn.operator._promise == NEVER
    turn.step("settle", [], external=7, promise=7)
    assert turn.operator._promise == 7
    turn.step("settle", [], external=INF, promise=INF)
    assert turn.operator.state_size().rows == 0


def test_it_does_not_settle_while_something_is_due() -> None:
    turn = Turn()
    turn.step("retract", [(0, 9, 1, "A", 0)])
    with pytest.raises(AssertionError, match="still under way"):
        turn.step("settle", [], promise=3)


def test_a_loop_that_diverges_is_stopped() -> None:
    check_rounds("r", 4, 4, 100, 10**9, "")
    with pytest.raises(ew.EvaluationError, match="'r' has not ended after 4 rounds in one epoch; at instant 3 the row"):
        check_rounds("r", 5, 4, 100, 10**9, "at instant 3 the row (n='A')")
    with pytest.raises(ew.EvaluationError, match="after 1000 rows"):
        check_rounds("r", 5, 10, 1001, 1000, "")


def test_a_row_that_is_derived_ever_more_often_is_named() -> None:
    codec = RowCodec(COLUMNS, Interner())
    turn = TurnOperator(2, BagHead(codec))
    n = 2000
    lo, weight = np.zeros(n, np.int64), np.full(n, 2**31, np.int64)
    changes = Changes(codec, lo, lo + 9, weight, codec.encode([pa.array(["A"] * n)], n))
    turn.tell("insert", NEVER)
    with pytest.raises(ew.EvaluationError, match=r"at instant 0 the row \(n='A'\) is derived ever more often"):
        turn.step([changes, changes.take(slice(0, 0))], [Frontier(NEVER), Frontier(3)], 0)
