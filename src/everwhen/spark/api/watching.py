"""A running query on Spark as somebody who watches it sees it: how it is, its graph, and what it says.

Looking costs a query two things: its partitions count rows, time and state per operator while somebody watches, and a
sink in the driver's process tells what it has taken (`EpochRunner.taps`).  A changelog is read from its folder, by who
watches; what another sink writes in the workers is not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from everwhen.algebra.builder import Stream
from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node, Source, sources_of
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.core.time_axis import TimeAxis, common_axis
from everwhen.engine.observe.graph import GraphNode
from everwhen.engine.observe.sample import Sample, together
from everwhen.errors import EverwhenError
from everwhen.formats.changelog.layout import first_kept, read_header, read_manifest
from everwhen.formats.changelog.reading import read_errors, read_part
from everwhen.formats.json.lines import DEFAULT_BATCH
from everwhen.query import sql
from everwhen.sinks.base import PartedSink
from everwhen.sinks.changelog import ChangelogSink
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.query_graph import KnownSource, plan_shape, query_graph
from everwhen.spark.driver.epoch_runner import EpochReport
from everwhen.spark.driver.partition_metadata import PartitionSubscription
from everwhen.storage.folder import open_folder
from everwhen.stream.element_batch import ElementBatch

_ITEMS: Final = ("rate_in", "rate_out", "cpu", "lag", "state_rows", "state_bytes")
MOST_EPOCHS: Final = 500
"""So many epochs of a changelog that was there before are read."""
Take = Callable[[str, ElementBatch, int], None]
"""What a query has said in an epoch, after which the largest start is known."""


@dataclass(frozen=True, slots=True)
class QuerySight:
    """What there is to see after an epoch.  `state`: running, starting, stopped or failed; `problem` says why it failed
    or what it cannot do at the moment."""

    state: str
    problem: str
    epoch: int
    rows: Mapping[str, int]
    late: Mapping[str, int]
    progress: Mapping[str, int]
    tau: int
    graph: tuple[GraphNode, ...]
    level: Consistency
    replaced_at: int | None
    axis: TimeAxis


class QueryWatch:
    """Watch a query: `open`, then `see` now and then, and `close`.  `take` is told what its queries say."""

    def __init__(self, handle: Handle, take: Take) -> None:
        self.handle, self._take = handle, take
        self._lock = threading.Lock()
        self._wanted: PartitionSubscription | None = None
        self._shape: tuple[object, tuple[GraphNode, ...]] = (None, ())
        self._read: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._said: dict[str, int] = {}
        self.cut: frozenset[str] = frozenset()
        """Queries of whose past not all was read."""

    # -- what does not change -----------------------------------------------------------------------------------

    @property
    def schemas(self) -> Mapping[str, Schema]:
        return self.handle._runner.schemas

    @property
    def plans(self) -> Mapping[str, Node]:
        return self.handle._bound.job.queries

    @property
    def sources(self) -> dict[str, Source]:
        """The sources that the queries read."""
        return sources_of(*self.plans.values())

    @property
    def axis(self) -> TimeAxis:
        return common_axis(source.axis for source in self.handle._runner.sources.values())

    def text(self, name: str) -> str:
        """The text of a query that became another one here; of one that a program made, its plan as a comment."""
        plan = "\n".join(f"-- {line}" for line in explain(self.plans[name]).splitlines())
        return self._texts.get(name, plan)

    def is_seen(self, name: str) -> bool:
        """Whether what a query says can be seen here."""
        sink = self.handle._runner.sinks[name]
        return isinstance(sink, ChangelogSink) or not isinstance(sink, PartedSink)

    # -- looking --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to measure, and to hear what is said; what was said before is told where the sink has kept it."""
        runner = self.handle._runner
        self._wanted = self.handle.metadata().subscribe(*_ITEMS)
        with self._lock:
            runner.taps.append(self._tap)
            for name, sink in runner.sinks.items():
                if isinstance(sink, MemorySink):
                    for epoch in sorted(sink.epochs):
                        self._tell(name, epoch, sink.epochs[epoch], NEVER)

    def close(self) -> None:
        """Measure no more; the query goes on."""
        runner = self.handle._runner
        if self._tap in runner.taps:
            runner.taps.remove(self._tap)
        if self._wanted is not None:
            self._wanted.cancel()

    def _tap(self, name: str, epoch: int, batch: ElementBatch) -> None:
        with self._lock:
            self._tell(name, epoch, batch, self.tau)

    def _tell(self, name: str, epoch: int, batch: ElementBatch, tau: int) -> None:
        if epoch > self._read.get(name, -1):
            self._read[name] = epoch
            self._said[name] = self._said.get(name, 0) + len(batch)
            self._take(name, batch, tau)

    @property
    def tau(self) -> int:
        found = self.handle._runner.known.tau
        return NEVER if found is None else found

    def see(self) -> QuerySight:
        """How the query is now; reads what its changelogs have got since."""
        handle, runner = self.handle, self.handle._runner
        reports, known, now = handle.recent, runner.known, runner.clock()
        problem = self._read_changelogs(reports)
        failed, active = handle.last_error, handle.is_active
        retrying = "; ".join(f"the sink of {name} does not take {why}" for name, why in runner.retrying.items())
        if failed is not None:
            problem = str(failed)
        elif retrying:
            problem = f"{retrying}; it is tried again"
        state = "failed" if failed is not None else "stopped" if not active else "running" if reports else "starting"
        dropped = handle.dropped
        sources = {
            source.name: KnownSource(
                known.sources.get(source.name, NEVER),
                max(now - known.seen[source.name], 0.0) if source.name in known.seen else None,
                sum(dropped.get(source.name, {}).values()),
            )
            for source in runner.plan.sources
        }
        samples = {} if self._wanted is None else self._samples(self._wanted)
        graph = query_graph(self._nodes(), samples, sources, known.queries, self._said, self.tau)
        return QuerySight(
            state, problem, reports[-1].epoch + 1 if reports else 0,
            {name: known.rows.get(name, 0) for name in sources}, dict(known.late),
            {name: each.progress for name, each in sources.items()}, self.tau, graph, handle.consistency,
            handle.replaced_at, self.axis,
        )  # fmt: skip

    def _samples(self, wanted: PartitionSubscription) -> dict[str, Sample]:
        parts = self.handle.metadata().parts.get(wanted.window, {})
        return {name: together(list(each.values())) for name, each in parts.items()}

    def _nodes(self) -> tuple[GraphNode, ...]:
        plan = self.handle._runner.plan
        if self._shape[0] is not plan:
            self._shape = plan, plan_shape(plan, self.handle.consistency.emit)
        return self._shape[1]

    # -- changelogs -----------------------------------------------------------------------------------------------

    def _read_changelogs(self, reports: tuple[EpochReport, ...]) -> str:
        """Tell what changelogs have got; what is wrong with one, in words."""
        starts = {report.epoch: int(report.tau) for report in reports}
        try:
            for name, sink in self.handle._runner.sinks.items():
                if isinstance(sink, ChangelogSink):
                    for epoch, batch in self._new(name, sink):
                        self._said[name] = self._said.get(name, 0) + len(batch)
                        self._take(name, batch, starts.get(epoch, NEVER))
        except EverwhenError as bad:
            return f"the answer cannot be shown: {bad}"
        return ""

    def _new(self, name: str, sink: ChangelogSink) -> Iterator[tuple[int, ElementBatch]]:
        last = sink.committed()
        if last <= self._read.get(name, -1):
            return
        with read_errors(sink.path):
            folder = open_folder(sink.path)
            header = read_header(folder)
            first = max(self._read.get(name, -1) + 1, first_kept(folder))
            if name not in self._read and last - first >= MOST_EPOCHS:
                first, self.cut = last - MOST_EPOCHS + 1, self.cut | {name}
            for epoch in range(first, last + 1):
                for part in read_manifest(folder, epoch).parts:
                    for batch in read_part(folder, part, epoch, header, DEFAULT_BATCH):
                        yield epoch, batch
                self._read[name] = epoch

    # -- other queries --------------------------------------------------------------------------------------------

    def planned(self, text: str) -> Stream:
        """The query that a text means, over the sources that are read."""
        return sql(text, *map(Stream, self.sources.values()), tick=self.axis.tick_text)

    def become(self, name: str, text: str) -> int:
        """Let a query become another one; the instant from which on its answer is that one's."""
        query, asked = self.planned(text), self.handle._bound.job.query
        at = self.handle.replace({**asked, name: query} if isinstance(asked, Mapping) else query)
        self._texts[name] = text
        return at
