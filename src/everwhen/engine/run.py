"""`run`: a query over finite inputs, in process, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Source, walk
from everwhen.core.consistency import LEVELS, MIDDLE, STRONG, WEAK, Consistency, consistency
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.engine.epochs import EpochReader
from everwhen.engine.interruption import StepsApart, calls_functions
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import QueryError
from everwhen.formats.parquet import elements_of_table, read_elements
from everwhen.operators.ingress.finalize import DroppedElements
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch, batch_of

__all__ = ["MIDDLE", "STRONG", "WEAK", "Consistency", "chosen", "consistency", "run", "run_batches"]

SMALL_PIECE: Final = 1_000
"""At least so many elements of a file are decoded at once, however small the epochs are."""


def chosen(query: Query, asked: Consistency | None) -> Consistency:
    """The level asked for, else the one that the query's text asks for, else MIDDLE."""
    if asked is not None:
        return asked
    level = query.level if isinstance(query, Stream) else None
    if isinstance(level, tuple):
        block, remember = level
        return consistency(block, remember)
    return LEVELS[level or MIDDLE.name]


Input = Any
"""Elements, element batches, an Arrow table, or the path of a file of elements."""


def run(
    query: Query,
    inputs: Mapping[str, Input],
    consistency: Consistency | None = None,
    *,
    emit: str | Emit | None = None,
    batch: int = 10_000,
    open: bool = False,
    dropped: Callable[[str, DroppedElements], None] | None = None,
    idle: float | None = None,
) -> Iterator[Element]:
    """Run a query over finite inputs in this process; yields the elements of its answer.

    Inputs are elements, element batches, Arrow tables, or paths of JSON lines or Parquet files.  They are read
    round-robin, `batch` elements of each in turn, or in the order of their arrival numbers.  The end of an input is
    CTI(∞), unless `open`: then the output is what a query that is still running would have emitted by now.  Without
    `consistency` the level is that of the query's CONSISTENCY clause, else MIDDLE.  `dropped` is called with dropped
    elements: the input's name, the elements and the reasons.  After `idle` seconds without an element an input no
    longer holds the others back.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> elements = [ew.Insert(1, 5, {"x": 2}), ew.Insert(3, 8, {"x": 4}), ew.Adjust(3, 8, 6, {"x": 4}), ew.Cti(9)]
    >>> for element in ew.run(s.aggregate(n=ew.count()), {"S": elements}, consistency=ew.STRONG):
    ...     print(element)
    insert [1, 3) n=1
    insert [3, 5) n=2
    insert [5, 6) n=1
    cti 9
    cti ∞
    """
    for out in run_batches(query, inputs, consistency, emit=emit, batch=batch, open=open, dropped=dropped, idle=idle):
        yield from out.elements()


def run_batches(
    query: Query,
    inputs: Mapping[str, Input],
    consistency: Consistency | None = None,
    *,
    emit: str | Emit | None = None,
    batch: int = 10_000,
    open: bool = False,
    dropped: Callable[[str, DroppedElements], None] | None = None,
    idle: float | None = None,
) -> Iterator[ElementBatch]:
    """Like `run`, but yields columnar batches, one per epoch.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> elements = [ew.Insert(t, t + 1, {"x": t}) for t in range(5)]
    >>> [len(batch) for batch in ew.run_batches(s, {"S": elements}, batch=2, open=True)]
    [2, 2, 1]
    """
    if batch < 1:
        raise QueryError(f"a batch holds at least one element, not {batch}")
    runtime = LocalRuntime(query, emit, consistency=chosen(query, consistency), dropped=dropped, idle=idle)
    missing = set(runtime.inputs) - set(inputs)
    if missing:
        raise QueryError(
            f"no input for {', '.join(sorted(missing))}; the query reads {', '.join(sorted(runtime.inputs))}"
        )
    unknown = set(inputs) - set(runtime.inputs)
    if unknown:
        raise QueryError(
            f"the query does not read {', '.join(sorted(unknown))}; it reads {', '.join(sorted(runtime.inputs))}"
        )
    given = {name: _batches(inputs[name], runtime.schema_of(name), batch, name) for name in inputs}
    node = query.node if isinstance(query, Stream) else query
    whole = [one.name for one in walk(node) if isinstance(one, Source) and one.is_finite]
    steps = None if dropped is not None or any(map(calls_functions, walk(node))) else StepsApart()
    return runtime.answers(EpochReader(given, batch, open, whole, fill_up=False), steps)


def _batches(given: Any, schema: Schema, size: int, name: str) -> Iterable[ElementBatch]:
    if isinstance(given, str | Path):
        return read_elements(given, schema=schema, batch=max(size, SMALL_PIECE))
    if isinstance(given, ElementBatch):
        return [given]
    if isinstance(given, pa.Table | pa.RecordBatch):
        return elements_of_table(given, schema, name)
    return _cut(given, schema, size, name)


def _cut(given: Iterable[Element | ElementBatch], schema: Schema, size: int, name: str) -> Iterator[ElementBatch]:
    """Elements in batches; what comes in batches is left as it is."""
    rest: Iterator[Any] = iter(given)
    first = next(rest, None)
    if isinstance(first, ElementBatch):
        yield from chain([first], rest)
    elif first is not None:
        elements = chain([first], rest)
        while chunk := list(islice(elements, size)):
            yield batch_of(chunk, schema, name)
