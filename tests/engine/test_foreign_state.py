"""A state whose parts do not fit one another is refused before anything follows it, whichever part it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.errors import EverwhenError, StateError
from everwhen.storage.state_format import restore
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from operators.differential import SCHEMA, epochs, sources, streams_of
from plans import PLANS, Plan

HISTORY = [Insert(i, i + 6, {"k": f"k{i % 4}", "x": i % 3}) for i in range(12)]


def running(query: ew.Stream, infinite: bool, emit: str) -> LocalRuntime:
    """A runtime that has state."""
    rng = random.Random(5)
    given = {name: History.of(HISTORY, SCHEMA) for name in sources(query)}
    runtime = LocalRuntime(query, emit=emit)
    pushes = epochs(streams_of(given, rng, infinite), rng)
    for epoch in pushes[: len(pushes) * 2 // 3]:
        runtime.push(epoch)
    return runtime


def parts(tree: Any, put: Callable[[Any], None]) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """All dicts, arrays and columns of a tree, and how each is replaced."""
    yield tree, put
    if isinstance(tree, dict):
        for name in tree:
            yield from parts(tree[name], lambda new, name=name: tree.__setitem__(name, new))
    elif isinstance(tree, list):
        for i in range(len(tree)):
            yield from parts(tree[i], lambda new, i=i: tree.__setitem__(i, new))
    elif isinstance(tree, tuple):
        for i, each in enumerate(tree):
            yield from parts(each, lambda new, i=i: put((*tree[:i], new, *tree[i + 1 :])))


def mutilated(value: Any) -> list[Any]:
    """What somebody may have put into the place of a value."""
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        longer = np.concatenate([value, value[:1]]) if len(value) else np.zeros((3, *value.shape[1:]), np.int64)
        return [value[:-1], longer, value.astype(np.float64), value.astype(np.int8), value.ravel()[:, None], "text"]
    if isinstance(value, pa.Array):
        other = pa.array([b"\xff" * 7] * len(value))
        return [
            value.slice(1),
            pa.concat_arrays([value, value, pa.nulls(3, value.type)]),
            other,
            pa.nulls(len(value)),
            5,
        ]
    if isinstance(value, dict):
        return [{}, None] if value else []
    return []


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_parts_that_do_not_fit_are_refused(plan: Plan) -> None:
    tried_with(plan, PLANS.index(plan))


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_parts_that_do_not_fit_in_any_way_are_refused(plan: Plan) -> None:
    tried_with(plan, None)


def tried_with(plan: Plan, turn: int | None) -> None:
    emit = "final" if PLANS.index(plan) % 2 else "current"
    query = plan.build()
    refuses(running(query, plan.infinite, emit), lambda: LocalRuntime(query, emit=emit), turn)


@pytest.mark.parametrize("kernel", ["R0", "R1", "R2", "R4", "grouped"])
def test_parts_of_a_merge_that_do_not_fit_are_refused(kernel: str) -> None:
    ordered: dict[str, Any] = {"insert_only": True, "arrives": "strictly", "keys": "x"} if kernel[1] in "012" else {}
    copies = [ew.source(name, SCHEMA, **ordered) for name in ("a", "b", "c")]
    if kernel == "grouped":
        copies = [each.group_by("k").agg(n=ew.count()) for each in copies]
    policy = ew.MergePolicy(audit=True, kernel=kernel if ordered else None)
    query = ew.lmerge(*copies, since={2: 9}, policy=policy)
    runtime = LocalRuntime(query)
    for at in range(0, 9, 3):
        for name, lag in (("a", 0), ("b", 2), ("c", -3)):
            part = HISTORY[max(at - lag, 0) : at - lag + 3]
            runtime.push({name: ElementBatch.of([*part, Cti(at - lag)], SCHEMA)})
    refuses(runtime, lambda: LocalRuntime(query))


def refuses(runtime: LocalRuntime, new: Callable[[], LocalRuntime], turn: int | None = None) -> None:
    """Restoring a part that does not fit is an error, or does no harm.  With a `turn`, a third of what may stand in the
    place of a part is tried, another one in each place and plan: plans have the same operators in them."""
    whole: dict[str, Any] = {"state": runtime.snapshot()}
    tried = refused = 0
    found = list(parts(whole["state"], lambda other: whole.__setitem__("state", other)))
    for at, (value, put) in enumerate(found):
        for which, other in enumerate(mutilated(value)):
            if turn is not None and (which + at + turn) % 3:
                continue
            put(other)
            fresh = new()
            tried += 1
            try:
                restore(fresh, whole["state"], "here")
                fresh.close()
            except StateError as bad:
                refused += 1
                assert str(bad).startswith("here: the state does not fit the query: ")
            except EverwhenError:
                refused += 1
            put(value)
    assert tried and refused > tried / 3
    again = new()
    restore(again, whole["state"], "here")
    assert sorted(map(str, again.close()["out"].elements())) == sorted(map(str, runtime.close()["out"].elements()))
