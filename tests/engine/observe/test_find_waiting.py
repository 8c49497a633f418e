"""WAITING's law, over random plans and silences: the named promise of the named source, and nothing else, brings
something or moves the wait to another source that was named; one tick less brings nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import get_args

import pytest

import everwhen as ew
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER, last_tick
from everwhen.engine.local import LocalRuntime
from everwhen.engine.observe.silence import find_waiting as find
from everwhen.engine.observe.silence.waiting import Needed, Reason, SourceStatus, Waiting
from everwhen.engine.session.session import Session
from everwhen.punctuation.api import read_match
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import batch_of
from operators.differential import EMITS, SCHEMA
from plans import PLANS, Plan, S, T, col

LEVELS = (ew.consistency(0, INF), ew.consistency(4, INF), ew.consistency(0, 6), ew.consistency(3, 6))
RUNS = 3


def rows_of(said: ew.ElementBatch) -> int:
    return sum(isinstance(each, Insert | Adjust) for each in said.elements())


class Silence:
    """A runtime that was given some random elements, which may be copied."""

    def __init__(self, query: ew.Stream, level: ew.Consistency, emit: str) -> None:
        self.query, self.level, self.emit = query, level.changed(emit=emit), emit
        self.runtime = LocalRuntime(query, consistency=self.level)

    def copied(self) -> LocalRuntime:
        copy = LocalRuntime(self.query, consistency=self.level)
        copy.restore(self.runtime.snapshot())
        return copy

    def push(self, rng: random.Random, infinite: bool) -> None:
        epoch: dict[str, list[Element]] = {}
        for name in self.runtime.inputs:
            cti = self.runtime.progress[name]
            low = max(cti, 0)
            starts = [rng.randrange(low, low + 9) for _ in range(rng.randrange(4))]
            ends = [INF if infinite and rng.random() < 0.1 else vs + rng.randrange(1, 8) for vs in starts]
            rows = [{"k": rng.choice("ab"), "x": rng.randrange(3)} for _ in starts]
            epoch[name] = [Insert(vs, ve, row) for vs, ve, row in zip(starts, ends, rows, strict=True)]
            if rng.random() < 0.4:
                epoch[name].append(Cti(low + rng.randrange(4)))
        self.runtime.push({name: batch_of(each, SCHEMA, name) for name, each in epoch.items()})


def brings(runtime: LocalRuntime, promises: Mapping[str, int], puncts: Mapping[str, str] | None = None) -> int:
    """What promises bring, and those about data as they are written, and nothing else, until nothing goes round."""
    epoch: dict[str, Element] = {name: Cti(t) for name, t in promises.items()}
    for name, punct in (puncts or {}).items():
        epoch[name] = Punct(Punctuation(read_match(json.loads(punct)["match"], SCHEMA)))
    rows = rows_of(runtime.push({name: batch_of([each], SCHEMA, name) for name, each in epoch.items()})["out"])
    while runtime.goes_on():
        rows += rows_of(runtime.push({})["out"])
    return rows


def assert_law(silence: Silence) -> Waiting:
    waiting = silence.runtime.waiting()
    named = {need.source.name for need in waiting.needs}
    if waiting.reason != "promise":
        end = {name: batch_of([Cti(INF)], SCHEMA, name) for name in silence.runtime.present}
        assert waiting.reason == "ended" or not rows_of(silence.copied().push(end)["out"])
        return waiting
    for need in waiting.needs:  # one tick less, even if all others have come
        early, met = silence.copied(), [each for each in waiting.needs if each is not need]
        assert not sum(brings(early, {each.source.name: each.t}) for each in met)
        assert not brings(early, less(need))
        if need.punct is not None:
            assert brings(silence.copied(), {each.source.name: each.t for each in met}, {need.source.name: need.punct})
    together = {need.source.name: need.t for need in waiting.needs}
    assert brings(silence.copied(), together) == waiting.rows + waiting.corrections
    follows, left = silence.copied(), waiting
    for step in range(len(waiting.needs)):
        need = left.needs[0]
        came = brings(follows, {need.source.name: need.t})
        if came:  # one after the other they may bring the same in other pieces
            assert step == len(waiting.needs) - 1 and came == left.rows + left.corrections
            return waiting
        left = follows.waiting()
        assert left.reason == "promise" and {each.source.name for each in left.needs} < named
        named = {each.source.name for each in left.needs}
    raise AssertionError(f"the promises that were named brought nothing: {waiting}")


def less(need: Needed) -> dict[str, int]:
    """One tick less, if that is more than is promised."""
    before = MIN if need.t == INF else need.t - 1
    return {need.source.name: before} if before > need.source.promised else {}


MIN = -(2**40)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_promise_that_is_named_brings_something(plan: Plan) -> None:
    rng = random.Random(plan.name)
    for _ in range(RUNS):
        silence = Silence(plan.build(), rng.choice(LEVELS), rng.choice(EMITS))
        for _ in range(rng.randrange(1, 4)):
            silence.push(rng, plan.infinite)
        assert_law(silence)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_promise_that_is_named_brings_something_in_many_runs(plan: Plan) -> None:
    rng = random.Random(f"many {plan.name}")
    for _ in range(100):
        silence = Silence(plan.build(), rng.choice(LEVELS), rng.choice(EMITS))
        for _ in range(rng.randrange(1, 6)):
            silence.push(rng, plan.infinite)
            assert_law(silence)


# -- the sentences -----------------------------------------------------------------------------------------------------


def insert(vs: int, ve: int, k: str = "a", x: int = 1) -> Insert:
    return Insert(vs, ve, {"k": k, "x": x})


def started(query: ew.Stream, emit: str = "final", **epoch: Sequence[Element]) -> LocalRuntime:
    runtime = LocalRuntime(query, emit=emit, clock=lambda: 7.0)
    if epoch:
        runtime.push({name: batch_of(each, SCHEMA, name) for name, each in epoch.items()})
    return runtime


def test_two_sources_hold_a_join_back() -> None:
    found = started(S.join(T, on="k"), S=[insert(1, 9), Cti(4)], T=[insert(5, 20)]).waiting()
    assert str(found).splitlines() == [
        "out: 1 row from 5 on waits for a promise of 6 of S and T",
        "  S has promised 4; its largest start is 1: it holds the answer back",
        '    -> {"op":"cti","t":6} of S, or a promise about its data, {"op":"punct","match":{"k":"a"}}',
        "  T has promised nothing yet; its largest start is 5: it holds the answer back",
        '    -> {"op":"cti","t":6} of T, or a promise about its data, {"op":"punct","match":{"k":"a"}}',
    ]


def test_the_pattern_that_is_named_brings_something_as_well() -> None:
    runtime = started(S.group_by("k").agg(n=ew.count()), S=[insert(1, 9), insert(3, 9, "b"), Cti(0)])
    (need,) = runtime.waiting().needs
    assert need.t == 2 and need.pattern is not None
    assert need.punct == '{"op":"punct","match":{"k":"a"}}'
    assert rows_of(runtime.push({"S": batch_of([Punct(need.pattern)], SCHEMA, "S")})["out"]) == 1


def test_a_pattern_is_about_columns_of_one_type() -> None:
    """An answer may give a source's name to something else."""
    runtime = started(S.select(k=col("k").is_null(), x=col("x")), S=[insert(1, 9, x=2), Cti(0)])
    assert runtime.waiting().needs[0].punct == '{"op":"punct","match":{"x":2}}'
    runtime = started(S.select(k=col("x")), S=[insert(1, 9, x=2), Cti(0)])
    assert runtime.waiting().needs[0].punct is None


def test_a_source_whose_promises_follow_from_its_rows_needs_a_row() -> None:
    session = ew.SqlSession()
    session.execute("CREATE STREAM S (t INT, k TEXT) ORDERED BY t WITHIN 10 MILLISECONDS")
    session.execute("SELECT DISTINCT k FROM S CONSISTENCY STRONG")

    def said(start: int, k: str) -> int:
        batch = batch_of([Insert(start, start + 1, {"k": k})], session.schema_of("S"))
        return rows_of(session.push({"S": batch})["q1"])

    assert said(40, "a") == 0
    (need,) = session.waiting("q1").needs
    assert (need.t, need.source.within) == (41, 10)
    assert need.remedy.startswith('a row of S that starts at 51 or later, or {"op":"cti","t":41} of S')
    assert (said(50, "b"), said(51, "b")) == (0, 1)


def test_it_is_told_when_a_source_spoke_last() -> None:
    now = [10.0]
    runtime = LocalRuntime(S.distinct(), emit="final", clock=lambda: now[0])
    runtime.push({"S": batch_of([insert(1, 5)], SCHEMA, "S")})
    now[0] = 52.4
    assert "its last element came 42 s ago" in str(runtime.waiting())


def test_nothing_came() -> None:
    found = started(S.join(T, on="k")).waiting()
    assert found.reason == "nothing came" and "S has promised nothing yet; nothing has come from it" in str(found)


def test_a_filter_that_lets_nothing_through() -> None:
    found = started(S.where(col("x") > 9).distinct(), "current", S=[insert(1, 5), insert(2, 5)]).waiting()
    assert str(found).startswith("out: rows came, and the operator '0 filter' has let none through (2 in, 0 out)")


def test_a_join_without_partners() -> None:
    found = started(S.join(T, on="k"), "current", S=[insert(1, 5)]).waiting()
    assert found.reason == "nothing passes" and "T has promised nothing yet; nothing has come from it" in str(found)


def test_all_is_said() -> None:
    assert started(S, "all", S=[insert(1, 5)]).waiting().reason == "all is said"


def test_the_end() -> None:
    assert started(S, "all", S=[insert(1, 5), Cti(INF)]).waiting().reason == "ended"


def test_a_merge_waits_for_whoever_is_ahead() -> None:
    a, b = (ew.source(name, S.schema) for name in "ab")
    runtime = started(ew.lmerge(a, b), a=[insert(1, 5), Cti(1)], b=[insert(1, 5)])
    assert [(need.source.name, need.t) for need in runtime.waiting().needs] == [("a", 2)]


def test_what_was_given_up_is_told() -> None:
    runtime = LocalRuntime(S.distinct(), consistency=ew.consistency(0, 2, emit="final"))
    runtime.push({"S": batch_of([insert(10, 12), insert(1, 3)], SCHEMA, "S")})
    assert runtime.waiting().given_up == {"S": 1}
    assert "1 element of S came too late and had to be given up" in str(runtime.waiting())


def test_every_row_came_too_late() -> None:
    late = ew.source("S", S.schema, late="drop")
    runtime = LocalRuntime(late.distinct(), emit="final")
    runtime.push({"S": batch_of([Cti(50)], SCHEMA, "S")})
    runtime.push({"S": batch_of([insert(1, 3), insert(2, 9)], SCHEMA, "S")})
    found = runtime.waiting()
    assert found.reason == "late" and found.given_up == {"S": 2}
    assert str(found).startswith("out: rows came, and every one of them too late")


def test_sources_that_rest() -> None:
    now = [10.0]
    runtime = LocalRuntime(S.union(T), emit="all", clock=lambda: now[0], idle=5.0)
    runtime.push({"S": batch_of([insert(1, 5)], SCHEMA, "S")})
    assert runtime.waiting().reason == "all is said"
    now[0] = 30.0
    found = runtime.waiting()
    assert found.reason == "resting" and "T has promised nothing yet; nothing has come from it; it rests" in str(found)
    assert [each["resting"] for each in found.to_plain()["sources"]] == [True, True]


def test_an_answer_that_begins_later() -> None:
    """A query that joins knows its answer from an instant on that the sources have not reached."""
    session = Session(emit="final")
    session.register("first", S.range(100).distinct())
    session.push({"S": batch_of([insert(10, 11), Cti(11)], SCHEMA)})
    late = session.register("late", S.range(500).aggregate(n=ew.count()).where(col("n") > 5))
    assert late.valid_from > 11
    found = session.waiting("late")
    assert found.reason == "catching up" and f"the answer begins at {late.valid_from}" in str(found)


def test_a_sink_that_is_tried_again() -> None:
    status = SourceStatus("S", 4, 9)
    now = find.Situation("q", [status], {}, [], lambda: pytest.fail("not tried"), sink="no space on device")
    found = find.find_waiting(now)
    assert found.reason == "sink"
    assert str(found).splitlines()[0] == (
        "q: the answer is there, and its sink does not take it: no space on device; it is tried again"
    )


def test_no_silence_without_a_reason() -> None:
    """Each reason has a sentence, and a sentence is not empty."""
    for reason in get_args(Reason):
        needs = (Needed(SourceStatus("S", 1, 2), 3),) if reason == "promise" else ()
        told = Waiting("q", reason, (SourceStatus("S", 1, 2),), needs, 1, 0, 2, "0 filter", "why").lines()
        assert told[0].startswith("q: ") and len(told[0]) > 20, reason


def test_a_large_state_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What brings the answer further is told by the rules of the operators."""
    monkeypatch.setattr(find, "LARGEST", 3)
    runtime = started(S.distinct(), S=[insert(t, t + 9) for t in range(9)])
    monkeypatch.setattr(LocalRuntime, "push", None)
    monkeypatch.setattr(LocalRuntime, "snapshot", lambda _: pytest.fail("it is copied"))
    found = runtime.waiting()
    assert found.reason == "not tried" and str(found).startswith(
        "out: nothing is final yet, and goes on with a promise of 9 of S; "
        "what waits was not tried: there are 27 rows of state, and at most 3 are copied"
    )
    assert '-> {"op":"cti","t":9} of S' in str(found)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_without_trying_the_named_promises_bring_the_answer_further(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they let the answer promise more; with one tick less of any it promises nothing more."""
    monkeypatch.setattr(find, "LARGEST", -1)
    rng = random.Random(f"further {plan.name}")
    for _ in range(RUNS):
        silence = Silence(plan.build(), LEVELS[0], rng.choice(EMITS))
        for _ in range(rng.randrange(1, 4)):
            silence.push(rng, plan.infinite)
        found = silence.runtime.waiting()
        if found.reason != "not tried":
            assert found.reason in ("ended", "nothing came")
            continue
        final = found.first
        assert final is not None and found.needs, found
        met = {need.source.name: need.t for need in found.needs}
        assert promised(silence, met, final) > final
        for need in found.needs:
            less = met | {need.source.name: last_tick(need.t)}
            assert final == NEVER or promised(silence, less, final) == final


def promised(silence: Silence, promises: dict[str, int], before: int) -> int:
    """What the answer promises if sources do."""
    copy = silence.copied()
    given = {name: [Cti(t)] for name, t in promises.items() if t > copy.progress[name]}
    said = copy.push({name: batch_of(each, SCHEMA, name) for name, each in given.items()})["out"]
    return max((each.t for each in said.elements() if isinstance(each, Cti)), default=before)


def test_the_promise_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows wait for the answer's promise nothing is searched: in `final`, over windows, joins and merges."""
    monkeypatch.setattr(find, "least", lambda *_: pytest.fail("searched"))
    a, b = (ew.source(name, S.schema) for name in "ab")
    queries = (
        S.range(5, slide=4).distinct(),
        S.granularity(2).join(T.lifetime(shift=3), on="k"),
        S.rows(2).union(T),
        ew.lmerge(a, b).group_by("k").agg(n=ew.count()),
        S.coalesce(),
        ew.fixpoint(S, lambda r: r.join(T, on="k", how="semi")),
    )
    for query in queries:
        runtime = LocalRuntime(query, emit="final")
        runtime.push({name: batch_of([insert(3, 8), insert(5, 9), Cti(2)], SCHEMA, name) for name in runtime.inputs})
        waiting = runtime.waiting()
        assert waiting.reason == "promise" and waiting.rows, waiting


def test_as_plain_data() -> None:
    found = started(S.distinct(), S=[insert(1, 5), Cti(1)]).waiting().to_plain()
    assert (found["reason"], found["rows"], found["first"]) == ("promise", 1, 1)
    assert found["needs"] == [
        {"source": "S", "t": 2, "or": None, "remedy": '{"op":"cti","t":2} of S'}
        | {key: found["needs"][0][key] for key in ("or", "remedy")}
    ]
    assert found["sources"] == [
        {"name": "S", "promised": 1, "largest_start": 1, "heard": 0.0, "ended": False, "resting": False}
    ]


def test_asking_changes_nothing() -> None:
    one, other = (started(S.range(5).distinct(), S=[insert(1, 5), insert(3, 4)]) for _ in range(2))
    one.waiting()
    first, second = (each.push({"S": batch_of([Cti(9)], SCHEMA, "S")})["out"] for each in (one, other))
    assert [str(each) for each in first.elements()] == [str(each) for each in second.elements()]


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_in_a_session_each_query_has_its_reason() -> None:
    session = Session(emit="final")
    session.register("joined", S.join(T, on="k"))
    session.register("alone", S.distinct())
    session.push({"S": batch_of([insert(1, 9), Cti(1)], SCHEMA), "T": batch_of([insert(2, 9)], SCHEMA)})
    alone, joined = session.waiting("alone"), session.waiting("joined")
    assert [(need.source.name, need.t) for need in alone.needs] == [("S", 2)]
    assert {need.source.name: need.t for need in joined.needs} == {"S": 3, "T": 3}
    said = session.push({"S": batch_of([Cti(2)], SCHEMA)})
    assert rows_of(said["alone"]) == 1 and rows_of(said["joined"]) == 0
    assert {need.source.name for need in session.waiting("joined").needs} == {"S", "T"}


def test_a_query_that_is_being_replaced() -> None:
    session = Session(emit="final")
    session.register("q", S.range(4).distinct())
    session.push({"S": batch_of([insert(1, 9), Cti(1)], SCHEMA)})
    session.replace("q", S.range(8).distinct())
    (need,) = session.waiting("q").needs
    assert rows_of(session.push({"S": batch_of([Cti(need.t)], SCHEMA)})["q"])


def test_what_a_query_of_a_session_needs() -> None:
    session = Session(emit="final")
    session.register("q", S.granularity(10).join(T, on="k"))
    assert session.needs(15, "q") == {"S": 11, "T": 15}
    session.stop("q")
    with pytest.raises(ew.QueryError, match="the query 'q' is stopped, so it needs no promise; start it"):
        session.needs(15, "q")


def test_of_a_query_that_does_not_run() -> None:
    session = Session()
    session.register("q", S)
    session.stop("q")
    with pytest.raises(ew.QueryError, match="the query 'q' is stopped, so it waits for nothing; start it"):
        session.waiting("q")


def test_the_least_instant() -> None:
    for wanted in (-7, 0, 41, INF):
        for low in (NEVER, -100, wanted - 1):
            found = find.least(lambda t, wanted=wanted: t >= wanted, low, 12)  # type: ignore[misc]
            assert found == wanted


def test_a_query_of_a_session_whose_last_filter_lets_nothing_through() -> None:
    session = ew.SqlSession()
    session.execute("CREATE STREAM S (k INT, v INT); SELECT k, v FROM S WHERE v > 1000")
    session.push({"S": batch_of([Insert(1, 2, {"k": 1, "v": 2})], session.schema_of("S"))})
    why = session.waiting("q1")
    assert (why.reason, why.operator) == ("nothing passes", "q1: last filters")
    assert "rows came, and the operator 'q1: last filters' has let none through (1 in, 0 out)" in str(why)
