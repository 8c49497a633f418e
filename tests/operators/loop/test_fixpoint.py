"""The loop as an operator: random runs beside the definition and beside NetworkX, what it keeps, and how it fails."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.operators.contract import Output
from everwhen.operators.loop import fixpoint, support
from everwhen.operators.loop.fixpoint import FixpointOperator
from everwhen.rows.changes import Changes, concat
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from operators.differential import EMITS
from operators.loop.recursive_runs import LAST, QUERIES, SOURCE, Network, linear, nodes, run, shortest
from papers.ffp_queries import Run

RUNS = 22
"""Per query; together some 240, about ten seconds."""
STRATEGIES = ("hybrid", "probing", "high water mark")


def random_run(name: str, seed: int) -> LocalRuntime:
    """A query with a policy, a strategy, staged or flying, over a network that changes, with restarts in between."""
    rng = random.Random(f"{name} {seed}")
    flying = rng.random() < 0.4
    strategy = rng.choice(STRATEGIES)
    options: dict[str, Any] = {"rounds": rng.choice((1, 2, 3))} if flying else {}
    query = QUERIES[name](progress=strategy, **options)
    emit = "all" if rng.random() < 0.5 else rng.choice(EMITS)
    return run(query, rng, rng.randrange(2, 12), emit, staged=not flying, prompt=strategy != "high water mark")


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_it_is_the_fixed_point_at_every_instant(name: str) -> None:
    for seed in range(RUNS):
        random_run(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_it_is_the_fixed_point_in_ten_thousand_runs(name: str) -> None:
    for seed in range(RUNS, RUNS + 10_000 // len(QUERIES) + 1):
        random_run(name, seed)


@pytest.mark.parametrize("name", ["linear", "shortest", "simple_paths"])
def test_with_insertions_only(name: str) -> None:
    for seed in range(6):
        run(QUERIES[name](), random.Random(seed), 8, inserts_only=True)


LEVELS = ((0, 0), (0, 2), (0, 5), (2, 2), (2, 9), (5, 5))


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_at_levels_that_forget_it_is_the_fixed_point_of_what_is_admitted(name: str) -> None:
    """After every epoch; the definition of what is admitted is `reference/admission.py`."""
    given_up = 0
    for seed in range(2 * len(LEVELS)):
        rng = random.Random(f"forgets {name} {seed}")
        block, remember = LEVELS[seed % len(LEVELS)]
        rounds = {"rounds": rng.choice((1, 2))} if rng.random() < 0.3 else {}
        emit = "all" if rng.random() < 0.5 else rng.choice(EMITS)
        query = QUERIES[name](**rounds)
        runtime = run(query, rng, 8, emit, staged=not rounds, restarts=seed % 2 == 0, block=block, remember=remember)
        given_up += sum(sum(counts.values()) for counts in runtime.dropped.values())
    assert given_up > 10, "levels that forget nothing test nothing"


# -- what would be wrong -----------------------------------------------------------------------------------------------


def fails(name: str, runs: int = 60) -> bool:
    """Whether some random run fails the law."""
    for seed in range(runs):
        try:
            random_run(name, seed)
        except (AssertionError, ew.EverwhenError):
            return True
    return False


def test_counting_derivations_alone_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """All premises as old as the base: rows on a cycle keep each other for ever."""
    taken = support.SetHead._visit

    def visit(
        self: support.SetHead, keys: np.ndarray, given: np.ndarray, order: np.ndarray, derived: Sequence[np.ndarray],
        phase: int,
    ) -> Changes:  # fmt: skip
        lo, hi, weight, premise = derived
        return taken(self, keys, given, order, (lo, hi, weight, np.zeros_like(premise)), phase)

    monkeypatch.setattr(support.SetHead, "_visit", visit)
    assert fails("nodes")
    cycle = Run(nodes())
    cycle.push({"Source": [SOURCE_A], "Link": [hop(0, 1), hop(1, 0)]})
    cycle.push({"Source": [Adjust(0, INF, 5, SOURCE_A.row)]})
    assert {(vs, ve) for (vs, ve, _) in cycle.alive()} == {(0, INF)}


def test_going_and_coming_at_once_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Births, but no phases: a row and its retraction chase each other round the loop, the paper's historical
    divergence."""

    def go_round(
        self: FixpointOperator, derived: Changes, resting: list[Output], external: int, tau: int
    ) -> list[Changes]:
        said: list[Changes] = []
        for _ in range(100):
            batch = concat(self._head.retract(derived), self._head.insert(None))
            if not len(batch):
                return said
            said.append(batch)
            self._check(batch)
            derived = self._arrive(self._body.step([*resting, self._round(batch)], tau))
        raise ew.EvaluationError("round and round")

    monkeypatch.setattr(fixpoint.FixpointOperator, "_go_round", go_round)
    cycle = Run(nodes())
    cycle.push({"Source": [SOURCE_A], "Link": [hop(0, 1), hop(1, 0)]})
    with pytest.raises(ew.EvaluationError, match="round and round"):
        cycle.push({"Source": [Adjust(0, INF, 5, SOURCE_A.row)]})
    assert fails("nodes")


# -- another judge -----------------------------------------------------------------------------------------------------

SOURCE_A = Insert(0, INF, {"n": 0})


def hop(a: int, b: int, w: int = 0, vs: int = 0, ve: int = INF) -> Insert:
    return Insert(vs, ve, {"a": a, "b": b, "w": w})


class Edges:
    """A network of many nodes whose links are replaced, as elements and as a graph of NetworkX."""

    def __init__(self, seed: int, size: int, links: int, weights: Sequence[int]) -> None:
        self.rng = random.Random(seed)
        self.size, self.weights = size, weights
        self.links = [self._link() for _ in range(links)]

    def _link(self) -> dict[str, int]:
        rng = self.rng
        return {"a": rng.randrange(self.size), "b": rng.randrange(self.size), "w": rng.choice(self.weights)}

    def replaced(self, count: int) -> list[Element]:
        elements: list[Element] = []
        for _ in range(count):
            at = self.rng.randrange(len(self.links))
            elements.append(Adjust(0, INF, 0, self.links[at]))
            self.links[at] = self._link()
            elements.append(Insert(0, INF, self.links[at]))
        return elements

    def graph(self) -> nx.MultiDiGraph:
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(range(self.size))
        graph.add_weighted_edges_from([(each["a"], each["b"], each["w"]) for each in self.links], weight="w")
        return graph


@pytest.mark.parametrize("rounds", [None, 2])
def test_reachable_as_networkx_says(rounds: int | None) -> None:
    edges = Edges(1, 60, 110, (0,))
    sources = (3, 7, 40)
    trial = Run(linear(rounds=rounds))
    trial.push(
        {"Source": [Insert(0, INF, {"n": n}) for n in sources], "Link": [Insert(0, INF, e) for e in edges.links]}
    )
    for _ in range(25):
        trial.push({"Link": edges.replaced(3)})
        while trial.loop.unfinished:
            trial.push()
        graph = edges.graph()
        wanted = {(s, n) for s in sources for n in nx.descendants(graph, s) | {s}}
        assert {row for (_, _, row) in trial.alive()} == wanted
        trial.out = [Insert(0, INF, {"s": s, "n": n}) for s, n in wanted]


@pytest.mark.parametrize("rounds", [None, 2])
def test_least_costs_as_networkx_says(rounds: int | None) -> None:
    """Also of cycles that cost nothing."""
    edges = Edges(2, 50, 100, (0, 0, 1, 4))
    trial = Run(shortest(rounds=rounds))
    trial.push({"Source": [SOURCE_A], "Link": [Insert(0, INF, e) for e in edges.links]})
    for _ in range(25):
        trial.push({"Link": edges.replaced(3)})
        while trial.loop.unfinished:
            trial.push()
        costs = nx.single_source_dijkstra_path_length(edges.graph(), 0, weight="w")
        assert {row for (_, _, row) in trial.alive()} == set(costs.items())
        trial.out = [Insert(0, INF, {"n": n, "d": d}) for n, d in costs.items()]


# -- what it says ------------------------------------------------------------------------------------------------------


def test_what_goes_and_comes_back_is_not_mentioned() -> None:
    """Two sources on a cycle: one ends, and its row stays because of the other."""
    trial = Run(nodes())
    other = Insert(0, INF, {"n": 1})
    trial.push({"Source": [SOURCE_A, other], "Link": [hop(0, 1), hop(1, 0)]})
    assert trial.push({"Source": [Adjust(0, INF, 5, SOURCE_A.row)]}) == []
    ended = trial.push({"Source": [Adjust(0, INF, 7, other.row)]})
    assert sorted(map(str, ended)) == [f"adjust [0, ∞ -> 7) n={n}" for n in (0, 1)]


def test_the_end_of_a_lifetime_costs_nothing() -> None:
    """What was announced is an intersection: no phase in which rows go."""
    trial = Run(nodes())
    trial.push({"Source": [SOURCE_A], "Link": [hop(n, n + 1, ve=50) for n in range(6)]})
    before = trial.loop.touched
    trial.push({"Source": [Cti(60)], "Link": [Cti(60)]})
    assert trial.loop.touched == before
    assert {(ve, row) for (_, ve, row) in trial.alive()} == {(INF, (0,))} | {(50, (n,)) for n in range(1, 7)}


def test_a_loop_that_diverges_is_named() -> None:
    """UNION over ever larger numbers: the row that still comes and its instant are told, and nothing is said."""
    base, step = SOURCE, lambda r: r.select(n=ew.col("n") + 1)
    trial = Run(ew.fixpoint(base, step, name="up", max_level=30))
    message = (
        r"the recursion 'up' has not ended after 30 rounds in one epoch; at instant 4 the row \(n=30\) still comes"
    )
    with pytest.raises(ew.EvaluationError, match=message):
        trial.push({"Source": [Insert(4, 9, {"n": 0})]})
    assert trial.out == []


def test_too_many_rows_are_a_divergence_too() -> None:
    trial = Run(nodes(max_rows=100))
    with pytest.raises(ew.EvaluationError, match="after 100 rows in one epoch"):
        trial.push({"Source": [SOURCE_A], "Link": [hop(n, n + 1) for n in range(200)]})


def test_flying_an_epoch_ends_after_its_rounds_and_goes_on() -> None:
    trial = Run(nodes(rounds=2))
    said = [trial.push({"Source": [SOURCE_A], "Link": [hop(n, n + 1) for n in range(5)]}), trial.push(), trial.push()]
    assert [len(each) for each in said] == [2, 2, 2] and not trial.loop.unfinished
    assert trial.push() == []


def test_flying_the_end_of_all_inputs_ends_it() -> None:
    trial = Run(nodes(rounds=1))
    trial.push({"Source": [SOURCE_A], "Link": [hop(n, n + 1) for n in range(9)]})
    trial.close()
    assert {row for (_, _, row) in trial.alive()} == {(n,) for n in range(10)} and trial.cti == INF


# -- what it keeps -----------------------------------------------------------------------------------------------------


def kept_ends(operator: FixpointOperator) -> list[int]:
    """When each record of the head and each row of its joins ends."""
    head, found = operator._head, []
    for regions in getattr(head, "_regions", ()):
        records, _ = regions.gather(head._keys.ids())  # type: ignore[attr-defined]
        found += records[:, 1].tolist()
    for part in operator._body.snapshot():
        sides = [side for side in part["state"].values() if isinstance(side, dict) and "segments" in side]
        found += [end for side in sides for end in side["segments"][:, 1].tolist()]
    return found


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_nothing_that_has_ended_is_kept(name: str) -> None:
    """After CTI(c) on all inputs the head has no record, and the joins no row, that ended by c; after ∞ nothing."""
    for seed in range(6):
        network = Network(random.Random(seed), promises=0)
        trial = Run(QUERIES[name]())
        kept = []
        for t in (2, 5, 9, 13):
            epoch = {key: each for key, each in network.epoch(6).items() if key in trial.runtime.inputs}
            network.ctis = {"Source": t, "Link": t}
            trial.push({key: [*epoch[key], Cti(t)] for key in trial.runtime.inputs})
            ends = kept_ends(trial.loop)
            assert all(end > t for end in ends)
            kept.append(len(ends))
        assert any(kept)
        trial.close()
        assert trial.loop.state_size().rows == 0


@pytest.mark.parametrize("name", sorted(QUERIES))
@pytest.mark.parametrize("remember", [0, 3])
def test_a_level_that_forgets_keeps_nothing_that_ended_before(name: str, remember: int) -> None:
    """Not one promise, disorder without bound: what is before c = τ - M is taken for promised."""
    forgotten = 0
    for seed in range(3):
        network = Network(random.Random(f"{name} {seed}"), promises=0)
        runtime = LocalRuntime(QUERIES[name](), emit="all", consistency=ew.consistency(0, remember))
        (loop,) = [each.operator for each in runtime.plan.operators if isinstance(each.operator, FixpointOperator)]
        for _ in range(10):
            epoch = network.epoch(6)
            runtime.push({each: batch_of(epoch[each], runtime.schema_of(each), each) for each in runtime.inputs})
            c = min(runtime.progress.values())
            assert all(end > c for end in kept_ends(loop))
        forgotten = max(forgotten, c)
    assert forgotten > LAST // 2 - remember, "it is tested while much has ended"


def test_memory_is_that_of_the_window() -> None:
    """Links that live for 50 ticks, a tenth of them corrected: state at the end is that after a tenth of the run."""
    rng = random.Random(6)
    trial = Run(nodes())
    peaks = []
    trial.push({"Source": [SOURCE_A, Cti(INF)]})
    for t in range(0, 3000, 10):
        elements: list[Element] = []
        for _ in range(20):
            link = hop(rng.randrange(30), rng.randrange(30), vs=t, ve=t + 50)
            elements.append(link)
            if rng.random() < 0.1:
                elements.append(Adjust(t, t + 50, t + rng.randrange(50), link.row))
        trial.push({"Link": [*elements, Cti(t)]})
        trial.out = []
        peaks.append(trial.loop.state_size())
    early, late = peaks[20:50], peaks[-30:]
    assert max(each.rows for each in late) < 1.2 * max(each.rows for each in early)
    assert max(each.bytes for each in late) <= 1.3 * max(each.bytes for each in early)
