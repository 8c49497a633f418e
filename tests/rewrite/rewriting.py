"""What tests of rewriting share: histories for any plan's sources, and the comparison of two plans at every instant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from everwhen.algebra import nodes as n
from everwhen.algebra.explain import explain
from everwhen.reference import evaluate
from everwhen.reference.order import canonical
from everwhen.stream.history import History
from everwhen.testing.strategies import histories

FIRST, LAST = -8, 36
"""All finite instants at which the tests' plans change lie between these two."""

Histories = Mapping[str, History]


@st.composite
def histories_for(draw: st.DrawFn, *roots: n.Node, infinite: bool = False, max_events: int = 5) -> Histories:
    """A history for every source of the plans, one that keeps what the source declares."""
    sources = {each.name: each for each in n.walk(*roots) if isinstance(each, n.Source)}
    return {name: draw(_history(source, infinite, max_events)) for name, source in sorted(sources.items())}


def _history(source: n.Source, infinite: bool, max_events: int) -> st.SearchStrategy[History]:
    """Half of them crowded: few values, lifetimes that overlap, so that rows meet, agree and differ."""
    loose = histories(
        source.schema, max_events=max_events, max_time=9, allow_infinite=infinite, chronons=source.chronons
    )
    row = st.tuples(*(st.sampled_from(_few(type_)) for type_ in source.schema.types))
    event = st.tuples(st.integers(0, 1), st.integers(1, 1 if source.chronons else 3), row)
    crowded = st.lists(event, min_size=2, max_size=max_events).map(lambda drawn: _crowd(source, drawn))
    return (loose | crowded).map(lambda history: _with_keys(source, history))


def _few(type_: pa.DataType) -> list[Any]:
    if pa.types.is_string(type_):
        return ["a", "b", None]
    return [1.5, 0.5, None] if pa.types.is_floating(type_) else [1, 2, None]


def _crowd(source: n.Source, drawn: list[tuple[int, int, tuple[Any, ...]]]) -> History:
    return History(source.schema, MappingProxyType(dict(Counter((vs, vs + length, row) for vs, length, row in drawn))))


def _with_keys(source: n.Source, history: History) -> History:
    """Without the events that agree with an earlier one on a declared key."""
    if not source.keys:
        return history
    kept: dict[tuple[int, int, tuple[Any, ...]], int] = {}
    seen: set[tuple[Any, ...]] = set()
    for vs, ve, row in history.events():
        values = [tuple(canonical(row[source.schema.index(name)]) for name in key) for key in source.keys]
        marks = {(i, value) for i, value in enumerate(values)}
        if not marks & seen:
            seen |= marks
            kept[vs, ve, tuple(row)] = 1
    return History(source.schema, MappingProxyType(kept))


def assert_same_answers(before: n.Node, after: n.Node, given: Histories) -> None:
    """At every instant both plans have the same rows, floats up to their last bits."""
    assert before.schema == after.schema
    expected, found = evaluate(before, given), evaluate(after, given)
    for t in range(FIRST, LAST):
        wanted, got = _rounded(expected.at(t)), _rounded(found.at(t))
        assert wanted == got, f"at {t}: {wanted} became {got}\n{explain(before)}\nbecame\n{explain(after)}"


def _rounded(snapshot: Mapping[tuple[Any, ...], int]) -> Counter[tuple[Any, ...]]:
    """Sums of floats in another order differ in the last bits (semantics, 17)."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in snapshot.items():
        if count:
            found[tuple(_value(value) for value in row)] += count
    return found


def _value(value: Any) -> Any:
    value = canonical(value)
    return round(value, 9) + 0.0 if isinstance(value, float) and math.isfinite(value) else value
