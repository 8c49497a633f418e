"""Schemes of keys and lists as machines: a key that has come, and groups of which every unit has reported."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.schema import Schema
from everwhen.operators.punctuate.key_schemes import CountedMachine, ListedMachine, UniqueMachine
from everwhen.operators.punctuate.order_schemes import Machine
from everwhen.punctuation.schemes import Complete, Unique
from state_files import through_file

SCHEMA = Schema.of([("hour", pa.int64()), ("unit", pa.string())])
Row = tuple[int, str]


def seen(machine: Machine, *rows: Row) -> tuple[list[Row], int | None]:
    """Which rows of hours 0…4 and units a, b are promised by these rows, and the one that is wrong."""
    columns = {"hour": pa.array([row[0] for row in rows], pa.int64()), "unit": pa.array([row[1] for row in rows])}
    found = machine.observe(columns, len(rows), True)
    if found.broken is not None:
        return [], found.broken.at
    machine.settle()
    every = [(hour, unit) for hour in range(5) for unit in "ab"]
    return [r for r in every if any(p.matches({"hour": r[0], "unit": r[1]}) for p in found.promises)], None


def test_a_key_comes_once() -> None:
    machine = UniqueMachine(Unique(("hour", "unit")), SCHEMA, hosted=False)
    assert seen(machine, (1, "a"), (1, "b")) == ([(1, "a"), (1, "b")], None)
    again = UniqueMachine(Unique(("hour", "unit")), SCHEMA, hosted=False)
    again.restore(through_file(machine.snapshot()))
    for each in (machine, again):
        assert seen(each, (2, "a"), (1, "b"))[1] == 1
        assert seen(each, (2, "a"), (2, "a"))[1] == 1, "within a batch, too"
    hosted = UniqueMachine(Unique(("hour", "unit")), SCHEMA, hosted=True)
    seen(hosted, (1, "a"))
    assert hosted.nbytes < machine.nbytes, "whoever hosts it keeps the promises"


def listed(each: int | None) -> Complete:
    return Complete(group=("hour",), unit="unit", units=("a", "b"), each=each)


def test_hours_below_the_slowest_unit_are_over() -> None:
    machine = ListedMachine(listed(None), SCHEMA)
    assert seen(machine, (3, "a")) == ([], None), "b may be anywhere"
    over, _ = seen(machine, (2, "b"))
    assert over == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert seen(machine, (1, "a"))[1] == 0
    over, _ = seen(machine, (4, "b"))
    assert over[-1] == (2, "b"), "now a is the slowest, at 3"


def test_an_hour_is_over_when_every_unit_has_told_its_number() -> None:
    machine = CountedMachine(listed(2), SCHEMA, hosted=False)
    assert seen(machine, (1, "a"), (1, "b"), (1, "a"), (3, "a"))[0] == []
    again = CountedMachine(listed(2), SCHEMA, hosted=False)
    again.restore(through_file(machine.snapshot()))
    for each in (machine, again):
        assert seen(each, (1, "b")) == ([(1, "a"), (1, "b")], None)
        assert seen(each, (1, "b"))[1] == 0, "it was over"


@pytest.mark.parametrize("each", [None, 2])
def test_units_that_are_not_listed_count_for_nothing(each: int | None) -> None:
    machine: Machine = (
        ListedMachine(listed(each), SCHEMA) if each is None else CountedMachine(listed(each), SCHEMA, False)
    )
    assert seen(machine, (3, "c"), (3, "a")) == ([], None)
