"""Promises read by their form: which columns they bind, by constants or by ranges, as columns and runs of keys.

All of a batch is read before any of it is kept, so a pattern that does not fit its column leaves nothing half-done.  A
list is its constants; a range with one value is a constant; what matches nothing is dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.scalars import python_values, show_value
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.errors import QueryError
from everwhen.punctuation.parts import Part, constants_part, ranges_part, shown
from everwhen.punctuation.pattern_algebra import in_order
from everwhen.punctuation.table import PunctuationTable
from everwhen.values.order import Kind, ValueOrder, constants, order_of
from everwhen.values.sets import Run, no_order, run_of, run_of_integers

WIDE: Final = 4096
"""A promise over several columns that has more combinations of constants is kept as lists."""
NO_PATTERN: Final = (
    "write OneOf((value, …)), Range(ge=…, lt=…) or Nothing(); Punctuation.constants({name: value}) binds constants"
)


def read_promises(promises: Iterable[Punctuation], schema: Schema, strict: bool = False) -> PunctuationTable:
    """Promises by form; an unknown attribute or a constant that is not of its type is a `QueryError`.

    `strict`: so is a range that holds no value, which somebody has written by mistake.  Those that have been read stay
    as they are: they are about columns of these names and types.
    """
    if isinstance(promises, PunctuationTable):
        return promises
    everything = NEVER
    lists: dict[str, tuple[list[Any], list[int], list[int]]] = {}
    runs: dict[str, tuple[list[Any], list[int], list[int]]] = {}
    wide: list[Punctuation] = []
    orders: dict[str, ValueOrder] = {}
    for i, promise in enumerate(promises):
        match, t = promise.match, promise.t
        if t == NEVER:
            continue
        if len(match) == 1:
            ((name, pattern),) = match.items()
            order = orders.get(name)
            if order is None:
                order = orders[name] = order_of(schema.field(name, "a pattern").type)
            if isinstance(pattern, OneOf):
                values, times, of = lists.setdefault(name, ([], [], []))
                values += pattern.values
                times += [t] * len(pattern.values)
                of += [i] * len(pattern.values)
            elif isinstance(pattern, Range):
                run = _run(name, pattern, order)
                if run is not None:
                    found, times, of = runs.setdefault(name, ([], [], []))
                    found.append(run)
                    times.append(t)
                    of.append(i)
                elif strict:
                    raise _no_value(name, pattern)
            elif not isinstance(pattern, Nothing):
                raise no_pattern(name, pattern)
        elif not match:
            everything = max(everything, t)
        else:
            wide += _several(promise, schema, strict)
    return PunctuationTable(
        schema,
        {name: _listed(name, orders[name], *found) for name, found in lists.items()},
        {
            name: ranges_part(orders[name], found, np.array(times, np.int64), np.array(of, np.int64))
            for name, (found, times, of) in runs.items()
        },
        wide,
        everything,
    )


def _listed(name: str, order: ValueOrder, values: list[Any], times: list[int], of: list[int]) -> Part:
    until, said_by = np.array(times, np.int64), np.array(of, np.int64)
    if order.whole and set(map(type, values)) == {int}:
        try:
            keys = np.array(values, np.int64)
        except OverflowError:
            keys = None
        if keys is not None and (order.plain or (order.lo <= int(keys.min()) and int(keys.max()) <= order.hi)):
            return Part(order, keys, until, NEVER, said_by)
    return constants_part(order, constants(values, order.type, name), until, said_by)


def no_pattern(name: str, pattern: object) -> QueryError:
    return QueryError(f"{pattern!r} is no pattern for {name!r}; {NO_PATTERN}")


def _no_value(name: str, pattern: Range) -> QueryError:
    bounds = {bound: getattr(pattern, bound) for bound in ("ge", "gt", "le", "lt")}
    shown_ = ", ".join(f"{bound}={show_value(value)}" for bound, value in bounds.items() if value is not None)
    return QueryError(f"the range ({shown_}) of {name!r} holds no value; Nothing() is the empty pattern")


def _run(name: str, pattern: Range, order: ValueOrder) -> Run | None:
    if order.plain:
        run = run_of_integers(pattern)
        if run is not None:
            return None if run[1] is not None and run[0] >= run[1] else run
    if order.kind is Kind.OPAQUE:
        raise no_order(order.type, name)
    return run_of(pattern, order, name)


def _several(promise: Punctuation, schema: Schema, strict: bool) -> Iterator[Punctuation]:
    """A punctuation that binds several columns: one for each combination of its constants, if these are not many."""
    choices: dict[str, list[AttributePattern]] = {}
    for name, pattern in sorted(promise.match.items(), key=lambda bound: schema.index(bound[0], "a pattern")):
        order = order_of(schema.field(name).type)
        match pattern:
            case Nothing():
                return
            case OneOf(values):
                found = in_order(python_values(constants(values, order.type, name)))
                choices[name] = [OneOf((value,)) for value in found.values] if isinstance(found, OneOf) else []
            case Range():
                run = _run(name, pattern, order)
                if run is None and strict:
                    raise _no_value(name, pattern)
                choices[name] = [] if run is None else shown(run, order)
            case _:
                raise no_pattern(name, pattern)
    if prod(map(len, choices.values())) > WIDE:
        yield promise
        return
    for combination in product(*choices.values()):
        yield Punctuation(dict(zip(choices, combination, strict=True)), promise.t)
