"""A plan in partitions that takes over from another one: the old answer before an instant, the new one from there on.

What the driver does on Spark is done here by hand: what the guards keep is the past of the new plan, both plans run,
and their elements are put together.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from engine.physical_copies import copy_of, history, snapshots
from everwhen.algebra.nodes import Source, walk
from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.plan.exact_from import exact_from
from everwhen.spark.worker.answer_span import AnswerSpan
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.testing import assert_valid
from parity.stage_runner import Partitions

S, R = (ew.source(name, {"k": "int64", "v": "int64"}) for name in "SR")


def plans() -> dict[str, ew.Stream]:
    """Plans with the columns k and v, which need no more of the past than there is."""
    k, v = ew.col("k"), ew.col("v")
    return {
        "source": S,
        "filter and map": S.where(v > 0).select(k=k, v=v + 1),
        "map": S.select(k=v + 0, v=k + 0),
        "window": S.range(4),
        "count": S.group_by("k").agg(v=ew.count()),
        "count of all": S.aggregate(k=ew.count(), v=ew.count()),
        "sum in a window": S.range(6).group_by("k").agg(v=ew.sum("v")),
        "two stages": S.group_by("k", "v").agg(n=ew.count()).group_by("v").agg(k=ew.count()).select("k", "v"),
        "distinct": S.distinct(),
        "union": S.union(R),
        "join": S.join(R, on="k").select(k=k, v=v),
        "difference": S.difference(R),
        "left join": S.join(R, on="k", how="left").select(k=k, v=v),
        "granularity": S.granularity(3),
        "copies": ew.lmerge(S, S.where(v >= 0)).group_by("k").agg(v=ew.max("v")),
        "coalesced": S.coalesce(),
    }


class Running:
    """A query in partitions that is replaced again and again."""

    def __init__(self, query: ew.Stream, emit: str, rng: random.Random) -> None:
        self.emit, self.rng = emit, rng
        self.old = self._partitions(query)
        self.new: Partitions | None = None
        self.at, self.cti, self.tau = NEVER, dict.fromkeys("SR", NEVER), NEVER
        self.ends = NEVER
        self.told: list[tuple[int, ew.Stream]] = [(NEVER, query)]

    def _partitions(self, query: ew.Stream) -> Partitions:
        return Partitions(query.node, self.rng.choice([1, 2, 3]), self.emit, self.rng.randrange(99))

    def push(self, batches: dict[str, ElementBatch]) -> list[Element]:
        for name, batch in batches.items():
            self.cti[name] = max(self.cti[name], int(batch.vs[batch.op == 2].max(initial=NEVER)))
            self.tau = max(self.tau, int(batch.vs[batch.op == 0].max(initial=NEVER)))
        said = self.old.push(self._read(self.old, batches))
        if self.new is not None:
            over = self.old.said >= self.at  # it has said all that it had to
            if over:
                self.new.span = AnswerSpan(self.at)
            more = self.new.push(self._read(self.new, batches))
            ctis = [e for e in said if isinstance(e, Cti)]
            if over:
                ctis += [e for e in more if isinstance(e, Cti) and e.t > self.at]
            both = [e for e in (*said, *more) if not isinstance(e, Cti)]
            said = [*(sorted(both, key=lambda e: e.sync) if self.emit == "final" else both), *ctis[-1:]]
            if over:
                self.old, self.new = self.new, None
                self.old.said = max(self.at, self.old.said)
        self._seen(said)
        return said

    def _seen(self, said: list[Element]) -> None:
        for each in said:
            if isinstance(each, Insert | Adjust):
                self.ends = max(self.ends, each.vnew if isinstance(each, Adjust) else each.ve)

    def _read(self, run: Partitions, batches: dict[str, ElementBatch]) -> dict[str, ElementBatch]:
        names = {source.name for source in run.plan.sources}
        return {name: batch for name, batch in batches.items() if name in names}

    def replace(self, query: ew.Stream, at: int | None) -> list[Element]:
        new = self._partitions(query)
        known = dict(self.cti)
        names = {source.name for source in new.plan.sources}
        if not names <= {source.name for source in self.old.plan.sources}:
            raise QueryError("another source")
        exact = exact_from(new.plan, Emit(self.emit), known)
        last = self.old.kernels[-1][0]
        reads = {source.name for source in self.old.plan.sources}
        forgotten = last.recalls("out", max(self.cti[name] for name in reads), self.ends)
        t = max(exact, self.old.said, forgotten, self.told[-1][0], NEVER if at is None else at)
        if not NEVER < t < INF:
            raise QueryError("no instant")
        new.span, new.tau = AnswerSpan(t, INF, t), self.tau
        past = {name: batch_of([*self._standing(name), Cti(known[name])], S.schema, name) for name in names}
        said = [e for e in new.push({name: batch for name, batch in past.items()}) if not isinstance(e, Cti)]
        new.tau = NEVER
        self.old.span = AnswerSpan(self.told[-1][0], t, t)
        self.new, self.at = new, t
        self.told.append((t, query))
        self._seen(said)
        return said

    def _standing(self, name: str) -> list[Element]:
        """What the guards of a stream keep: of one that every partition has whole, those of the first."""
        for at, stage in enumerate(self.old.plan.stages):
            for stream in stage.inputs:
                if (
                    stream.feed is not None
                    and stream.feed.source.name == name
                    and set(stream.schema.names) >= {"k", "v"}
                ):
                    kernels = self.old.kernels[at] if stream.by is not None else self.old.kernels[at][:1]
                    found: list[Element] = []
                    for kernel in kernels:
                        guard = kernel.guards[stream.name]
                        events = guard.standing()
                        columns = [c.to_pylist() for c in guard.codec.decode(events.rows)]
                        for i in range(len(events)):
                            row = {n: c[i] for n, c in zip(guard.codec.schema.names, columns, strict=True)}
                            found.append(Insert(int(events.lo[i]), int(events.hi[i]), row))
                    return found
        raise QueryError(f"nobody knows {name}")


def check(seed: int, emit: str) -> int:
    rng = random.Random(seed)
    given_plans = plans()
    inputs = {name: copy_of(history(rng), rng) for name in "SR"}
    rest = {name: list(elements) for name, elements in inputs.items()}
    running = Running(given_plans["union" if rng.random() < 0.5 else rng.choice(sorted(given_plans))], emit, rng)
    said: list[Element] = []
    while any(rest.values()):
        batches = {}
        for name, part in rest.items():
            count = rng.randint(0, 5)
            batches[name] = batch_of(part[:count], S.schema, name)
            del part[:count]
        said += running.push(batches)
        if running.new is None and rng.random() < 0.4:
            at = None if rng.random() < 0.5 else rng.randint(0, 25)
            try:
                said += running.replace(given_plans[rng.choice(sorted(given_plans))], at)
            except QueryError:
                continue
        if rng.random() < 0.3:
            running.old.restart()
            if running.new is not None:
                running.new.restart()
    said += running.push({name: batch_of([Cti(INF)], S.schema, name) for name in inputs})
    assert_valid(said)
    assert running.new is None and said[-1] == Cti(INF)
    expected = [snapshots(_whole(query, inputs)) for _, query in running.told]
    found = snapshots(said)
    for t, there in enumerate(found):
        now = max(at for at, (since, _) in enumerate(running.told) if since <= t)
        assert there == expected[now][t], (t, [(since, str(q)) for since, q in running.told])
    return len(running.told) - 1


def _whole(query: ew.Stream, inputs: dict[str, list[Element]]) -> list[Element]:
    names = {node.name for node in walk(query.node) if isinstance(node, Source)}
    return list(ew.run(query, {name: inputs[name] for name in names}, emit="final"))


@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_old_before_and_new_from_there_on(emit: str, seed: int) -> None:
    check(seed, emit)


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@settings(max_examples=400)
@given(seed=st.integers(0, 2**32))
def test_many(emit: str, seed: int) -> None:
    check(seed, emit)


def test_plans_do_take_over() -> None:
    assert sum(check(seed, "current") for seed in range(20)) > 10


def test_a_plan_that_needs_all_of_the_past_is_named() -> None:
    known = {"S": 5, "R": 5}
    for query, name in ((S.rows(2), "window"), (S.deletes(), "deletes"), (S.unbounded(), "window")):
        with pytest.raises(QueryError, match=f"no instant is known.*'?{name}"):
            exact_from(Partitions(query.node, 1, "current").plan, Emit.CURRENT, known)
    assert exact_from(Partitions(S.range(4).node, 1, "current").plan, Emit.CURRENT, known) >= 8


@pytest.mark.parametrize("first", ["current", "ended", "all"])
@pytest.mark.parametrize("name", ["filter and map", "count", "distinct"])
@pytest.mark.parametrize("over", [False, True])
def test_what_took_over_and_is_then_moved_to_final_knows_its_events_from_the_switch_on(
    name: str, first: str, over: bool
) -> None:
    """They were said from there on, though the source has them from before."""
    row = {"k": 1, "v": 1}

    def batch(*elements: Element) -> dict[str, ElementBatch]:
        return {"S": batch_of(list(elements), S.schema, "S")}

    partitions = Partitions(plans()[name].node, 1, first)
    partitions.span = AnswerSpan(10, INF, INF if over else 10)
    heard = list(partitions.push(batch(Insert(0, 50, row), Cti(5))))
    partitions.emit = Emit.FINAL
    heard += partitions.push(batch(Cti(12)))
    heard += partitions.push(batch(Adjust(0, 50, 20, row), Cti(14)))
    partitions.span = AnswerSpan(10, INF, INF)
    heard += partitions.push(batch(Cti(60)))
    assert_valid(heard)
    assert min(each.vs for each in heard if isinstance(each, Insert)) == 10
