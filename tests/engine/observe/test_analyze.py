"""EXPLAIN ANALYZE: what is counted is what happened."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.engine.observe.analyze import Analysis, Meter, analyzed
from everwhen.engine.session.session import Session
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import batch_of
from operators.differential import SCHEMA
from plans import S, T, col

EVENTS = [Insert(t, t + 4, {"k": "a", "x": t % 3}) for t in range(9)]


def ran(query: ew.Stream, *epochs: list[ew.Insert | Adjust | Cti]) -> Analysis:
    meter = Meter()
    runtime = LocalRuntime(query, emit="all", check=meter)
    said = sum(len(runtime.push({"S": batch_of(each, SCHEMA, "S")})["out"]) for each in epochs)
    return Analysis(sum(map(len, epochs)), said, 2.0, analyzed(runtime.operators, meter.counts))


def test_rows_corrections_lifetimes_state_and_lag() -> None:
    correct = [Adjust(2, 6, 3, {"k": "a", "x": 2}), Cti(5)]
    found = ran(S.where(col("x") > 0).range(2).group_by("k").agg(n=ew.count()), list(EVENTS), list(correct))
    filtered, window, counted = found.operators
    assert (filtered.rows_in, filtered.rows_out, filtered.corrections_in, filtered.corrections_out) == (10, 7, 1, 1)
    assert (filtered.name, filtered.reads, window.reads, counted.reads) == ("filter", ("S",), ("1",), ("2",))
    assert filtered.lifetime == pytest.approx((6 * 4 + 3) / 7)
    assert (filtered.state_rows, counted.lag) == (0, 3) and counted.state_rows > 0
    assert sum(each.share for each in found.operators) == pytest.approx(1.0)


def test_the_lines_name_what_is_costly_and_large() -> None:
    lines = ran(S.range(2).group_by("k").agg(n=ew.count()), list(EVENTS)).lines()
    assert lines[0].startswith("9 elements read,") and "(4 a second)" in lines[0]
    assert any(line.startswith("Costliest: ") for line in lines)
    assert any(line.startswith("Largest state: 2 aggregate,") for line in lines)
    assert "Corrections: 0.0% of the changes that came in." in lines


def test_a_plan_without_operators() -> None:
    assert ran(S, list(EVENTS)).lines()[-1] == "The answer is the source itself: nothing is computed."


def test_in_a_session_a_query_has_its_own_operators() -> None:
    session = Session()
    session.register("mine", S.distinct())
    session.register("other", T.range(3).distinct())
    session.push({"S": batch_of(EVENTS, SCHEMA)})
    found = session.analyze("mine")
    assert [each.name for each in found.operators] == ["distinct"] and found.elements == 9
    session.stop("mine")
    with pytest.raises(ew.QueryError, match="the query 'mine' is stopped, so there is nothing to look at; start it"):
        session.analyze("mine")
