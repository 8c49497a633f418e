"""The fast way of a plan that reads one source and merges all its rows: one pass gives rows and progress.

What is known of the merged rows is counted as they pass by, and known when all have passed: see `chain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from everwhen.algebra import nodes as n
from everwhen.algebra.node import walk
from everwhen.plan.stages.model import Feed, StagePlan
from everwhen.spark.exchange.messages import Message
from everwhen.spark.exchange.schema import ExchangeSchema
from everwhen.spark.exchange.source_scan import numbers, placed, promise_matters, unioned
from everwhen.spark.exchange.stage_input import merged_columns, partial
from everwhen.spark.exchange.watermarks import STATISTICS, combined, source_progress, statistics, sync
from everwhen.spark.internals.jvm_columns import JvmColumns
from everwhen.spark.sources.normalise import elements, numbered
from everwhen.spark.sources.source import ResolvedSource
from everwhen.stream.element_batch import CTI


class SingleScan:
    """The first stage of a plan, if that is how it can be fed (`fits`)."""

    @staticmethod
    def fits(plan: StagePlan, sources: Mapping[str, ResolvedSource]) -> bool:
        fed = [stream for stage in plan.stages for stream in stage.inputs if stream.feed is not None]
        moving = any(source.source.late == "adjust" for source in sources.values())
        return len(fed) == 1 and fed[0].feed is not None and fed[0].feed.partial is not None and not moving

    def __init__(
        self, plan: StagePlan, sources: Mapping[str, ResolvedSource], layout: ExchangeSchema, partitions: int
    ) -> None:
        (stream,) = [s for stage in plan.stages for s in stage.inputs if s.feed is not None]
        feed = stream.feed
        assert feed is not None
        source = sources[feed.source.name]
        own = numbers([stream])
        promised = F.col("promised") if promise_matters(sources) else None
        filtered = any(isinstance(node, n.Filter) for node in walk(feed.node))
        # Where all rows are kept but wrong ones, which end the epoch, it does not matter which groups those are in.
        self._all = source.op is None and promised is None and not filtered and _never_empty(feed)
        kept = F.lit(True)
        if not self._all:
            kept = F.col("problem").isNull() & F.col("keep") & (F.col("op") < CTI) & (own["lo"] < own["hi"])
        if promised is not None:
            kept = kept & (sync() >= promised)
        keys, results = partial(stream, feed, None if self._all else kept)
        ends = [(own[name] if self._all else F.when(kept, own[name])).alias(name) for name in ("lo", "hi")]
        self._groups = JvmColumns([*([] if self._all else [kept.alias("kept")]), *ends, *keys])
        self._results = JvmColumns([*results, *statistics(source.op is None, promised)])
        self._rows = JvmColumns(placed([stream], layout, partitions, merged_columns(stream)))
        self._whole = JvmColumns(combined())
        self._disorder = source.source.disorder

    def fed(self, frame: DataFrame) -> DataFrame:
        """An epoch's rows, in the layout of the stage, whose statistics are counted; where promises matter, the frame
        has a column `promised`."""
        merged = self._whole.counted(self._results.over(frame, self._groups))
        return self._rows.of(merged if self._all else merged.where("kept"))

    def progress(self, counted: Sequence[int | None]) -> list[Message]:
        """The messages that every partition gets."""
        return source_progress(0, self._disorder, dict(zip(STATISTICS, counted, strict=True)))


def _never_empty(feed: Feed) -> bool:
    """Whether rounding cannot make a window's lifetime an empty one."""
    return feed.window is not None and feed.window.never_empty


@dataclass(frozen=True)
class SourceProjection:
    """The columns of a source that a plan reads, as they are.  Spark computes nothing across the border between a
    streaming query and what is done with its epochs; so all that can be computed behind it is, where that is planned
    once and needs no more than what is asked for."""

    plan: StagePlan
    source: n.Source
    resolved: ResolvedSource

    @staticmethod
    def of(plan: StagePlan, sources: Mapping[str, ResolvedSource]) -> SourceProjection | None:
        """None where an epoch's frames are built anew each time."""
        if not SingleScan.fits(plan, sources) or promise_matters(sources):
            return None
        (source,) = plan.sources
        return SourceProjection(plan, source, sources[source.name])

    def streamed(self, frame: DataFrame) -> DataFrame:
        """What the streaming query reads."""
        return numbered(frame, self.resolved, [self.resolved.schema.index(name) for name in self.source.schema.names])

    def tagged(self, frame: DataFrame) -> DataFrame:
        """The frame of all feeds, from that of an epoch."""
        rows = {self.source.name: elements(frame, self.resolved)}
        return unioned(self.plan, rows, {self.source.name: self.resolved})
