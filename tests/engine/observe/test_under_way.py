"""WAITING of queries that say something by themselves, that know rows before any source brings one, and that can not
say what they would if everything was promised."""

from __future__ import annotations

import random

import pytest

import everwhen as ew
from engine.observe.test_find_waiting import LEVELS, SCHEMA, Silence, assert_law, insert, rows_of, started
from everwhen.core.time import INF
from everwhen.stream.element import Cti
from everwhen.stream.element_batch import batch_of
from operators.differential import EMITS
from plans import SPREAD_LOOPS, Plan, S, T, col

FLYING = [each for each in SPREAD_LOOPS if each.name.startswith("flying")]


def chain(r: ew.Stream) -> ew.Stream:
    return r.where(col("x") < 5).select("k", x=col("x") + 1)


def test_rows_that_go_round_need_no_promise() -> None:
    runtime = started(ew.fixpoint(S, chain, rounds=1), "all", S=[insert(1, 9), Cti(0)])
    found = runtime.waiting()
    assert (found.reason, found.needs, found.rows, found.first) == ("under way", (), 4, 1)
    assert str(found).startswith("out: 4 rows from 1 on come with the next epochs, whatever else comes\n")
    assert sum(rows_of(runtime.push({})["out"]) for _ in range(5)) == 4
    assert runtime.waiting().reason == "all is said"


def test_what_a_promise_brings_after_some_rounds() -> None:
    """The first row of the answer comes in the third round."""
    runtime = started(ew.fixpoint(S, chain, rounds=1).where(col("x") > 3), "final", S=[insert(1, 9), Cti(1)])
    for _ in range(9):
        runtime.push({})
    (need,) = runtime.waiting().needs
    assert need.t == 2 and runtime.waiting().rows == 2


@pytest.mark.parametrize("plan", FLYING, ids=str)
def test_recursion_of_some_rounds_an_epoch(plan: Plan) -> None:
    rng = random.Random(plan.name)
    for _ in range(6):
        silence = Silence(plan.build(), rng.choice(LEVELS), rng.choice(EMITS))
        for _ in range(rng.randrange(1, 4)):
            silence.push(rng, plan.infinite)
        found = silence.runtime.waiting()
        if found.reason == "under way":
            assert found.rows + found.corrections
            while silence.runtime.goes_on():
                silence.runtime.push({})
        assert_law(silence)


def test_constant_rows_wait_before_any_row_came() -> None:
    runtime = started(ew.sql("SELECT k, x FROM S UNION VALUES ('a', 1)", S))
    runtime.push({"S": batch_of([Cti(5)], SCHEMA, "S")})
    found = runtime.waiting()
    assert (found.reason, found.rows, [each.t for each in found.needs]) == ("promise", 1, [6])
    assert rows_of(runtime.push({"S": batch_of([Cti(6)], SCHEMA, "S")})["out"]) == 1


def test_what_a_change_of_the_query_lets_say() -> None:
    session = ew.Session(emit="all")
    handle = session.register("q", S.where(col("x") > 1))
    session.push({"S": batch_of([insert(0, 9, x=1), insert(0, 9, x=2), Cti(5)], SCHEMA)})
    handle.replace(S.where(col("x") < 2))
    found = session.waiting("q")
    assert str(found).startswith("q: 1 row and 1 correction from 5 on come with the next epochs")
    assert rows_of(session.push({})["q"]) == 2


@pytest.mark.parametrize("emit", EMITS)
def test_rows_that_never_end_said_tick_by_tick(emit: str) -> None:
    """The end of everything can not be tried."""
    runtime = started(S.rstream(), emit, S=[insert(1, INF), Cti(3)])
    found = runtime.waiting()
    assert (found.reason, found.rows, [each.t for each in found.needs]) == ("promise", 1, [4])
    assert found.needs[0].pattern is None
    assert rows_of(runtime.push({"S": batch_of([Cti(4)], SCHEMA, "S")})["out"]) == 1


def fails_at(runtime: ew.LocalRuntime, t: int) -> bool:
    """Whether a query fails as soon as S promises so much."""
    assert not rows_of(runtime.push({"S": batch_of([Cti(t - 1)], SCHEMA, "S")})["out"])
    with pytest.raises(ew.QueryError):
        runtime.push({"S": batch_of([Cti(t)], SCHEMA, "S")})
    return True


LEVEL = ew.consistency(9, INF)


def test_a_query_that_fails_on_what_waits_first() -> None:
    """Where rows wait in front of a function that fails on the first of them, no promise brings anything."""
    runtime = ew.LocalRuntime(S.coalesce(4), consistency=LEVEL)
    runtime.push({"S": batch_of([insert(1, INF), Cti(0)], SCHEMA, "S")})
    found = runtime.waiting()
    assert (found.reason, found.first, found.needs) == ("fails", 2, ())
    assert str(found).startswith(
        "out: it fails if its sources promise 2 at once: an infinite lifetime cannot be cut to a longest length"
    )
    assert fails_at(runtime, 2)


def test_what_waits_before_the_row_on_which_a_query_fails() -> None:
    runtime = ew.LocalRuntime(S.coalesce(4), consistency=LEVEL)
    runtime.push({"S": batch_of([insert(1, 3), insert(5, INF)], SCHEMA, "S")})
    found = runtime.waiting()
    assert (found.reason, found.rows, [each.t for each in found.needs]) == ("promise", 1, [2])


def test_a_query_of_a_session_that_fails_if_more_is_promised() -> None:
    """In a session it fails alone, and to ask changes nothing."""
    session = ew.Session(emit="final")
    session.register("q", S.rstream())
    session.register("cut", S.coalesce(4), consistency=LEVEL)
    session.push({"S": batch_of([insert(1, INF), Cti(1)], SCHEMA)})
    assert [each.t for each in session.waiting("q").needs] == [2]
    found = session.waiting("cut")
    assert (found.reason, found.first) == ("fails", 2)
    assert found.detail.startswith("an infinite lifetime cannot be cut")
    assert session.query("cut").state == "running"
    session.push({"S": batch_of([Cti(2)], SCHEMA)})
    assert session.query("cut").state == "failed"


def test_rows_that_never_end_beside_others() -> None:
    runtime = started(S.rstream().join(T, on="k"), S=[insert(1, INF)], T=[insert(5, 9), Cti(7)])
    found = runtime.waiting()
    assert [(each.source.name, each.t) for each in found.needs] == [("S", 6)], found
    assert rows_of(runtime.push({"S": batch_of([Cti(6)], SCHEMA, "S")})["out"]) == 1


def test_of_a_query_that_has_failed() -> None:
    """Why it failed is told."""
    session, sql = ew.Session(), ew.SqlSession()
    session.register("q", S.coalesce(4))
    session.push({"S": batch_of([insert(1, INF)], SCHEMA)})
    with pytest.raises(ew.QueryError, match=r"'q' has failed \(an infinite lifetime .*\), so it waits for nothing"):
        session.waiting("q")
    sql.execute("CREATE STREAM S (k TEXT, x INT)")
    sql.start("r", "SELECT CAST(k AS INT) AS n FROM S")
    sql.push({"S": batch_of([insert(1, 2)], sql.schema_of("S"))})
    for ask in (sql.waiting, sql.analyze):
        with pytest.raises(ew.QueryError, match=r"'r' has failed \(.*\), so there is nothing to look at"):
            ask("r")


def test_other_columns_cannot_take_over() -> None:
    runtime = started(S, S=[insert(1, 5)])
    with pytest.raises(ew.QueryError, match="cannot take over: give it the same columns, or start it in a runtime of"):
        runtime.replace(S.select("k"))
