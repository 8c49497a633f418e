"""Queries of a session that share operators: a restart finds them, whichever query placed them, and all stay exact."""

from __future__ import annotations

from collections import Counter

import pytest

import everwhen as ew
from engine.shared_sessions import run_once
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from plans import S, T, col
from state_files import through_file

MAX = ew.max("x")
SESSIONS = """
    SELECT k, window_start, window_end FROM SESSION(TABLE A PARTITION BY k, 3) GROUP BY k, window_start, window_end
"""


def rows(*elements: Element, of: str = "S") -> dict[str, ElementBatch]:
    """The same elements of some sources."""
    return {name: batch_of(list(elements), S.schema, name) for name in of}


def restored(session: Session, queries: dict[str, ew.Stream | tuple[ew.Stream, ew.Stream]]) -> Session:
    found = Session(emit=session.consistency.emit)
    found.restore(through_file(session.snapshot()), queries)
    return found


def said(batches: dict[str, ElementBatch]) -> dict[str, list[str]]:
    return {name: sorted(map(str, batch.elements())) for name, batch in batches.items()}


def level(emit: str) -> ew.Consistency:
    return ew.MIDDLE.changed(emit=emit)


@pytest.mark.parametrize("part", range(4))
def test_random_sessions_are_exact_and_restarts_invisible(part: int) -> None:
    counts = Counter[str]()
    for seed in range(part * 8, part * 8 + 8):
        counts += run_once(seed)
    assert min(counts[each] for each in ("register", "stop", "remove", "replace", "change")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(100))
def test_many_random_sessions_are_exact_and_restarts_invisible(part: int) -> None:
    for seed in range(1000 + part * 40, 1000 + part * 40 + 40):
        run_once(seed)


def test_ends_that_are_told_are_those_of_rows_that_others_hear_clipped() -> None:
    """In `current` a row is said up to its present end, and a column that tells ends needs to know what has come."""
    sessions = ew.sql(SESSIONS, {"A": S})
    alone, beside = Session(emit="current"), Session(emit="current")
    beside.register("rows", S.lifetime(length=3).select("k").distinct().coalesce())
    for session in (alone, beside):
        session.register("sessions", sessions)
    for t in range(0, 12, 2):
        epoch = rows(*(Insert(t, t + 1, {"k": "a", "x": t}) for _ in range(t < 8)), Cti(t))
        assert said(alone.push(epoch))["sessions"] == said(beside.push(epoch))["sessions"]


@pytest.mark.parametrize("emit", ["current", "final", "ended", "all"])
def test_what_is_told_below_is_of_no_concern_to_who_reads_what_is_above(emit: str) -> None:
    """Two queries read the same join; in one of them sessions tell the ends of what it joins."""
    rest = S.except_(T)
    pairs = rest.join(S.lifetime(length=20).select("k"), on="k").select("k", "x")
    first = pairs.join(ew.sql(SESSIONS, {"A": rest}).select("k", w=col("window_end")), on="k")
    alone, beside = Session(emit=emit), Session(emit=emit)
    beside.register("first", first)
    for session in (alone, beside):
        session.register("q", pairs)
    given = {("S", 0): Insert(0, 8, {"k": "a", "x": 1}), ("T", 1): Insert(1, 4, {"k": "a", "x": 1})}
    for t in range(10):
        new = {name: [each] if (each := given.get((name, t))) else [] for name in "ST"}
        epoch = {name: batch_of([*found, Cti(t)], S.schema, name) for name, found in new.items()}
        assert said(alone.push(epoch))["q"] == said(beside.push(epoch))["q"]
        if t == 5:
            beside.remove("first")
            beside = restored(beside, {"q": pairs})


def test_a_query_that_has_gone_leaves_no_name_behind() -> None:
    groups = S.lifetime(length=4).group_by("k").agg(x=MAX)
    instants = T.group_by("k").agg(x=MAX).istream()
    for first in (groups, ew.sql(SESSIONS, {"A": S.distinct()}), S.distinct().coalesce()):
        session = Session()
        session.register("first", first)
        queries = {"read": groups.join(instants, on="k"), "rows": S.distinct().coalesce()}
        for name, query in queries.items():
            session.register(name, query)
        epochs = [
            rows(*(Insert(t, t + 5, {"k": "a", "x": t}) for t in range(5 * n, 5 * n + 5)), Cti(5 * n), of="ST")
            for n in (0, 1)
        ]
        session.push(epochs[0])
        session.remove("first")
        again = restored(session, queries)
        assert said(again.push(epochs[1])) == said(session.push(epochs[1]))


def test_what_is_stopped_is_not_being_replaced() -> None:
    session = Session()
    session.register("q", S.range(4))
    session.push(rows(Insert(0, 9, {"k": "a", "x": 1}), Cti(3)))
    session.replace("q", S.range(6))
    assert session.is_replaced("q")
    session.stop("q")
    assert not session.is_replaced("q")
    with pytest.raises(QueryError, match="was not being replaced: give one query, not a pair"):
        restored(session, {"q": (S.range(4), S.range(6))})
    again = restored(session, {"q": S.range(6)})
    again.start("q")
    assert not again.is_replaced("q") and again.query("q").state == "running"


def test_two_restarts_while_a_query_is_replaced_that_ran_on_operators_of_another() -> None:
    old, new = S.group_by("k").agg(x=ew.sum("x")), S.group_by("k").agg(x=MAX)
    session = Session(emit="ended")
    session.register("more", old)
    session.register("q", old, consistency=level("final"))
    session.push(rows(Insert(0, 9, {"k": "a", "x": 1}), Cti(3)))
    session.replace("q", new, 6)
    session.remove("more")
    again = session
    for _ in range(3):
        again = restored(again, {"q": (old, new)})
        assert again.is_replaced("q")
    assert said(again.push(rows(Cti(20)))) == said(session.push(rows(Cti(20))))


def test_a_query_that_runs_for_itself_does_so_after_a_restart() -> None:
    """It was there first; then one began that says more, with the same operators, and stands before it in the list."""
    query = S.group_by("k").agg(x=MAX)
    session = Session()
    session.register("lax", query)
    session.stop("lax")
    session.register("strict", query, consistency=level("final"))
    session.start("lax")
    session.push(rows(Insert(0, 9, {"k": "a", "x": 1}), Cti(3)))
    again = restored(session, {"lax": query, "strict": query})
    epoch = rows(Insert(4, 9, {"k": "a", "x": 2}), Cti(7))
    assert said(again.push(epoch)) == said(session.push(epoch))


def test_a_query_that_was_replaced_and_moved_keeps_to_its_policy() -> None:
    """What it says in `final` is final, although a new query of its plan would say all as it comes."""
    session = Session()
    session.register("q", S.coalesce())
    session.push(rows(Insert(0, 5, {"k": "a", "x": 1}), Cti(1)))
    session.replace("q", S.where(col("x") > 0).coalesce())
    session.push(rows(Cti(3)))
    session.change("q", emit="final")
    heard: list[Element] = []
    for t in range(6, 16):
        session.push(rows(Cti(t)))
    for t in range(16, 24):
        session = restored(session, {"q": S.where(col("x") > 0).coalesce()})
        heard += session.push(
            rows(Insert(t, t + 9, {"k": "a", "x": t}), Adjust(t, t + 9, t + 1, {"k": "a", "x": t}), Cti(t))
        )["q"].elements()
    heard += session.close()["q"].elements()
    assert sum(isinstance(each, Insert) for each in heard) == 8 and not any(isinstance(each, Adjust) for each in heard)


def test_who_joined_late_is_moved_to_a_policy_that_says_more() -> None:
    """What operators bring out reaches back before the instant from which on it knows its inputs."""
    anti = S.rows(2).join(S.range(3).group_by("k").agg(x=ew.sum("x")), where=col("x") < col("x_right"), how="anti")
    session = Session(emit="final")
    session.register("first", S.rows(2))
    session.push(rows(*(Insert(t, t + 4, {"k": "c", "x": t}) for t in range(4)), Cti(2)))
    session.push(rows(Insert(3, 12, {"k": "b", "x": 1}), Cti(3)))
    session.register("late", anti)
    session.change("late", emit="ended")
    assert session.push(rows(Cti(40)))["late"].elements()
    assert session.query("late").state == "running"
