"""Random rows of all kinds of values, and streams of them, checked after every epoch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from types import MappingProxyType

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.reference import evaluate
from everwhen.stream.element import Cti, Element
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import reorder
from operators.differential import Said, assert_snapshots
from state_files import through_file

R = ew.source("R", {"k": "string", "x": "int64", "f": "float64", "d": "decimal128(9, 2)"})
SCHEMA = R.schema
INSTANTS = range(-4, 24)


def random_row(rng: random.Random) -> tuple[object, ...]:
    some = rng.random() < 0.8
    return (
        rng.choice(("a", "b", "ab", "", None)),
        rng.choice((-1, 0, 1, 2, 3, None)) if some else rng.randrange(3),
        rng.choice((-1.5, 0.0, 2.5, float("nan"), None)),
        rng.choice((Decimal("-1.00"), Decimal("0.50"), Decimal("10.00"), None)),
    )


def random_history(rng: random.Random, events: int, forever: float = 0.2) -> History:
    found: Counter[tuple[int, int, tuple[object, ...]]] = Counter()
    rows = [random_row(rng) for _ in range(max(2, events // 2))]
    for _ in range(events):
        vs = rng.randrange(-3, 12)
        ve = INF if rng.random() < forever else vs + rng.randrange(1, 9)
        found[vs, ve, rng.choice(rows)] += rng.choice((1, 1, 1, 2))
    return History(SCHEMA, MappingProxyType(dict(found)))


def random_stream(rng: random.Random, history: History) -> list[Element]:
    return reorder(
        history,
        rng,
        disorder=rng.choice((0, 2, None)),
        corrections=rng.choice((0.0, 0.4, 0.8)),
        wrong=rng.choice((0.0, 0.5)),
        ctis=rng.choice((0.0, 0.2, 0.6)),
    )


def assert_right_after_every_epoch(
    query: ew.Stream, rng: random.Random, events: int, forever: float = 0.2
) -> LocalRuntime:
    elements = random_stream(rng, random_history(rng, events, forever))
    runtime, said, came = LocalRuntime(query, emit="all"), Said(query.schema), 0
    while came < len(elements):
        size = rng.choice((1, 2, 3, 5, 20))
        batch = ElementBatch.of(elements[came : came + size], SCHEMA)
        came = min(came + size, len(elements))
        said.take(runtime.push({"R": batch})["out"])
        so_far = History.of([e for e in elements[:came] if not isinstance(e, Cti)], SCHEMA)
        expected = evaluate(query.node, {"R": so_far})
        assert_snapshots(said, expected, INSTANTS, f"after {came} elements of {query}")
        if rng.random() < 0.2:
            state = through_file(runtime.snapshot())
            runtime = LocalRuntime(query, emit="all")
            runtime.restore(state)
        if rng.random() < 0.2:
            runtime.plan.pool.collect(force=True)
    return runtime


def in_epochs(history: History, rng: random.Random) -> Iterator[ElementBatch]:
    """A stream of the history, late and corrected, in batches."""
    elements = reorder(history, rng, disorder=rng.choice((0, 3)), corrections=0.4, wrong=0.3, ctis=0.4)
    while elements:
        size = rng.choice((1, 2, 4, 9))
        yield ElementBatch.of(elements[:size], SCHEMA)
        del elements[:size]
