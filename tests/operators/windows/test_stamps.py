"""Stamps and spans: windows with their times in columns, against the definition, in every cutting and emission."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing.strategies import histories
from operators.differential import SCHEMA, Said, Trial, epochs, streams_of

DECLARED = "CREATE STREAM S (k TEXT, x INT);"
TEXTS = {
    "tumble": "SELECT k, x, window_start, window_end FROM TUMBLE(TABLE S, 5)",
    "hop": "SELECT window_start, window_end, COUNT(*) AS n FROM HOP(TABLE S, 2, 6) GROUP BY window_start, window_end",
    "cumulate": "SELECT window_end, SUM(x) AS n FROM CUMULATE(TABLE S, 2, 6) GROUP BY window_end",
    "session": "SELECT k, window_start, window_end, COUNT(*) AS n, MAX(x) AS m FROM SESSION(TABLE S PARTITION BY k, 3) "
    "GROUP BY k, window_start, window_end",
    "session of all": "SELECT x, window_end FROM SESSION(TABLE S, 2)",
    "session, joined": "SELECT s.k, s.window_start, t.x FROM SESSION(TABLE S PARTITION BY k, 2) s JOIN S t "
    "ON s.k = t.k",
}


def query(name: str) -> ew.Stream:
    return ew.sql(DECLARED + TEXTS[name])


@pytest.mark.parametrize("emit", ["final", "current", "all"])
@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=12)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_windows_are_the_definition_s(name: str, emit: str, data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    history = data.draw(histories(SCHEMA, allow_infinite=False))
    trial = Trial(query(name), emit, {"S": history})
    for epoch in epochs(streams_of({"S": history}, rng, infinite=False), rng):
        trial.push(epoch)
        if rng.random() < 0.2:
            trial.restart()
    trial.close()


def test_a_late_row_joins_two_sessions() -> None:
    rows = [Insert(t, t + 1, {"k": "a", "x": t}) for t in (1, 7, 4)]
    found = []
    runtime = LocalRuntime(query("session"), emit="all")
    said = Said(query("session").schema)
    for row in rows:
        said.take(runtime.push({"S": batch_of([row], SCHEMA)})["out"])
        found.append(sorted((vs, ve, row[3]) for vs, ve, row in said.history().events()))
    assert found == [[(1, 4, 1)], [(1, 4, 1), (7, 10, 1)], [(1, 10, 3)]]


def test_a_row_that_is_taken_back_parts_a_session() -> None:
    rows = [Insert(t, t + 1, {"k": "a", "x": t}) for t in (1, 4, 7)] + [Adjust(4, 5, 4, {"k": "a", "x": 4})]
    said = History.of(list(ew.run(query("session"), {"S": rows})))
    assert sorted((vs, ve, row[3]) for vs, ve, row in said.events()) == [(1, 4, 1), (7, 10, 1)]


def test_a_session_is_final_when_its_gap_is_over() -> None:
    rows = [Insert(1, 2, {"k": "a", "x": 1}), Insert(3, 4, {"k": "b", "x": 1}), Cti(5)]
    runtime = LocalRuntime(query("session"), emit="final")
    said = list(runtime.push({"S": batch_of(rows, SCHEMA)})["out"].elements())
    assert [str(each) for each in said] == [
        "insert [1, 3) k='a' window_start=1 window_end=4 n=1 m=1",
        "cti 3",
    ]
    later = list(runtime.push({"S": batch_of([Cti(INF)], SCHEMA)})["out"].elements())
    assert sum(isinstance(each, Insert) for each in later) == 2


def test_state_ends_with_the_sessions() -> None:
    runtime = LocalRuntime(query("session"))
    for t in range(0, 4000, 10):
        runtime.push({"S": batch_of([Insert(t, t + 1, {"k": "a", "x": t}), Cti(t + 1)], SCHEMA)})
    assert runtime.state_size().rows < 40
