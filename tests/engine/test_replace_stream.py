"""CREATE OR REPLACE STREAM of a derived stream that is read: all that read it become others, at one instant."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import SqlError
from everwhen.stream.element import Cti, Insert
from everwhen.testing import assert_same_history, assert_valid

TEXT = """
    CREATE STREAM Bid (item INT, price INT);
    CREATE STREAM Good AS SELECT item, price FROM Bid WHERE price > 5;
    CREATE STREAM Best AS SELECT item, MAX(price) AS top FROM Good WINDOW(RANGE 10) GROUP BY item;
"""
CHEAP = "CREATE OR REPLACE STREAM Good AS SELECT item, price FROM Bid WHERE price <= 5"


def bids(first: int, last: int, cti: int | None = None) -> list[ew.Element]:
    found: list[ew.Element] = [Insert(t, t + 1, {"item": t % 3, "price": t * 7 % 11}) for t in range(first, last)]
    return found if cti is None else [*found, Cti(cti)]


def push(session: SqlSession, elements: list[ew.Element]) -> dict[str, list[ew.Element]]:
    schema = session.schema_of("Bid")
    heard = session.push({"Bid": ew.ElementBatch.of(elements, schema)})
    return {name: list(batch.elements()) for name, batch in heard.items()}


@pytest.fixture
def session() -> SqlSession:
    session = SqlSession()
    session.execute(TEXT)
    session.start("rows", "SELECT item FROM Good")
    session.start("best", "SELECT * FROM Best")
    session.start("other", "SELECT price FROM Bid WHERE item = 1")
    return session


def answers(good: str) -> dict[str, list[ew.Element]]:
    """What queries say that have always run over such a stream."""
    session = SqlSession(emit="final")
    session.execute(TEXT.replace("price > 5", good))
    session.start("rows", "SELECT item FROM Good")
    session.start("best", "SELECT * FROM Best")
    session.start("other", "SELECT price FROM Bid WHERE item = 1")
    said = push(session, bids(0, 80))
    for name, batch in session.close().items():
        said[name] += batch.elements()
    return said


def test_all_readers_become_others_at_one_instant(session: SqlSession) -> None:
    said = push(session, bids(0, 20, 15))
    (outcome,) = session.execute(CHEAP)
    assert outcome.at is not None and outcome.at >= 15
    words = f"replaced derived stream Good: what reads it gives the new answer from {outcome.at} on"
    assert str(outcome) == words
    for part in (bids(20, 50, 45), bids(50, 80)):
        for name, elements in push(session, part).items():
            said[name] += elements
    for name, batch in session.close().items():
        said[name] += batch.elements()
    old, new = answers("price > 5"), answers("price <= 5")
    for name in ("rows", "best", "other"):
        assert_valid(said[name])
        told, before, after = (ew.History.of(each) for each in (said[name], old[name], new[name]))
        for t in range(100):
            assert told.at(t) == (before if t < outcome.at else after).at(t), (name, t)
    assert_same_history(said["other"], old["other"])


def test_what_is_started_later_reads_the_new_stream(session: SqlSession) -> None:
    said = push(session, bids(0, 20, 15))
    session.execute(CHEAP)
    session.execute("SELECT * FROM Best")
    assert [each.name for each in session.streams()] == ["Bid", "Good", "Best"]
    assert "price <= 5" in session.explain("Good") and "price <= 5" in session.explain("best")
    new = push(session, bids(20, 40, 40))
    late, best = ew.History.of(new["q1"]), ew.History.of(said["best"] + new["best"])
    assert all(late.at(t) == best.at(t) for t in range(30, 40)) and late.at(35) != late.at(-5)
    session.stop("rows")
    session.start("rows")
    assert "price <= 5" in session.explain("rows")


def test_other_columns_are_refused_and_nothing_has_changed(session: SqlSession) -> None:
    text = "CREATE OR REPLACE STREAM Good AS SELECT item FROM Bid"
    with pytest.raises(SqlError, match=r"Good has the columns .*, and rows, best read it; .* give it the same columns"):
        session.execute(text)
    assert "price > 5" in session.explain("Good")
    other = SqlSession()
    other.execute(TEXT)
    for name, query in (("rows", "SELECT item FROM Good"), ("best", "SELECT * FROM Best")):
        other.start(name, query)
    other.start("other", "SELECT price FROM Bid WHERE item = 1")
    assert push(session, bids(0, 30, 25)) == push(other, bids(0, 30, 25))


def test_a_past_that_nobody_knows_is_refused_for_all(session: SqlSession) -> None:
    push(session, bids(0, 20, 15))
    text = "CREATE OR REPLACE STREAM Good AS SELECT item, price FROM Bid WINDOW(ROWS 3)"
    with pytest.raises(SqlError, match=r"'rows window.*' needs all of the past"):
        session.execute(text)
    assert "price > 5" in session.explain("Good")
    operators = len(session.metadata())
    push(session, bids(20, 40, 40))
    assert len(session.metadata()) == operators


def test_a_second_change_meanwhile_is_refused(session: SqlSession) -> None:
    push(session, bids(0, 20, 15))
    session.execute(CHEAP)
    with pytest.raises(SqlError, match="is being replaced already, from"):
        session.execute("CREATE OR REPLACE STREAM Good AS SELECT item, price FROM Bid WHERE price = 2")
    push(session, bids(40, 60, 60))
    third = session.execute("CREATE OR REPLACE STREAM Good AS SELECT item, price FROM Bid WHERE price = 2")
    assert third[0].at is not None


def test_a_text_changes_running_queries_once(session: SqlSession) -> None:
    with pytest.raises(SqlError, match="go into texts of their own"):
        session.execute(f"{CHEAP}; ALTER QUERY other AS SELECT price FROM Bid WHERE item = 2")
    with pytest.raises(SqlError, match="go into texts of their own"):
        session.execute(f"ALTER QUERY other AS SELECT price FROM Bid WHERE item = 2; {CHEAP}")
    assert "price > 5" in session.explain("Good")


def test_a_source_that_is_read_keeps_its_declaration(session: SqlSession) -> None:
    with pytest.raises(SqlError, match="Bid cannot be replaced"):
        session.execute("CREATE OR REPLACE STREAM Bid (item INT, price INT)")


def test_a_stream_that_nobody_reads_is_replaced_as_before() -> None:
    session = SqlSession()
    session.execute(TEXT)
    outcome = session.execute("CREATE OR REPLACE STREAM Best AS SELECT item FROM Good")[0]
    assert (outcome.at, str(outcome)) == (None, "replaced derived stream Best")


@pytest.mark.parametrize("name", ["Good", "good"])
def test_a_stream_is_not_made_from_itself(session: SqlSession, name: str) -> None:
    """It could never be replaced or dropped again: something would be made from it."""
    for asked in (session, SqlSession()):
        if asked is not session:
            asked.execute(TEXT)
        with pytest.raises(SqlError, match="Good cannot be made from itself: write what it is made from"):
            asked.execute(f"CREATE OR REPLACE STREAM {name} AS SELECT item, price FROM {name} WHERE price > 7")
        assert "price > 5" in asked.explain("Good")


# -- who reads what ----------------------------------------------------------------------------------------------------


def session_of(*statements: str) -> SqlSession:
    session = SqlSession()
    session.execute("; ".join(("CREATE STREAM Bid (item INT, price INT)", *statements)))
    return session


@pytest.mark.parametrize("alias", ["SELECT * FROM Good", "SELECT item, price FROM Good"])
def test_who_reads_the_stream_behind_an_alias_keeps_its_answer(alias: str) -> None:
    """An alias is the same plan, and another stream."""
    session = session_of(
        "CREATE STREAM Good AS SELECT item, price FROM Bid WHERE price > 5", f"CREATE STREAM Also AS {alias}"
    )
    session.start("good", "SELECT * FROM Good")
    session.start("also", "SELECT * FROM Also")
    push(session, bids(0, 20, 15))
    (outcome,) = session.execute("CREATE OR REPLACE STREAM Also AS SELECT item, price FROM Bid WHERE price <= 5")
    assert outcome.at is not None and not session.is_replaced("good")
    assert "price > 5" in session.explain("good") and "price <= 5" in session.explain("also")
    session.stop("also")
    (outcome,) = session.execute("CREATE OR REPLACE STREAM Also AS SELECT item, price FROM Bid WHERE price = 5")
    assert outcome.at is None  # nobody reads it


def test_streams_that_are_made_from_it_go_over_in_the_order_in_which_they_read_each_other() -> None:
    """`First` was replaced, and reads what was declared later."""
    session = session_of(
        "CREATE STREAM First AS SELECT item, price FROM Bid",
        "CREATE STREAM Last AS SELECT item, price FROM Bid WHERE price > 1",
        "CREATE STREAM Middle AS SELECT item, price FROM Last WHERE price > 2",
    )
    session.start("q", "SELECT * FROM First")
    push(session, bids(0, 20, 15))
    session.execute("CREATE OR REPLACE STREAM First AS SELECT item, price FROM Middle WHERE price > 3")
    push(session, bids(20, 40, 40))
    (outcome,) = session.execute("CREATE OR REPLACE STREAM Last AS SELECT item, price FROM Bid WHERE price > 9")
    assert outcome.at is not None
    assert "price > 9" in session.explain("q") and "price > 3" in session.explain("q")
    assert [each.name for each in session.streams()] == ["Bid", "First", "Last", "Middle"]


def test_what_reads_it_is_compiled_again() -> None:
    """A window table over groups needs a coalesce, which a filter does not."""
    text = "SELECT item, SUM(price) AS price FROM TUMBLE(TABLE Good, 4) GROUP BY item, window_start, window_end"
    session = session_of("CREATE STREAM Good AS SELECT item, price + 1 AS price FROM Bid")
    session.start("q", text)
    said = push(session, bids(0, 20, 15))["q"]
    grouped = "CREATE OR REPLACE STREAM Good AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 6) GROUP BY item"
    (outcome,) = session.execute(grouped)
    assert outcome.at is not None
    said += push(session, bids(20, 50, 50))["q"]
    fresh = session_of(grouped.replace("OR REPLACE ", ""))
    fresh.start("q", text)
    told, new = ew.History.of(said), ew.History.of(push(fresh, bids(0, 50, 50))["q"])
    assert all(told.at(t) == new.at(t) for t in range(outcome.at, 50)) and outcome.at < 40


def test_a_state_that_nothing_bounds_is_refused_also_in_what_reads_it() -> None:
    session = session_of("CREATE STREAM Good AS SELECT item, price FROM Bid")
    session.start("q", "SELECT item FROM Good WINDOW(ROWS 3)")
    with pytest.raises(SqlError, match=r"line 1, column 1: the state of this query grows without bound"):
        session.execute("CREATE OR REPLACE STREAM Good AS SELECT item, price FROM Bid WINDOW(UNBOUNDED)")
    assert "nbounded" not in session.explain("Good") and "nbounded" not in session.explain("q")
