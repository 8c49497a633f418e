"""Looking at a local runtime: what its operators do and keep, metadata to subscribe to, why it is silent."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, overload

from everwhen.algebra.nodes import Node
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.core.time import require_time
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.idle_sources import NotedClock
from everwhen.engine.ingress import Ingress
from everwhen.engine.node import OperatorNode
from everwhen.engine.observe.analyze import Analysis
from everwhen.engine.observe.metadata import OperatorMetadata, filter_metadata, node_metadata
from everwhen.engine.observe.observer import Metadata, Observer, Subscription
from everwhen.engine.observe.silence.find_waiting import SWITCHING, Writes, find_waiting
from everwhen.engine.observe.silence.situation import goes_on, situation, sources_need
from everwhen.engine.observe.silence.waiting import Waiting
from everwhen.engine.observe.subjects import Subject, subjects
from everwhen.engine.source_levels import Query
from everwhen.errors import QueryError
from everwhen.operators.contract import StateSize
from everwhen.stream.element_batch import ElementBatch


class LocalView(ABC):
    """What `LocalRuntime` tells of itself."""

    _dataflow: FixedDataflow
    _ingress: Ingress
    _built: Consistency
    _asked: dict[str, Node]
    _clock: Callable[[], float]
    _since: float

    def _observed(self, clock: Callable[[], float]) -> Observer:
        self._analyzed: dict[str, tuple[Subscription, int]] = {}
        """What measures a query, and how many elements it had said before."""
        real = time.perf_counter if isinstance(clock, NotedClock) else clock  # one that is noted may stand still
        return Observer(real, lambda: self._subjects(*self._dataflow.flow.outputs))

    _observer: Observer

    @abstractmethod
    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """One epoch."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on elsewhere."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any], replaced: Query | None = None) -> None:
        """Go on from a snapshot."""

    @abstractmethod
    def _left(self) -> Query | None:
        """The query that is being left for another one."""

    def schema_of(self, name: str) -> Schema:
        """The payload columns that an input must have."""
        return self._ingress.of(name)[0].intake.codec.schema

    def _subjects(self, *queries: str) -> list[Subject]:
        flow = self._dataflow.flow
        ports = [port for query in queries for port in flow.below(flow.outputs[query].port)]
        return subjects(flow.nodes, self._ingress, ports, flow.port_name)

    @overload
    def metadata(self) -> list[OperatorMetadata]: ...
    @overload
    def metadata(self, query: str) -> Metadata: ...
    def metadata(self, query: str | None = None) -> list[OperatorMetadata] | Metadata:
        """Per operator what was counted since the start: rates, selectivity, state, progress, what it waits for.

        Of a query by name: its operators and inputs, to subscribe to (`Metadata`).
        """
        flow = self._dataflow.flow
        if query is not None:
            if query not in flow.outputs:
                raise QueryError(f"there is no query {query!r}; there is {', '.join(flow.outputs)}")
            return Metadata(self._observer, lambda: self._subjects(query))
        elapsed = max(self._clock() - self._since, 1e-9)
        filters = (filter_metadata(flow, output, elapsed) for output in flow.outputs.values())
        return [*(node_metadata(flow, node, elapsed) for node in flow.nodes.values()), *filter(None, filters)]

    def analyze(self, query: str = "out") -> Analysis:
        """What the inputs and operators of a query have done since this was asked first.

        >>> import everwhen as ew
        >>> from everwhen.engine.local import LocalRuntime
        >>> s = ew.source("S", {"x": "int64"})
        >>> runtime = LocalRuntime(s.distinct())
        >>> runtime.analyze().remark
        'It is measured from now on: ask again.'
        >>> _ = runtime.push({"S": ew.ElementBatch.of([ew.Insert(1, 2, {"x": 1})], s.schema)})
        >>> runtime.analyze().costliest.name
        '0 distinct'
        """
        fresh = query not in self._analyzed
        output = self._dataflow.flow.outputs.get(query)
        if fresh:
            measured = self.metadata(query).subscribe()
            self._analyzed[query] = measured, 0 if output is None else output.rows_out
        wanted, before = self._analyzed[query]
        observed = wanted.observed()
        came = sum(each.sample.rows_in for each in observed if each.kind == "input")
        elapsed = max((each.sample.elapsed for each in observed), default=0.0)
        said = 0 if output is None else output.rows_out - before
        return Analysis(came, said, elapsed, observed, "It is measured from now on: ask again." if fresh else "")

    def waiting(self, query: str = "out", writes: Writes | None = None) -> Waiting:
        """Why a query says nothing now: who holds it back, and which promise would bring something; it tries on copies.
        `writes`: how many rows a sink that lets some wait would write if something was said.

        >>> import everwhen as ew
        >>> from everwhen.engine.local import LocalRuntime
        >>> s = ew.source("S", {"x": "int64"})
        >>> runtime = LocalRuntime(s.range(10).aggregate(total=ew.sum("x")), emit="final")
        >>> _ = runtime.push({"S": ew.ElementBatch.of([ew.Insert(1, 2, {"x": 1}), ew.Cti(0)], s.schema)})
        >>> print(runtime.waiting().needs[0].remedy)
        {"op":"cti","t":2} of S
        """
        flow, now, state = self._dataflow.flow, self._clock(), cache(self.snapshot)  # taken only if it is copied
        idle = self._ingress.idle

        def copy() -> LocalView:
            made: Any = type(self)
            copied: LocalView = made(self._asked, clock=lambda: now, consistency=self._built, idle=idle.seconds)
            copied.restore(state(), self._left())
            copied._ingress.idle.resume(idle.spoke)
            return copied

        now_known = situation(query, flow, self._ingress, flow.outputs[query], copy, self.unknown_spans())
        return find_waiting(replace(now_known, writes=writes, untried=SWITCHING if self.is_switching else ""))

    def needs(self, t: int, query: str = "out") -> Mapping[str, int]:
        """What sources have to promise, as far as is known now, so that a query promises all before `t`: by the rules
        of its operators, without trying.  Of copies that are merged, the one that has come furthest.

        >>> import everwhen as ew
        >>> from everwhen.engine.local import LocalRuntime
        >>> runtime = LocalRuntime(ew.source("S", {"x": "int64"}).granularity(10).aggregate(n=ew.count()))
        >>> runtime.needs(15)
        {'S': 11}
        """
        require_time(t)
        flow = self._dataflow.flow
        return sources_need(flow, self._ingress, flow.outputs[query], t)

    def goes_on(self, query: str = "out") -> bool:
        """Whether the next epoch does something although nothing may come: rows go round in a recursion of which each
        epoch does some rounds."""
        return goes_on(self._dataflow.flow, self._dataflow.flow.outputs[query])

    def error_of(self, query: str) -> str:
        """Why a query has failed: none fails alone, what is wrong is raised."""
        return ""

    @property
    @abstractmethod
    def is_switching(self) -> bool:
        """Whether another plan takes over in slices, which a snapshot would end."""

    @abstractmethod
    def unknown_spans(self) -> dict[str, tuple[int, int]]:
        """Merges that wait for a span of time that no input knows, and the span."""

    def state_size(self) -> StateSize:
        """All that is kept: intakes, operators and chains."""
        return self._ingress.state_size() + self._dataflow.flow.state_size()

    @property
    def operators(self) -> list[OperatorNode]:
        """The operators at work, inputs before their users."""
        return list(self._dataflow.flow.nodes.values())
