"""`start`: a query over streaming DataFrames, for as long as they run."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import Column as Name
from everwhen.algebra.expressions.build import Expr
from everwhen.algebra.nodes import Node, Source, walk
from everwhen.core.consistency import Consistency
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import show
from everwhen.engine.run import chosen
from everwhen.errors import QueryError
from everwhen.plan.explain import explain_stages
from everwhen.plan.lower import lower
from everwhen.plan.stages.model import StagePlan, Trait
from everwhen.plan.stages.prune_columns import narrow
from everwhen.plan.stages.stages import cut
from everwhen.plan.stages.unpunctuated import without_schemes
from everwhen.sinks.base import EpochSink
from everwhen.sinks.callback import CallbackSink
from everwhen.sinks.changelog import ChangelogSink
from everwhen.spark.api.handle import Handle
from everwhen.spark.driver.epoch_log import EpochLog, Identity, check_sink
from everwhen.spark.driver.epoch_runner import EpochRunner
from everwhen.spark.driver.ingress_stage import IngressStage
from everwhen.spark.driver.late_rows import LateRows
from everwhen.spark.exchange.single_scan import SourceProjection
from everwhen.spark.exchange.source_scan import unioned
from everwhen.spark.sources.normalise import normalise
from everwhen.spark.sources.source import ResolvedSource, SparkSource, resolve
from everwhen.spark.translate.expressions import spark_type, translate
from everwhen.storage.lease import take_lease

Query = Stream | Node
Sink = EpochSink | str | os.PathLike[str] | Any


def start(
    query: Query | Mapping[str, Query],
    inputs: Mapping[str, DataFrame],
    *,
    sink: Sink | Mapping[str, Sink],
    checkpoint: str | os.PathLike[str],
    sources: Mapping[str, SparkSource] | None = None,
    trigger: str | None = None,
    consistency: Consistency | None = None,
    emit: str | Emit | None = None,
    buckets: int | None = None,
    name: str | None = None,
    snapshot_every: int = 10,
    ends: Mapping[str, int] | None = None,
) -> Handle:
    """Start a query, or several by name over the same inputs; returns its handle at once.

    `inputs` are streaming DataFrames by the names of the query's sources; `sources` describes their columns where it is
    needed (`SparkSource`).  `sink` is a sink, a path (a Parquet changelog) or a function of (epoch, elements); one per
    query if there are several.  `checkpoint` is a directory that belongs to this query: started again with it, the
    query continues where it was.  `trigger`: None (as fast as possible), "5 seconds" (an epoch every 5 seconds), or
    "available" (what is there now, then stop).  `buckets`: the number of partitions of a stage's state, fixed at the
    first start (default: the cores of the cluster).  `ends`: the epochs with which inputs of a merge end, where that is
    known: such a copy then leaves, as one does that ends in process.  Without `consistency` the level is that of the
    query's CONSISTENCY clause, else MIDDLE.

    >>> import everwhen as ew
    >>> bids = ew.source("Bid", {"item": "string", "price": "int64"})
    >>> best = bids.range(10).group_by("item").agg(best=ew.max("price"))
    >>> source = ew.spark.SparkSource("at", progress=ew.spark.Disorder(5))
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> here = Path(mkdtemp())
    >>> (here / "bids").mkdir()
    >>> _ = (here / "bids" / "0.json").write_text('{"at": 1, "item": "chair", "price": 40}')
    >>> frame = spark.readStream.schema("at bigint, item string, price bigint").json(f"{here}/bids")
    >>> sink = ew.spark.MemorySink()
    >>> handle = ew.spark.start(
    ...     best, {"Bid": frame}, sources={"Bid": source}, sink=sink, checkpoint=here / "state",
    ...     trigger="available", buckets=2,
    ... )
    >>> handle.await_termination()
    True
    >>> print(next(sink.elements()))
    insert [1, ∞) item='chair' best=40
    """
    queries = named(query)
    if not inputs:
        raise QueryError("start: there are no inputs; give the streaming DataFrames by name: {'Bid': bids}")
    for input_name, frame in inputs.items():
        if not frame.isStreaming:
            raise QueryError(
                f"input {input_name!r} is not a streaming DataFrame; read it with spark.readStream, or use "
                "everwhen.spark.run for bounded ones"
            )
    sinks = _sinks(sink, queries)
    resolved = resolved_sources(queries, inputs, sources or {})
    level = _level(query, consistency).changed(emit=emit)
    declared, bounded = _bounded(query, level)
    plan = staged(queries, resolved, bounded)
    session = next(iter(inputs.values())).sparkSession
    width = buckets if buckets is not None else session.sparkContext.defaultParallelism
    if width < 1:
        raise QueryError(f"start: there is at least one partition (buckets=), not {width}")
    if snapshot_every < 1:
        raise QueryError(f"start: a snapshot is taken every epoch at the most, not every {snapshot_every}")
    # Whatever can be wrong with query and frames is found before anything is written.
    elements = {input_name: normalise(inputs[input_name], resolved[input_name]) for input_name in resolved}
    place = _absolute(checkpoint)
    intake = _intake(declared, bounded, level, resolved, plan, f"{place}/everwhen/dropped")
    narrow = SourceProjection.of(plan, resolved) if intake is None else None
    if narrow is not None:
        fed = narrow.streamed(inputs[narrow.source.name])
    else:
        fed = unioned(plan, elements, resolved) if intake is None else intake.raw(elements)
    journal = EpochLog(place)
    lease = take_lease(journal.folder, place)
    try:
        bounds = "" if intake is None else f", block {show(level.block)}, remember {show(level.remember)}"
        identity = journal.open(Identity(explain_stages(plan), width, f"{level.emit.value}{bounds}"))
        moved = journal.level()
        for query_name, node in queries.items():
            sinks[query_name].resume(journal.newest() - 1)  # the last epoch that is done may be on its way still
            sinks[query_name].prepare(node.schema)
            check_sink(query_name, sinks[query_name], journal)
        runner = EpochRunner(
            session,
            plan,
            resolved,
            {query_name: node.schema for query_name, node in queries.items()},
            sinks,
            journal,
            identity,
            level.emit,
            width,
            snapshot_every,
            LateRows(f"{place}/everwhen/late"),
            level if moved is None else Consistency.from_plain(moved),
            intake,
            narrow,
            ends or {},
            known=journal.known(journal.newest()),
            lease=lease,
        )
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)  # the handle tells what went wrong
        writer = fed.writeStream.foreachBatch(runner)
        writer = writer.option("checkpointLocation", f"{place}/spark").outputMode("append")
        if name is not None:
            writer = writer.queryName(name)
        return Handle(_triggered(writer, trigger).start(), runner, plan)
    except BaseException:
        lease.release()
        raise


def named(query: Query | Mapping[str, Query]) -> dict[str, Node]:
    """Queries by name, narrowed to the columns they need; a single one is called `out`."""
    found = query if isinstance(query, Mapping) else {"out": query}
    if not found:
        raise QueryError("there is no query to run")
    return {name: narrow(q.node if isinstance(q, Stream) else q) for name, q in found.items()}


def resolved_sources(
    queries: Mapping[str, Node], inputs: Mapping[str, DataFrame], sources: Mapping[str, SparkSource]
) -> dict[str, ResolvedSource]:
    """Each source of the queries with the frame's columns that carry it."""
    reads = {node.name: node for node in walk(*queries.values()) if isinstance(node, Source)}
    for what, given in (("input", set(inputs)), ("source description", set(sources))):
        unknown = sorted(given - set(reads))
        if unknown:
            raise QueryError(f"the query does not read the {what} {unknown[0]!r}; it reads {', '.join(sorted(reads))}")
    missing = sorted(set(reads) - set(inputs))
    if missing:
        raise QueryError(f"no input for {', '.join(missing)}; the query reads {', '.join(sorted(reads))}")
    return {
        name: replace(
            resolve(inputs[name].schema, name, sources.get(name)),
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


def _level(query: Query | Mapping[str, Query], asked: Consistency | None) -> Consistency:
    """One level for all queries of a job."""
    levels = {chosen(each, asked) for each in (query.values() if isinstance(query, Mapping) else (query,))}
    if len(levels) > 1:
        names = ", ".join(sorted(level.name for level in levels))
        raise QueryError(f"start: the queries of one job have one consistency, and these ask for {names}")
    return levels.pop()


def _bounded(query: Query | Mapping[str, Query], level: Consistency) -> tuple[dict[str, Source], frozenset[str]]:
    """The sources as they are declared, and those that wait or are forgotten at a level."""
    found = query if isinstance(query, Mapping) else {"out": query}
    nodes = {name: q.node if isinstance(q, Stream) else q for name, q in found.items()}
    sources = {each.name: each for each in walk(*nodes.values()) if isinstance(each, Source)}
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
        name: replace(source, insert_only=source.insert_only or resolved[name].source.insert_only)
        for name, source in sources.items()
    }
    return IngressStage(declared, bounded, resolved, plan, level, root) if bounded else None


def _sinks(sink: Sink | Mapping[str, Sink], queries: Mapping[str, Node]) -> dict[str, EpochSink]:
    given = sink if isinstance(sink, Mapping) else dict.fromkeys(queries, sink)
    if set(given) != set(queries):
        raise QueryError(f"one sink per query: there are the queries {sorted(queries)} and sinks for {sorted(given)}")
    if not isinstance(sink, Mapping) and len(queries) > 1:
        raise QueryError(f"several queries cannot share one sink; give one each: {{{', '.join(map(repr, queries))}}}")
    return {name: _sink(one) for name, one in given.items()}


def _sink(sink: Sink) -> EpochSink:
    if isinstance(sink, EpochSink):
        return sink
    if isinstance(sink, str | os.PathLike):
        return ChangelogSink(_absolute(sink))
    if callable(sink):
        return CallbackSink(sink)
    raise QueryError(f"a sink is one of everwhen.sinks, a path, or a function, not {type(sink).__name__}")


def _triggered(writer: Any, trigger: str | None) -> Any:
    if trigger is None:
        return writer
    if trigger in ("available", "availableNow", "once"):
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger)


def _absolute(path: str | os.PathLike[str]) -> str:
    """A path as it is meant here: the JVM and the workers may have another current directory.  A URI stays."""
    text = os.fspath(path)
    return text.rstrip("/") if "://" in text else os.path.abspath(text)
