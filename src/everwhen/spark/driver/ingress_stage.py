"""The driver's part of the intake stage: rows of all sources in, what is admitted out, and what is given up kept.

    <checkpoint>/everwhen/dropped/<source>/epoch=<n>/*.parquet     elements that a level gave up, with the reason

The output of the stage is held in memory for the epoch, because several parts of the job read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from everwhen.algebra.nodes import Source
from everwhen.core.consistency import Consistency
from everwhen.plan.stages.model import StagePlan
from everwhen.spark.exchange.schema import ERROR, NOTE, ExchangeSchema, carried, slots
from everwhen.spark.exchange.source_scan import payload_columns, unioned
from everwhen.spark.sources.constraints import wrong_with
from everwhen.spark.sources.source import NoProgress, ResolvedSource
from everwhen.spark.worker.ingress_task import GIVEN_UP, IngressTask, SourceSpec
from everwhen.storage.folder import path_name
from everwhen.stream.element_batch import OPS

MATCH: Final = "match"
"""The column with the patterns of promises about data, as in every normalised frame."""
AN_OWN_COLUMN: Final = 0
"""Where `op` and the patterns of a source stand behind the stage: they are columns there, whatever its frame has."""


@dataclass(frozen=True)
class Admitted:
    """What an epoch lets through: the frame of feeds, what the stage notes, and the frame that is held for both."""

    frame: DataFrame
    note: Mapping[str, Any]
    held: DataFrame


@dataclass(frozen=True)
class IngressStage:
    """The stage of a query.  `sources` are those that it reads; those in `bounded` wait or are forgotten."""

    sources: Mapping[str, Source]
    bounded: frozenset[str]
    resolved: Mapping[str, ResolvedSource]
    plan: StagePlan
    first: Consistency
    root: str

    @property
    def layout(self) -> ExchangeSchema:
        """Where something may be promised about data, the patterns stand in a column of their own."""
        found = ExchangeSchema.of(source.schema for source in self.sources.values())
        return ExchangeSchema((*found.payload, (MATCH, pa.string()))) if self.promising else found

    @property
    def promising(self) -> frozenset[str]:
        """The sources that may promise something about data."""
        return frozenset(name for name, s in self.sources.items() if s.schemes or self.resolved[name].match is not None)

    @property
    def tags(self) -> dict[str, int]:
        return {name: tag for tag, name in enumerate(self.sources)}

    @property
    def behind(self) -> dict[str, ResolvedSource]:
        """The sources as the feeds read them: behind the stage their promises are rows, and nothing is late."""
        return {name: self._behind(each) if name in self.bounded else each for name, each in self.resolved.items()}

    def _behind(self, resolved: ResolvedSource) -> ResolvedSource:
        said = replace(resolved.source, progress=NoProgress(), late="error", idle=None)
        match = AN_OWN_COLUMN if resolved.name in self.promising else None
        return replace(resolved, source=said, op=AN_OWN_COLUMN, match=match)

    def raw(self, elements: Mapping[str, DataFrame]) -> DataFrame:
        """All sources in one frame, so that an epoch is one consistent cut."""
        branches = []
        for name, tag in self.tags.items():
            source = self.sources[name]
            columns = payload_columns(source, self.resolved[name])
            given = dict(zip([slot for slot, _ in slots(source.schema)], columns.values(), strict=True))
            if self.resolved[name].match is not None:
                given[MATCH] = F.col(MATCH)
            rest = [
                (given[slot] if slot in given else F.lit(None)).cast(carried(type_)).alias(slot)
                for slot, type_ in self.layout.payload
            ]
            head = [F.lit(0).cast("int").alias("bucket"), F.lit(tag).cast("int").alias("tag")]
            numbers = [
                F.col(t).cast("bigint").alias(c) for t, c in (("vs", "a"), ("ve", "b"), ("vnew", "c"), ("op", "w"))
            ]
            branches.append(
                elements[name].select(*head, *numbers, *rest, wrong_with(self.resolved[name]).alias("note"))
            )
        return reduce(DataFrame.unionByName, branches)

    def admitted(self, frame: DataFrame, task: IngressTask) -> Admitted:
        """An epoch's rows, led through the stage."""
        mine = frame.where(F.col("tag").isin([self.tags[name] for name in self.bounded]))
        columns = [name for name, _ in self.layout.columns]
        held = mine.select(*columns).repartitionById(1, "bucket").mapInArrow(task, self.layout.spark).persist()
        notes = {
            row["tag"]: row["note"]
            for row in held.where(F.col("tag").isin(NOTE, ERROR)).select("tag", "note").collect()
        }
        if ERROR in notes:
            held.unpersist()
            return Admitted(frame, {"error": json.loads(notes[ERROR])}, held)
        passed = {name: held if name in self.bounded else frame for name in self.sources}
        elements = {name: self._elements(rows, name) for name, rows in passed.items()}
        return Admitted(unioned(self.plan, elements, self.behind), json.loads(notes[NOTE]), held)

    def _elements(self, rows: DataFrame, name: str) -> DataFrame:
        """The normalised frame of a source, as `normalise` gives it."""
        source, resolved = self.sources[name], self.resolved[name]
        named = zip(source.schema.names, slots(source.schema), strict=True)
        payload = [F.col(slot).alias(f"p{resolved.schema.index(column)}") for column, (slot, _) in named]
        times = [F.col("w").cast("tinyint").alias("op"), F.col("a").alias("vs"), F.col("b").alias("ve")]
        words = [F.col(MATCH)] if name in self.promising else []
        return rows.where(F.col("tag") == self.tags[name]).select(*times, F.col("c").alias("vnew"), *payload, *words)

    def drawn(self) -> dict[str, SourceSpec]:
        """The sources as the task reads them."""
        return {
            name: SourceSpec(source, self.resolved[name].source.disorder, self.resolved[name].source.late == "drop")
            for name, source in self.sources.items()
            if name in self.bounded
        }

    def place(self, source: str) -> str:
        """The folder of what was given up of a source: a Parquet data set with a column `epoch`."""
        return f"{self.root}/{path_name(source)}"

    def keep(self, held: DataFrame, epoch: int) -> None:
        """Write what an epoch gave up, if it gave up anything."""
        tags = [row["tag"] for row in held.where(F.col("tag") <= GIVEN_UP).select("tag").distinct().collect()]
        for name, tag in self.tags.items():
            if GIVEN_UP - tag in tags:
                schema = self.sources[name].schema
                named = zip(schema.names, slots(schema), strict=True)
                op = F.element_at(F.array(*map(F.lit, OPS)), (F.col("w") + 1).cast("int")).alias("op")
                times = [F.col(c).alias(t) for t, c in (("vs", "a"), ("ve", "b"), ("vnew", "c"))]
                columns = [F.col(slot).alias(column) for column, (slot, _) in named]
                rows = held.where(F.col("tag") == GIVEN_UP - tag)
                rows = rows.select(op, *times, F.col("note").alias("reason"), *columns)
                rows.write.mode("overwrite").parquet(f"{self.place(name)}/epoch={epoch}")
