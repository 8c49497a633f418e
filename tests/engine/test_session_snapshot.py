"""Snapshots of a session: a restart is invisible, also to queries that joined late, and to names."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.sinks.memory import MemorySink
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing.strategies import histories
from operators.differential import EMITS, SCHEMA, epochs, streams_of
from plans import S, T, col
from state_files import loaded, stored, through_file


def sums() -> ew.Stream:
    return S.range(4).group_by("k").agg(t=ew.sum("x"), m=ew.max("x"))


QUERIES = {
    "s": S,
    "t": T,
    "sums": sums(),
    "big": sums().where(col("t") > 1),
    "a": sums().where(col("k") == "a").select("m", "t", "k"),
    "joined": S.range(3).join(T, on="k"),
    "anti": S.join(T, on="k", how="anti"),
    "levels": S.coalesce().lifetime(length=3),
    "changes": sums().aggregate(h=ew.max("t")).istream(),
}


FINITE = histories(SCHEMA, max_events=6, allow_infinite=False)
"""A query may join such streams at any time, also when they have ended."""


def texts(found: dict[str, ElementBatch]) -> dict[str, list[str]]:
    return {name: sorted(map(str, batch.elements())) for name, batch in found.items()}


@pytest.mark.parametrize("emit", EMITS)
@settings(max_examples=8)
@given(s=FINITE, t=FINITE, seed=st.integers(0, 2**32))
def test_a_restart_is_invisible(emit: str, s: History, t: History, seed: int) -> None:
    rng = random.Random(seed)
    plain, session = Session(emit=emit), Session(emit=emit)
    waiting = list(QUERIES)[2:]
    rng.shuffle(waiting)
    waiting = ["s", "t", *waiting]
    joined: list[str] = []
    for at, epoch in enumerate(epochs(streams_of({"S": s, "T": t}, rng, infinite=False), rng)):
        while waiting and ((at == 0 and len(joined) < 4) or rng.random() < 0.3):
            name = waiting.pop(0)
            joined.append(name)
            assert session.register(name, QUERIES[name]).valid_from == plain.register(name, QUERIES[name]).valid_from
        going = [name for name in joined if name not in "st"]
        if going and rng.random() < 0.2:
            name = rng.choice(going)
            for each in (plain, session):
                each.stop(name) if each.query(name).state == "running" else each.start(name)
        state = stored(session.snapshot())
        session = Session(emit=emit)
        session.restore(loaded(state), {name: QUERIES[name] for name in joined})
        assert session.queries() == plain.queries()
        assert texts(session.push(epoch)) == texts(plain.push(epoch))
    assert texts(session.close()) == texts(plain.close())


def test_a_sink_goes_on() -> None:
    session, sink = Session(), MemorySink()
    session.register("s", S, sink=sink)
    session.push({"S": batch_of([Insert(0, 1, {"k": "a", "x": 1})], SCHEMA)})
    state = through_file(session.snapshot())
    batch = {"S": batch_of([Insert(2, 3, {"k": "a", "x": 1}), Cti(3)], SCHEMA)}
    session.push(batch)
    again = Session()
    again.restore(state, {"s": S}, {"s": sink})
    again.push(batch)  # the same epoch again: the sink has it
    assert sink.committed() == 1 and len(list(sink.history().events())) == 2


def test_a_failed_query_keeps_its_error() -> None:
    session = Session()
    queries = {"s": S, "bad": S.where(col("k").cast("int64") > 1)}
    for name, query in queries.items():
        session.register(name, query)
    session.push({"S": batch_of([Insert(0, 1, {"k": "a", "x": 1})], SCHEMA)})
    again = Session()
    again.restore(through_file(session.snapshot()), queries)
    assert again.queries() == session.queries() and again.query("bad").state == "failed"


def test_other_queries_are_refused() -> None:
    session = Session()
    session.register("s", S.distinct())
    state = through_file(session.snapshot())
    with pytest.raises(QueryError, match="other queries: s, t is here or there only"):
        Session().restore(state, {"t": S})
    with pytest.raises(QueryError, match="other operators"):
        Session().restore(state, {"s": S.range(3).distinct()})
    with pytest.raises(QueryError, match="has a source 'S'"):
        Session().restore(state, {"s": T.distinct()})
    with pytest.raises(QueryError, match="only a new session"):
        session.restore(state, {"s": S.distinct()})
