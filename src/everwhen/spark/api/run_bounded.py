"""`run`: a query over bounded DataFrames, one lazy pass, the answer as a DataFrame.

A bounded input is its history: corrections are netted first, in the JVM, so nothing is ever taken back.  In each
stage a partition's rows come sorted by their start and are taken piece by piece; after each piece everything before its
last start is promised, so state is freed on the way and memory stays bounded by what is alive at a time, not by the
input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.algebra.nodes import LMerge, walk
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.plan.stages.model import Stage, Trait
from everwhen.plan.stages.stages import cut
from everwhen.spark.api.job import Query, is_native, named, resolved_sources
from everwhen.spark.exchange.codec import handed_rows, result_rows, stream_rows, typed, without_promises
from everwhen.spark.exchange.messages import kinds_in
from everwhen.spark.exchange.schema import ExchangeSchema, slots
from everwhen.spark.exchange.source_scan import partitioned, unioned
from everwhen.spark.exchange.stage_input import StageInput
from everwhen.spark.sources.constraints import wrong_with
from everwhen.spark.sources.normalise import normalise
from everwhen.spark.sources.source import ResolvedSource, SparkSource
from everwhen.spark.worker.partition import EpochInput, EpochOutput, StagePartition
from everwhen.stream.element_batch import ADJUST, CTI, OPS

_PIECE: Final = 65_536
"""Rows after which state is freed."""


def run(
    query: Query,
    inputs: Mapping[str, DataFrame],
    *,
    sources: Mapping[str, SparkSource] | None = None,
    form: Literal["changelog", "history", "snapshot"] = "changelog",
    at: int | None = None,
    buckets: int | None = None,
) -> DataFrame:
    """The answer to a query over bounded DataFrames, as a lazy DataFrame.

    `form`: "changelog" (op, vs, ve, vnew and the answer's columns; all inserts, since the whole input is known),
    "history" (vs, ve and the columns; a null ve is infinity), or "snapshot" (the columns of what is alive at the
    instant `at`).  `sources` says what the frames' columns mean where it is not plain.

    >>> import everwhen as ew
    >>> bids = ew.source("Bid", {"item": "string", "price": "int64"})
    >>> best = bids.range(10).group_by("item").agg(best=ew.max("price"))
    >>> source = ew.spark.SparkSource("at", progress=ew.spark.Disorder(5))
    >>> frame = spark.createDataFrame([(1, "chair", 40), (6, "chair", 90)], "at bigint, item string, price bigint")
    >>> answer = ew.spark.run(best, {"Bid": frame}, sources={"Bid": source}, form="history", buckets=2)
    >>> [tuple(row) for row in answer.orderBy("vs").collect()]
    [(1, 6, 'chair', 40), (6, 16, 'chair', 90)]
    """
    if form not in ("changelog", "history", "snapshot"):
        raise QueryError(f"run: form is changelog, history or snapshot, not {form!r}")
    if (at is not None) != (form == "snapshot"):
        raise QueryError("run: a snapshot, and only that, is taken at an instant: form='snapshot', at=...")
    for name, frame in inputs.items():
        if frame.isStreaming:
            raise QueryError(f"input {name!r} is a streaming DataFrame; use everwhen.spark.start")
    queries = named(query)
    if len(queries) != 1:
        raise QueryError(f"run answers one query, not {len(queries)}")
    if any(isinstance(node, LMerge) for node in walk(*queries.values())):
        raise QueryError(
            "run: a bounded DataFrame is a history, and a merge follows promises as they come; merge streaming "
            "DataFrames (start with trigger='available'), or files (everwhen run)"
        )
    resolved = resolved_sources(queries, inputs, sources or {})
    known = {name: _known(source) for name, source in resolved.items()}
    traits = {name: Trait(insert_only=True, chronons=source.source.chronons) for name, source in resolved.items()}
    plan = cut(queries, traits, is_native, across=False)  # one lazy pass
    session = next(iter(inputs.values())).sparkSession
    width = buckets if buckets is not None else max(session.sparkContext.defaultParallelism, 1)
    elements = {name: _history(normalise(inputs[name], source), source) for name, source in resolved.items()}
    frame = unioned(plan, elements, known)
    schema = next(iter(queries.values())).schema
    layouts = [ExchangeSchema.of(stream.schema for stream in stage.inputs) for stage in plan.stages] + [
        ExchangeSchema.of([schema])
    ]
    flowing: DataFrame | None = None
    for level, stage in enumerate(plan.stages):
        into = layouts[level]
        fed = any(stream.feed is not None for stream in stage.inputs)
        rows = StageInput(stage, plan, into, known, width).rows(frame) if fed else None
        if flowing is not None:
            handed = partitioned(flowing, [s for s in stage.inputs if s.feed is None], into, width)
            rows = handed if rows is None else handed.unionByName(rows)
        assert rows is not None
        task = _PassTask(stage, tuple(source.name for source in plan.sources), into, layouts[level + 1])
        spread = rows.repartitionById(width, "partition").sortWithinPartitions("lo")
        flowing = spread.mapInArrow(task, layouts[level + 1].spark)
    assert flowing is not None
    return _shaped(flowing, schema, form, at)


def _known(source: ResolvedSource) -> ResolvedSource:
    """The source of a history: late rows there are none."""
    description = source.source
    if description.late == "error":
        return source
    return replace(source, source=replace(description, late="error"))


def _history(elements: DataFrame, source: ResolvedSource) -> DataFrame:
    """The events of a bounded stream: every insert, moved by the adjusts that name it."""
    wrong = wrong_with(source)
    place = F.concat(F.lit(f"source {source.name!r}: "), wrong)
    checked = elements.withColumn(
        "op", F.when(wrong.isNotNull(), F.raise_error(place).cast("tinyint")).otherwise(F.col("op"))
    )
    if source.op is None:
        return checked
    payload = [name for name in elements.columns if name.startswith("p")]
    one, gone = F.lit(1).cast("bigint"), F.lit(-1).cast("bigint")
    here = F.struct(F.col("ve").alias("ve"), one.alias("n"))
    before = F.struct(F.col("ve").alias("ve"), gone.alias("n"))
    after = F.struct(F.col("vnew").alias("ve"), one.alias("n"))
    adjusted = F.when(F.col("vnew") > F.col("vs"), F.array(before, after)).otherwise(F.array(before))
    moves = F.when(F.col("op") == ADJUST, adjusted).otherwise(F.array(here))
    moved = checked.where(F.col("op") < CTI).select("vs", *payload, F.explode(moves).alias("move"))
    summed = moved.select("vs", "move.ve", *payload, "move.n").groupBy("vs", "ve", *payload).agg(F.sum("n").alias("n"))
    text = F.concat(
        F.lit(f"source {source.name!r}: an adjust of an event that is not there: ["),
        F.col("vs").cast("string"), F.lit(", "), F.col("ve").cast("string"), F.lit(") "),
        F.to_json(F.struct(*(F.col(p).alias(n) for p, n in zip(payload, source.schema.names, strict=True)))),
    )  # fmt: skip
    times: Column = F.when(F.col("n") < 0, F.raise_error(text).cast("int")).otherwise(F.col("n").cast("int"))
    events = summed.withColumn("times", times).where("times > 0")
    zero = F.lit(0)
    repeated = events.select(
        zero.cast("tinyint").alias("op"), "vs", "ve", zero.cast("bigint").alias("vnew"), *payload,
        F.explode(F.array_repeat(zero, F.col("times"))).alias("copy"),
    )  # fmt: skip
    return repeated.drop("copy")


def _shaped(flowing: DataFrame, schema: Schema, form: str, at: int | None) -> DataFrame:
    payload = [F.col(slot).alias(name) for name, (slot, _) in zip(schema.names, slots(schema), strict=True)]
    if form == "snapshot":
        return flowing.where((F.col("lo") <= F.lit(at)) & (F.col("hi") > F.lit(at))).select(*payload)
    end = F.when(F.col("hi") != F.lit(INF), F.col("hi")).alias("ve")
    if form == "history":
        return flowing.select(F.col("lo").alias("vs"), end, *payload)
    nothing = F.lit(None).cast("bigint").alias("vnew")
    return flowing.select(F.lit(OPS[0]).alias("op"), F.col("lo").alias("vs"), end, nothing, *payload)


@dataclass(frozen=True)
class _PassTask:
    """A partition's pass over its sorted rows."""

    stage: Stage
    sources: tuple[str, ...]
    into: ExchangeSchema
    out: ExchangeSchema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kernel = StagePartition(self.stage, Emit.FINAL)
        for batch in batches:
            fitting = typed(batch, self.into)
            for start in range(0, fitting.num_rows, _PIECE):
                piece = pa.Table.from_batches([fitting.slice(start, _PIECE)])
                starts = piece.column("lo").to_numpy()
                yield from self._step(kernel, piece, int(starts[-1]))
        yield from self._step(kernel, None, INF)

    def _step(self, kernel: StagePartition, piece: pa.Table | None, promise: int) -> Iterator[pa.RecordBatch]:
        rows: Mapping[str, Any] = {}
        if piece is not None:
            rows = stream_rows(piece, kinds_in(piece), self.stage)
        start = promise if promise < INF else kernel.tau
        sources = {name: (start, promise) for name in self.sources}
        handed = {stream.name: promise for stream in self.stage.inputs if stream.feed is None}
        out = kernel.step(EpochInput(rows, sources, frozenset(), handed, start))
        yield from self._rows(kernel, out)
        kernel.collect()

    def _rows(self, kernel: StagePartition, out: EpochOutput) -> Iterator[pa.RecordBatch]:
        for handed in kernel.plan.handed:
            yield from handed_rows(self.out, int(handed.name[1:]), handed.codec, out.handed[handed.name].changes)
        for at, batch in enumerate(out.results.values()):
            yield from result_rows(self.out, at, without_promises(batch))
