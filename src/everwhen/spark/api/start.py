"""`start`: a query over streaming DataFrames, for as long as they run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

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
from everwhen.spark.api.job import Job, Query, Rebinding, Settings, named
from everwhen.spark.api.replacing import Replacement, resumed
from everwhen.spark.driver.epoch_log import EpochLog
from everwhen.spark.driver.plan_log import read_record
from everwhen.spark.sources.source import SparkSource, frame_axis
from everwhen.storage.lease import take_lease

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
    query's CONSISTENCY clause, else MIDDLE.  A query that takes the place of that of the checkpoint is given as
    `Replacement(old, new)`.

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
    width = buckets if buckets is not None else session.sparkContext.defaultParallelism
    if width < 1:
        raise QueryError(f"start: there is at least one partition (buckets=), not {width}")
    if snapshot_every < 1:
        raise QueryError(f"start: a snapshot is taken every epoch at the most, not every {snapshot_every}")
    level = _level(query, consistency).changed(emit=emit)
    settings = Settings(trigger, width, name, snapshot_every, dict(ends or {}))
    before = None if asked is None else named(asked.old)
    described = dict(sources or {})
    axis = common_axis(frame_axis(frame.schema, described.get(name)) for name, frame in inputs.items())
    job = Job(session, query, queries, level, _absolute(checkpoint), _sinks(sink, queries, axis), settings, before)
    plain = asked is None and read_record(job.place) is None
    ready = job.ready(inputs, described) if plain else None
    journal = EpochLog(job.place)
    lease = take_lease(journal.folder, job.place)
    try:
        if ready is None:
            ready = resumed(job, journal, inputs, described, None if asked is None else asked.at)
        stream, runner = job.begin(ready, journal, lease)
        return Handle(stream, runner, Rebinding(job, dict(inputs), described))
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
