"""Several queries of a session that become others: whoever joins or leaves meanwhile gets its own answer."""

from __future__ import annotations

from collections import Counter

import pytest

import everwhen as ew
from engine.migration.sessions_that_change import run_once
from everwhen.core.punctuation import Punctuation
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError, SqlError
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.testing import assert_valid
from plans import S, T, col
from state_files import through_file

POSITIVE = S.where(col("x") > 1)


def row(start: int, end: int, x: int, k: str = "a") -> Insert:
    return Insert(start, end, {"k": k, "x": x})


def of(**given: list[Element]) -> dict[str, ElementBatch]:
    return {name: batch_of(elements, S.schema, name) for name, elements in given.items()}


def told(batch: ElementBatch) -> list[str]:
    return sorted(map(str, batch.elements()))


@pytest.mark.parametrize("part", range(6))
def test_random_sessions_of_queries_that_change(part: int) -> None:
    counts = Counter[str]()
    for seed in range(part * 10, part * 10 + 10):
        counts += run_once(seed)
    assert min(counts[each] for each in ("register", "replace", "migrate", "change", "restart")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_many_random_sessions_of_queries_that_change(part: int) -> None:
    for seed in range(1000 + part * 80, 1000 + part * 80 + 80):
        run_once(seed)


# -- a plan that is just a source --------------------------------------------------------------------------------------


def test_who_joins_meanwhile_does_not_hear_the_plan_that_is_left() -> None:
    session = Session()
    session.register("q", POSITIVE)
    session.push(of(S=[row(0, 9, 1), row(1, 9, 2), Cti(3)]))
    assert session.replace("q", S, at=7) == 7
    for name, plan in {"same": S, "behind it": S.where(col("x") < 9)}.items():
        assert session.register(name, plan).valid_from == 3
    heard = session.push({})
    wanted = ["cti 3", "insert [3, 9) k='a' x=1", "insert [3, 9) k='a' x=2"]
    assert told(heard["same"]) == told(heard["behind it"]) == wanted


@pytest.mark.parametrize("emit", ["current", "final"])
@pytest.mark.parametrize("before", [True, False])
def test_a_restart_while_a_query_goes_over_to_a_source_that_is_read(before: bool, emit: str) -> None:
    session = Session(emit=emit)
    session.register("q", POSITIVE)
    session.push(of(S=[row(0, 9, 1), row(1, 9, 2), Cti(3)]))
    if before:
        session.register("other", S)
    session.replace("q", S, at=12)
    if not before:
        session.register("other", S)
    assert str(session.waiting("other")) and str(session.waiting("q"))
    again = Session(emit=emit)
    again.restore(through_file(session.snapshot()), {"q": (POSITIVE, S), "other": S})
    for given in (of(S=[row(4, 20, 1), Cti(5)]), of(S=[Cti(15)])):
        one, other = session.push(given), again.push(given)
        assert {name: told(each) for name, each in one.items()} == {name: told(each) for name, each in other.items()}


# -- what was said keeps the names that it was said by -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["replace", "migrate"])
def test_a_correction_of_before_a_query_was_right(how: str) -> None:
    """It joined an output that knew more of the past than it did."""
    session = Session()
    session.register("first", S.union(T))
    session.push(of(S=[row(0, 20, 1)], T=[row(0, 2, 5), Cti(3)]))
    session.push(of(T=[row(7, 9, 5)]))
    query = session.register("q", S.union(T))
    assert query.valid_from == 3
    session.push({})
    if how == "migrate":
        session.migrate("q", S.union(T).select("k", "x"))
    else:
        session.replace("q", S.union(T.where(col("x") > 0)))
    said = session.push(of(S=[Adjust(0, 20, 1, {"k": "a", "x": 1})]))["q"]
    assert told(said) == ["adjust [3, 20 -> 3) k='a' x=1"]


@pytest.mark.parametrize("second", [T.where(col("x") > 1), T.join(S, on="k", how="semi"), T.union(S), T.distinct()])
def test_two_replacements_in_a_row(second: ew.Stream) -> None:
    session = Session()
    session.register("s", S)
    session.register("q", S.where(col("x") < 2))
    said: list[Element] = []

    def push(**given: list[Element]) -> None:
        said.extend(session.push(of(**given))["q"].elements())

    push(S=[Cti(6)])
    assert session.replace("q", T) == 6
    push(T=[Cti(1)])
    push(S=[Cti(9)], T=[row(4, 7, 1)])
    for _ in range(3):
        push()
    session.replace("q", second)
    push()
    push(T=[Adjust(4, 7, 5, {"k": "a", "x": 1})])
    push(S=[Cti(30)], T=[Cti(30)])
    assert_valid(said)


def test_a_migration_and_a_replacement_of_rows_said_before() -> None:
    """Rows said before the switch keep their starts, which are before the instant of the switch."""
    both = S.intersect(T)
    session = Session()
    for name, plan in {"s": S, "t": T, "q": both}.items():
        session.register(name, plan)
    said = list(session.push(of(S=[row(2, 14, 0)], T=[row(2, 7, 0)]))["q"].elements())
    for step in (
        lambda: session.push(of(S=[Cti(3)])),
        lambda: session.migrate("q", S.where(ew.lit(True)).intersect(T)),
        lambda: session.push(of(S=[Cti(8)], T=[Cti(3)])),
        lambda: session.replace("q", S.distinct(), at=20),
        lambda: session.push(of(T=[Adjust(2, 7, 6, {"k": "a", "x": 0})])),
        lambda: session.push(of(S=[Cti(30)], T=[Cti(30)])),
    ):
        heard = step()
        said += heard["q"].elements() if isinstance(heard, dict) else []
    assert_valid(said)


@pytest.mark.parametrize("local", [True, False])
def test_a_policy_that_changes_knows_what_has_been_forgotten(local: bool) -> None:
    """What has been said and is settled is not kept by the sources: nobody can take it back."""
    wide = S.lifetime(length=5).union(T)
    given = of(S=[], T=[row(2, 3, 2), Cti(4)])
    if local:
        runtime = LocalRuntime(wide, keep_relations=True)
        runtime.push(given)
        runtime.change(emit="final")
        with pytest.raises(QueryError, match="it can from 3 on"):
            runtime.replace(S, at=1)
        return
    session = Session()
    session.register("q", wide)
    session.push(given)
    session.change("q", emit="final")
    with pytest.raises(QueryError, match="it can from 3 on"):
        session.replace("q", S, at=1)


def test_who_joins_a_merge_behind_a_promise_about_data() -> None:
    merge = ew.sql("SELECT k, x FROM LMERGE(S, (SELECT k, x FROM S WHERE x IS NULL OR x IS NOT NULL)) AS m", S)
    session = Session()
    session.register("first", merge)
    session.push(of(S=[row(10, 14, 1)]))
    session.push(of(S=[Punct(Punctuation.constants({"k": "a", "x": 1}))]))
    again = Session()
    again.restore(through_file(session.snapshot()), {"first": merge})
    for each in (session, again):
        assert each.register("second", merge).valid_from == 14, "what the promise has settled is forgotten"


# -- who reads whom ----------------------------------------------------------------------------------------------------


def test_a_query_that_becomes_one_of_its_own_stream() -> None:
    session = Session()
    query = session.register("q", S)
    session.push(of(S=[row(0, 9, 1), row(0, 9, 2), Cti(2)]))
    query.replace(query.stream.where(col("x") > 1))
    assert session.query("q").depends_on == ()
    session.push(of(S=[Cti(3)]))
    query.replace(S)
    query.stop()
    session.remove("q")


def test_queries_that_change_places() -> None:
    session = Session()
    a, b = session.register("a", POSITIVE), session.register("b", S)
    session.push(of(S=[row(0, 9, 1), row(0, 9, 2), Cti(2)]))
    session.replace_all({"a": b.stream, "b": a.stream})
    heard = session.push(of(S=[Cti(3)]))
    assert "insert [2, 9) k='a' x=1" in told(heard["a"]) and "adjust [0, 9 -> 2) k='a' x=1" in told(heard["b"])
    a.stop()
    b.stop()
    with pytest.raises(QueryError, match="name the queries"):
        session.replace_all({})


def test_what_was_kept_of_a_query_goes_with_it() -> None:
    session = Session()
    session.register("q", S)
    session.push(of(S=[row(0, 9, 1)]))
    session.answer("q")
    session.analyze("q")
    session.remove("q")
    session.register("q", S.aggregate(n=ew.count()))
    assert session.answer("q").schema.names == ("n",) and not session._observer.subscriptions


# -- derived streams ---------------------------------------------------------------------------------------------------


def derived() -> ew.SqlSession:
    session = ew.SqlSession()
    session.execute(
        "CREATE STREAM Bid (item INT, price INT); CREATE STREAM Dear AS SELECT item, price FROM Bid WHERE price > 50;"
        "CREATE STREAM VeryDear AS SELECT item, price FROM Dear WHERE price > 80"
    )
    return session


def test_a_query_of_the_same_text_reads_what_is_made_from_a_stream_that_is_replaced() -> None:
    session = derived()
    session.start("reader", "SELECT item FROM Dear")
    with pytest.raises(SqlError, match="q1, which this text starts, reads it, or what is made from it"):
        session.execute("SELECT * FROM VeryDear; CREATE OR REPLACE STREAM Dear AS SELECT * FROM Bid")
    assert [each.name for each in session.queries()] == ["reader"]


def test_a_stream_keeps_its_name_when_it_is_replaced_in_another_case() -> None:
    session = derived()
    session.subscribe("Dear", "reader")
    session.execute("CREATE OR REPLACE STREAM dear AS SELECT item, price FROM Bid WHERE price > 30")
    again = "CREATE OR REPLACE STREAM Dear AS SELECT item, price FROM Bid"
    with pytest.raises(SqlError, match="is being replaced already, from -∞ on; that is done with the next epoch"):
        session.execute(again)
    session.push({})
    session.execute("CREATE OR REPLACE STREAM DEAR AS SELECT item, price FROM Bid WHERE price > 20")
    assert "Dear" in session.catalog.entries and session.query("reader").state == "running"


def test_a_stream_cannot_be_made_from_what_is_made_from_it() -> None:
    session = derived()
    session.start("reader", "SELECT item FROM VeryDear")
    with pytest.raises(SqlError, match="Dear cannot be made from VeryDear, which is made from Dear"):
        session.execute("CREATE OR REPLACE STREAM Dear AS SELECT item, price FROM VeryDear")
