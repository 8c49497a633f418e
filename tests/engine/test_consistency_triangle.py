"""The triangle of (B, M), point by point: the answer is the oracle's to what that point admits.

For every point and query, over random streams that are late and corrected on several inputs: the result equals the
oracle's for what Finalize(M) admits (`reference/admission.py`); with M at least the true disorder it is the exact
answer; with B at least the true disorder there is not a single correction.  Disorder is the largest sync lag, adjusts
included, across all inputs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everwhen as ew
from engine.disordered_epochs import SCHEMA, S, T, epochs_of, lag, pushed, said_of
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.reference import history as oracle
from everwhen.reference.admission import finalized
from everwhen.stream.element import Adjust, Element, Insert
from everwhen.testing import assert_same_history, assert_valid, is_closed, is_perfect, reorder
from everwhen.testing.step_invariants import Invariants
from everwhen.testing.strategies import histories


def intakes(runtime: LocalRuntime) -> dict[str, SourcePipeline]:
    return {name: each.intake for name, each in runtime._ingress.inputs.items()}


QUERIES = {
    "count": S.group_by("k").agg(n=ew.count(), t=ew.sum("x")),
    "window": S.range(3).group_by("k").agg(n=ew.count(), m=ew.max("x")),
    "hop": S.lifetime(hop=4, length=8).aggregate(n=ew.count()),
    "distinct": S.select("k").distinct(),
    "join": S.join(T, on="k"),
    "difference": S.difference(T),
    "anti-join": S.join(T, on="k", how="anti"),
    "left join": S.join(T, on={"k": "k"}, how="left"),
    "rows": S.rows(2),
    "nested": S.group_by("k").agg(t=ew.sum("x")).aggregate(m=ew.max("t"), n=ew.count()),
    "window of a join": S.range(2).join(T, on="k").group_by("k").agg(n=ew.count()),
    "changes": S.distinct().dstream(),
}
GRID = [
    (0, 0), (0, 1), (1, 1), (0, 2), (2, 2), (0, 3), (1, 3), (3, 3), (0, 6), (3, 6), (6, 6), (0, 12), (5, 12), (12, 12),
    (0, INF), (2, INF), (6, INF), (12, INF), (INF, INF),
]  # fmt: skip
SOME = settings(max_examples=4, suppress_health_check=list(HealthCheck))


def names(query: ew.Stream) -> list[str]:
    return [name for name in ("S", "T") if f"Source {name}" in str(query)]


def streams(data: st.DataObject, rng: random.Random) -> dict[str, list[Element]]:
    """Two inputs, each late by a little, by much, or in any order."""
    some = histories(SCHEMA, max_events=6, max_time=10, allow_infinite=False)
    return {
        name: reorder(
            data.draw(some, label=name),
            rng,
            disorder=rng.choice([0, 3, None]),
            ctis=rng.choice([0, 0.3]),
            infinite=False,
        )
        for name in ("S", "T")
    }


def own_lag(elements: Sequence[Element]) -> int:
    """How far behind its own largest start an input comes."""
    tau, found = NEVER, 0
    for element in elements:
        if isinstance(element, Insert | Adjust):
            found = max(found, tau - element.sync) if tau > NEVER else found
            tau = max(tau, element.vs) if isinstance(element, Insert) else tau
    return found


@pytest.mark.parametrize("at", GRID, ids=str)
@SOME
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_every_point_answers_what_it_admits(at: tuple[int, int], data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    block, remember = at
    inputs = streams(data, rng)
    for query in QUERIES.values():
        given_ = {name: inputs[name] for name in names(query)}
        epochs = epochs_of(given_, rng)
        level = ew.consistency(block, remember, emit=rng.choice([None, "ended", "all"]))
        runtime = LocalRuntime(query, consistency=level)
        out = pushed(runtime, epochs)
        assert_valid(out)
        admitted = {name: finalized(elements, remember) for name, elements in given_.items()}
        assert_same_history(out, oracle(query.node, {name: said_of(a.elements) for name, a in admitted.items()}))
        lost = {name: len(a.dropped) for name, a in admitted.items() if a.dropped}
        assert {name: sum(counts.values()) for name, counts in runtime.dropped.items()} == lost
        if all(remember >= own_lag(elements) for elements in given_.values()):
            assert not lost
            assert_same_history(out, oracle(query.node, {name: said_of(e) for name, e in given_.items()}))


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_to_block_for_the_disorder_is_never_to_correct(name: str, data: st.DataObject, seed: int) -> None:
    """B at least the lag, M at least B: not a single adjust, and the exact answer."""
    rng, query = random.Random(seed), QUERIES[name]
    inputs = streams(data, rng)
    given_ = {source: inputs[source] for source in names(query)}
    epochs = epochs_of(given_, rng)
    disorder = lag(epochs)
    remember = rng.choice([max([disorder, *map(own_lag, given_.values())]), INF])
    level = ew.consistency(disorder, max(disorder, remember), emit="ended")
    out = pushed(LocalRuntime(query, consistency=level, check=Invariants()), epochs)
    assert not [str(element) for element in out if isinstance(element, Adjust)]
    assert_same_history(out, oracle(query.node, {source: said_of(elements) for source, elements in given_.items()}))


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_strong_is_perfect_and_closed_and_middle_converges_to_it(name: str, data: st.DataObject, seed: int) -> None:
    rng, query = random.Random(seed), QUERIES[name]
    inputs = streams(data, rng)
    epochs = epochs_of({source: inputs[source] for source in names(query)}, rng)
    strong, middle = (pushed(LocalRuntime(query, consistency=level), epochs) for level in (ew.STRONG, ew.MIDDLE))
    assert is_perfect(strong) and is_closed(strong), is_perfect(strong).why
    assert_same_history(middle, strong)


# --- where Finalize and Align stand -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "stateful"),
    [
        (S.where(ew.col("x") > 0).select("k"), ""),
        (S.range(5).union(T.granularity(3)), ""),
        (S.lifetime(hop=4, length=8), ""),
        (S.distinct(), "S"),
        (S.where(ew.col("x") > 0).union(T).distinct(), "ST"),
        (S.join(T, on="k"), "ST"),
        (S.rows(2), "S"),
    ],
    ids=str,
)
def test_only_below_operators_with_state(query: ew.Stream, stateful: str) -> None:
    """Finalize and Align stand at the sources, below the first operator with state, and nowhere else."""
    runtime = LocalRuntime(query, consistency=ew.consistency(2, 5))
    assert {name for name, intake in intakes(runtime).items() if intake.finalize is not None} == set(stateful)
    assert {name for name, intake in intakes(runtime).items() if intake.align is not None} == set(stateful)
