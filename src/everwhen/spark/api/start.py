"""`start`: a query over streaming DataFrames, for as long as they run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from pyspark.sql import DataFrame

from everwhen.algebra.nodes import Node
from everwhen.core.consistency import Consistency
from everwhen.core.emit import Emit
from everwhen.core.time_axis import TimeAxis, common_axis
from everwhen.engine.run import chosen
from everwhen.errors import QueryError
from everwhen.sinks.base import EpochSink
from everwhen.sinks.callback import CallbackSink
from everwhen.sinks.changelog import ChangelogSink
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.handle_html import HandlePicture
from everwhen.spark.api.job import Job, Query, Rebinding, Settings, asked_text, named, trigger_of
from everwhen.spark.api.replacing import Replacement, Replanning, Resumption, both_forms
from everwhen.spark.driver.epoch_log import EpochLog
from everwhen.spark.driver.plan_log import read_identity
from everwhen.spark.sources.source import SparkSource, frame_axis
from everwhen.storage.lease import take_lease


class RareSettings(TypedDict, total=False):
    """What is seldom said of a query that is started."""

    name: str | None
    snapshot_every: int
    ends: Mapping[str, int] | None
    replan_every: int | None


Sink = EpochSink | str | os.PathLike[str] | Any


def start(
    query: Query | Mapping[str, Query] | Replacement,
    inputs: Mapping[str, DataFrame],
    *,
    sink: Sink | Mapping[str, Sink],
    checkpoint: str | os.PathLike[str],
    sources: Mapping[str, SparkSource] | None = None,
    trigger: str | None = None,
    consistency: Consistency | None = None,
    emit: str | Emit | None = None,
    buckets: int | None = None,
    migrate: bool = False,
    **rare: Unpack[RareSettings],
) -> Handle:
    """Start a query, or several by name over the same inputs; returns its handle at once.

    `inputs` are streaming DataFrames by the names of the query's sources; `sources` describes their columns where it is
    needed (`SparkSource`).  `sink` is a sink, a path (a Parquet changelog) or a function of (epoch, elements); one per
    query if there are several.  `checkpoint` is a directory that belongs to this query: started again with it, the
    query continues where it was.  `trigger`: None (as fast as possible), "5 seconds" (an epoch every 5 seconds), or
    "available" (what is there now, then stop).  `buckets`: the number of partitions of a stage's state (default: as
    before, and at the first start the cores of the cluster); with another number than before the state moves to that
    many.  Without `consistency` the level is that of the
    query's CONSISTENCY clause, else MIDDLE.

    With `migrate` another query with the same columns may take over from that of the checkpoint, at an instant that
    `Handle.replaced_at` tells; `Replacement(old, new)` gives both.

    Rarely needed: `name` of Spark's streaming query; `snapshot_every`: after how many epochs state is written whole;
    `ends`: the epochs with which inputs of a merge end, where that is known: such a copy then leaves, as one does that
    ends in process; `replan_every`: the query moves between its plan as written and as rewritten every so many epochs.

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
    asked = query if isinstance(query, Replacement) else None
    query = query.new if isinstance(query, Replacement) else query
    queries = named(query)
    if not inputs:
        raise QueryError("start: there are no inputs; give the streaming DataFrames by name: {'Bid': bids}")
    session = next(iter(inputs.values())).sparkSession
    place = _absolute(checkpoint)
    mine = read_identity(place)
    width = buckets if buckets is not None else None if mine is None else mine.buckets
    width = session.sparkContext.defaultParallelism if width is None else width
    if width < 1:
        raise QueryError(f"start: there is at least one partition (buckets=), not {width}")
    if unknown := sorted(rare.keys() - RareSettings.__annotations__.keys()):
        raise TypeError(f"start() got an unexpected keyword argument {unknown[0]!r}")
    snapshot_every, every = rare.get("snapshot_every", 10), rare.get("replan_every")
    if snapshot_every < 1:
        raise QueryError(f"start: a snapshot is taken every epoch at the most, not every {snapshot_every}")
    if every is not None and every < 1:
        raise QueryError(f"start: a query is replanned every epoch at the most, not every {every}")
    level = _level(query, consistency).changed(emit=emit)
    settings = Settings(trigger_of(trigger), width, rare.get("name"), snapshot_every, dict(rare.get("ends") or {}))
    before = None if asked is None else named(asked.old)
    described = dict(sources or {})
    axis = common_axis(frame_axis(frame.schema, described.get(name)) for name, frame in inputs.items())
    sinks = _sinks(sink, queries, axis)
    forms = () if every is None else both_forms(query)
    job = Job(session, query, queries, level, place, sinks, settings, before, asked_text(query), forms)
    ready = job.ready(inputs, described) if mine is None and asked is None else None
    journal = EpochLog(job.place)
    lease = take_lease(journal.folder, job.place)
    try:
        if ready is None:
            at = None if asked is None else asked.at
            job, ready = Resumption(job, journal, inputs, described, at, migrate).ready()
        bound = Rebinding(job, dict(inputs), described)
        replanning = None if every is None else Replanning(bound, forms, every)
        stream, runner = job.begin(ready, journal, lease, replanning)
        handle = Handle(stream, runner, bound)
        handle.picture = HandlePicture(handle)
        return handle
    except BaseException:
        lease.release()
        raise


def _level(query: Query | Mapping[str, Query], asked: Consistency | None) -> Consistency:
    """One level for all queries of a job."""
    levels = {chosen(each, asked) for each in (query.values() if isinstance(query, Mapping) else (query,))}
    if len(levels) > 1:
        names = ", ".join(sorted(level.name for level in levels))
        raise QueryError(f"start: the queries of one job have one consistency, and these ask for {names}")
    return levels.pop()


def _sinks(sink: Sink | Mapping[str, Sink], queries: Mapping[str, Node], axis: TimeAxis) -> dict[str, EpochSink]:
    given = sink if isinstance(sink, Mapping) else dict.fromkeys(queries, sink)
    if set(given) != set(queries):
        raise QueryError(f"one sink per query: there are the queries {sorted(queries)} and sinks for {sorted(given)}")
    if not isinstance(sink, Mapping) and len(queries) > 1:
        raise QueryError(f"several queries cannot share one sink; give one each: {{{', '.join(map(repr, queries))}}}")
    return {name: _sink(one, axis) for name, one in given.items()}


def _sink(sink: Sink, axis: TimeAxis) -> EpochSink:
    if isinstance(sink, EpochSink):
        return sink
    if isinstance(sink, str | os.PathLike):
        return ChangelogSink(_absolute(sink), axis=axis)
    if callable(sink):
        return CallbackSink(sink)
    raise QueryError(f"a sink is one of everwhen.sinks, a path, or a function, not {type(sink).__name__}")


def _absolute(path: str | os.PathLike[str]) -> str:
    """A path as it is meant here: the JVM and the workers may have another current directory.  A URI stays."""
    text = os.fspath(path)
    return text.rstrip("/") if "://" in text else os.path.abspath(text)
