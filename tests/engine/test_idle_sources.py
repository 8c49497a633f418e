"""An input that rests holds nobody back: with a clock that is handed in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import everwhen as ew
from everwhen.engine.idle_sources import linked
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import QueryError
from everwhen.operators.ingress.finalize import Reason
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.reference import history as oracle
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from state_files import through_file


def intakes(runtime: LocalRuntime) -> dict[str, SourcePipeline]:
    return {name: each.intake for name, each in runtime._ingress.inputs.items()}


COLUMNS = {"k": "string", "x": "int64"}
S, T = ew.source("S", COLUMNS), ew.source("T", COLUMNS)
SCHEMA = S.schema
A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}

Say = Callable[..., list[str]]


def talking(runtime: LocalRuntime, now: list[float], out: list[Element]) -> Say:
    """Let some seconds pass, then push; what is said."""

    def say(seconds: float, **epoch: list[Element]) -> list[str]:
        now[0] += seconds
        found = list(runtime.push({n: batch_of(e, SCHEMA) for n, e in epoch.items()})["out"].elements())
        out.extend(found)
        return [str(element) for element in found]

    return say


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def out() -> list[Element]:
    return []


def strong(query: ew.Stream, now: list[float], idle: float | None) -> LocalRuntime:
    return LocalRuntime(query, clock=lambda: now[0], consistency=ew.STRONG, idle=idle)


def test_output_comes_although_one_source_is_quiet(now: list[float], out: list[Element]) -> None:
    runtime = strong(S.union(T).group_by("k").agg(n=ew.count()), now, 10.0)
    say = talking(runtime, now, out)
    assert say(0, S=[Insert(1, 4, A)], T=[Insert(2, 3, B), Cti(2)]) == []
    assert say(5, S=[Cti(8)]) == ["insert [1, 2) k='a' n=1", "cti 2"]
    assert say(4) == []
    # ten seconds after T's last word, S alone says how far time has come
    assert say(1) == ["insert [2, 4) k='a' n=1", "insert [2, 3) k='b' n=1", "cti 8"]
    assert say(2, S=[Insert(9, 11, A), Cti(20)]) == ["insert [9, 11) k='a' n=1", "cti 20"]


def test_without_it_everything_waits(now: list[float], out: list[Element]) -> None:
    runtime = strong(S.union(T).distinct(), now, None)
    say = talking(runtime, now, out)
    assert say(0, S=[Insert(1, 4, A), Cti(50)], T=[Cti(2)]) == ["insert [1, 2) k='a' x=1", "cti 2"]
    assert say(1e9) == []
    assert all(intake.finalize is None for intake in intakes(runtime).values())


def test_who_speaks_again_late_is_counted(now: list[float], out: list[Element]) -> None:
    """What lies behind the others by then is dropped or cut, and can be read; the rest counts."""
    query = S.union(T).group_by("k").agg(n=ew.count())
    runtime = strong(query, now, 10.0)
    say = talking(runtime, now, out)
    say(0, S=[Insert(1, 30, A)], T=[Insert(2, 25, B)])
    say(11, S=[Cti(10)])
    late = [Insert(5, 7, B), Adjust(2, 25, 6, B), Insert(12, 14, B)]
    say(1, T=late)
    assert runtime.dropped == {"T": {Reason.LATE: 1, Reason.CUT: 1}}
    assert [(name, str(e), r) for name, e, r in runtime.latest_dropped()] == [
        ("T", "insert [5, 7) k='b' x=2", Reason.LATE),
        ("T", "adjust [2, 25 -> 6) k='b' x=2", Reason.CUT),
    ]
    out += runtime.close()["out"].elements()
    assert_valid(out)
    assert not [element for element in out if isinstance(element, Adjust)]
    admitted = {"S": [Insert(1, 30, A)], "T": [Insert(2, 10, B), Insert(12, 14, B)]}
    assert_same_history(out, oracle(query.node, {name: History.of(e, SCHEMA) for name, e in admitted.items()}))


def test_who_speaks_again_in_time_is_awake(now: list[float], out: list[Element]) -> None:
    runtime = strong(S.union(T).distinct(), now, 10.0)
    say = talking(runtime, now, out)
    say(0, S=[Cti(5)], T=[Cti(1)])
    assert runtime.progress == {"S": 5, "T": 1}
    say(9, T=[Insert(7, 9, A)])
    say(5, S=[Cti(6)])
    assert runtime.progress == {"S": 6, "T": 1}  # five seconds ago T spoke
    say(5)
    assert runtime.progress == {"S": 6, "T": 6}
    assert runtime.dropped == {}


def test_ended_inputs_and_resting_ones_are_no_measure(now: list[float], out: list[Element]) -> None:
    runtime = strong(S.union(T).distinct(), now, 10.0)
    say = talking(runtime, now, out)
    say(0, S=[Cti(5)], T=[Insert(1, 3, A)])
    runtime.close_input("S")
    say(20)
    assert runtime.progress["T"] < 5  # S has ended: that says nothing about T
    assert say(0, T=[Insert(1, 2, B), Cti(3)]) == ["insert [1, 2) k='b' x=2", "insert [1, 3) k='a' x=1", "cti 3"]
    assert runtime.dropped == {}


def test_run_takes_it_too() -> None:
    elements = [Insert(1, 4, A), Cti(9)]
    query = S.union(T).distinct()
    found = list(ew.run(query, {"S": elements, "T": elements}, ew.STRONG, idle=60.0))
    assert_same_history(found, oracle(query.node, {n: History.of(elements, SCHEMA) for n in "ST"}))


def test_a_time_that_is_none() -> None:
    with pytest.raises(QueryError, match="idle after 0 seconds"):
        LocalRuntime(S.distinct(), idle=0)


# --- sessions ---------------------------------------------------------------------------------------------------------

U = ew.source("U", COLUMNS)


def said(session: Session | SqlSession, **epoch: list[Element]) -> dict[str, list[str]]:
    found = session.push({name: batch_of(elements, SCHEMA) for name, elements in epoch.items()})
    return {name: [str(element) for element in batch.elements()] for name, batch in found.items()}


def test_in_a_session_a_quiet_source_holds_its_own_readers_back_for_a_time(now: list[float]) -> None:
    session = Session(clock=lambda: now[0], consistency=ew.STRONG, idle=10.0)
    session.register("both", S.union(T).distinct())
    session.register("other", U.distinct())
    first = said(session, S=[Insert(1, 4, A), Cti(8)], T=[Insert(2, 3, B), Cti(2)], U=[Insert(1, 9, A)])
    assert first == {"both": ["insert [1, 2) k='a' x=1", "cti 2"], "other": []}
    now[0] += 9
    assert said(session, S=[Cti(9)], U=[Insert(2, 5, A)]) == {"both": [], "other": []}
    now[0] += 1  # T rests; U, which never promises anything, is read by somebody else
    assert said(session)["both"] == ["insert [2, 4) k='a' x=1", "insert [2, 3) k='b' x=2", "cti 9"]
    said(session, T=[Insert(5, 7, B), Insert(10, 11, B)])
    assert session.dropped("both") == {"T": {Reason.LATE: 1}}
    assert session.dropped("other") == {}


def test_a_query_that_joins_later_gives_its_source_time_to_speak(now: list[float]) -> None:
    session = Session(clock=lambda: now[0], consistency=ew.STRONG, idle=10.0)
    session.register("one", S.distinct())
    said(session, S=[Cti(5)])
    now[0] += 20
    session.register("both", S.union(T).distinct())
    assert said(session, S=[Cti(6)])["both"] == []
    now[0] += 10
    assert "cti 7" in said(session, S=[Cti(7)])["both"]


def test_idle_in_sql_and_through_a_snapshot(now: list[float]) -> None:
    text = """CREATE STREAM S (k VARCHAR, x BIGINT); CREATE STREAM T (k VARCHAR, x BIGINT);
              SELECT DISTINCT S.k FROM S, T WHERE S.k = T.k"""
    session = SqlSession(clock=lambda: now[0], consistency=ew.STRONG, idle=10.0)
    session.execute(text)
    said(session, S=[Insert(1, 9, A)], T=[Insert(2, 7, A), Cti(3)])
    now[0] += 11
    assert said(session, S=[Cti(20)])["q1"][-1] == "cti 20"
    query = S.union(T).distinct()
    first = Session(clock=lambda: now[0], consistency=ew.STRONG, idle=10.0)
    first.register("q", query)
    said(first, S=[Cti(9)], T=[Cti(1)])
    second = Session(clock=lambda: now[0], consistency=ew.STRONG, idle=10.0)
    second.restore(through_file(first.snapshot()), {"q": query})
    now[0] += 11
    assert said(second, S=[Cti(10)])["q"] == ["cti 10"]
    with pytest.raises(QueryError, match="idle="):
        Session(consistency=ew.STRONG).restore(through_file(first.snapshot()), {"q": query})


def test_a_moved_query_keeps_its_rest(now: list[float]) -> None:
    session = Session(clock=lambda: now[0], consistency=ew.STRONG, idle=10.0)
    session.register("both", S.union(T).distinct())
    said(session, S=[Insert(1, 4, A), Cti(8)], T=[Cti(2)])
    session.change("both", block=5, remember=100)
    now[0] += 11
    said(session, S=[Cti(9)])
    assert session.progress["T"] == 9


def test_groups_that_meet_are_one() -> None:
    assert linked([{"a", "b"}, {"c"}, {"d", "e"}, {"b", "d"}]) == [{"c"}, {"a", "b", "d", "e"}]
