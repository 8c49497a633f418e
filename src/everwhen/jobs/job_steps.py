"""The steps of a job in process: what is taken of the inputs, what each query says to it, and the same again.

Queries of one level share a runtime, and so their operators.  Each runtime reads those of the inputs that its queries
need.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from everwhen.algebra.nodes import Node
from everwhen.core.consistency import Consistency
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.engine.files.live.steps import LiveSteps, Step, together
from everwhen.engine.files.replans import RestoredRuntime
from everwhen.engine.idle_sources import NotedClock
from everwhen.engine.ingress import OnDropped
from everwhen.engine.local import LocalRuntime
from everwhen.engine.observe.analyze import Analysis
from everwhen.engine.observe.silence.find_waiting import Writes
from everwhen.engine.observe.silence.waiting import Waiting
from everwhen.jobs.status import OperatorStatus, shown_instant
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.finalize import DroppedElements
from everwhen.storage.state_format import restore
from everwhen.stream.element_batch import ADJUST, CTI, ElementBatch, empty_elements


class JobSteps(LiveSteps):
    """Several queries, at several levels, over the same inputs.  `promises`: what is promised on each answer; `dropped`
    is told what was given up of an input, by the first runtime that reads it, `given_up` counts that."""

    _anew = "new sinks"

    def __init__(
        self,
        queries: Mapping[str, tuple[Node, Consistency]],
        inputs: Mapping[str, LiveInput],
        dropped: OnDropped | None = None,
    ) -> None:
        levels = {level: {n: q for n, (q, other) in queries.items() if other == level} for _, level in queries.values()}
        clock = NotedClock()
        self._tell_dropped, self.given_up = dropped, dict.fromkeys(inputs, 0)
        self.runtimes = [
            LocalRuntime(named, clock=clock, consistency=level, dropped=partial(self._given_up, at))
            for at, (level, named) in enumerate(levels.items())
        ]
        self._names = [list(named) for named in levels.values()]
        self.schemas = {name: node.schema for name, (node, _) in queries.items()}
        super().__init__(self.runtimes[0], inputs, next(iter(self.schemas.values())), clock)
        sources = {name: source for runtime in self.runtimes for name, source in runtime.plan.sources.items()}
        self._patience = {n: s for n in inputs if n in sources and (s := sources[n].policy.idle) is not None}
        self.promises = dict.fromkeys(queries, NEVER)
        self.said = dict.fromkeys(queries, 0)
        self.corrections = dict.fromkeys(queries, 0)
        self.taken = dict.fromkeys(inputs, 0)

    def _given_up(self, at: int, name: str, dropped: DroppedElements) -> None:
        if next(i for i, runtime in enumerate(self.runtimes) if name in runtime.inputs) == at:
            self.given_up[name] += len(dropped)
            if self._tell_dropped is not None:
                self._tell_dropped(name, dropped)

    def answers(self, step: Step) -> dict[str, ElementBatch]:
        """What each query says to a step."""
        parts: dict[str, list[ElementBatch]] = {name: [] for name in self.schemas}
        with self._taking(step) as fresh:
            for runtime in self.runtimes:
                self._run(runtime, step, parts, fresh)
        self.closed |= set(step.closes)
        self.read += sum(map(len, step.batches.values()))
        for name, batch in step.batches.items():
            self.taken[name] += int((batch.op <= ADJUST).sum())
        found = {name: self._whole(name, batches) for name, batches in parts.items()}
        self.done = all(promise == INF for promise in self.promises.values())
        return found

    def _run(self, runtime: LocalRuntime, step: Step, parts: dict[str, list[ElementBatch]], fresh: set[str]) -> None:
        mine = set(runtime.inputs)

        def add(said: Mapping[str, ElementBatch]) -> None:
            for name, batch in said.items():
                parts[name].append(batch)

        for name, start in step.begun.items():
            if name in mine:
                for said in self._begin(runtime, name, start, name in fresh):
                    add(said)
        batches = {name: batch for name, batch in step.batches.items() if name in mine}
        if batches or step.now is not None or runtime.owes:
            add(runtime.push(batches))
        for name in step.closes:
            if name in mine:
                add(runtime.close_input(name))
        if all(reached == INF for reached in runtime.progress.values()) and not self._over(parts, runtime):
            add(runtime.close())

    def _over(self, parts: Mapping[str, list[ElementBatch]], runtime: LocalRuntime) -> bool:
        names = self._names[self.runtimes.index(runtime)]
        return all(self.promises[name] == INF or _promise(parts[name]) == INF for name in names)

    def _whole(self, name: str, batches: list[ElementBatch]) -> ElementBatch:
        said = together(batches, self.schemas[name])
        self.promises[name] = max(self.promises[name], _promise([said]))
        self.said[name] += len(said)
        self.corrections[name] += int((said.op == ADJUST).sum())
        return said

    # -- other queries ------------------------------------------------------------------------------------------

    @property
    def owes(self) -> bool:
        return any(runtime.owes for runtime in self.runtimes)

    def going_over(self) -> dict[str, int]:
        """The queries that are going over to others, and from when on those count."""
        return dict(each.migrating for each in self.runtimes if each.migrating is not None)

    def may_go_over(self, name: str) -> bool:
        """Whether a query can go over to another one now: one at a time, of those that share operators."""
        return self._runtime_of(name).migrating is None

    def take_over(self, name: str, node: Node) -> int:
        """Let another query take the place of one; from when on it counts."""
        return self._runtime_of(name).replace(node, name=name).at

    def _runtime_of(self, name: str) -> LocalRuntime:
        return next(runtime for runtime, names in zip(self.runtimes, self._names, strict=True) if name in names)

    def explained(self, word: str, writes: Mapping[str, Writes]) -> list[tuple[str, Any]]:
        """WAITING or ANALYZE of all queries, as text and as plain data; `writes`: what sinks
        would write that let rows wait."""
        found: list[tuple[str, Any]] = []
        for runtime, names in zip(self.runtimes, self._names, strict=True):
            for name in names:
                told: Waiting | Analysis = (
                    runtime.waiting(name, writes.get(name)) if word == "waiting" else runtime.analyze(name)
                )
                head = [] if word == "waiting" else [f"{name}:"]
                found.append(("\n".join([*head, *told.lines()]), {"query": name, **told.to_plain()}))
        return found

    def nothing(self) -> dict[str, ElementBatch]:
        """An epoch in which nothing is said."""
        return {name: empty_elements(schema) for name, schema in self.schemas.items()}

    # -- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        total = StateSize()
        for runtime in self.runtimes:
            total = total + runtime.state_size()
        return total

    def operators(self) -> list[OperatorStatus]:
        """What each operator has done since this start, and keeps."""
        return [
            OperatorStatus(
                each.name, each.rows_in, each.rows_out, each.state_rows, each.state_bytes, shown_instant(each.progress)
            )
            for runtime in self.runtimes
            for each in runtime.metadata()
        ]

    def dropped(self) -> dict[str, int]:
        """How many elements of each input were given up."""
        found = dict.fromkeys(self.inputs, 0)
        for runtime in self.runtimes:
            late = {name: count.late for name, count in runtime.late.items()}
            for name, reasons in runtime.dropped.items():
                found[name] = max(found.get(name, 0), late.pop(name, 0), sum(reasons.values()))
            found |= {name: max(found.get(name, 0), count) for name, count in late.items()}
        return found

    def snapshot(self) -> dict[str, Any]:
        return {
            "runtimes": [runtime.snapshot() for runtime in self.runtimes],
            "positions": {name: each.position for name, each in self.inputs.items()},
            "closed": sorted(self.closed),
            "started": sorted(self._started),
            "counts": {
                "read": self.read,
                "taken": dict(self.taken),
                "said": dict(self.said),
                "corrections": dict(self.corrections),
                "promises": dict(self.promises),
                "given_up": dict(self.given_up),
            },
            "done": self.done,
        }

    def restore(self, state: Mapping[str, Any], place: str, left: Mapping[str, Node]) -> None:
        """`left`: of queries that were going over to others, those before."""
        for runtime, each in zip(self.runtimes, state["runtimes"], strict=True):
            going = each.get("migrating") if isinstance(each, Mapping) else None
            restore(RestoredRuntime(runtime, left.get(going[0]) if going else None), each, place)
        self.going_on(state["positions"], state["closed"])
        self._started |= set(state["started"])
        counts = state["counts"]
        self.read = counts["read"]
        self.taken, self.said = dict(counts["taken"]), dict(counts["said"])
        self.corrections, self.promises = dict(counts["corrections"]), dict(counts["promises"])
        self.given_up |= counts.get("given_up", {})  # an older version has not counted
        self.done = state["done"]


def _promise(batches: list[ElementBatch]) -> int:
    return max((int(batch.vs[batch.op == CTI].max(initial=NEVER)) for batch in batches), default=NEVER)
