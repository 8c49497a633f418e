"""oracle = local = stages: whatever the number of partitions and the order of rows within an epoch."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.reference.evaluation import evaluate
from everwhen.stream.history import History
from everwhen.testing import assert_valid, batches, reorder
from example_counts import examples_per_case, sampled_pairs
from parity.stage_runner import Partitions
from plans import RECURSIVE, SPREAD_LOOPS, STAGED, S, across

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
EMITS = ("final", "ended", "current", "all")
BUCKETS = (1, 2, 5)
"""In five, some have no row: there are four values of `k`."""


def random_history(rng: random.Random, infinite: bool) -> History:
    events = []
    for _ in range(rng.randrange(1, 10)):
        vs = rng.randrange(-3, 12)
        ve = ew.INF if infinite and rng.random() < 0.1 else vs + rng.choice([1, 1, 1, 2, 3, 5, 8])
        row = {"k": rng.choice(["a", "b", "c", None]), "x": rng.choice([0, 1, 2, 3, None])}
        events += [ew.Insert(vs, ve, row)] * (2 if rng.random() < 0.2 else 1)
    return History.of(events, SCHEMA)


def _rounded(snapshot: dict) -> list:
    return sorted((repr([round(v, 9) if isinstance(v, float) else v for v in row]), n) for row, n in snapshot.items())


@pytest.mark.property
@pytest.mark.parametrize(("name", "emit"), sampled_pairs(STAGED, EMITS, each=2))
def test_stages_answer_as_the_oracle_does(name: str, emit: str) -> None:
    check_parity(name, emit, STAGED[name].build)


@pytest.mark.property
@pytest.mark.parametrize(
    ("name", "emit"),
    sampled_pairs([each.name for each in (*RECURSIVE, *SPREAD_LOOPS) if "flying" not in each.name], EMITS, each=2),
)
def test_loops_across_exchanges_answer_as_the_oracle_does(name: str, emit: str) -> None:
    check_parity(name, emit, lambda: across(STAGED[name].build()))


@pytest.mark.property
@pytest.mark.parametrize(
    ("emit", "then"), [("final", "all"), ("final", "current"), ("all", "final"), ("ended", "current")]
)
@pytest.mark.parametrize("name", ["recursion over sums", "recursion with an anti-join", "recursion joined with itself"])
@pytest.mark.parametrize("spread", [lambda query: query, across], ids=["in a stage", "across"])
def test_another_policy_while_a_loop_runs(
    name: str, emit: str, then: str, spread: Callable[[ew.Stream], ew.Stream]
) -> None:
    check_parity(name, emit, lambda: spread(STAGED[name].build()), Emit(then))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_flying_loop_goes_on_where_nothing_comes(restarts: bool) -> None:
    start, link = ew.source("Start", {"s": "int64", "n": "int64"}), ew.source("Link", {"a": "int64", "b": "int64"})
    col = ew.col
    reach = ew.fixpoint(start, lambda r: r.join(link, on={"n": "a"}).select("s", n=col("b")), rounds=1)
    run = Partitions(reach.node, 2, "all")
    links = [ew.Insert(0, 9, {"a": n, "b": n + 1}) for n in range(6)]
    said = run.push(
        {
            "Start": ew.ElementBatch.of([ew.Insert(0, 9, {"s": 0, "n": 0})], start.schema),
            "Link": ew.ElementBatch.of(links, link.schema),
        }
    )
    counts = [len(said)]
    while counts[-1]:
        if restarts:
            run.restart()
        said = run.push({})
        counts.append(len(said))
    assert counts == [1] * 7 + [0]


def check_parity(name: str, emit: str, build: Callable[[], ew.Stream], then: Emit | None = None) -> None:
    """`then`: the policy from some epoch on."""
    for seed in range(examples_per_case(7, least=len(BUCKETS))):
        rng = random.Random(f"{name} {emit} {seed}")
        finite = not STAGED[name].infinite
        query = build()
        histories = {s: random_history(rng, not finite) for s in "ST"}
        elements = {
            s: reorder(h, rng, close=True, disorder=rng.choice([0, 3, 8, None]), infinite=not finite)
            for s, h in histories.items()
        }
        run = Partitions(query.node, BUCKETS[seed % len(BUCKETS)], emit, seed)
        run.restarts = 0.1
        read = {source.name for source in run.plan.sources}
        waiting = {s: batches(elements[s], S.schema, rng) for s in sorted(read)}
        out = []
        while any(waiting.values()):
            out += run.push({s: rest.pop(0) for s, rest in waiting.items() if rest and rng.random() < 0.8})
            if rng.random() < 0.2:
                run.restart()
            if then is not None and rng.random() < 0.3:
                run.emit = then
        assert out and out[-1] == ew.Cti(ew.INF)
        assert_valid(out)
        if emit == "final" and then is None:
            assert not any(isinstance(element, ew.Adjust) for element in out)
        oracle = evaluate(query.node, {s: histories[s] for s in read})
        found = History.of(out, query.schema)
        for t in range(-6, 45):
            assert _rounded(found.snapshot(t)) == _rounded(oracle.at(t)), (seed, t)
