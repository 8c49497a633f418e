"""A query on Spark, ready to run: what follows from the query, the frames and the settings, and how it is begun.

Another DataFrame may take the place of an input of a merge while a query runs.  Spark fixes the inputs of a streaming
query when it starts, so the query is begun again over the other frames, with the same checkpoint (`Rebinding`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from everwhen.algebra.builder import Stream, node_of
from everwhen.algebra.explain import explain
from everwhen.algebra.expressions.build import Column as Name
from everwhen.algebra.expressions.build import Expr
from everwhen.algebra.nodes import Node, Source, sources_of, walk
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.core.source_policy import NO_POLICY
from everwhen.core.time import show_length, ticks
from everwhen.errors import QueryError
from everwhen.plan.explain import explain_stages
from everwhen.plan.lower import lower
from everwhen.plan.stages.model import StagePlan, Trait
from everwhen.plan.stages.prune_columns import narrow
from everwhen.plan.stages.stages import cut
from everwhen.plan.stages.unpunctuated import without_schemes
from everwhen.plan.stored_plan import stored
from everwhen.sinks.base import EpochSink
from everwhen.spark.driver.copy_changes import CopyChanges
from everwhen.spark.driver.epoch_log import EpochLog, Identity, check_sink
from everwhen.spark.driver.epoch_runner import EpochRunner
from everwhen.spark.driver.ingress_stage import IngressStage
from everwhen.spark.driver.late_rows import LateRows
from everwhen.spark.driver.plan_log import PlanRecord, read_record
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.spark.exchange.raw_rows import RawRows
from everwhen.spark.exchange.single_scan import SourceProjection
from everwhen.spark.exchange.source_scan import unioned
from everwhen.spark.sources.declared import declared_source
from everwhen.spark.sources.normalise import normalise
from everwhen.spark.sources.source import ResolvedSource, SparkSource, resolve
from everwhen.spark.translate.expressions import spark_type, translate
from everwhen.storage.lease import Lease

Query = Stream | Node


@dataclass(frozen=True)
class Settings:
    """How a query is run."""

    trigger: str | None
    width: int
    name: str | None
    snapshot_every: int
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """A query over certain frames: nothing has been written yet.  `runs`: its plan; and the one that takes over."""

    runs: tuple[PlanRun, ...]
    fed: DataFrame
    record: PlanRecord | None = None

    @property
    def plan(self) -> StagePlan:
        """The plan that runs, or takes over."""
        return self.runs[-1].plan


@dataclass(frozen=True)
class Job:
    """A query with all that it is started with, but the frames.  `before`: the queries that it takes over from."""

    session: SparkSession
    query: Query | Mapping[str, Query]
    queries: Mapping[str, Node]
    level: Consistency
    place: str
    sinks: Mapping[str, EpochSink]
    settings: Settings
    before: Mapping[str, Node] | None = None
    asked: str = ""
    """The query as it was asked; what runs is a plan of it."""
    forms: tuple[Mapping[str, Node], ...] = ()
    """Plans that may take over while it runs: the rows that it is given have the columns of them all."""

    def ready(self, inputs: Mapping[str, DataFrame], sources: Mapping[str, SparkSource]) -> Ready:
        """Whatever can be wrong with query and frames is found here, before anything is written."""
        check_streaming(inputs)
        resolved = resolved_sources(self.queries, inputs, sources)
        declared, waiting = bounded(self.query, self.level)
        plan = staged(self.queries, resolved, waiting)
        elements = {input_name: normalise(inputs[input_name], resolved[input_name]) for input_name in resolved}
        intake = _intake(declared, waiting, self.level, resolved, plan, f"{self.place}/everwhen/dropped")
        if self.forms and intake is None:
            known = {name: resolve(inputs[name].schema, name, sources.get(name)) for name in resolved}
            raw = self._raw(fed_inputs(plan), known, [plan], inputs, sources)
            fed = raw.frame({name: normalise(inputs[name], known[name]) for name in known})
            return Ready((PlanRun(plan, resolved, raw=raw, partitions=self.settings.width),), fed)
        narrow = SourceProjection.of(plan, resolved) if intake is None else None
        if narrow is not None:
            fed = narrow.streamed(inputs[narrow.source.name])
        else:
            fed = unioned(plan, elements, resolved) if intake is None else intake.raw(elements)
        return Ready((PlanRun(plan, resolved, intake, narrow, partitions=self.settings.width),), fed)

    def replaced(
        self,
        record: PlanRecord,
        inputs: Mapping[str, DataFrame],
        sources: Mapping[str, SparkSource],
        both: bool = False,
    ) -> Ready:
        """The same, of a query that took over from another one.  `both`: the other one still runs."""
        check_streaming(inputs)
        if missing := [name for name in record.inputs if name not in inputs]:
            raise QueryError(
                f"no input for {missing[0]}: the query was started with it, and Spark wants the same inputs for ever, "
                "also those that the query does not read any more"
            )
        if bounded(self.query, self.level)[1]:
            raise QueryError("a query that took over from another one cannot wait or forget (block, remember)")
        plans = []
        for queries in [*([self.before] if both and self.before is not None else []), self.queries]:
            resolved = resolved_sources(queries, inputs, sources, record.inputs)
            plans.append((staged(queries, resolved), resolved))
        known = {name: resolve(inputs[name].schema, name, sources.get(name)) for name in record.inputs}
        raw = self._raw(record.inputs, known, [plan for plan, _ in plans], inputs, sources)
        width = self.settings.width
        new = PlanRun(*plans[-1], None, None, raw, record.number, record.first - 1, record.at, record.buckets or width)
        runs = [new]
        if len(plans) > 1:
            before = (record.number - 1, record.started, record.since, record.buckets_before or width)
            runs.insert(0, PlanRun(*plans[0], None, None, raw, *before))
        fed = raw.frame({name: normalise(inputs[name], known[name]) for name in known})
        return Ready(tuple(runs), fed, record)

    def _raw(
        self,
        places: Sequence[str],
        known: Mapping[str, ResolvedSource],
        plans: Sequence[StagePlan],
        inputs: Mapping[str, DataFrame],
        sources: Mapping[str, SparkSource],
    ) -> RawRows:
        """The rows that plans are given, also those that may take over."""
        more = [staged(form, resolved_sources(form, inputs, sources, known)) for form in self.forms]
        return RawRows.of(places, known, [*plans, *more])

    def identity(self, ready_plan: StagePlan, intake: bool) -> Identity:
        """What must not change while the query has state."""
        level = self.level
        bounds = f", block {show_length(level.block)}, remember {show_length(level.remember)}" if intake else ""
        emit = f"{level.emit.value}{bounds}"
        return Identity(explain_stages(ready_plan), self.settings.width, emit, self.asked, stored(self.queries))

    def begin(
        self, ready: Ready, journal: EpochLog, lease: Lease, replan: Callable[[EpochRunner, int], None] | None = None
    ) -> tuple[StreamingQuery, EpochRunner]:
        """Start it, or go on with what its checkpoint holds."""
        level = self.level
        identity = journal.open(self.identity(ready.plan, ready.runs[-1].intake is not None), ready.record is None)
        decided = journal.decision()
        for query_name, node in self.queries.items():
            self.sinks[query_name].resume(journal.newest() - 1)  # the last epoch that is done may be on its way still
            self.sinks[query_name].prepare(node.schema)
            check_sink(query_name, self.sinks[query_name], journal)
        runner = EpochRunner(
            self.session,
            ready.runs,
            {query_name: node.schema for query_name, node in self.queries.items()},
            self.sinks,
            journal,
            CopyChanges.of(journal),
            identity,
            level.emit,
            self.settings.snapshot_every,
            LateRows(f"{self.place}/everwhen/late"),
            level if decided is None else Consistency.from_plain(decided.level),
            ready.record,
            self.settings.ends,
            known=journal.known(journal.newest()),
            lease=lease,
            replan=replan,
        )
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)  # the handle tells what went wrong
        return self._streamed(ready, runner), runner

    def begin_again(self, ready: Ready, before: EpochRunner) -> tuple[StreamingQuery, EpochRunner]:
        """Go on over other frames, when no epoch is under way: what a run holds is still its own."""
        runner = replace(before, runs=ready.runs, record=ready.record, stopping=False)
        runner.observer.take_over(before.observer)
        return self._streamed(ready, runner), runner

    def _streamed(self, ready: Ready, runner: EpochRunner) -> StreamingQuery:
        writer = ready.fed.writeStream.foreachBatch(runner)
        writer = writer.option("checkpointLocation", f"{self.place}/spark").outputMode("append")
        if self.settings.name is not None:
            writer = writer.queryName(self.settings.name)
        found: StreamingQuery = _triggered(writer, self.settings.trigger).start()
        return found


@dataclass
class Rebinding:
    """The frames that a job runs over, and their descriptions."""

    job: Job
    inputs: dict[str, DataFrame]
    sources: dict[str, SparkSource]

    def ready(self, name: str, frame: DataFrame, source: SparkSource | None, plan: StagePlan) -> Ready:
        """The job with another frame for an input, if that changes nothing else."""
        described = {**self.sources, **({name: source} if source is not None else {})}
        record = read_record(self.job.place)
        given = {**self.inputs, name: frame}
        found = self.job.ready(given, described) if record is None else self.job.replaced(record, given, described)
        if explain_stages(found.plan) != explain_stages(plan):
            raise QueryError(
                f"the other DataFrame of {name!r} would change the plan of the query, which has state: it must have "
                "the same columns and mean the same by them as the one before (op, match, lifetimes)"
            )
        return found

    def bound(self, name: str, frame: DataFrame, source: SparkSource | None) -> None:
        """The frame has taken its place."""
        self.inputs[name] = frame
        if source is not None:
            self.sources[name] = source


def fed_inputs(plan: StagePlan) -> tuple[str, ...]:
    """The inputs as Spark's streaming query has them, in their order: one for each feed."""
    feeds = [stream.feed for stage in plan.stages for stream in stage.inputs]
    return tuple(feed.source.name for feed in feeds if feed is not None)


def check_streaming(inputs: Mapping[str, DataFrame]) -> None:
    for input_name, frame in inputs.items():
        if not frame.isStreaming:
            raise QueryError(
                f"input {input_name!r} is not a streaming DataFrame; read it with spark.readStream, or use "
                "everwhen.spark.run for bounded ones"
            )


def named(query: Query | Mapping[str, Query]) -> dict[str, Node]:
    """Queries by name, narrowed to the columns they need; a single one is called `out`."""
    found = query if isinstance(query, Mapping) else {"out": query}
    if not found:
        raise QueryError("there is no query to run")
    return {name: narrow(node_of(q)) for name, q in found.items()}


def asked_text(query: Query | Mapping[str, Query]) -> str:
    """Queries as they were asked, before any rewriting."""
    found = query if isinstance(query, Mapping) else {"out": query}
    plans = {name: (q.asked or q.node) if isinstance(q, Stream) else q for name, q in found.items()}
    return "\n".join(f"{name}:\n{explain(plan)}" for name, plan in plans.items())


def resolved_sources(
    queries: Mapping[str, Node],
    inputs: Mapping[str, DataFrame],
    sources: Mapping[str, SparkSource],
    others: Iterable[str] = (),
) -> dict[str, ResolvedSource]:
    """Each source of the queries with the frame's columns that carry it.  `others` are inputs that may be given
    although none of these queries reads them."""
    reads = sources_of(*queries.values())
    for what, given in (("input", set(inputs)), ("source description", set(sources))):
        unknown = sorted(given - set(reads) - set(others))
        if unknown:
            raise QueryError(f"the query does not read the {what} {unknown[0]!r}; it reads {', '.join(sorted(reads))}")
    missing = sorted(set(reads) - set(inputs))
    if missing:
        raise QueryError(f"no input for {', '.join(missing)}; the query reads {', '.join(sorted(reads))}")
    return {
        name: replace(
            resolve(
                inputs[name].schema,
                name,
                declared_source(source, inputs[name].schema, sources.get(name)),
                source.schema.names,
            ),
            insert_only=source.insert_only,
            chronons=source.chronons,
        )
        for name, source in reads.items()
    }


def staged(
    queries: Mapping[str, Node], resolved: Mapping[str, ResolvedSource], watched: frozenset[str] = frozenset()
) -> StagePlan:
    """The plan in stages, as far as possible in Spark SQL; the schemes of `watched` sources are someone else's."""
    schemes = {node.name for node in walk(*queries.values()) if isinstance(node, Source) and node.schemes}
    traits = {
        name: Trait(source.source.insert_only, source.source.chronons, source.match is not None or name in schemes)
        for name, source in resolved.items()
    }
    return cut(without_schemes(queries, watched), traits, is_native)


def is_native(expr: Expr, schema: Schema) -> bool:
    """Whether Spark computes the expression exactly as we do, over columns that it can carry."""
    if any(spark_type(schema.field(name).type) is None for name in expr.columns()):
        return False
    if isinstance(expr, Name):
        return True
    from pyspark.sql import functions as F

    return translate(expr, schema, {name: F.col(name) for name in schema.names}) is not None


def bounded(query: Query | Mapping[str, Query], level: Consistency) -> tuple[dict[str, Source], frozenset[str]]:
    """The sources as they are declared, and those that wait or are forgotten at a level."""
    found = query if isinstance(query, Mapping) else {"out": query}
    nodes = {name: node_of(q) for name, q in found.items()}
    sources = sources_of(*nodes.values())
    if not (level.finalizes or level.aligns):
        return sources, frozenset()
    return sources, lower(nodes, level.emit).waiting_sources()


def _intake(
    sources: Mapping[str, Source],
    bounded: frozenset[str],
    level: Consistency,
    resolved: Mapping[str, ResolvedSource],
    plan: StagePlan,
    root: str,
) -> IngressStage | None:
    """The intake stage of a level that waits or forgets, over the sources as they are declared."""
    for name in sorted(bounded):
        if resolved[name].source.late == "adjust":
            raise QueryError(
                f"source {name!r}: late='adjust' moves late rows, and the level {level.name!r} gives them up; choose "
                "late='drop' or late='error'"
            )
    declared = {
        name: replace(
            source, insert_only=source.insert_only or resolved[name].source.insert_only, policy=NO_POLICY
        )  # the description of the frame says it
        for name, source in sources.items()
    }
    return IngressStage(declared, bounded, resolved, plan, level, root) if bounded else None


AVAILABLE: Final = "available"
"""What is there now, then the end."""


def trigger_of(given: str | None) -> str | None:
    """When epochs begin, as Spark reads it; QueryError if it says nothing of the kind.

    >>> trigger_of(None), trigger_of("availableNow"), trigger_of("1min 30s")
    (None, 'available', '90000 milliseconds')
    """
    if given is None or given in (AVAILABLE, "availableNow", "once"):
        return None if given is None else AVAILABLE
    try:
        if not isinstance(given, str):
            raise QueryError("it is no text")
        return f"{ticks(given)} milliseconds"
    except QueryError as bad:
        raise QueryError(
            f"start: trigger={given!r}: {bad}; write trigger='5 seconds' for an epoch every 5 seconds, or "
            "trigger='available' for what is there now"
        ) from None


def _triggered(writer: Any, trigger: str | None) -> Any:
    if trigger is None:
        return writer
    return writer.trigger(availableNow=True) if trigger == AVAILABLE else writer.trigger(processingTime=trigger)
