"""Several consumers of one running graph at different levels: each hears what it would hear alone."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import InputError, QueryError
from everwhen.operators.ingress.finalize import Reason
from everwhen.reference import history as oracle
from everwhen.reference.admission import finalized
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, batches, reorder
from everwhen.testing.strategies import histories
from state_files import through_file

S, T = ew.source("S", {"k": "string", "x": "int64"}), ew.source("T", {"k": "string", "x": "int64"})
SCHEMA = S.schema
A = {"k": "a", "x": 1}

LEVELS = {
    "middle": ew.MIDDLE,
    "strong": ew.STRONG,
    "weak": ew.WEAK,
    "bounded": ew.consistency(2, 4),
    "ended": ew.consistency(emit="ended"),
    "all": ew.consistency(3, 6, emit="all"),
    "repairing": ew.consistency(remember="inf"),
}
QUERIES = {
    "sums": S.range(3).group_by("k").agg(n=ew.count(), m=ew.max("x")),
    "pairs": S.join(T, on="k").group_by("k").agg(n=ew.count()),
    "all": S.where(ew.col("x") > 0),
}


def epochs_of(drawn: Mapping[str, History], rng: random.Random) -> list[dict[str, ElementBatch]]:
    """Two streams with some disorder, cut at random."""
    late, ctis = rng.choice([0, 3, None]), rng.choice([0, 0.3])
    streams = {name: reorder(history, rng, disorder=late, ctis=ctis) for name, history in drawn.items()}
    parts = {name: batches(elements, SCHEMA, rng) for name, elements in streams.items()}
    found: list[dict[str, ElementBatch]] = []
    while any(parts.values()):
        found.append({name: part.pop(0) for name, part in parts.items() if part and rng.random() < 0.8})
    return found


def heard(batch: ElementBatch) -> list[str]:
    return sorted(map(str, batch.elements()))


class Beside:
    """Queries in one session and each alone."""

    def __init__(self, rng: random.Random) -> None:
        self.session = Session()
        self.alone: dict[str, LocalRuntime] = {}
        self.said: dict[str, tuple[list[Element], list[Element]]] = {}
        for level in rng.sample(sorted(LEVELS), len(LEVELS)):
            for name, query in QUERIES.items():
                self.session.register(f"{name} {level}", query, consistency=LEVELS[level])
                self.alone[f"{name} {level}"] = LocalRuntime(query, consistency=LEVELS[level])
                self.said[f"{name} {level}"] = [], []

    def take(self, found: Mapping[str, ElementBatch], expected: Mapping[str, ElementBatch]) -> None:
        for name, batch in expected.items():
            here, there = self.said[name]
            here += found[name].elements()
            there += batch.elements()
            if "strong" not in name:  # what is final may come in other pieces where operators are shared
                assert heard(found[name]) == heard(batch), name
            assert_same_history(here, there)


@settings(max_examples=5, deadline=None)
@given(histories(SCHEMA, max_events=6), histories(SCHEMA, max_events=6), st.randoms(use_true_random=False))
def test_each_query_hears_what_it_would_hear_alone(s: History, t: History, rng: random.Random) -> None:
    epochs = epochs_of({"S": s, "T": t}, rng)
    beside = Beside(rng)
    for epoch in epochs:
        found = beside.session.push(epoch)
        parts = {n: {s: b for s, b in epoch.items() if s in r.inputs} for n, r in beside.alone.items()}
        beside.take(found, {n: r.push(parts[n])["out"] for n, r in beside.alone.items()})
    lost = {name: beside.session.dropped(name) for name in beside.alone}
    assert lost == {name: runtime.dropped for name, runtime in beside.alone.items()}
    beside.take(beside.session.close(), {name: r.close()["out"] for name, r in beside.alone.items()})
    for here, _ in beside.said.values():
        assert_valid(here)


def test_what_a_level_allows_is_shared() -> None:
    session = Session()
    sums = QUERIES["sums"]
    for name in ("one", "two"):
        session.register(name, sums)
    alone = len(session._network.flow.nodes)
    session.register("final", sums, consistency=ew.STRONG)
    assert len(session._network.flow.nodes) == alone, "a filter at the output is all that is new"
    session.register("weak", sums, consistency=ew.WEAK)
    session.register("weak, too", sums.where(ew.col("n") > 1), consistency=ew.WEAK)
    assert len(session._network.flow.nodes) == 2 * alone
    assert sorted(session._network.ingress.inputs) == ["S", "S [block 0, remember 0]"] and session.inputs == ("S",)
    users = [each.queries for name, each in session.metadata().items() if name.endswith("aggregate")]
    assert users == [("one", "two", "final"), ("weak", "weak, too")]
    session.stop("one")
    session.stop("two")
    session.stop("weak")
    session.push({"S": batch_of([Insert(1, 2, A), Cti(9)], SCHEMA)})
    session.stop("weak, too")
    assert sorted(session._network.ingress.inputs) == ["S"]


@settings(max_examples=15, deadline=None)
@given(histories(SCHEMA, max_events=8), st.randoms(use_true_random=False))
def test_a_level_joins_later(history: History, rng: random.Random) -> None:
    """From `valid_from` on the answer is that to all that was admitted before, and to what the level admits then."""
    elements = reorder(history, rng, disorder=2, ctis=0.4)
    turn = rng.randrange(len(elements) + 1)
    session = Session()
    query = S.group_by("k").agg(n=ew.count())
    first = rng.choice([ew.MIDDLE, ew.STRONG, ew.consistency(2, 9), ew.consistency(remember="inf")])
    session.register("first", query, consistency=first)
    for element in elements[:turn]:
        session.push({"S": batch_of([element], SCHEMA)})
    try:
        late = session.register("late", query, consistency=rng.choice([ew.MIDDLE, ew.STRONG, ew.consistency(2, 20)]))
    except QueryError as refused:
        assert "has no end" in str(refused)
        return
    out = [e for x in elements[turn:] for e in session.push({"S": batch_of([x], SCHEMA)})["late"].elements()]
    out += session.close()["late"].elements()
    assert_valid(out)
    since = late.valid_from
    answer = oracle(query.node, {"S": History.of([e for e in elements if not isinstance(e, Cti)], SCHEMA)})
    said = History.of([e for e in out if not isinstance(e, Cti)], query.schema)
    for t in range(max(since, -5), 30):
        assert said.at(t) == answer.at(t), f"at {t}, valid from {since}"


@settings(max_examples=15, deadline=None)
@given(histories(SCHEMA, max_events=10), st.randoms(use_true_random=False))
def test_moved_beside_others(history: History, rng: random.Random) -> None:
    """A query that shares its operators is moved ten times: it ends right, and the others hear nothing of it."""
    query = QUERIES["sums"]
    elements = reorder(history, rng, disorder=rng.choice([2, 6]), ctis=rng.choice([0, 0.3]))
    turns = rng.sample(range(len(elements)), min(10, len(elements)))
    level = rng.choice([ew.MIDDLE, ew.WEAK, ew.STRONG, ew.consistency(3, 5)])
    session, still = Session(consistency=level), LocalRuntime(query, consistency=level)
    session.register("still", query)
    handle = session.register("moved", query)
    out: list[Element] = []
    changes: dict[int, int] = {}
    for at, element in enumerate(elements):
        if at in turns:
            block, changes[at] = rng.choice([(0, 0), (0, 2), (2, 2), (3, 6), (0, INF), (2, INF), (INF, INF)])
            handle.change(block, changes[at], emit=rng.choice([None, "final", "ended", "current", "all"]))
            if rng.random() < 0.3:
                fresh = Session(consistency=level)
                fresh.restore(through_file(session.snapshot()), {"still": query, "moved": query})
                session, handle = fresh, type(handle)("moved", fresh)
        batch = {"S": batch_of([element], SCHEMA)}
        found = session.push(batch)
        assert heard(found["still"]) == heard(still.push(batch)["out"])
        out += found["moved"].elements()
    out += session.close()["moved"].elements()
    assert_valid(out)
    kept = [e for e in finalized(elements, level.remember, changes).elements if not isinstance(e, Cti)]
    assert_same_history(out, oracle(query.node, {"S": History.of(kept, SCHEMA)}))


def test_a_source_is_as_strict_as_its_strictest_reader() -> None:
    adjust = batch_of([Adjust(3, 9, 5, A)], SCHEMA)
    other = Session()
    other.register("plain", QUERIES["sums"])
    other.register("repairs", QUERIES["sums"], consistency=ew.consistency(remember=9))
    with pytest.raises(InputError, match="not there"):
        other.push({"S": adjust})
    other.stop("plain")
    other.push({"S": adjust})


def test_only_what_runs_is_moved() -> None:
    session = Session()
    handle = session.register("q", QUERIES["sums"])
    with pytest.raises(QueryError, match="to block for 5 ticks and remember 2"):
        handle.change(5, 2)
    handle.change(remember=4)
    session.push({"S": batch_of([Insert(9, 12, A), Insert(1, 3, A)], SCHEMA)})
    assert handle.dropped == {"S": {Reason.LATE: 1}} and handle.info.consistency.remember == 4
    session.stop("q")
    with pytest.raises(QueryError, match="only one that runs can be moved"):
        handle.change(remember=5)
    assert session.start("q").info.consistency.remember == 4


def test_levels_in_sql() -> None:
    session = SqlSession()
    session.execute(
        """CREATE STREAM S (k STRING, x INT);
        SELECT k, COUNT(*) AS n FROM S GROUP BY k;
        SELECT k, COUNT(*) AS n FROM S GROUP BY k CONSISTENCY STRONG;
        SELECT k, COUNT(*) AS n FROM S GROUP BY k CONSISTENCY (REMEMBER 3)"""
    )
    schema = session.schema_of("S")
    rows = [Insert(8, 9, {"k": "a", "x": 1}), Insert(2, 4, {"k": "a", "x": 1}), Cti(2)]
    found = session.push({"S": batch_of(rows, schema)})
    assert [str(e) for e in found["q2"].elements()] == ["cti 2"]
    assert len(heard(found["q1"])) > len(heard(found["q3"]))
    assert session.dropped("q3") == {"S": {Reason.LATE: 1}} and session.dropped("q1") == {}
    session.change("q2", emit="current")
    found = session.push({"S": batch_of([Insert(9, 10, {"k": "b", "x": 1})], schema)})
    assert any("k='a'" in line for line in heard(found["q2"]))
    assert [query.consistency.emit.value for query in session.queries()] == ["current"] * 3


def test_what_is_no_query_and_no_level_is_refused_with_what_to_write() -> None:
    query = ew.source("S", {"x": "int64"})
    with pytest.raises(QueryError, match=r"'strong' is no level: give ew\.STRONG"):
        ew.run(query, {"S": []}, "strong")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"'SELECT x FROM S' is no query: a text becomes one by ew\.sql"):
        ew.run("SELECT x FROM S", {"S": []})  # type: ignore[arg-type]
