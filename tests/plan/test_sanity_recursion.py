"""Sanity with recursion: what a loop reads of itself grows as the loop does, and no promise about columns leaves it."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.plan.sanity.advice import advise
from everwhen.plan.sanity.bounded import unbounded

START = ew.source("Start", {"n": "int64"})
LINK = ew.source("Link", {"a": "int64", "b": "int64"})
MAP = ew.source("Map", {"a": "int64", "b": "int64"}, kind="constant")
ROOT = ew.source("Root", {"n": "int64"}, kind="constant")


def reach(start: ew.Stream, link: ew.Stream, kind: str = "union") -> ew.Stream:
    return ew.fixpoint(start, lambda r: r.join(link, on={"n": "a"}).select(n=ew.col("b")), kind)  # type: ignore[arg-type]


FINE = {
    "as the data lives": lambda: reach(START, LINK),
    "windows": lambda: reach(START.range(5), LINK.range(9)),
    "over a relation": lambda: reach(START, MAP),
    "a relation alone": lambda: reach(ROOT.inserts(), MAP).distinct(),
    "beside a stream": lambda: START.join(reach(ROOT, MAP), on="n"),
}
FATAL = {
    "links for ever": (lambda: reach(START, LINK.unbounded()), {"Join on n = a"}),
    "starts for ever": (lambda: reach(START.unbounded(), LINK), {"Join on n = a", "Fixpoint r, union"}),
    "both": (lambda: reach(START.unbounded(), LINK.unbounded()), {"Join on n = a", "Fixpoint r, union"}),
    "starts for ever over a relation": (lambda: reach(START.unbounded(), MAP), {"Fixpoint r, union"}),
    "a relation with links for ever": (lambda: reach(ROOT, LINK.unbounded()), {"Join on n = a", "Fixpoint r, union"}),
}


@pytest.mark.parametrize("name", FINE)
def test_bounded_recursion(name: str) -> None:
    assert not unbounded(FINE[name]().node)


@pytest.mark.parametrize("name", FATAL)
def test_recursion_that_grows_for_ever(name: str) -> None:
    build, expected = FATAL[name]
    assert {entry.operator for entry in unbounded(build().node) if entry.fatal} == expected


def test_copies_are_not_kept_by_the_loop_itself() -> None:
    found = unbounded(reach(START.unbounded(), MAP, "union all").node)
    assert [(entry.operator, entry.fatal) for entry in found] == [("Fixpoint r, union all", False)]


def test_promises_about_columns_end_in_a_loop() -> None:
    advice = advise(reach(START, LINK), {"Start": [ew.punctuation.given("n")]})
    (loop,) = [each for each in advice.operators if each.operator.startswith("Fixpoint")]
    assert not loop.kept[0].need.ways
    (idle,) = advice.idle
    assert "a row of a recursion may follow from rows with any values" in idle.why


def test_a_loop_over_relations_needs_no_punctuation() -> None:
    advice = advise(START.join(reach(ROOT, MAP), on="n"))
    (loop,) = [each for each in advice.operators if each.operator.startswith("Fixpoint")]
    assert loop.kept[0].by_itself
