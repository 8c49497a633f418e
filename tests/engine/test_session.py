"""The session: names and states, what is freed, sources that come and go, dependencies, errors, metadata."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from engine.small_session import A, B, kinds, one, sums, texts
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.errors import EvaluationError, InputError, QueryError, SinkError
from everwhen.reference import evaluate
from everwhen.sinks.memory import MemorySink
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import reorder
from everwhen.testing.strategies import histories
from operators.differential import FIRST, LAST, SCHEMA, Said, assert_snapshots
from plans import S, T, col

# --- names and states -------------------------------------------------------------------------------------------------


def test_the_catalogue() -> None:
    session = Session()
    first = session.register(None, S)
    session.push({})
    second = session.register("sums", sums())
    assert (first.name, second.name) == ("q1", "sums")
    info = session.query("sums")
    assert (info.state, info.since, info.valid_from, info.reads, info.depends_on, info.error) == (
        "running", 1, NEVER, ("S",), (), "",
    )  # fmt: skip
    assert info.schema == sums().schema
    session.stop("q1")
    assert [(each.name, each.state) for each in session.queries()] == [("q1", "stopped"), ("sums", "running")]
    session.start("q1")
    session.remove("q1")
    assert [each.name for each in session.queries()] == ["sums"]
    assert session.register(None, S).name == "q2"


def test_wrong_names() -> None:
    session = Session()
    session.register("q1", S)
    assert session.register(None, S).name == "q2"
    with pytest.raises(QueryError, match=r"there is a query 'q1' already \(running\)"):
        session.register("q1", T)
    with pytest.raises(QueryError, match="there is no query 'x'; there is q1, q2"):
        session.stop("x")
    with pytest.raises(QueryError, match="name is a text"):
        session.register("", S)
    with pytest.raises(QueryError, match="'q1' is running"):
        session.start("q1")
    session.stop("q1")
    with pytest.raises(QueryError, match="'q1' is stopped already"):
        session.stop("q1")


def test_push_and_register_after_close() -> None:
    session = Session()
    session.register("s", S)
    assert texts(session.close()["s"]) == ["cti ∞"]
    assert session.close() == {}
    assert session.query("s").state == "stopped"
    with pytest.raises(QueryError, match="closed"):
        session.push(one(Cti(1)))
    with pytest.raises(QueryError, match="closed"):
        session.register("t", T)


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_what_nobody_needs_is_freed() -> None:
    session = Session()
    session.register("sums", sums())
    session.push(one(Insert(0, 1, A), Insert(0, 5, B), Cti(1)))
    before, size = set(session.metadata()), session.state_size().rows
    session.register("join", S.join(S.where(col("x") > 1), on="k").distinct())
    session.register("same", sums().where(col("t") > 3))
    session.push(one(Insert(2, 3, A), Insert(2, 8, B)))
    assert set(session.metadata()) > before and session.state_size().rows > size
    kept = {name: each for name, each in session.metadata().items() if name in before}
    session.stop("join")
    session.stop("same")
    assert set(session.metadata()) == before
    assert all(session.metadata()[name].state_rows == kept[name].state_rows for name in before)
    session.stop("sums")
    assert session.metadata() == {} and session.inputs == ()
    assert session.state_size().rows == 0
    assert session._network.operators == {} == session._network.sources


def test_stopping_one_leaves_the_others_untouched() -> None:
    session, alone = Session(), LocalRuntime(sums())
    session.register("mine", sums())
    session.register("other", sums().where(col("t") > 1))
    for at in range(6):
        if at == 3:
            session.stop("other")
        batch = one(Insert(at, at + 2, A), Insert(at, at + 1, B), Cti(at))
        assert texts(session.push(batch)["mine"]) == texts(alone.push(batch)["out"])


def test_operators_keep_their_names() -> None:
    session = Session()
    session.register("a", S.distinct())
    session.register("b", sums())
    session.stop("a")
    session.register("c", S.distinct())
    assert [name for name in session.metadata() if ":" not in name] == ["1 window", "2 aggregate", "3 distinct"]


# --- sources ----------------------------------------------------------------------------------------------------------


def test_sources_come_and_go_with_their_readers() -> None:
    session = Session()
    with pytest.raises(QueryError, match="no running query reads 'S', so it takes no batches; what is read: nothing"):
        session.push(one(Cti(1)))
    session.register("s", S)
    session.push(one(Insert(0, 1, A), Cti(3)))
    with pytest.raises(QueryError, match=r"no running query reads 'T'.*what is read: S"):
        session.push({**one(Cti(9)), **one(Insert(0, 1, A), name="T")})
    assert session.progress == {"S": 3}  # nothing of the refused epoch was taken
    session.register("both", S.join(T, on="k"))
    assert session.inputs == ("S", "T") and session.schema_of("T") == SCHEMA
    session.push({**one(Cti(5)), **one(Insert(7, 8, A), name="T")})
    session.stop("both")
    assert session.inputs == ("S",)


def test_a_source_that_was_left_goes_on_where_it_was() -> None:
    session = Session()
    session.register("first", S)
    session.push(one(Insert(0, 9, A), Cti(5)))
    session.stop("first")
    later = session.register("later", S.range(3).distinct())
    assert later.valid_from == 9 + 3 - 1 and session.progress == {"S": 5}
    with pytest.raises(InputError, match="behind the CTI 5"):
        session.push(one(Insert(4, 6, A)))
    found = session.push(one(Insert(6, 15, B), Cti(INF)))["later"]
    assert texts(found) == ["cti 5", "insert [11, 17) k='b' x=2", "cti ∞"]


def test_endless_events_of_a_source_that_was_left() -> None:
    session = Session()
    session.register("first", S)
    session.push(one(Insert(0, INF, A), Cti(5)))
    session.stop("first")
    with pytest.raises(QueryError, match=r"call forget\('S'\)"):
        session.register("later", S)
    session.forget("S")
    assert session.register("later", S).valid_from == NEVER
    with pytest.raises(QueryError, match="cannot be forgotten: later read it"):
        session.forget("S")


@settings(max_examples=40)
@given(history=histories(SCHEMA, max_events=10, max_time=20, allow_infinite=False), data=st.data())
def test_one_query_after_another(history: History, data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    elements = reorder(history, rng, disorder=3, corrections=0.0, wrong=0.0, ctis=0.3)
    queries = [S, S.range(3).distinct(), sums(), S.join(S, on="k"), sums().where(col("t") > 1)]
    session, now = Session(), ""
    said: dict[str, tuple[int, ew.Stream, Said]] = {}
    for at in range(0, len(elements), 3):
        if not now or rng.random() < 0.5:
            query = rng.choice(queries)
            if now:
                session.remove(now)
            now = session.register(None, query).name
            said[now] = (session.query(now).valid_from, query, Said(query.schema))
        said[now][2].take(session.push(one(*elements[at : at + 3]))[now])
    session.close()
    for valid_from, query, heard in said.values():
        oracle = evaluate(query.node, {"S": history})
        assert_snapshots(heard, oracle, range(max(valid_from, FIRST), min(heard.cti, LAST)), str(query))


def test_a_source_has_one_declaration() -> None:
    session = Session()
    session.register("s", S)
    with pytest.raises(QueryError, match="a source has one declaration"):
        session.register("t", ew.source("S", {"k": "string"}))
    with pytest.raises(QueryError, match="a source has one declaration"):
        session.register("t", ew.source("S", SCHEMA, insert_only=True))
    session.register("same", ew.source("S", SCHEMA))


def test_a_wrong_batch_is_refused_as_a_whole() -> None:
    session = Session()
    session.register("both", S.union(T))
    session.push(one(Cti(5)))
    with pytest.raises(InputError, match="behind the CTI 5"):
        session.push({**one(Insert(9, 10, A), name="T"), **one(Insert(0, 1, A))})
    assert texts(session.push(one(Cti(INF), name="T"))["both"]) == ["cti 5"]


# --- derived streams --------------------------------------------------------------------------------------------------


def test_a_query_that_is_read_cannot_stop() -> None:
    session = Session()
    base = session.register("sums", sums())
    session.register("high", base.stream.where(col("t") > 2))
    session.register("highest", session.stream("high").aggregate(m=ew.max("t")))
    assert session.query("highest").depends_on == ("high",)
    assert session.query("high").depends_on == ("sums",)
    with pytest.raises(QueryError, match="'high' cannot be stopped: highest reads its stream"):
        session.stop("high")
    session.register("low", base.stream.where(col("t") < 2))
    with pytest.raises(QueryError, match="'sums' cannot be removed: high, low read its stream"):
        session.remove("sums")
    session.register("apart", sums())  # an equal plan, not built on it
    for name in ("highest", "high", "low", "sums"):
        session.stop(name)
    with pytest.raises(QueryError, match="the stream of the query 'high' cannot be read: it is stopped"):
        session.start("highest")
    session.register("again", sums().distinct())


def test_derived_streams_share_operators() -> None:
    session = Session()
    session.register("window", S.range(4))
    session.register("sums", session.stream("window").group_by("k").agg(t=ew.sum("x")))
    session.register("counts", session.stream("window").group_by("k").agg(n=ew.count()))
    assert kinds(session).count("window") == 1


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_stops_only_the_query_that_made_it() -> None:
    session, alone = Session(), LocalRuntime(sums())
    session.register("good", sums())
    session.register("bad", S.range(4).select("k", y=col("k").cast("int64")).distinct())
    session.register("above", S.range(4).select("k", y=col("k").cast("int64")).distinct().where(col("y") > 1))
    session.register("tail", sums().where(col("k").cast("int64") > 1))
    batch = one(Insert(0, 1, {"k": "7", "x": 1}))
    assert set(session.push(batch)) == {"good", "bad", "above", "tail"}
    alone.push(batch)
    for at in range(1, 4):
        batch = one(Insert(at, at + 1, A), Cti(at))
        found = session.push(batch)
        assert set(found) == {"good"}
        assert texts(found["good"]) == texts(alone.push(batch)["out"])
    states = {each.name: each.state for each in session.queries()}
    assert states == {"good": "running", "bad": "failed", "above": "failed", "tail": "failed"}
    assert all("'a'" in session.query(name).error for name in ("bad", "above", "tail"))
    assert kinds(session) == ["window", "aggregate"]
    session.remove("bad")
    with pytest.raises(EvaluationError):  # what lives still has no value
        session.start("tail")
    assert session.query("tail").state == "failed"


def test_an_error_of_a_python_function() -> None:
    def picky(x: int) -> int:
        if x == 2:
            raise ZeroDivisionError("two")
        return x

    session = Session()
    session.register("good", S)
    session.register("bad", S.select(y=ew.udf(picky, col("x"), type="int64")))
    assert set(session.push(one(Insert(0, 1, A)))) == {"good", "bad"}
    assert set(session.push(one(Insert(0, 1, B)))) == {"good"}
    assert "two" in session.query("bad").error


class BrokenSink(MemorySink):
    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if epoch == 1:
            raise SinkError("the place is gone")
        super().commit(epoch, batch)

    def close(self) -> None:
        raise SinkError("nothing to close")


def test_sinks() -> None:
    session = Session()
    good, bad = MemorySink(), BrokenSink()
    session.register("good", S, sink=good)
    session.register("bad", S, sink=bad)
    session.push(one(Insert(0, 1, A)))
    session.push(one(Insert(0, 1, B), Cti(1)))
    assert (session.query("bad").state, session.query("bad").error) == ("failed", "the place is gone")
    session.stop("good")
    session.register("again", S, sink=good)  # goes on behind the epochs that it has
    session.push(one(Insert(5, 6, B)))
    assert good.committed() == 2
    assert [e.vs for e in flat(good.batches()) if isinstance(e, Insert)] == [0, 0, 5]


def flat(batches: Iterable[ElementBatch]) -> list[Element]:
    return [element for batch in batches for element in batch.elements()]


# --- looking ----------------------------------------------------------------------------------------------------------


def test_metadata() -> None:
    now = [100.0]
    session = Session(clock=lambda: now[0])
    session.register("big", sums().where(col("t") > 1))
    session.register("join", S.join(T, on="k"))
    now[0] = 101.0
    session.push({**one(Insert(0, 1, A), Insert(0, 1, B), Cti(1)), **one(Insert(0, 4, A), name="T")})
    now[0] = 102.0
    found = session.metadata()
    outputs = ["1 aggregate: output", "big: last filters", "3 map: output"]
    assert list(found) == ["0 window", "1 aggregate", "2 join (keyed)", "3 map", *outputs]
    window, groups, tail = found["0 window"], found["1 aggregate"], found["big: last filters"]
    assert (window.rows_in, window.rows_out, window.input_rate, window.queries) == (2, 2, 1.0, ("big",))
    assert groups.state_rows > 0 and groups.progress == 1 and groups.waits_for == ("0 window",)
    assert (tail.rows_in, tail.rows_out, tail.selectivity) == (2, 1, 0.5)
    assert found["2 join (keyed)"].waits_for == ("T",) and found["3 map: output"].state_rows == 1
    assert session.state_size().rows == sum(each.state_rows for each in found.values()) + 3  # and the guards' events


def test_what_is_no_batch_is_refused_by_name() -> None:
    session = Session()
    session.register("q", S)
    with pytest.raises(QueryError, match=r"S is pushed an ElementBatch, not a list: ElementBatch\.of"):
        session.push({"S": [Insert(1, 2, {"k": "a", "x": 1})]})  # type: ignore[dict-item]
