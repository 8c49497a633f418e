"""Hypothesis strategies: random histories, and random physical streams that mean a given history.

Apart from `everwhen.testing` because only tests have Hypothesis installed.  Values come from small sets, so that
duplicates, ties and meeting lifetimes are common.
"""

from __future__ import annotations

from collections import Counter
from math import nan
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from everwhen.core.scalars import python_values
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.stream.element import Element
from everwhen.stream.history import History
from everwhen.testing import reorder


def values(type_: pa.DataType, nulls: bool = True) -> st.SearchStrategy[Any]:
    """A few values of an Arrow type, with nulls among them; for floats a NaN and values that add up exactly."""
    if pa.types.is_integer(type_):
        few: list[Any] = [0, 1, 2, 7] if pa.types.is_unsigned_integer(type_) else [0, 1, 2, -7]
    elif pa.types.is_floating(type_):
        few = [0.0, 1.5, -2.25, 1024.0, nan]
    elif pa.types.is_boolean(type_):
        few = [False, True]
    elif pa.types.is_string(type_) or pa.types.is_large_string(type_):
        few = ["a", "b", "", "ä"]
    elif pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        few = [b"a", b"", b"\xff"]
    elif pa.types.is_decimal(type_) or pa.types.is_temporal(type_):
        few = python_values(pa.array([0, 1, 2], type_))
    else:
        raise QueryError(f"no test values of type {type_}; draw your own histories")
    return st.sampled_from([*few, None] if nulls else few)


def rows(schema: Schema, nulls: bool = True) -> st.SearchStrategy[tuple[Any, ...]]:
    """Rows of a schema, as tuples."""
    return st.tuples(*(values(type_, nulls) for type_ in schema.types))


def histories(
    schema: Schema,
    max_events: int = 8,
    max_time: int = 12,
    allow_infinite: bool = True,
    *,
    min_time: int = -3,
    nulls: bool = True,
    chronons: bool = False,
) -> st.SearchStrategy[History]:
    """Histories of at most `max_events` events that start and end between two times, or never end."""
    start, length = st.integers(min_time, max_time - 1), st.integers(0, max_time - min_time)

    def end(vs: int, length: int) -> int:
        if chronons:
            return vs + 1
        if length == 0 and allow_infinite:  # 0, because examples shrink towards it: infinity is the simplest end
            return INF
        return min(vs + max(length, 1), max_time)

    def build(drawn: list[tuple[int, int, tuple[Any, ...]]]) -> History:
        return _history(schema, [(vs, end(vs, length), row) for vs, length, row in drawn])

    return st.lists(st.tuples(start, length, rows(schema, nulls)), max_size=max_events).map(build)


def sequences(schema: Schema, max_events: int = 8, *, nulls: bool = True) -> st.SearchStrategy[History]:
    """Histories with at most one row alive at any instant: what windows of rows need to have no ties."""

    def build(first: int, steps: list[tuple[int, int, tuple[Any, ...]]]) -> History:
        events, now = [], first
        for gap, length, row in steps:
            events.append((now + gap, now + gap + length, row))
            now += gap + length
        return _history(schema, events)

    step = st.tuples(st.integers(0, 3), st.integers(1, 3), rows(schema, nulls))
    return st.builds(build, st.integers(-3, 3), st.lists(step, max_size=max_events))


def _history(schema: Schema, events: list[tuple[int, int, tuple[Any, ...]]]) -> History:
    return History(schema, MappingProxyType(dict(Counter(events))))


@st.composite
def physical(draw: st.DrawFn, history: History, *, infinite: bool = True, close: bool = True) -> list[Element]:
    """A stream of elements that means the history: in order, late, corrected, or all of it."""
    return reorder(
        history,
        draw(st.randoms(use_true_random=False)),
        disorder=draw(st.sampled_from([0, 2, 8, None])),
        corrections=draw(st.sampled_from([0.0, 0.4, 0.8])),
        wrong=draw(st.sampled_from([0.0, 0.3, 1.0])),
        ctis=draw(st.sampled_from([0.0, 0.3, 1.0])),
        infinite=infinite,
        close=close,
    )
