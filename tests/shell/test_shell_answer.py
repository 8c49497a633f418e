"""The answer that the shell keeps is the snapshot of what was said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.shell.result import REMEMBERED, Answer
from everwhen.stream.element import Element
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History

SOURCE = ew.source("S", {"k": "string", "x": "int64"})
QUERY = SOURCE.range(7).group_by("k").agg(total=ew.sum("x"))


@pytest.mark.parametrize("emit", [Emit.CURRENT, Emit.FINAL, Emit.ENDED])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_answer_is_the_snapshot_of_the_history(emit: Emit, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", None]), st.integers(-2, 5))))
    runtime = LocalRuntime(QUERY, emit)
    answer, said, tau, now = Answer(QUERY.schema, emit), [], -1, 0
    for step, key, x in rows:
        now += step
        elements: list[Element] = [ew.Insert(now, now + 1, {"k": key, "x": x})]
        if x == 0:
            elements.append(ew.Cti(now))
        tau = max(tau, now)
        batch = runtime.push({"S": batch_of(elements, SOURCE.schema)})["out"]
        said += list(batch.elements())
        answer.take(batch, tau)
        history = History.of(said, QUERY.schema)
        assert answer.now <= tau
        assert sorted(answer.rows(), key=repr) == sorted(history.snapshot(answer.now).elements(), key=repr)
        if emit is Emit.CURRENT:
            assert answer.now == tau
    last = runtime.close()["out"]
    answer.take(last, tau)
    if rows:
        everything = History.of([*said, *last.elements()], QUERY.schema)
        assert (answer.now, answer.final) == (tau, INF)
        assert sorted(answer.rows(), key=repr) == sorted(everything.snapshot(tau).elements(), key=repr)


def test_only_the_last_changes_are_remembered_and_what_is_over_is_forgotten() -> None:
    schema = Schema.of([("x", SOURCE.schema.types[1])])
    answer = Answer(schema, Emit.CURRENT)
    for t in range(0, 5000, 100):
        answer.take(batch_of([ew.Insert(at, at + 1, {"x": at}) for at in range(t, t + 100)], schema), t + 99)
    assert answer.rows() == [(4999,)]
    assert answer.changes[-1] == "insert [4999, 5000) x=4999" and len(answer.changes) == REMEMBERED
    assert len(answer._events) <= 1001
    assert answer.inserts == 5000
