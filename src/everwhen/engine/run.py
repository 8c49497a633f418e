"""`run`: a query over finite inputs, in process, element by element."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from everwhen.algebra.builder import node_of
from everwhen.algebra.nodes import Sort, sources_of, walk
from everwhen.core.consistency import MIDDLE, STRONG, WEAK, Consistency, consistency
from everwhen.core.emit import Emit
from everwhen.core.late_count import LateWarnings
from everwhen.core.time import NEVER
from everwhen.engine.epochs import Epoch, EpochReader, require_batch
from everwhen.engine.interruption import Steps, StepsApart, calls_functions
from everwhen.engine.local import LocalRuntime, Query
from everwhen.engine.source_levels import chosen
from everwhen.errors import QueryError
from everwhen.operators.ingress.finalize import DroppedElements
from everwhen.plan.sanity.silence import never_promised
from everwhen.stream.element_batch import ElementBatch
from everwhen.tables.answer import Answer
from everwhen.tables.given import SMALL_PIECE as SMALL_PIECE
from everwhen.tables.given import axis_of, batches_of

__all__ = ["MIDDLE", "STRONG", "WEAK", "Consistency", "chosen", "consistency", "run", "run_batches"]

_log = logging.getLogger(__name__)


Input = Any
"""A table, a path, elements, batches, or `rows(…)`: see `everwhen.tables.given`."""


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
) -> Answer:
    """Run a query over finite inputs in this process; its answer gives elements one by one as they are computed, or a
    table.

    Inputs are tables (Arrow, pandas, Polars, DuckDB), paths (CSV, Parquet, JSON lines, changelog folders), elements,
    batches, or `rows(table, time=…)`; docs/tables.md says how rows become elements.  They are read
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
    batches = run_batches(query, inputs, consistency, emit=emit, batch=batch, open=open, dropped=dropped, idle=idle)
    node = node_of(query)
    axis = axis_of(sources_of(node_of(query)).values(), inputs)
    return Answer(batches, node.schema, axis.tick_text, axis.dated, isinstance(node, Sort))


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
    require_batch(batch)
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
    sources = sources_of(node_of(query))
    given = {name: batches_of(inputs[name], sources[name], batch) for name in inputs}
    whole = [name for name, source in sources.items() if source.is_finite]
    epochs = EpochReader(given, batch, open, whole, fill_up=False)
    silent = open and runtime.consistency.emit is Emit.FINAL
    node = node_of(query)
    steps = None if dropped is not None or any(map(calls_functions, walk(node))) else StepsApart()
    return _told(runtime, epochs, open, steps) if silent or runtime.late else runtime.answers(epochs, steps)


def _told(runtime: LocalRuntime, epochs: Iterable[Epoch], open: bool, steps: Steps | None) -> Iterator[ElementBatch]:
    """What is said to epochs; that late rows are many, or that nothing can become final, goes to the log."""
    warnings, said = LateWarnings(), 0
    for batch in runtime.answers(epochs, steps):
        said += len(batch)
        yield batch
        for words in warnings.look(runtime.late):
            _log.warning("%s", words)
    silent = sorted(name for name, cti in runtime.progress.items() if cti == NEVER)
    if open and silent and not said and runtime.consistency.emit is Emit.FINAL:
        _log.warning("%s", never_promised(silent, final=True))
