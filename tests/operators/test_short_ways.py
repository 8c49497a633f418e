"""Short ways that the usual case takes: what they say is what the long way says, element by element."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.errors import EvaluationError
from everwhen.operators.sweep.loops.group_keys import group_keys
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from state_files import loaded, stored

S = ew.source("S", {"k": "string", "x": "int64", "y": "int64"})


def stream(rng: random.Random, events: int, keys: int, late: int) -> list[Element]:
    """Events in disorder, some of them removed or cut short while that is legal, and promises."""
    elements: list[Element] = []
    standing: list[tuple[int, int, dict[str, object]]] = []
    promised = 0
    for now in range(1, events + 1):
        vs = max(promised, now - (rng.randint(0, late) if rng.random() < 0.3 else 0))
        value = rng.choice((0, 0, 1, 2, -1))  # zeros change a count and no sum
        row: dict[str, object] = {"k": f"k{rng.randrange(keys)}", "x": value, "y": value}
        ve = vs + rng.randint(1, 4)
        elements.append(Insert(vs, ve, row))
        standing.append((vs, ve, row))
        standing = [each for each in standing if each[1] > promised]
        if rng.random() < 0.25:
            a, b, old = standing.pop(rng.randrange(len(standing)))
            vnew = rng.choice([a, *range(max(a, promised), b)]) if a >= promised else rng.randint(promised, b)
            if vnew < b:
                elements.append(Adjust(a, b, vnew, old))
                if vnew > a:
                    standing.append((a, vnew, old))
        if rng.random() < 0.2:
            promised = max(promised, now - late)
            elements.append(Cti(promised))
    return elements


def said(query: ew.Stream, elements: list[Element], cuts: list[int]) -> list[list[tuple[object, ...]]]:
    runtime = LocalRuntime(query, emit="current")
    batches = [elements[a:b] for a, b in zip([0, *cuts], [*cuts, len(elements)], strict=True)]
    outs = [runtime.push({"S": batch_of(part, S.schema)})["out"] for part in batches if part]
    found = []
    for out in [*outs, runtime.close()["out"]]:
        names = [out.columns[out.schema.index(name)].to_pylist() for name in ("k", "t")]
        times = (out.op.tolist(), out.vs.tolist(), out.ve.tolist(), out.vnew.tolist())
        found.append(list(zip(*times, *names, strict=True)))
    return found


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    keys=st.integers(1, 4),
    late=st.integers(0, 8),
    window=st.integers(1, 12),
    parts=st.integers(1, 40),
)
def test_a_sum_as_of_now_is_told_the_same_in_one_walk(seed: int, keys: int, late: int, window: int, parts: int) -> None:
    """Two lanes take the short way, three the long one."""
    rng = random.Random(seed)
    elements = stream(rng, 60, keys, late)
    cuts = sorted(rng.sample(range(1, len(elements)), min(parts, len(elements) - 1)))
    windows = S.range(window).group_by("k")
    short = said(windows.agg(t=ew.sum("x")), elements, cuts)
    long = said(windows.agg(t=ew.sum("x"), u=ew.sum("y")), elements, cuts)
    assert short == long


@pytest.mark.parametrize(("largest", "by_id"), [(1_000, False), (100_000, True), (1_000_000, False)])
def test_many_keys_are_numbered_by_their_ids(largest: int, by_id: bool) -> None:
    rng = np.random.default_rng(largest)
    ids = np.append(rng.integers(0, largest, 5_000), [largest, 7, 7])
    slot = np.full(largest + 1, -1, np.int64)
    group, keys = group_keys(ids, slot)
    assert keys[group].tolist() == ids.tolist()
    assert keys.tolist() == (sorted(set(ids.tolist())) if by_id else list(dict.fromkeys(ids.tolist())))
    assert (slot == -1).all()


@pytest.mark.parametrize("restart", [False, True])
def test_a_sum_that_may_not_fit_is_refused_whatever_came_before(restart: bool) -> None:
    """How many values a sum has at most is known after a restart, too."""
    query = S.group_by("k").agg(t=ew.sum("x"))
    runtime = LocalRuntime(query)
    rows = [Insert(t, 100, {"k": "a", "x": 2**61, "y": 0}) for t in range(1, 5)]
    runtime.push({"S": batch_of(rows[:3], S.schema)})
    if restart:
        state = stored(runtime.snapshot())
        runtime = LocalRuntime(query)
        runtime.restore(loaded(state))
    with pytest.raises(EvaluationError, match="may not fit 64 bits"):
        runtime.push({"S": batch_of(rows[3:], S.schema)})


@pytest.mark.parametrize("taken", [(), ((9, 30),)], ids=["shortened", "and one taken back"])
def test_edges_that_came_and_went_again_within_an_epoch(taken: tuple[tuple[int, int], ...]) -> None:
    """What the edges of an epoch are is not what its elements span."""
    row: dict[str, object] = {"k": "b", "x": 0, "y": 0}
    gone = [e for a, b in taken for e in (Insert(a, b, row), Adjust(a, b, a, row))]
    first: list[Element] = [Insert(5, ew.INF, row), Adjust(5, ew.INF, 11, row), *gone]
    found = said(S.group_by("k").agg(n=ew.count(), t=ew.sum("x")), [*first, Adjust(5, 11, 10, row)], [len(first)])
    assert [each for batch in found for each in batch if each[0] < 2] == [
        (0, 5, ew.INF, 0, "b", 0), (1, 5, ew.INF, 10, "b", 0),
    ]  # fmt: skip
