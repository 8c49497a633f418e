"""The driver's part of the intake stage: rows of all sources in, what is admitted out, and what is given up kept.

    <checkpoint>/everwhen/dropped/<source>/epoch=<n>/*.parquet     elements that a level gave up, with the reason

The output of the stage is held in memory for the epoch, because several parts of the job read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from everwhen.algebra.nodes import Source
from everwhen.core.consistency import Consistency
from everwhen.plan.stages.model import StagePlan
from everwhen.spark.exchange.messages import Failure, IngressNote, decode, kind_of
from everwhen.spark.exchange.raw_rows import elements_of, laid_out, lifetime
from everwhen.spark.exchange.schema import ExchangeSchema, slots
from everwhen.spark.exchange.source_scan import payload_columns, unioned
from everwhen.spark.internals.jvm_columns import JvmMap
from everwhen.spark.sources.constraints import wrong_with
from everwhen.spark.sources.source import NoProgress, ResolvedSource
from everwhen.spark.worker.ingress_program import MATCH, REMARK, IngressProgram, SourceSpec, dropped_kind
from everwhen.spark.worker.stage_program import EpochTask
from everwhen.spark.worker.state_host import StateSpec
from everwhen.storage.folder import path_name
from everwhen.stream.element_batch import OPS

AN_OWN_COLUMN: Final = 0
"""Where `op` and the patterns of a source stand behind the stage: they are columns there, whatever its frame has."""


@dataclass(frozen=True)
class Admitted:
    """What an epoch lets through: the frame of feeds, what the stage notes, and the frame that is held for both."""

    frame: DataFrame
    note: IngressNote
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
        """Where there may be punctuations, their patterns stand in a column of their own."""
        found = ExchangeSchema.of(source.schema for source in self.sources.values())
        other = (MATCH, REMARK) if self.promising else (REMARK,)
        return ExchangeSchema((*found.payload, *((name, pa.string()) for name in other)))

    @property
    def promising(self) -> frozenset[str]:
        """The sources that may promise something about data."""
        return frozenset(name for name, s in self.sources.items() if s.schemes or self.resolved[name].match is not None)

    @property
    def kinds(self) -> dict[str, int]:
        return {name: kind for kind, name in enumerate(self.sources)}

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
        for name, kind in self.kinds.items():
            source, resolved = self.sources[name], self.resolved[name]
            more = {REMARK: wrong_with(resolved), **({} if resolved.match is None else {MATCH: F.col(MATCH)})}
            own = payload_columns(source, resolved).values()
            branches.append(laid_out(elements[name], self.layout, source.schema, kind, own, **more))
        return reduce(DataFrame.unionByName, branches)

    def work(self, state: StateSpec) -> JvmMap:
        """What the stage does in every epoch."""
        drawn = {
            name: SourceSpec(
                source,
                self.resolved[name].source.disorder,
                self.resolved[name].source.late == "drop",
                name in self.plan.copies.merged,
            )
            for name, source in self.sources.items()
            if name in self.bounded
        }
        layout, kinds = self.layout, {name: self.kinds[name] for name in drawn}
        task = EpochTask(IngressProgram(state, drawn, kinds, self.first, layout), layout, layout, 1)
        return JvmMap(task, [name for name, _ in layout.columns], layout.spark)

    def admitted(self, frame: DataFrame, work: JvmMap) -> Admitted:
        """An epoch's rows, led through the stage."""
        mine = frame.where(F.col("kind").isin([self.kinds[name] for name in self.bounded]))
        held = work.of(mine.repartitionById(1, "partition")).persist()
        told = held.where(F.col("kind").isin(kind_of(IngressNote), kind_of(Failure))).select("kind", "message")
        (said,) = (decode(*row) for row in told.collect())
        if isinstance(said, Failure):
            held.unpersist()
            raise said.raised()
        assert isinstance(said, IngressNote)
        passed = {name: held if name in self.bounded else frame for name in self.sources}
        elements = {name: self._elements(rows, name) for name, rows in passed.items()}
        return Admitted(unioned(self.plan, elements, self.behind), said, held)

    def _elements(self, rows: DataFrame, name: str) -> DataFrame:
        """The normalised frame of a source, as `normalise` gives it."""
        words = [F.col(MATCH)] if name in self.promising else []
        return elements_of(rows, self.kinds[name], self.sources[name].schema, self.resolved[name], *words)

    def place(self, source: str) -> str:
        """The folder of what was given up of a source: a Parquet data set with a column `epoch`."""
        return f"{self.root}/{path_name(source)}"

    def keep(self, held: DataFrame, epoch: int) -> None:
        """Write what an epoch gave up, if it gave up anything."""
        dropped = {dropped_kind(kind): name for name, kind in self.kinds.items()}
        there = held.where(F.col("kind").isin([*dropped])).select("kind").distinct().collect()
        for kind, name in dropped.items():
            if any(row["kind"] == kind for row in there):
                schema = self.sources[name].schema
                named = zip(schema.names, slots(schema), strict=True)
                op = F.element_at(F.array(*map(F.lit, OPS)), (F.col("weight") + 1).cast("int")).alias("op")
                columns = [F.col(slot).alias(column) for column, (slot, _) in named]
                rows = held.where(F.col("kind") == kind)
                rows = rows.select(op, *lifetime(), F.col(REMARK).alias("reason"), *columns)
                rows.write.mode("overwrite").parquet(f"{self.place(name)}/epoch={epoch}")
