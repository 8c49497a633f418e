"""Schemes of order as machines: what follows from rows, which row breaks one first, and nothing taken before settle."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.operators.punctuate.order_schemes import (
    BoundsMachine,
    ClusteredMachine,
    Machine,
    SaidMachine,
    SortedMachine,
)
from everwhen.punctuation.schemes import Bounds, ClusteredBy, SortedBy
from state_files import through_file

SCHEMA = Schema.of([("x", pa.int64()), ("s", pa.string())])


def seen(
    machine: Machine, *values: int | None, settle: bool = True, ordered: bool = True
) -> tuple[list[Any], int | None]:
    """Which of 0…9 are promised afterwards, and the row that is wrong."""
    columns = {"x": pa.array(values, pa.int64()), "s": pa.array(["a"] * len(values))}
    found = machine.observe(columns, len(values), ordered)
    if settle and found.broken is None:
        machine.settle()
    over = [x for x in range(10) if any(each.matches({"x": x, "s": "a"}) for each in found.promises)]
    return over, None if found.broken is None else found.broken.at


def test_rows_that_rise_promise_what_is_below() -> None:
    machine = SortedMachine(SortedBy("x"), SCHEMA)
    assert seen(machine, 2, 2, 4) == ([0, 1, 2, 3], None)
    assert seen(machine, 3)[1] == 0
    assert seen(machine, 6, settle=False)[0] == [0, 1, 2, 3, 4, 5]
    assert seen(machine, 5) == ([0, 1, 2, 3, 4], None), "6 was never taken"
    assert seen(machine, 7, 6)[1] == 1
    assert seen(machine, 7, 6, ordered=False)[1] is None, "an epoch without order is compared with earlier ones only"


def test_slack_promises_less() -> None:
    machine = SortedMachine(SortedBy("x", slack=2), SCHEMA)
    assert seen(machine, 6) == ([0, 1, 2, 3], None)
    assert seen(machine, 4, 7) == ([0, 1, 2, 3, 4], None)
    again = SortedMachine(SortedBy("x", slack=2), SCHEMA)
    again.restore(through_file(machine.snapshot()))
    assert seen(again, 4)[1] == 0


def test_a_cluster_is_over_when_another_begins() -> None:
    machine = ClusteredMachine(ClusteredBy("x"), SCHEMA, hosted=False)
    assert seen(machine, 3, 3, 5) == ([3], None)
    assert seen(machine, 5, 1) == ([5], None)
    assert seen(machine, 1, 3)[1] == 1, "it was over"
    assert machine.nbytes > 0


def test_bounds_are_known_from_the_start_and_checked() -> None:
    machine = BoundsMachine(Bounds("x", 2, 5), SCHEMA)
    over = [x for x in range(10) if any(each.matches({"x": x, "s": "a"}) for each in machine.start())]
    assert over == [0, 1, 6, 7, 8, 9]
    assert seen(machine, 2, 5)[1] is None and seen(machine, 3, 6, 1)[1] == 1
    assert machine.nbytes == 0


def test_what_others_keep_is_only_said() -> None:
    promise = Punctuation.constants({"x": 1})
    machine = SaidMachine([promise])
    assert machine.start() == [promise] and seen(machine, 1) == ([], None)


@pytest.mark.parametrize("ordered", [True, False])
def test_nulls_have_no_place_in_an_order(ordered: bool) -> None:
    machine = SortedMachine(SortedBy("x"), SCHEMA)
    assert seen(machine, None, 3, None, ordered=ordered) == ([0, 1, 2], None)
