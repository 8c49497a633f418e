"""Every table of the thesis's chapters 8, 11, 17 and 20, for the oracle.

The data, and where it deviates from what is printed, stand in `thesis_tables.py`.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType

import pytest

import everwhen as ew
from everwhen import reference
from everwhen.algebra.nodes import Node
from everwhen.core.schema import Schema
from everwhen.stream.history import History
from everwhen.testing import assert_same_history
from papers.thesis_tables import CASES, CHAPTER_8, COLUMNS, LOGICAL, PHYSICAL, Case, Event, letters, logical


def history_of(events: tuple[Event, ...], schema: Schema) -> History:
    return History(schema, MappingProxyType(dict(Counter(events))))


def inputs_of(case: Case) -> dict[str, History]:
    schema = ew.source("S", COLUMNS).schema
    return {name: history_of(events, schema) for name, events in case.inputs.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"Table {case.name}")
def test_table(case: Case) -> None:
    """The result has the table's snapshot at every instant (deviations: `Case.note`)."""
    plan = case.build()
    result = reference.history(plan, inputs_of(case))
    assert_same_history(result, history_of(case.expected(), plan.schema))


@pytest.mark.parametrize("case", [case for case in CASES if case.snapshots], ids=lambda case: f"Table {case.name}")
def test_table_per_instant(case: Case) -> None:
    """The same straight from `evaluate`, instant by instant, a little beyond both ends of what is printed."""
    stream = reference.evaluate(case.build(), inputs_of(case))
    assert case.snapshots is not None
    for t in range(min(case.snapshots) - 3, max(case.snapshots) + 10):
        printed = [at for at in case.snapshots if at <= t]
        assert stream.at(t) == (case.snapshots[max(printed)] if printed else Counter()), f"at {t}"


@pytest.mark.parametrize("case", [case for case in CASES if case.fixed], ids=lambda case: f"Table {case.name}")
def test_table_piece_by_piece(case: Case) -> None:
    """Where a definition fixes the pieces, the level form has them as printed, unless printed pieces meet."""
    plan = case.build()
    printed = history_of(case.expected(), plan.schema)
    if case.name in ("11.1(b)", "11.14 split"):  # b [1, 7) and b [7, 15) meet, as do chronons
        assert reference.history(plan, inputs_of(case)) == printed.coalesced() != printed
    else:
        assert reference.history(plan, inputs_of(case)) == printed


def test_all_tables_are_there() -> None:
    """8.1-8.13, 11.1-11.4, 11.6-11.15 (11.5 lists parameters of algorithms), 17.1-17.4, 20.1 and 20.2."""
    named = {case.name.split()[0].split("(")[0] for case in CASES}
    chapters = {"8": range(1, 14), "11": [*range(1, 5), *range(6, 16)], "17": range(1, 5), "20": range(1, 3)}
    assert named == {f"{chapter}.{number}" for chapter, numbers in chapters.items() for number in numbers}


# --- the tables as printed, where Everwhen deviates: the printed one must really be different -------------------------


def case_named(prefix: str) -> Case:
    return next(case for case in CASES if case.name.startswith(prefix))


def test_table_8_5_as_printed_contradicts_formula_8_4() -> None:
    """Printed: two pairs a∘b at 2, one a∘b and three b∘b at 3.  There are 3·2 and 4·2 pairs by (8.4)."""
    stream = reference.evaluate(case_named("8.5").build(), inputs_of(case_named("8.5")))
    s1, s2 = letters("aaa"), letters("bb")
    assert stream.at(2).total() == s1.total() * s2.total() == 6
    assert stream.at(3) == {("a", "b"): 6, ("b", "b"): 2}


def test_table_8_11_as_printed_is_no_input_of_table_8_12() -> None:
    """Three tuples per instant contradict the premise of 8.2.2, and their count window is not Table 8.12."""
    printed = logical("c", "ac", "abc", "abb", "abb", "abc")
    schema = ew.source("S3", COLUMNS).schema
    stream = reference.evaluate(ew.source("S3", COLUMNS).rows(3).node, {"S3": history_of(printed, schema)})
    assert stream.at(2) != letters("ac")


def test_table_17_4_as_printed_is_one_instant_early() -> None:
    """At the printed instant 4 the tuple a is still alive; τ(t-1) - τ(t) is not empty before 5."""
    case = case_named("17.4")
    stream = reference.evaluate(case.build(), inputs_of(case))
    assert stream.at(4) == Counter()
    assert stream.at(5) == letters("a")


def test_table_20_1_as_printed_holds_at_granules() -> None:
    """Between the granules the table prints nothing, Algorithm 24 (and Table 20.2) hold the value."""
    case = case_named("20.1")
    s1 = reference.evaluate(case_named("8.1(a)").build(), inputs_of(case))
    stream = reference.evaluate(case.build(), inputs_of(case))
    for t in range(-2, 10):
        assert stream.at(t) == s1.at(t - t % 2)


def test_chapter_8_inputs_are_the_sets_of_example_8_1() -> None:
    """Example 8.1 gives S1 and S2 a second time, as sets of (tuple, instant, multiplicity)."""
    s1 = "c11 a23 a33 b31 a43 b41 c41 b52 b62"
    s2 = "b22 b32 a41 b41 c41 a52 b51 a61 c62"
    for name, expected in (("S1", s1), ("S2", s2)):
        counted = Counter((row[0], vs) for vs, _, row in LOGICAL[name])
        assert {f"{letter}{t}{n}" for (letter, t), n in counted.items()} == set(expected.split())


def test_split_of_table_11_14_starts_as_printed() -> None:
    """The excerpt, in the order of start and end."""
    case = case_named("11.14")
    excerpt = ["c 1", "c 2", "c 3", "c 4", "c 5", "a 5", "c 6", "a 6", "d 6"]
    first = sorted(case.expected(), key=lambda event: event[:2])[:9]
    assert sorted(f"{row[0]} {vs}" for vs, _, row in first) == sorted(excerpt)
    assert case.expected()[-1] == (16, 17, ("b",))


def test_cases_build_fresh_plans() -> None:
    """Operators may annotate plans; a case must not hand the same nodes out twice."""
    for case in CHAPTER_8:
        first: Node = case.build()
        assert first is not case.build()


def test_physical_and_logical_forms_agree() -> None:
    """φ (6.5.3): a physical stream split into chronons is the same logical stream."""
    schema = ew.source("S1", COLUMNS).schema
    for events in PHYSICAL.values():
        chronons = tuple((t, t + 1, row) for vs, ve, row in events for t in range(vs, ve))
        assert_same_history(history_of(events, schema), history_of(chronons, schema))
