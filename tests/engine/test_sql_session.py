"""The SQL session: what texts do, that they do all of it or nothing, who shares what, and who is in whose way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import QueryError, SqlError
from everwhen.language.catalog import UserFunction
from everwhen.stream.element import Element
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history

DECLARED = """
CREATE STREAM Bid (item INT, price INT);
CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10) GROUP BY item;
"""


def bid(t: int, item: int, price: int) -> Element:
    return ew.Insert(t, t + 1, {"item": item, "price": price})


def push(session: SqlSession, **elements: list[Element]) -> dict[str, list[Element]]:
    batches = {name: batch_of(some, session.schema_of(name)) for name, some in elements.items()}
    return {name: list(batch.elements()) for name, batch in session.push(batches).items()}


def shown(session: SqlSession) -> tuple[Any, ...]:
    """All that a user can see of a session."""
    return (
        session.streams(),
        session.queries(),
        session.inputs,
        session.progress,
        {name: (part.queries, part.rows_in, part.rows_out) for name, part in session.metadata().items()},
    )


@pytest.fixture
def session() -> SqlSession:
    session = SqlSession()
    session.execute(DECLARED)
    return session


def test_outcomes_name_what_was_done() -> None:
    session = SqlSession()
    text = (
        DECLARED + "CREATE CONSTANT RELATION Item (item INT); SELECT * FROM Best; DROP RELATION Item; SELECT 1 FROM Bid"
    )
    assert list(map(str, session.execute(text))) == [
        "created stream Bid",
        "created derived stream Best",
        "created constant relation Item",
        "started query q1",
        "dropped stream Item",
        "started query q2",
    ]
    assert str(session.execute("DROP STREAM IF EXISTS Nothing")[0]) == "there is no stream Nothing to drop"


def test_an_answer_is_that_of_the_query_run_alone(session: SqlSession) -> None:
    text = "SELECT item, price FROM Best WHERE price > 2"
    name = session.execute(text)[0].name
    elements = [bid(1, 7, 3), bid(2, 8, 1), bid(5, 7, 9), ew.Cti(5), bid(30, 8, 4)]
    said = [*push(session, Bid=elements[:2])[name], *push(session, Bid=elements[2:])[name], *_of(session.close(), name)]
    alone = ew.run(ew.sql(DECLARED + text), {"Bid": elements})
    assert_same_history(History.of(said), History.of(list(alone)))


def _of(results: dict[str, Any], name: str) -> list[Element]:
    return list(results[name].elements())


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("CREATE STREAM A (x INT);\nSELECT * FROM Best;\nSELECT y FROM A", 3, "unknown column 'y'"),
        ("CREATE STREAM A (x INT); SELECT * FROM A;\nDROP STREAM A", 2, "the query q2 reads it"),
        ("SELECT * FROM Best;\nCREATE STREAM Bid (x INT)", 2, "there is a stream 'Bid' already"),
        ("SELECT item FROM Bid;\nSELECT FROM Bid", 2, ""),
        ("SELECT item FROM Bid;\nSELECT DISTINCT item FROM Bid WINDOW(UNBOUNDED)", 2, "grows without bound"),
        ("SELECT item FROM Bid;\nSELECT item FROM Bid CONSISTENCY (BLOCK 5, REMEMBER 2)", 2, "to block for 5 ticks"),
        ("CREATE OR REPLACE STREAM Other (x INT);\nDROP STREAM Bid", 2, "Bid cannot be dropped"),
        # only joining the graph fails: all that was said about Bid for ever is gone
        ("DROP STREAM Unread; SELECT * FROM Best;\nSELECT COUNT(*) AS n FROM Bid WINDOW(UNBOUNDED)", 2, "cannot join"),
    ],
)
def test_a_text_that_fails_changes_nothing(session: SqlSession, text: str, line: int, problem: str) -> None:
    session.execute("CREATE STREAM Unread (x INT); CREATE STREAM Other (x INT)")
    session.start("first", "SELECT * FROM Best")
    session.start("gone", "SELECT * FROM Unread")
    session.execute("SELECT * FROM Other")
    push(session, Bid=[bid(1, 7, 3), ew.Cti(3)], Unread=[ew.Cti(9)])
    session.stop("gone")
    session.stop("q1")
    before = shown(session)
    with pytest.raises(SqlError) as error:
        session.execute(text)
    assert error.value.line == line
    assert problem in str(error.value)
    assert shown(session) == before
    assert session.execute("SELECT item FROM Best")[0].name == "q2"  # no name was used up
    session.execute("SELECT * FROM Unread")
    with pytest.raises(ew.InputError, match="behind the CTI 9"):  # nor was a source forgotten
        push(session, Unread=[ew.Insert(1, 2, {"x": 1})])


def test_a_stream_is_dropped_when_nothing_depends_on_it(session: SqlSession) -> None:
    session.start("a", "SELECT * FROM Best")
    session.start("b", "SELECT item FROM Best")
    with pytest.raises(SqlError, match="Best cannot be dropped: the queries a, b read it; stop them first"):
        session.execute("DROP STREAM Best")
    with pytest.raises(SqlError, match="Bid cannot be dropped: Best is made from it"):
        session.execute("DROP STREAM Bid")
    session.stop("a")
    with pytest.raises(SqlError, match=r"and b reads it; with .* it cannot be replaced: give it the same columns, or"):
        session.execute("CREATE OR REPLACE STREAM Best AS SELECT item FROM Bid")
    session.remove("b")
    session.execute("DROP STREAM Best; DROP STREAM Bid")
    assert session.streams() == []
    with pytest.raises(SqlError, match="unknown stream 'Best'"):
        session.start("a")  # its text is read anew


def test_a_stream_declared_anew_begins_anew(session: SqlSession) -> None:
    session.start("a", "SELECT * FROM Best")
    push(session, Bid=[bid(50, 7, 3), ew.Cti(60)])
    session.stop("a")
    session.execute("DROP STREAM Best; CREATE OR REPLACE STREAM Bid (item INT, price INT)")
    session.execute("SELECT price FROM Bid")
    assert session.query("q1").valid_from == NEVER
    assert push(session, Bid=[bid(1, 7, 3)])["q1"] == [ew.Insert(1, 2, {"price": 3})]


def test_derived_streams_run_once_for_all_who_read_them(session: SqlSession) -> None:
    for number in range(20):
        session.execute(f"SELECT item FROM Best WHERE price = {number}")
    session.execute("SELECT item AS i, MAX(price) AS m FROM Bid WINDOW(RANGE 10) GROUP BY item")  # under other names
    session.subscribe("Best", "whole")
    parts = session.metadata()
    aggregates = [part for part in parts.values() if part.name.split()[1:] == ["aggregate"]]
    assert [len(part.queries) for part in aggregates] == [22]
    said = push(session, Bid=[bid(1, 7, 3), bid(2, 8, 4)])
    assert said["q4"] == [ew.Insert(1, INF, {"item": 7})]
    assert said["q6"] == []
    assert [element.row for element in said["whole"]] == [{"item": 7, "price": 3}, {"item": 8, "price": 4}]
    assert {stream.name: stream.is_running for stream in session.streams()} == {"Bid": True, "Best": True}
    assert session.streams()[1].read_by[-1] == "whole"


def test_queries_that_differ_in_the_last_filter_share_their_windows() -> None:
    session = SqlSession()
    session.execute("CREATE STREAM Bid (item INT, price INT)")
    for number in range(30):
        session.execute(f"SELECT * FROM Bid WINDOW(RANGE 10) WHERE item = {number}")
    operators = [part for part in session.metadata().values() if ":" not in part.name]
    assert [part.name.split()[1] for part in operators] == ["window"]
    said = push(session, Bid=[bid(1, 7, 3), bid(2, 8, 4)])
    assert said["q8"] == [ew.Insert(1, 11, {"item": 7, "price": 3})] and said["q1"] == []


def test_a_derived_stream_runs_only_while_it_is_read(session: SqlSession) -> None:
    assert session.metadata() == {} and session.inputs == ()
    session.subscribe("Best", "whole")
    assert session.inputs == ("Bid",)
    session.stop("whole")
    assert session.metadata() == {} and session.inputs == ()
    assert [stream.is_running for stream in session.streams()] == [False, False]


def test_names_are_generated_told_and_never_taken_twice(session: SqlSession) -> None:
    session.execute("CREATE STREAM q2 (x INT)")
    session.start("q1", "SELECT item FROM Bid")
    assert [o.name for o in session.execute("SELECT * FROM Bid; SELECT price FROM Bid")] == ["q3", "q4"]
    with pytest.raises(QueryError, match="there is a query 'q1' already"):
        session.start("q1", "SELECT item FROM Bid")
    session.stop("q3")
    with pytest.raises(QueryError, match="'q3' is stopped already"):
        session.stop("q3")
    with pytest.raises(QueryError, match="there is no query 'nobody'; there is q1, q3, q4"):
        session.stop("nobody")


def test_a_late_query_says_from_when_on_it_is_right(session: SqlSession) -> None:
    session.start("first", "SELECT * FROM Best")
    elements = [bid(1, 7, 3), bid(4, 7, 5), ew.Cti(4)]
    said = push(session, Bid=elements)["first"]
    session.start("late", "SELECT item, price FROM Best WHERE item = 7")
    late = session.query("late")
    assert (session.query("first").valid_from, late.valid_from, late.since) == (NEVER, 4, 1)
    more = push(session, Bid=[bid(6, 7, 9), ew.Cti(7)])
    said += more["first"]
    first, second = History.of(said), History.of(more["late"])
    assert all(first.snapshot(t) == second.snapshot(t) for t in range(4, 30))
    assert not any(second.snapshot(t) for t in range(4))


def test_a_stopped_query_starts_again_by_its_text(session: SqlSession) -> None:
    session.start("best", "SELECT item FROM Best")
    push(session, Bid=[bid(1, 7, 3), ew.Cti(3)])
    session.stop("best")
    assert (session.query("best").state, session.query("best").reads) == ("stopped", ("Best",))
    session.execute("CREATE OR REPLACE STREAM Best AS SELECT price AS item FROM Bid")
    with pytest.raises(SqlError, match="unknown column 'item'"):
        session.execute("CREATE OR REPLACE STREAM Best AS SELECT price FROM Bid; SELECT item FROM Best")
    assert str(session.start("best")) == "started query best"
    assert session.query("best").state == "running"
    assert push(session, Bid=[bid(5, 7, 30)])["best"][-1] == ew.Insert(5, 6, {"item": 30})
    with pytest.raises(QueryError, match="is running"):
        session.start("best")


def test_one_who_joins_later_knows_all_of_a_relation() -> None:
    session = SqlSession()
    session.execute("CREATE STREAM Bid (item INT, price INT); CREATE CONSTANT RELATION Item (item INT, name TEXT)")
    text = "SELECT name, price FROM Bid WINDOW(RANGE 5) B, Item I WHERE B.item = I.item"
    session.start("a", text)
    items = [ew.Insert(0, INF, {"item": 7, "name": "x"}), ew.Insert(0, INF, {"item": 8, "name": "y"})]
    push(session, Item=items)
    session.close_input("Item")
    push(session, Bid=[bid(1, 7, 3), ew.Cti(2)])
    session.start("b", text)
    session.start("c", text + " AND price > 3")
    assert [session.query(name).valid_from for name in "bc"] == [2, 6]  # a window of one's own needs a past first
    said = push(session, Bid=[bid(3, 8, 5)])
    assert said["b"][-1] == ew.Insert(3, 8, {"name": "y", "price": 5})
    assert said["c"][-1] == ew.Insert(6, 8, {"name": "y", "price": 5})
    session.remove("c")
    session.stop("a")
    session.stop("b")
    session.start("a")  # the relation can be handed in again
    push(session, Item=items)
    assert push(session, Bid=[bid(9, 7, 1)])["a"][-1] == ew.Insert(9, 14, {"name": "x", "price": 1})


def test_a_query_that_fails_leaves_the_others_alone() -> None:
    def refuse(price: int) -> int:
        raise ValueError("no such price")

    session = SqlSession(functions={"refuse": UserFunction(refuse, pa.int64())})
    session.execute("CREATE STREAM Bid (item INT, price INT)")
    session.start("bad", "SELECT refuse(price) AS r FROM Bid")
    session.start("good", "SELECT price FROM Bid")
    assert list(push(session, Bid=[bid(1, 7, 3)])) == ["good"]
    bad = session.query("bad")
    assert bad.state == "failed" and "no such price" in bad.error
    assert session.streams()[0].read_by == ("good",)
    with pytest.raises(SqlError, match="the query fails on what there is already: no such price"):
        session.start("bad")
    assert session.query("bad") == bad
    push(session, Bid=[ew.Cti(5)])
    session.start("bad")  # what it failed on is over
    assert session.query("bad").state == "running"


def test_unbounded_state_is_refused_unless_it_is_allowed() -> None:
    text = "CREATE STREAM S (x INT); SELECT DISTINCT x FROM S WINDOW(UNBOUNDED)"
    with pytest.raises(SqlError, match="line 1, column 26: the state of this query grows without bound"):
        SqlSession().execute(text)
    outcome = SqlSession(allow_unbounded=True).execute(text)[-1]
    assert outcome.kind == "started" and outcome.warnings


def test_queries_have_levels_of_their_own() -> None:
    session = SqlSession(emit="final")
    session.execute("CREATE STREAM S (x INT)")
    for clause in ("", "STRONG", "MIDDLE", "WEAK", "(BLOCK 2, REMEMBER 5)"):
        session.execute(f"SELECT x FROM S {'CONSISTENCY' * bool(clause)} {clause}")
    found = [query.consistency for query in session.queries()]
    assert [level.emit.value for level in found] == ["final", "final", "current", "current", "current"]
    assert [(level.block, level.remember) for level in found[3:]] == [(0, 0), (2, 5)]
    with pytest.raises(SqlError, match="line 1, column 17: to block for 5 ticks and remember 2"):
        session.execute("SELECT x FROM S CONSISTENCY (BLOCK 5, REMEMBER 2)")


def test_start_takes_one_query(session: SqlSession) -> None:
    with pytest.raises(SqlError, match="ends without a query"):
        session.start("x", "CREATE STREAM T (x INT)")
    with pytest.raises(SqlError, match="a text that is one query ends with it"):
        session.start("x", "SELECT item FROM Bid; SELECT price FROM Bid")
    session.start("x", "CREATE STREAM T (x INT); SELECT x FROM T")
    assert session.query("x").text == "SELECT x FROM T"


def test_explain_of_a_query_a_stream_and_a_text(session: SqlSession) -> None:
    session.start("mine", "SELECT item FROM Best WHERE price > 5")
    before = shown(session)
    assert "EXPLAIN mine" in session.explain("mine") and "Aggregate by item" in session.explain("mine")
    assert "EXPLAIN Best" in session.explain("best")
    assert "Filter" in session.explain("SELECT item FROM Bid WHERE price > 5")
    assert "grow" in session.explain("SELECT DISTINCT item FROM Bid WINDOW(UNBOUNDED)")
    with pytest.raises(SqlError, match="nothing to explain"):
        session.explain("CREATE STREAM T (x INT)")
    assert shown(session) == before


def test_explain_is_a_statement_that_stands_by_itself(session: SqlSession) -> None:
    session.start("mine", "SELECT item FROM Best WHERE price > 5 CONSISTENCY STRONG")
    session.start("it's", "SELECT item FROM Bid")
    before = shown(session)
    for asked in ("mine", "Best ;", "SELECT item FROM Bid", "it's"):
        if asked != "it's":  # its quote opens a text, so only `explain` takes it
            (told,) = session.execute(f"-- why\nexplain {asked}")
            assert told.kind == "explained" and str(told) == told.told == session.explain(asked)
        assert "The plan as written" in session.explain(asked)
    (told,) = session.execute("EXPLAIN WAITING mine;")
    assert str(told) == "mine: nothing has come in yet\n  Bid has promised nothing yet; nothing has come from it"
    assert "elements read" in str(session.execute("EXPLAIN ANALYZE mine")[0])
    wrong = ("EXPLAIN mine; SELECT item FROM Bid", 14), ("EXPLAIN SELECT nix FROM Bid", 15), ("EXPLAIN WAITING nix", 16)
    for text, at in (*wrong, ("EXPLAIN", 0)):
        with pytest.raises(SqlError) as error:
            session.execute(text)
        assert error.value.start == at and str(error.value).splitlines()[1] == f"  {text}"
    with pytest.raises(SqlError, match="EXPLAIN stands by itself, in a session or the shell; for a file there is"):
        session.execute("SELECT item FROM Bid; EXPLAIN mine")
    assert shown(session) == before


def test_without_rewriting_the_answer_is_the_same() -> None:
    answers = []
    for optimize in (True, False):
        session = SqlSession(optimize=optimize)
        session.execute(DECLARED + "SELECT B.item FROM Best B, Best C WHERE B.item = C.item AND B.price > 2")
        said = push(session, Bid=[bid(1, 7, 3), bid(2, 8, 1), bid(6, 7, 4)])["q1"]
        answers.append(History.of([*said, *_of(session.close(), "q1")]))
    assert_same_history(*answers)


def test_a_closed_session_says_so(session: SqlSession) -> None:
    session.execute("SELECT item FROM Bid")
    session.close()
    assert session.query("q1").state == "stopped"
    with pytest.raises(QueryError, match="closed"):
        session.execute("SELECT item FROM Bid")


def test_a_recursion_that_is_not_legal_changes_nothing(session: SqlSession) -> None:
    loop = "WITH RECURSIVE r(n) AS (SELECT item FROM Bid UNION SELECT COUNT(*) FROM r) SELECT n FROM r"
    before = shown(session)
    for text, column in ((loop, 73), (f"CREATE STREAM Loop AS {loop}; SELECT n FROM Loop", 95)):
        with pytest.raises(SqlError) as caught:
            session.execute(text)
        assert (caught.value.line, caught.value.column) == (1, column)
        assert shown(session) == before
