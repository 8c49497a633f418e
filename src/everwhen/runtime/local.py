"""The local runtime: a push graph in this process.

One `push` is one epoch: at most one batch per input, a consistent cut, through the guards and the graph of operators
(`graph.py`).  Any cutting of the inputs into epochs gives the same histories.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "string", "x": "int64"})
    >>> runtime = LocalRuntime(s.group_by("k").agg(total=ew.sum("x")), emit="final")
    >>> batch = ew.testing.stream_from_table('''
    ...     vs | ve | k | x
    ...     1  | 5  | a | 2
    ...     3  | 8  | a | 4
    ... ''', s.schema).batch()
    >>> for element in (*runtime.push({"S": batch})["out"].elements(), *runtime.close()["out"].elements()):
    ...     print(element)
    insert [1, 3) k='a' total=2
    insert [3, 5) k='a' total=6
    insert [5, 8) k='a' total=4
    cti ∞
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from everwhen.algebra.nodes import Node
from everwhen.api import Stream
from everwhen.errors import InputError, QueryError
from everwhen.model.changes import no_changes
from everwhen.model.elements import ElementBatch
from everwhen.model.punctuation import Frontier
from everwhen.model.schema import Schema
from everwhen.operators.base import Emit, Output, StateSize
from everwhen.operators.guard import Guard, Guarded
from everwhen.plan.lower import lower
from everwhen.plan.physical import Form
from everwhen.runtime.graph import Graph

Query = Stream | Node


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """What an operator has done and keeps.  Rates are per second of the clock; progress is its promise.

    `queries` names those that use it, in a session.
    """

    name: str
    rows_in: int
    rows_out: int
    input_rate: float
    output_rate: float
    selectivity: float
    state_rows: int
    state_bytes: int
    progress: int
    keeps: str
    waits_for: tuple[str, ...]
    queries: tuple[str, ...] = ()


class LocalRuntime:
    """Queries over shared inputs, run step by step; call `push` any number of times, then `close` once."""

    def __init__(
        self,
        queries: Query | Mapping[str, Query],
        emit: str | Emit = Emit.CURRENT,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        named = queries if isinstance(queries, Mapping) else {"out": queries}
        if not named:
            raise QueryError("there is no query to run")
        policy = emit if isinstance(emit, Emit) else emit_named(emit)
        plan = lower({name: q.node if isinstance(q, Stream) else q for name, q in named.items()}, policy)
        self._plan = plan
        self._guards = {
            name: Guard(name, plan.codecs[name], source.insert_only, source.chronons)
            for name, source in plan.sources.items()
        }
        self._graph = Graph(plan)
        self._clock = clock
        self._since = clock()
        self._closed = False

    # -- running ------------------------------------------------------------------------------------------------

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch: batches by input name; returns the elements of each output.

        If a batch is wrong (`InputError`), none of the epoch's batches has been taken.
        """
        if self._closed:
            raise QueryError("the runtime is closed: no more input is possible")
        unknown = set(batches) - set(self._guards)
        if unknown:
            raise QueryError(
                f"there is no input {', '.join(sorted(unknown))}; there is {', '.join(sorted(self._guards))}"
            )
        taken: dict[str, Guarded] = {}
        try:
            for name, batch in batches.items():
                taken[name] = self._guards[name].step(batch)
        except InputError:
            for name in taken:
                self._guards[name].undo()
            raise
        for name in taken:
            self._guards[name].settle()
        return self._epoch(taken)

    def close(self) -> dict[str, ElementBatch]:
        """The end of all inputs: CTI(∞) on each."""
        if self._closed:
            return self._graph.silence()
        self._closed = True
        for guard in self._guards.values():
            guard.close()
        return self._epoch({})

    def close_input(self, name: str) -> dict[str, ElementBatch]:
        """The end of one input."""
        self._guard(name).close()
        return self._epoch({})

    def _epoch(self, guarded: Mapping[str, Guarded]) -> dict[str, ElementBatch]:
        inputs: dict[tuple[str, Form], Output] = {}
        for name, form in self._graph.forms:
            changes = no_changes(self._guards[name].codec)
            if name in guarded:
                changes = guarded[name].segments() if form == "segments" else guarded[name].events()
            inputs[name, form] = Output(changes, Frontier(self._guards[name].cti))
        results = self._graph.step(inputs, max(guard.tau for guard in self._guards.values()))
        self._plan.pool.collect()
        return results

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._guards)

    def schema_of(self, name: str) -> Schema:
        """The payload columns that an input must have."""
        return self._guard(name).codec.schema

    def _guard(self, name: str) -> Guard:
        if name not in self._guards:
            raise QueryError(f"there is no input {name}; there is {', '.join(sorted(self._guards))}")
        return self._guards[name]

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each input."""
        return {name: guard.cti for name, guard in self._guards.items()}

    @property
    def tau(self) -> int:
        """The largest start seen on any input."""
        return self._graph.tau

    def state_size(self) -> StateSize:
        """All that is kept: guards, operators and chains."""
        return sum((guard.state_size() for guard in self._guards.values()), self._graph.state_size())

    def metadata(self) -> list[OperatorMetadata]:
        """Per operator: rates, selectivity, state, progress, what it waits for."""
        elapsed = max(self._clock() - self._since, 1e-9)
        found = []
        for at, placed in enumerate(self._plan.operators):
            size = placed.operator.state_size()
            rows_in, rows_out = self._graph.rows_in[at], self._graph.rows_out[at]
            waits = placed.operator.waits_for(self._graph.frontiers[at])
            found.append(
                OperatorMetadata(
                    f"{at} {placed.name}",
                    rows_in,
                    rows_out,
                    rows_in / elapsed,
                    rows_out / elapsed,
                    rows_out / rows_in if rows_in else 0.0,
                    size.rows,
                    size.bytes,
                    self._graph.outputs[at].frontier.time,
                    placed.operator.keeps,
                    tuple(self._graph.port_name(placed.inputs[p]) for p in waits),
                )
            )
        return found

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere, as plain data."""
        return {"guards": {name: g.snapshot() for name, g in self._guards.items()}, "graph": self._graph.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of a runtime with the same queries."""
        for name, guard in self._guards.items():
            guard.restore(state["guards"][name])
        self._graph.restore(state["graph"])


def emit_named(text: str) -> Emit:
    """The emission policy of that name."""
    names = ", ".join(policy.value for policy in Emit)
    try:
        return Emit(text)
    except ValueError:
        raise QueryError(f"unknown emission policy {text!r}; there are {names}") from None
