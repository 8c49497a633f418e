"""The Flying Fixed-Point paper, 3.2, 5 and 6: which queries converge, and what goes wrong where they do not strongly.

Numbers in brackets are rows of the table of statements in `docs/papers.md`.  That counts of derivations and births
without phases fail (historical divergence, 61) is shown in `operators/loop/test_fixpoint.py`.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.operators.loop.support_loops import BIRTH
from everwhen.plan.loop import loop_plan
from everwhen.reference import evaluate
from everwhen.stream.element import Adjust, Element, Insert
from everwhen.stream.history import History
from operators.loop.recursive_runs import LINK, SOURCE, nodes, shortest
from papers.ffp_queries import Run

col = ew.col
STEP = ew.source("Known", {"n": "int64"}).join(LINK, on={"n": "a"}).select(n=col("b"))
"""One round of `nodes`: what follows from what is known."""


def hop(a: int, b: int, w: int = 0) -> Insert:
    return Insert(0, INF, {"a": a, "b": b, "w": w})


def source(n: int) -> Insert:
    return Insert(0, INF, {"n": n})


def graph(rng: random.Random, acyclic: bool = False) -> list[Element]:
    """Links between five nodes."""
    pairs = [(rng.randrange(5), rng.randrange(5)) for _ in range(rng.randrange(1, 10))]
    return [hop(min(pair), max(pair)) if acyclic else hop(*pair) for pair in pairs if not acyclic or pair[0] != pair[1]]


def follows(known: set[int], links: list[Element]) -> set[int]:
    """One round by the definition of the operators."""
    given = {"Known": History.of([source(n) for n in known], SOURCE.schema), "Link": History.of(links, LINK.schema)}
    return {row[0] for row in evaluate(STEP.node, given).at(0)}


def rounds(links: list[Element], count: int) -> list[set[int]]:
    """Q^0 … with Q(r, s) = {0} ∪ step(s)."""
    known = [{0}]
    for _ in range(count):
        known.append({0} | follows(known[-1], links))
    return known


def test_the_fixed_point_is_the_union_of_all_rounds_and_ends() -> None:
    """[16, 17] Q monotone: Q^(i-1) ⊆ Q^i, some Q^k = Q^(k+1), and the loop says their union."""
    for seed in range(40):
        links = graph(random.Random(seed))
        known = rounds(links, 7)
        assert all(one <= other for one, other in pairwise(known))
        assert known[5] == known[6]
        run = Run(nodes())
        run.push({"Source": [source(0)], "Link": links})
        assert {row[0] for (_, _, row) in run.alive()} == set().union(*known)


def test_strongly_convergent_as_printed_holds_for_no_query_with_an_answer() -> None:
    """[18, 19, a slip] Q^0 is in every Q^k, so none is empty; meant are derivations of exactly k rounds."""
    for seed in range(20):
        links = graph(random.Random(seed), acyclic=True)
        assert all(each >= {0} for each in rounds(links, 9))
        level = {0}
        for _ in range(5):
            level = follows(level, links)
        assert level == set()  # no way of five links without a cycle: as meant, strongly convergent
    level = {0}
    for _ in range(50):
        level = follows(level, [hop(0, 1), hop(1, 0)])
    assert level != set()  # convergent, but as meant not strongly


def test_a_level_is_a_birth() -> None:
    """[19] In one epoch a row comes in the round of its first level, and is born then."""
    links = [hop(0, 1), hop(1, 2), hop(2, 3), hop(3, 0), hop(0, 2)]
    run = Run(nodes())
    run.push({"Source": [source(0)], "Link": links})
    head = run.loop._head
    ids = head._keys.ids()
    pieces, _ = head._pieces.gather(ids)
    born = dict(zip(head._keys.codes[ids][:, -1].tolist(), pieces[:, BIRTH].tolist(), strict=True))
    known = rounds(links, 5)
    assert born == {n: next(i for i, each in enumerate(known) if n in each) + 1 for n in range(4)}


def copies(links: list[Element], **options: object) -> Run:
    """Every derivation, without a memory of the path."""
    query = ew.fixpoint(
        SOURCE, lambda r: r.join(LINK, on={"n": "a"}).select(n=col("b")), kind="union all", name="ways", **options
    )  # type: ignore[arg-type]
    run = Run(query)
    run.push({"Source": [source(0)], "Link": links})
    return run


def test_union_all_ends_where_every_derivation_does() -> None:
    """[18] Two ways to 3 are two copies of 3; on a cycle there is no end, and that is said by name."""
    run = copies([hop(0, 1), hop(0, 2), hop(1, 3), hop(2, 3), hop(3, 4)])
    assert {row[0]: count for (_, _, row), count in run.alive().items()} == {0: 1, 1: 1, 2: 1, 3: 2, 4: 2}
    with pytest.raises(ew.EvaluationError, match="'ways' has not ended after 20 rounds in one epoch; at instant 0 the"):
        copies([hop(0, 1), hop(1, 0)], max_level=20)


def test_without_retractions_removing_duplicates_suffices() -> None:
    """[60] Insert only: no births are carried, and the answer is exact on cycles."""
    start = ew.source("Source", {"n": "int64"}, insert_only=True)
    way = ew.source("Link", {"a": "int64", "b": "int64", "w": "int64"}, insert_only=True)
    query = ew.fixpoint(start, lambda r: r.join(way, on={"n": "a"}).select(n=col("b")))
    assert not loop_plan(query.node).births and loop_plan(nodes().node).births  # type: ignore[arg-type]
    for seed in range(20):
        rng = random.Random(seed)
        links = graph(rng)
        run = Run(query)
        for at in range(0, len(links), 2):
            run.push({"Source": [source(0)] if at == 2 else [], "Link": links[at : at + 2]})
        reached = set().union(*rounds(links, 6)) if len(links) > 2 else set()
        assert {row[0] for (_, _, row) in run.alive()} == reached


def test_a_cycle_without_weights_does_not_keep_its_least_cost() -> None:
    """[62] Aggregate selection for MIN, exact under retraction: 1 and 2 are 0 apart, and the way to them goes."""
    run = Run(shortest())
    first, other = hop(0, 1, 1), hop(0, 2, 5)
    run.push({"Source": [source(0)], "Link": [first, other, hop(1, 2, 0), hop(2, 1, 0)]})
    assert {row for (_, _, row) in run.alive()} == {(0, 0), (1, 1), (2, 1)}
    run.push({"Link": [Adjust(0, INF, 0, first.row)]})
    assert {row for (_, _, row) in run.alive()} == {(0, 0), (1, 5), (2, 5)}
    run.push({"Link": [Adjust(0, INF, 0, other.row)]})
    assert {row for (_, _, row) in run.alive()} == {(0, 0)}


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("SELECT COUNT(*) FROM r", "aggregate"),
        ("SELECT n FROM r WINDOW(RANGE 5)", "window"),
        ("SELECT a FROM Link EXCEPT SELECT n FROM r", "EXCEPT"),
    ],
)
def test_what_may_not_stand_on_a_loop(step: str, what: str) -> None:
    """[48, two readings] Not AlterLifetime, as in the paper; of aggregates MIN and MAX only, which never take back."""
    with pytest.raises(ew.QueryError, match=what):
        ew.sql(f"WITH RECURSIVE r(n) AS (SELECT n FROM Source UNION {step}) SELECT * FROM r", SOURCE, LINK)
