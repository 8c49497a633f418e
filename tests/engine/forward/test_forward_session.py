"""Queries of a session that fast-forward: each as far as it asked, what they share as far as all of them did."""

from __future__ import annotations

import random

import pytest

import everwhen as ew
from engine.forward.forwarded import NAMES, history, lagging, unwilling
from engine.small_session import one, sums, texts
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.differential import EMITS, FIRST, LAST, SCHEMA, Said, assert_snapshots, epochs, sources, streams_of
from plans import S, T, col
from state_files import through_file

A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}
QUERIES = {
    "events": lambda: S,
    "some events": lambda: S.where(col("x") > 0),
    "window": lambda: S.range(4),
    "sums": sums,
    "sums of a": lambda: sums().where(col("k") == "a"),
    "highest": lambda: sums().aggregate(m=ew.max("t")),
    "join": lambda: S.range(4).join(T, on="k"),
    "left join": lambda: S.join(T.range(2), on="k", how="left"),
    "moved": lambda: S.lifetime(hop=3, length=6),
    "coalesced": lambda: S.union(T).coalesce(),
    "rows": lambda: T.rows(2, partition_by=["k"]),
    "distinct": lambda: T.select("k").distinct(),
    "changes": lambda: S.difference(T).istream(),
}


def floors(session: Session) -> dict[str, int]:
    return {name: each.intake.guard.floor for name, each in session._network.ingress.inputs.items()}


class Run:
    """A session whose queries join, leave, move to other levels, and fast-forward."""

    def __init__(self, emit: str, given: dict[str, History]) -> None:
        self.emit, self.given = emit, given
        self.session = Session(emit=emit)
        self.queries: dict[str, ew.Stream] = {}
        self.said: dict[str, Said] = {}
        self.right: dict[str, int] = {}

    def register(self, name: str) -> None:
        query = QUERIES[name]()
        try:
            handle = self.session.register(name, query)
        except QueryError as error:
            assert "cannot join now" in str(error)
            return
        self.queries[name], self.said[name], self.right[name] = query, Said(query.schema), handle.valid_from

    def take(self, found: dict[str, ew.ElementBatch]) -> None:
        assert set(found) == set(self.said), [each.error for each in self.session.queries()]
        for name, batch in found.items():
            self.said[name].take(batch)

    def fast_forward(self, name: str, t: int) -> None:
        self.take(self.session.fast_forward(name, t))
        self.right[name] = max(self.right[name], t)

    def push(self, epoch: dict[str, ew.ElementBatch]) -> None:
        self.take(self.session.push({name: b for name, b in epoch.items() if name in self.session.inputs}))

    def stop(self, name: str) -> None:
        self.session.remove(name)
        self.check(name, self.said[name].cti)
        del self.said[name], self.queries[name]

    def restart(self) -> None:
        state, self.session = through_file(self.session.snapshot()), Session(emit=self.emit)
        self.session.restore(state, self.queries)

    def check(self, name: str, until: int) -> None:
        """All that is promised is right, from when on the query cares."""
        oracle = evaluate(self.queries[name].node, {each: self.given[each] for each in sources(self.queries[name])})
        instants = range(max(self.right[name], FIRST), min(until, LAST))
        assert_snapshots(self.said[name], oracle, instants, f"{name}, right from {self.right[name]} on")
        assert_valid(self.said[name].elements)


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("seed", range(6))
def test_queries_that_share_operators(emit: str, seed: int) -> None:
    rng = random.Random(f"{emit} {seed}")
    given = {name: history(rng, False) for name in "ST"}
    run = Run(emit, given)
    run.session.register("t", T)  # both sources are read all the time, by queries that need nothing of the past
    run.session.register("s", S)
    for name in ("s", "t"):
        run.queries[name], run.right[name] = (S, T)[name == "t"], NEVER
        run.said[name] = Said(run.queries[name].schema)
    for name in rng.sample(list(QUERIES), 4):
        run.register(name)
    some = epochs(streams_of(given, rng, False), rng)
    for name in ("s", "t"):
        if rng.random() < 0.7:  # else they hold the others back
            run.fast_forward(name, 30)
    for epoch in some:
        running = [name for name in run.said if name in QUERIES]
        if rng.random() < 0.3 and running:
            run.fast_forward(rng.choice(running), rng.randrange(-2, 30))
        if rng.random() < 0.2 and len(running) > 1:
            run.stop(rng.choice(running))
        if rng.random() < 0.2:
            waiting = [name for name in QUERIES if name not in run.said]
            run.register(rng.choice(waiting))
        if rng.random() < 0.1 and running and (moved := rng.choice(running)) in run.said:
            run.session.change(moved, remember=1000)
        if rng.random() < 0.15:
            run.restart()
        run.push(epoch)
    run.take(run.session.close())
    for name, said in run.said.items():
        assert said.cti == INF
        run.check(name, INF)


def test_the_earliest_of_the_users_times_counts() -> None:
    session = Session()
    session.register("sums", sums())
    session.register("highest", sums().aggregate(m=ew.max("t")))
    session.fast_forward("sums", 50)
    assert floors(session) == {"S": NEVER}
    assert [session.query(name).valid_from for name in ("sums", "highest")] == [50, NEVER]
    session.fast_forward("highest", 30)
    assert floors(session) == {"S": 27}
    session.stop("highest")
    assert floors(session) == {"S": 47}
    session.register("events", S)  # it says from when on it knows
    assert session.query("events").valid_from == 47
    session.fast_forward("sums", 90)
    assert floors(session) == {"S": 47}


def test_queries_behind_one_output() -> None:
    """Filters at the end share all but themselves."""
    session = Session()
    handles = [session.register(k, sums().where(col("k") == k)) for k in "ab"]
    handles[0].fast_forward(40)
    assert floors(session) == {"S": NEVER}
    handles[1].fast_forward(60)
    assert floors(session) == {"S": 37}


def test_events_for_one_who_joins_later() -> None:
    """It hears them under the instant from which on it knows; those who were there under the names they know."""
    session = Session()
    session.register("first", S)
    session.push(one(Insert(1, 50, A)))
    session.fast_forward("first", 10)
    session.push(one(Insert(2, 40, B)))
    session.register("second", S)
    said = session.push(one(ew.Adjust(1, 50, 30, A), ew.Adjust(2, 40, 35, B), Cti(12)))
    assert texts(said["first"]) == ["adjust [1, 50 -> 30) k='a' x=1", "adjust [10, 40 -> 35) k='b' x=2", "cti 12"]
    assert texts(said["second"]) == [
        "insert [10, 50) k='a' x=1", "insert [10, 40) k='b' x=2", "cti 10",
        "adjust [10, 50 -> 30) k='a' x=1", "adjust [10, 40 -> 35) k='b' x=2", "cti 12",
    ]  # fmt: skip


def test_a_source_that_is_left_and_read_again() -> None:
    """What was skipped is over by then."""
    session = Session()
    session.register("sums", sums())
    session.fast_forward("sums", 20)
    session.push(one(Insert(2, 9, A)))
    session.remove("sums")
    assert session.register("again", sums()).valid_from >= 17


@pytest.mark.parametrize("seed", range(4))
def test_copies_that_lag_in_a_session(seed: int) -> None:
    """A merge beside queries that read its copies: these get all that they need, who joins later says from when on."""
    rng = random.Random(seed)
    copies = [ew.source(name, SCHEMA) for name in NAMES]
    sums = [each.range(4).group_by("k").agg(n=ew.count()) for each in copies]
    queries = {
        "merged": ew.lmerge(*copies), "merged sums": ew.lmerge(*sums),
        "rows": ew.lmerge(*copies).rows(2), "a copy": sums[1],
    }  # fmt: skip
    session, plain = Session(), {name: unwilling(LocalRuntime(query)) for name, query in queries.items()}
    started = [name for name in queries if name != "a copy" or rng.random() < 0.5]
    right = {name: session.register(name, queries[name]).valid_from for name in started}
    said, expected = ({name: Said(query.schema) for name, query in queries.items()} for _ in range(2))
    some = lagging(rng)
    for number, epoch in enumerate(some):
        if number == len(some) // 2:
            for name in queries.keys() - right.keys():
                right[name] = session.register(name, queries[name]).valid_from
        if rng.random() < 0.2:
            state, session = session.snapshot(), Session()
            session.restore(state, {name: queries[name] for name in right})
        for name, batch in session.push(epoch).items():
            said[name].take(batch)
        for name, runtime in plain.items():
            expected[name].take(runtime.push({each: epoch[each] for each in runtime.inputs})["out"])
    for name, batch in session.close().items():
        said[name].take(batch)
    for name, runtime in plain.items():
        expected[name].take(runtime.close()["out"])
        for u in range(max(right[name], FIRST), LAST):
            assert said[name].at(u) == expected[name].at(u), f"{name}, right from {right[name]} on, at {u}"
        assert_valid(said[name].elements)


def test_what_stands_above_a_merge_knows_the_past() -> None:
    """Copies that lag are cut; the merge has its answer all the same, so a window of rows may still join."""
    a, b = (ew.source(name, SCHEMA) for name in "ab")
    session = Session()
    session.register("merged", ew.lmerge(a, b))
    session.register("rows", ew.lmerge(a, b).rows(3))
    session.push({"a": batch_of([Insert(1, 2, A), Cti(30)], SCHEMA)})
    assert floors(session) == {"a": 30, "b": 30}
    nodes = session._network.flow.nodes.values()
    assert {node.exact for node in nodes} == {NEVER}


def test_only_queries_that_run() -> None:
    session = Session()
    session.register("sums", sums())
    session.stop("sums")
    with pytest.raises(QueryError, match="'sums' is stopped"):
        session.fast_forward("sums", 3)
    with pytest.raises(QueryError, match="no query 'other'"):
        session.fast_forward("other", 3)
    session.start("sums")
    with pytest.raises(QueryError, match="finite instant"):
        session.fast_forward("sums", INF)
