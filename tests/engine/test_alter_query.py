"""ALTER QUERY q AS SELECT …: a running query becomes another one from an instant on, or nothing has changed."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import SqlError
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.history import History

DECLARED = "CREATE STREAM Bid (item INT, price INT);"


@pytest.fixture
def session() -> SqlSession:
    """A query that has said something, up to 5."""
    session = SqlSession()
    session.execute(f"{DECLARED} SELECT item FROM Bid WHERE price > 5")
    push(session, bid(0, 9, 1, 3), bid(0, 9, 2, 8), Cti(5))
    return session


def bid(vs: int, ve: int, item: int, price: int) -> Insert:
    return Insert(vs, ve, {"item": item, "price": price})


def push(session: SqlSession, *elements: Element) -> list[str]:
    batch = ew.ElementBatch.of(list(elements), session.schema_of("Bid"))
    return [str(each) for each in session.push({"Bid": batch})["q1"].elements()]


def test_the_answer_is_the_new_ones_from_what_was_promised_on(session: SqlSession) -> None:
    (outcome,) = session.execute("ALTER QUERY q1 AS SELECT item FROM Bid WHERE price < 5")
    assert str(outcome) == "altered query q1: its answer is the new one's from 5 on"
    assert push(session) == ["adjust [0, 9 -> 5) item=2", "insert [5, 9) item=1"]
    assert push(session, bid(6, 7, 3, 1)) == ["insert [6, 7) item=3"]
    assert session.query("q1").text == "SELECT item FROM Bid WHERE price < 5"


def test_before_the_first_promise_it_is_the_new_one_throughout() -> None:
    session = SqlSession()
    session.execute(f"{DECLARED} SELECT item FROM Bid WHERE price > 5")
    said = [*push(session, bid(0, 9, 2, 8))]
    (outcome,) = session.execute("ALTER QUERY q1 AS SELECT item FROM Bid")
    assert str(outcome) == "altered query q1: its answer is the new one's from the beginning"
    said += push(session, bid(1, 4, 1, 3), Cti(9))
    assert "insert [1, 4) item=1" in said


def test_it_can_be_altered_again_and_stopped(session: SqlSession) -> None:
    session.execute("ALTER QUERY q1 AS SELECT item FROM Bid")
    push(session, Cti(6))
    session.execute("ALTER QUERY q1 AS SELECT price AS item FROM Bid")
    said = push(session, bid(7, 8, 1, 2))
    assert sorted(said) == [
        "adjust [0, 9 -> 6) item=2", "adjust [5, 9 -> 6) item=1", "insert [6, 9) item=3", "insert [6, 9) item=8",
        "insert [7, 8) item=2",
    ]  # fmt: skip
    session.stop("q1")
    assert session.query("q1").state == "stopped"


def test_a_grouped_query_takes_over_with_a_history_that_is_exact(session: SqlSession) -> None:
    session.execute("ALTER QUERY q1 AS SELECT COUNT(*) AS item FROM Bid")
    elements = push(session, bid(6, 8, 3, 1), Cti(20))
    assert elements[-1] == "cti 20"
    assert "insert [6, 8) item=3" in elements


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ALTER QUERY q1 AS SELECT item, price FROM Bid", "has the columns"),
        ("ALTER QUERY q7 AS SELECT item FROM Bid", "the query 'q7' is not there; there is q1"),
        ("ALTER QUERY q1 AS SELECT itm FROM Bid", "itm"),
        ("ALTER QUERY q1 AS SELECT item FROM Bid CONSISTENCY WEAK", "leaves the level as it is"),
        ("ALTER QUERY q1 SELECT item FROM Bid", "expected AS"),
        ("ALTER STREAM Bid", "there is ALTER QUERY name AS SELECT"),
        (
            "ALTER QUERY q1 AS SELECT item FROM Bid; ALTER QUERY q1 AS SELECT price AS item FROM Bid",
            "a text has one ALTER QUERY",
        ),
    ],
)
def test_what_is_refused_changes_nothing(session: SqlSession, text: str, problem: str) -> None:
    with pytest.raises(SqlError, match=problem) as refused:
        session.execute(text)
    assert str(refused.value).startswith("line 1, column ")
    assert push(session, bid(6, 7, 3, 9)) == ["insert [6, 7) item=3"]
    assert session.query("q1").text == "SELECT item FROM Bid WHERE price > 5"


def test_a_query_that_has_stopped(session: SqlSession) -> None:
    session.stop("q1")
    with pytest.raises(SqlError, match="the query 'q1' does not run; none is running"):
        session.execute("ALTER QUERY q1 AS SELECT item FROM Bid")


def test_a_text_that_is_run_over_files_has_no_running_query() -> None:
    with pytest.raises(SqlError, match="ALTER QUERY changes a query that runs"):
        ew.sql(f"{DECLARED} ALTER QUERY q1 AS SELECT item FROM Bid; SELECT item FROM Bid")


def test_a_history_without_gap_or_double() -> None:
    """Old before the instant, new from there on, at every instant."""
    session = SqlSession()
    session.execute(f"{DECLARED} SELECT item, COUNT(*) AS n FROM Bid WINDOW(RANGE 4) GROUP BY item")
    said: list[Element] = []
    for t in range(12):
        if t == 6:
            (outcome,) = session.execute(
                "ALTER QUERY q1 AS SELECT item, COUNT(*) AS n FROM Bid WINDOW(RANGE 4) WHERE price > 1 GROUP BY item"
            )
        batch = ew.ElementBatch.of([bid(t, t + 1, t % 2, t % 3), Cti(t)], session.schema_of("Bid"))
        said += session.push({"Bid": batch})["q1"].elements()
    said += session.close()["q1"].elements()
    at = outcome.at
    assert at is not None and 5 <= at <= 9
    history = History.of(said, session.query("q1").schema)
    for x in range(16):
        live = [(t % 2) for t in range(12) if t <= x < t + 4 and (x < at or t % 3 > 1)]
        assert history.snapshot(x) == {(item, live.count(item)): 1 for item in set(live)}


def test_drop_query_names_what_removes_one() -> None:
    session = ew.SqlSession()
    session.execute("CREATE STREAM S (x INT); SELECT x FROM S")
    with pytest.raises(ew.SqlError, match=r"line 1, column 6: a query is removed by its name: \\remove in the shell"):
        session.execute("DROP QUERY q1")


def test_a_query_that_becomes_the_stream_itself() -> None:
    """Its plan has nothing but the source; the session goes on, also from a snapshot, and others may join."""
    session = SqlSession()
    session.execute(f"{DECLARED} SELECT item, price FROM Bid WHERE price > 5; SELECT item FROM Bid WHERE price > 7")
    push(session, bid(0, 9, 1, 3), bid(0, 9, 2, 8), Cti(5))
    session.execute("ALTER QUERY q1 AS SELECT item, price FROM Bid")
    assert push(session, bid(6, 7, 3, 1)) == ["insert [5, 9) item=1 price=3", "insert [6, 7) item=3 price=1"]
    for t in (8, 12, 20):
        assert push(session, bid(t, t + 1, 4, 1), Cti(t)) == [f"insert [{t}, {t + 1}) item=4 price=1", f"cti {t}"]
    session.execute("SELECT price FROM Bid WHERE price > 9")
    push(session, Cti(30))
    assert session.waiting("q1").reason == "all is said"


@pytest.mark.parametrize("level", [None, ew.consistency(4, 9)])
def test_a_snapshot_of_a_query_that_became_the_stream_itself(level: ew.Consistency | None) -> None:
    bids = ew.source("Bid", {"item": "int64", "price": "int64"})
    dear, more = bids.where(ew.col("price") > 5), bids.range(3).distinct()

    def epoch(*elements: Element) -> dict[str, ew.ElementBatch]:
        return {"Bid": ew.ElementBatch.of(list(elements), bids.schema)}

    session = ew.Session()
    session.register("q", dear, consistency=level)
    session.push(epoch(bid(0, 9, 1, 3), Cti(2)))
    session.replace("q", bids)
    session.push(epoch(bid(3, 4, 1, 3), Cti(5)))
    session.register("other", more, consistency=level)
    state = session.snapshot()
    queries = {"q": bids if state["queries"]["q"]["cutover"] is None else (dear, bids), "other": more}
    again = ew.Session()
    again.restore(state, queries)
    for t in (7, 30, 60, 90):
        told = [each.push(epoch(bid(t, t + 2, 2, 4), Cti(t))) for each in (session, again)]
        assert all(list(told[0][name].elements()) == list(told[1][name].elements()) for name in queries)
