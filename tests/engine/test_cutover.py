"""A running query becomes another one: the old answer before an instant, the new one from there on, nothing twice."""

from __future__ import annotations

import pickle
import random

import pytest

import everwhen as ew
from engine.physical_copies import LAST, copy_of, history, snapshots
from everwhen.algebra.nodes import Source, walk
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.stream.element import Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.testing import assert_valid, check

S = ew.source("S", {"k": "int64", "v": "int64"})
R = ew.source("R", {"k": "int64", "v": "int64"})


def plans() -> dict[str, ew.Stream]:
    """Plans with the columns k and v."""
    k, v = ew.col("k"), ew.col("v")
    return {
        "source": S,
        "filter": S.where(v > 0),
        "filter and map": S.where(v > 0).select(k=k, v=v + 1),
        "map": S.select(k=v, v=k),
        "window": S.range(4),
        "count": S.group_by("k").agg(v=ew.count()),
        "count, filtered": S.group_by("k").agg(v=ew.count()).where(k > 0),
        "sum in a window": S.range(6).group_by("k").agg(v=ew.sum("v")),
        "distinct": S.distinct(),
        "union": S.union(R),
        "join": S.join(R, on="k").select(k=k, v=v),
        "other source": R,
        "difference": S.difference(R),
        "left join": S.join(R, on="k", how="left").select(k=k, v=v),
        "granularity": S.granularity(3),
        "maximum": S.range(3).group_by("k").agg(v=ew.max("v")),
    }


def expected(plan: ew.Stream, inputs: dict[str, list[Element]]) -> list[dict]:
    names = {"S", "R"} & set(_reads(plan))
    return snapshots(list(ew.run(plan, {name: inputs[name] for name in names}, emit="final")))


def _reads(plan: ew.Stream) -> list[str]:
    return [node.name for node in walk(plan.node) if isinstance(node, Source)]


@pytest.mark.property
@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@pytest.mark.parametrize("seed", range(30))
def test_old_before_and_new_from_there_on(emit: str, seed: int) -> None:
    """Random plans take over from each other, at once or at an instant, with snapshots in between."""
    rng = random.Random(f"{emit} {seed}")
    given = plans()
    events = {name: history(rng) for name in "SR"}
    inputs = {name: copy_of(events[name], rng) for name in "SR"}
    rest = {name: list(elements) for name, elements in inputs.items()}
    session = Session(emit=emit)
    for name, stream in (("S", S), ("R", R)):
        session.register(f"anchor {name}", stream)
    if rng.random() < 0.5:
        other = rng.choice(sorted(given))
        session.register("beside", given[other])
    names = [rng.choice(sorted(given))]
    session.register("q", given[names[0]])
    told: list[tuple[int, str]] = [(NEVER, names[0])]
    said: list[Element] = []
    pair: tuple[str, str] | None = None
    while any(rest.values()):
        batches: dict[str, ElementBatch] = {}
        for name, part in rest.items():
            count = rng.randint(0, 5)
            batches[name] = batch_of(part[:count], S.schema, name)
            del part[:count]
        heard = session.push(batches)
        assert "q" in heard, session.query("q").error
        said += heard["q"].elements()
        if rng.random() < 0.3:
            new = rng.choice(sorted(given))
            at = None if rng.random() < 0.5 else told[-1][0] + rng.randint(0, 12) if told[-1][0] > NEVER else 20
            try:
                start = session.replace("q", given[new], at)
            except QueryError as refused:
                assert any(word in str(refused) for word in ("cannot take over", "cannot join", "being replaced"))
                continue
            assert at is None or start == at
            pair = told[-1][1], new
            told.append((start, new))
        if rng.random() < 0.2:
            queries: dict = {"anchor S": S, "anchor R": R}
            if "beside" in {each.name for each in session.queries()}:
                queries["beside"] = given[other]
            entry = session._catalogue["q"]
            queries["q"] = given[told[-1][1]] if entry.replaces is None else tuple(given[each] for each in pair or ())
            state = pickle.loads(pickle.dumps(session.snapshot()))
            session = Session(emit=emit)
            session.restore(state, queries)
    said += session.close()["q"].elements()
    assert_valid(said)
    assert check(said).closed_up_to == INF
    got = snapshots(said)
    answers = {name: expected(given[name], inputs) for _, name in told}
    for t in range(LAST):
        name = [name for at, name in told if at <= t][-1]
        assert got[t] == answers[name][t], f"at {t}, {told}"


def batch(*elements: Element) -> ElementBatch:
    return batch_of(list(elements), S.schema, "S")


ROW = {"k": 1, "v": 1}


def test_equal_answers_are_not_said_again() -> None:
    """A plan that is written differently and means the same takes over without a single element."""
    session = Session()
    handle = session.register("q", S.where(ew.col("v") > 0))
    assert len(session.push({"S": batch(Insert(0, 50, ROW), Insert(3, INF, ROW), Cti(5))})["q"]) == 3
    assert handle.replace(S.where(ew.col("v") >= 1)) == 5
    assert list(session.push({})["q"].elements()) == []
    assert [str(e) for e in session.push({"S": batch(ew.Adjust(0, 50, 9, ROW))})["q"].elements()] == [
        "adjust [0, 50 -> 9) k=1 v=1"
    ]


def test_twenty_cutovers_leave_nothing_behind() -> None:
    session = Session()
    handle = session.register("q", S.range(4).group_by("k").agg(v=ew.count()))
    most = 0
    for t in range(20):
        session.push({"S": batch(Insert(5 * t, 5 * t + 1, ROW), Cti(5 * t))})
        handle.replace(S.range(4 + t % 2).group_by("k").agg(v=ew.count()))
        most = max(most, session.state_size().rows)
    session.push({"S": batch(Cti(200))})
    assert most < 20
    assert session.state_size().rows == 0
    assert len(session.metadata()) == 3, "a window, an aggregate, an output"


def test_the_old_plan_answers_until_the_new_one_knows() -> None:
    """A window of 10 over a source that keeps nothing is right ten ticks later."""
    source = ew.source("S", {"k": "int64", "v": "int64"}, insert_only=True, chronons=True)
    session = Session()
    handle = session.register("q", source.range(2).group_by("k").agg(v=ew.count()))
    said = list(session.push({"S": batch(Insert(0, 1, ROW), Insert(7, 8, ROW), Cti(8))})["q"].elements())
    start = handle.replace(source.range(10).group_by("k").agg(v=ew.count()))
    assert start > 8
    with pytest.raises(QueryError, match="being replaced already"):
        handle.replace(source)
    with pytest.raises(QueryError, match="being replaced: it can be moved when that is done"):
        handle.change(emit="final")
    said += session.push({"S": batch(*(Insert(t, t + 1, ROW) for t in range(8, 30)), Cti(30))})["q"].elements()
    assert_valid(said)
    assert handle.replace(source) == 30


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: s.replace("q", S.select(k=ew.col("k"))),
            "has the columns .* cannot replace it: give it the same columns, or start another query",
        ),
        (
            lambda s: s.replace("q", S.range(3), at=1),
            "at 1: it can from 7 on, because its answer is right",
        ),
        (
            lambda s: s.replace("q", S.where(ew.col("k") > 0), at=1),
            "from 5 on, because everything before is",
        ),
        (lambda s: s.replace("x", S), "there is no query 'x'"),
        (lambda s: (s.stop("q"), s.replace("q", S)), "is stopped: only one that runs"),
        (lambda s: s.replace("q", ew.source("S", {"k": "int64", "v": "int64"}, insert_only=True)), "one declaration"),
        (lambda s: (s.register("r", s.stream("q").range(2)), s.replace("q", S)), "cannot be replaced: r reads"),
    ],
)
def test_what_cannot_replace_a_query_changes_nothing(call: object, message: str) -> None:
    session = Session()
    session.register("q", S)
    session.push({"S": batch(Insert(0, 9, ROW), Cti(5))})
    with pytest.raises(QueryError, match=message):
        call(session)  # type: ignore[operator]
    if session.query("q").state == "running":
        assert [str(e) for e in session.push({"S": batch(Cti(6))})["q"].elements()] == ["cti 6"]


def test_an_answer_that_has_promised_rows_for_ever_is_not_replaced() -> None:
    session = Session()
    session.register("q", S)
    session.push({"S": batch(Insert(0, 9, ROW), Punct(Punctuation({"k": OneOf((1,))})))})
    with pytest.raises(QueryError, match="promised of some rows that they will never change"):
        session.replace("q", S.range(3))
