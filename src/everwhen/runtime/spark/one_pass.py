"""The fast way of a plan that reads one source and merges all its rows: one pass gives rows and progress.

The few rows of that pass are held in memory, since Spark would otherwise make it once for the rows and once for the
progress.  What does not change from epoch to epoch is built once: every column expression costs calls to the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from everwhen.model.elements import CTI
from everwhen.plan.stages import StagePlan
from everwhen.runtime.spark.feeds import numbers, placed
from everwhen.runtime.spark.layout import Layout, slots
from everwhen.runtime.spark.merging import in_place, partial
from everwhen.runtime.spark.progress import STATISTICS, combined, spread, statistics, sync, told
from everwhen.runtime.spark.source import ResolvedSource


@dataclass(frozen=True)
class Fed:
    """The rows that a stage gets; `held` is in memory for them, to be let go afterwards."""

    rows: DataFrame
    held: DataFrame


class OnePass:
    """The first stage of a plan, if that is how it can be fed (`fits`)."""

    @staticmethod
    def fits(plan: StagePlan, sources: Mapping[str, ResolvedSource]) -> bool:
        fed = [stream for stage in plan.stages for stream in stage.inputs if stream.feed is not None]
        moving = any(source.source.late == "adjust" for source in sources.values())
        return len(fed) == 1 and fed[0].feed is not None and fed[0].feed.partial is not None and not moving

    def __init__(self, plan: StagePlan, sources: Mapping[str, ResolvedSource], layout: Layout, buckets: int) -> None:
        (stream,) = [s for stage in plan.stages for s in stage.inputs if s.feed is not None]
        feed = stream.feed
        assert feed is not None
        own = numbers([stream])
        raw = ("source", "op", "vs", "ve", "vnew", "problem")
        payload = [slot for slot, _ in slots(feed.node.schema)]
        kept = F.col("keep") & (F.col("op") < CTI) & F.col("problem").isNull() & (own["a"] < own["b"])
        self._first = [F.col(name) for name in (*raw, *payload)]
        self._first += [own["a"].alias("a"), own["b"].alias("b"), kept.alias("kept")]
        kept = F.col("kept")
        if sources[feed.source.name].source.late == "drop":
            kept = kept & (sync() >= F.col("promised"))
        keys, lanes = partial(feed, kept)
        self._groups = [kept.alias("kept"), *(F.when(kept, F.col(name)).alias(name) for name in "ab"), *keys]
        self._results = [*lanes, *statistics(F.col("promised"))]
        self._merged = in_place(stream, feed, ("kept", *STATISTICS))
        present = frozenset(("tag", "a", "b", "c", "w", *(slot for slot, _ in slots(stream.schema))))
        self._rows = placed([stream], layout, buckets, present)
        self._whole = [*combined(), F.lit(0).alias("source")]
        self._told = told(plan, sources)
        self._spread = spread(layout, buckets)

    def rows(self, frame: DataFrame, promised: int) -> Fed:
        """An epoch's rows and control rows, in the layout of the stage."""
        numbered = frame.select(*self._first, F.lit(promised).alias("promised"))
        held = numbered.groupBy(*self._groups).agg(*self._results).select(*self._merged).persist()
        marks = held.agg(*self._whole).where("rows is not null").select(self._told).select(*self._spread)
        return Fed(held.where("kept").select(*self._rows).union(marks), held)
