"""Every table of the thesis's chapters 8, 11, 17 and 20, for the physical operators.

The data, and where it deviates from what is printed, stand in `thesis_tables.py`; the oracle's tests are in
`test_thesis_reference_tables.py`.  Operators are run in two ways: all at once with one closing CTI (`final`), and
one event at a time as in the thesis (`ended`, `current`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from types import MappingProxyType
from typing import Any

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Node
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from papers.thesis_tables import CASES, COLUMNS, Case, Event

SCHEMA: Schema = ew.source("S", COLUMNS).schema


def elements_of(events: tuple[Event, ...]) -> list[Element]:
    return [Insert(vs, ve, {"e": row[0]}) for vs, ve, row in sorted(events, key=lambda event: event[:2])]


def history_of(events: tuple[Event, ...], schema: Schema) -> History:
    return History(schema, MappingProxyType(dict(Counter(events))))


def run(case: Case, node: Node, emit: str, epochs: Iterator[dict[str, ElementBatch]]) -> list[Element]:
    runtime = LocalRuntime(node, emit=emit)
    out: list[Element] = []
    for epoch in epochs:
        mine = {name: batch for name, batch in epoch.items() if name in runtime.inputs}
        if mine:
            out += runtime.push(mine)["out"].elements()
    return [*out, *runtime.close()["out"].elements()]


def at_once(case: Case) -> Iterator[dict[str, ElementBatch]]:
    """Everything, then the closing CTI."""
    yield {name: batch_of([*elements_of(events), Cti(INF)], SCHEMA, name) for name, events in case.inputs.items()}


def one_by_one(case: Case, ctis: bool) -> Iterator[dict[str, ElementBatch]]:
    """Event by event in the order of their starts, over all inputs; with CTIs, as in the thesis."""
    arriving = sorted(
        chain.from_iterable([(e, name) for e in elements_of(events)] for name, events in case.inputs.items()),
        key=lambda arrival: arrival[0].sync,  # type: ignore[union-attr]
    )
    for element, name in arriving:
        assert isinstance(element, Insert)
        if ctis:
            yield {each: batch_of([Cti(element.vs)], SCHEMA, each) for each in case.inputs}
        yield {name: batch_of([element], SCHEMA, name)}


def events_of(elements: list[Element]) -> Counter[tuple[int, int, tuple[Any, ...]]]:
    """The inserts as they were said; there must be no adjusts."""
    assert not any(isinstance(element, Adjust) for element in elements)
    return Counter((e.vs, e.ve, tuple(e.row.values())) for e in elements if isinstance(e, Insert))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"Table {case.name}")
def test_table_at_once(case: Case) -> None:
    """One closing CTI: the table's snapshots, and its pieces as printed where the definition fixes them."""
    node = case.build()
    out = run(case, node, "final", at_once(case))
    report = assert_valid(out)
    assert report.closed and report.ordered and not report.adjusts
    assert_same_history(History.of(out, node.schema), history_of(case.expected(), node.schema))
    if case.fixed:
        assert events_of(out) == Counter(case.expected())


@pytest.mark.parametrize("ctis", [False, True], ids=["without CTIs", "with CTIs"])
@pytest.mark.parametrize("emit", ["ended", "current", "final"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"Table {case.name}")
def test_table_event_by_event(case: Case, emit: str, ctis: bool) -> None:
    """Event by event as in the thesis's algorithms: the table's snapshots; nothing taken back but in `current`."""
    node = case.build()
    out = run(case, node, emit, one_by_one(case, ctis))
    report = assert_valid(out)
    assert report.closed
    assert emit == "current" or not report.adjusts
    assert_same_history(History.of(out, node.schema), history_of(case.expected(), node.schema))


# A piece of a duplicate elimination ends, for `ended`, where a copy comes or goes: a [5, 11) is said as [5, 9) and
# [9, 11), because a second copy begins at 9.  Said at once it is one piece (test_table_at_once).
UNCUT = [case for case in CASES if case.fixed and case.name != "11.7 distinct"]


@pytest.mark.parametrize("case", UNCUT, ids=lambda case: f"Table {case.name}")
def test_pieces_event_by_event(case: Case) -> None:
    """Without CTIs in between, which cut pieces, `ended` says exactly the printed pieces."""
    node = case.build()
    assert events_of(run(case, node, "ended", one_by_one(case, False))) == Counter(case.expected())
