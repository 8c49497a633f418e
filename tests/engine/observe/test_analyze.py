"""EXPLAIN ANALYZE: what is told is what happened."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import everwhen as ew
from everwhen.core.time_axis import TimeAxis, times_shown
from everwhen.engine.local import LocalRuntime
from everwhen.engine.observe.analyze import Analysis, Observed
from everwhen.engine.observe.sample import Sample
from everwhen.engine.session.session import Session
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import batch_of
from operators.differential import SCHEMA
from plans import S, T, col

EVENTS = [Insert(t, t + 4, {"k": "a", "x": t % 3}) for t in range(9)]


def ran(query: ew.Stream, *epochs: list[ew.Insert | Adjust | Cti]) -> Analysis:
    runtime = LocalRuntime(query, emit="all")
    wanted = runtime.metadata("out").subscribe()
    said = sum(len(runtime.push({"S": batch_of(each, SCHEMA, "S")})["out"]) for each in epochs)
    return Analysis(sum(map(len, epochs)), said, 2.0, wanted.observed(2.0))


def test_rows_corrections_lifetimes_state_and_lag() -> None:
    correct = [Adjust(2, 6, 3, {"k": "a", "x": 2}), Cti(5)]
    found = ran(S.where(col("x") > 0).range(2).group_by("k").agg(n=ew.count()), list(EVENTS), list(correct))
    filtered, window, counted = found.operators
    assert (filtered.sample.rows_in, filtered.sample.rows_out, filtered.item("rate_in")) == (10, 7, 5.0)
    assert (filtered.item("corrections"), filtered.item("selectivity")) == (pytest.approx(1 / 7), 0.7)
    assert (filtered.name, filtered.reads, window.reads) == ("0 filter", ("S",), ("0 filter",))
    assert filtered.item("lifetime") == pytest.approx((5 * 4 + 1) / 6), "six events, one of which was cut to one tick"
    assert (filtered.sample.state_rows, counted.item("lag"), counted.sample.keys) == (0, 3, 1)
    assert (counted.sample.state_rows or 0) > 0
    (source,) = found.inputs
    assert (source.sample.rows_in, source.item("corrections"), source.item("distance")) == (10, 0.1, 1.0)


def test_the_lines_name_what_is_costly_and_large() -> None:
    lines = ran(S.range(2).group_by("k").agg(n=ew.count()), list(EVENTS)).lines()
    assert lines[0].startswith("9 elements read,") and "(4 a second)" in lines[0]
    assert lines[2].split() == [
        "input",
        "rows",
        "rows/s",
        "corrections",
        "late",
        "distance",
        "lifetime",
        "granule",
        "lag",
    ]
    assert lines[3].split() == ["S", "9", "4", "0.0%", "0.0%", "1.00", "4.0", "1", "-"]
    assert any(line.startswith("Costliest: ") for line in lines)
    assert any(line.startswith("Largest state: 1 aggregate,") for line in lines)
    assert any(line.startswith("Corrections: 0.0% of what came, ") for line in lines)


def test_a_plan_without_operators() -> None:
    assert ran(S, list(EVENTS)).lines()[-1] == "The answer is the source itself: nothing is computed."


def test_as_plain_data() -> None:
    found = ran(S.distinct(), list(EVENTS)).to_plain()
    assert json.loads(json.dumps(found)) == found
    assert (found["costliest"], found["largest"], found["inputs"][0]["distance"]) == ("0 distinct", "0 distinct", 1.0)
    assert found["operators"][0]["share"] == 1.0 and found["operators"][0]["reads"] == ["S"]


def test_late_rows_and_uneven_partitions_are_told() -> None:
    source = Observed("S", "input", (), Sample(1.0, 10, 8, 8, 0, late=2))
    join = Observed("1 join", "operator", ("S",), Sample(1.0, 8, 4, 4, 1, tau=9, promise=2), skew=1.5)
    lines = Analysis(10, 4, 1.0, (source, join)).lines()
    assert "Late: 20.0% of what came." in lines and "Corrections: 0.0% of what came, 25.0% of what was said." in lines
    assert "Furthest behind: 1 join, 7 ticks after the largest start." in lines
    with times_shown(TimeAxis(60 * 10**9, dated=True)):
        told = Analysis(10, 4, 1.0, (source, join)).lines()
    assert "Furthest behind: 1 join, 7m after the largest start." in told
    assert lines[-1] == "Most uneven: 1 join, its largest partition has 1.50 times the mean."


def test_in_a_session_a_query_has_its_own_operators() -> None:
    session = Session()
    session.register("mine", S.distinct())
    session.register("other", T.range(3).distinct())
    session.push({"S": batch_of(EVENTS, SCHEMA)})
    found = session.analyze("mine")
    assert [each.name for each in found.operators] == ["0 distinct"] and found.elements == 9
    assert found.operators[0].sample.rows_in == 9 and "from now on" in found.lines()[-1]
    session.push({"S": batch_of(EVENTS, SCHEMA)})
    found = session.analyze("mine")
    assert found.operators[0].sample.rows_in == 18 and found.inputs[0].sample.rows_in == 9 and not found.remark
    session.stop("mine")
    with pytest.raises(ew.QueryError, match="the query 'mine' is stopped, so there is nothing to look at; start it"):
        session.analyze("mine")


def test_the_last_filters_of_a_query_are_told_and_counted() -> None:
    session = Session()
    session.register("none", S.where(ew.col("x") > 1_000))
    session.push({"S": batch_of(EVENTS, SCHEMA)})
    found = session.analyze("none")
    assert (found.elements, found.said, found.last) == (9, 0, (9, 0))
    assert "The last filters of the query got 9 rows and let 0 through." in found.lines()
    assert not any("the source itself" in line for line in found.lines())
    session.register("all", S)
    session.push({"S": batch_of(EVENTS, SCHEMA)})
    assert "The answer is the source itself: nothing is computed." in session.analyze("all").lines()


@pytest.mark.parametrize(
    "plan,fed",
    [
        (lambda s, t: s.join(t.where(ew.col("x") > 1), on="k"), 5),
        (lambda s, t: s.union(t.where(ew.col("x") > 1)), 5),
        (lambda s, t: s.join(s, on="k"), 3),
        (lambda s, t: s.where(ew.col("x") > 1).union(s.where(ew.col("x") < 2)), 3),
    ],
)
def test_of_a_session_each_element_is_read_once(plan: Callable[[ew.Stream, ew.Stream], ew.Stream], fed: int) -> None:
    s, t = (ew.source(name, {"k": "string", "x": "int64"}) for name in "ST")
    session = Session()
    query = plan(s, t)
    session.register("q", query)
    rows = [ew.Insert(at, 9, {"k": "a", "x": at}) for at in range(3)]
    given = {"S": rows, "T": rows[:2]}
    session.push({name: ew.ElementBatch.of([*given[name], ew.Cti(3)], s.schema) for name in session.inputs})
    assert session.analyze("q").elements == fed
    session.change("q", emit="final")
    assert session.analyze("q").elements == fed, "it has sources of its own now, which go on"
    session.change("q", emit="current")
    again = Session()
    again.restore(session.snapshot(), {"q": query})
    assert again.analyze("q").elements == fed


def test_what_was_said_is_what_came_out() -> None:
    s = ew.source("S", {"x": "int64"})
    runtime = LocalRuntime(s.distinct(), emit="final")
    assert runtime.analyze().said == 0
    runtime.push({"S": ew.ElementBatch.of([ew.Insert(t, t + 2, {"x": t}) for t in range(3)], s.schema)})
    assert (runtime.analyze().elements, runtime.analyze().said) == (3, 0)
    said = runtime.push({"S": ew.ElementBatch.of([ew.Cti(9)], s.schema)})["out"]
    assert runtime.analyze().said == len(said) == 4
