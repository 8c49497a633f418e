"""The way from the frame of all sources to the rows of one stage, prepared once and taken in every epoch.

Rows of plain streams are only numbered and placed; those of a stream with partial aggregates are merged before they
cross.  Beside them go one progress row per source and partition, and what sources promise about their data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.plan.stages.model import Feed, Stage, StagePlan, StreamIn
from everwhen.spark.exchange.punctuation_rows import Address, SourceWords
from everwhen.spark.exchange.schema import ExchangeSchema, carried, slots
from everwhen.spark.exchange.source_scan import fed_slots, numbers, partitioned, placed, promise_matters
from everwhen.spark.exchange.watermarks import marks, statistics, sync
from everwhen.spark.internals.jvm_columns import JvmColumns
from everwhen.spark.sources.source import ResolvedSource
from everwhen.stream.element_batch import CTI, PUNCT


class StageInput:
    """A stage that reads sources.  Where promises matter, the frames it is given have a column `promised` (`feeds`)."""

    def __init__(
        self,
        stage: Stage,
        plan: StagePlan,
        layout: ExchangeSchema,
        sources: Mapping[str, ResolvedSource],
        partitions: int,
    ) -> None:
        self._layout, self._partitions = layout, partitions
        streams = [stream for stream in stage.inputs if stream.feed is not None]
        self._on_time = _OnTime.of(plan, sources)
        self._event = F.col("keep") & (F.col("op") < CTI)
        self._branches = [_Merging(s, layout, partitions) for s in streams if s.feed is not None and s.feed.partial]
        plain = [s for s in streams if s.feed is not None and s.feed.partial is None]
        self._plain = _Plain(plain, layout, partitions) if plain else None
        inserts = all(sources[source.name].op is None for source in plan.sources)
        self._by_source = JvmColumns([F.col("source")])
        self._statistics = JvmColumns(statistics(inserts, F.col("promised") if promise_matters(sources) else None))
        self._marks = JvmColumns([marks(plan, sources, layout, partitions)])
        fed = {s.tag: (s, s.feed.source.name) for s in streams if s.feed is not None}
        self._saying = {tag: (stream, name) for tag, (stream, name) in fed.items() if sources[name].match is not None}

    def rows(self, frame: DataFrame) -> DataFrame:
        """The rows of the stage's feeds, with their partitions."""
        rows = frame.where(self._event)
        if self._on_time is not None:
            rows = self._on_time.of_those(rows)
        frames = [] if self._plain is None else [self._plain.rows(rows)]
        return reduce(DataFrame.union, [*frames, *(branch.rows(rows) for branch in self._branches)])

    def fed(self, frame: DataFrame) -> DataFrame:
        """The rows, and the control rows that go with them."""
        found = self._statistics.over(frame.where("lead"), self._by_source)
        whole = self.rows(frame).union(self._marks.of(found))
        words = self._words(frame)
        return whole if words is None else whole.unionByName(words)

    def _words(self, frame: DataFrame) -> DataFrame | None:
        """What the sources of the stage promise about their data; None if none of them can."""
        if not self._saying:
            return None
        addresses = {tag: Address(tag, stream.schema, stream.by) for tag, (stream, _) in self._saying.items()}
        rows = frame.where(F.col("kind").isin(list(self._saying)) & (F.col("op") == PUNCT) & F.col("problem").isNull())
        task = SourceWords(
            addresses, {tag: name for tag, (_, name) in self._saying.items()}, self._layout, self._partitions
        )
        written = rows.select("kind", "vs", "match").mapInArrow(task, self._layout.spark)
        return partitioned(written, [stream for stream, _ in self._saying.values()], self._layout, self._partitions)


class _Plain:
    """Rows that cross as they are."""

    def __init__(self, streams: Sequence[StreamIn], layout: ExchangeSchema, partitions: int) -> None:
        own = numbers(streams)
        self._mine = F.col("kind").isin([stream.tag for stream in streams]) & _there(streams, own)
        present = own | {
            name: F.col(name) for name in ("kind", *(slot for s in streams for slot, _ in slots(s.schema)))
        }
        self._rows = JvmColumns(placed(streams, layout, partitions, present))

    def rows(self, frame: DataFrame) -> DataFrame:
        return self._rows.of(frame.where(self._mine))


class _Merging:
    """Rows of one stream that are merged before they cross."""

    def __init__(self, stream: StreamIn, layout: ExchangeSchema, partitions: int) -> None:
        assert stream.feed is not None
        own = numbers([stream])
        self._mine = (F.col("kind") == stream.tag) & _there([stream], own)
        keys, results = partial(stream, stream.feed)
        self._groups = JvmColumns([own["lo"].alias("lo"), own["hi"].alias("hi"), *keys])
        self._results = JvmColumns(results)
        self._rows = JvmColumns(placed([stream], layout, partitions, merged_columns(stream)))

    def rows(self, frame: DataFrame) -> DataFrame:
        return self._rows.of(self._results.over(frame.where(self._mine), self._groups))


def merged_columns(stream: StreamIn) -> dict[str, Column]:
    """What merged rows are made of."""
    own = {"kind": F.lit(stream.tag), "vnew": F.lit(0).cast("bigint"), "weight": F.lit(1).cast("bigint")}
    return own | {name: F.col(name) for name in ("lo", "hi", *(slot for slot, _ in slots(stream.schema)))}


def partial(stream: StreamIn, feed: Feed, fits: Column | None = None) -> tuple[list[Column], list[Column]]:
    """What rows that fit (None: all) are grouped by besides their lifetime, and the partial results of the groups."""
    assert feed.partial is not None
    before = dict(zip(feed.node.schema.names, (slot for slot, _ in slots(feed.node.schema)), strict=True))
    after = slots(stream.schema)

    def where(value: Column) -> Column:
        return value if fits is None else F.when(fits, value)

    keys = [where(F.col(before[key])).alias(slot) for key, (slot, _) in zip(feed.partial.keys, after, strict=False)]
    results = []
    for lane, (slot, type_) in zip(feed.partial.lanes, after[len(keys) :], strict=True):
        value = where(F.col(before[lane.columns[0]]) if lane.columns else F.lit(1))
        match lane.function:
            case "count":
                found = F.count(value)
            case "sum" if str(feed.node.schema.field(lane.columns[0]).type) in ("float", "double"):
                found = F.sum(value.cast("double"))
            case "sum":
                found = _checked_sum(value.cast("bigint"), lane.columns[0])
            case "min":
                found = F.min(value)
            case _:
                found = F.max(value)
        results.append(found.cast(carried(type_)).alias(slot))
    return keys, results


def _checked_sum(value: Column, name: str) -> Column:
    """A sum of integers that fails instead of wrapping around, whatever the session's settings."""
    total = F.try_sum(value)
    problem = F.raise_error(F.lit(f"the sum of {name!r} leaves the 64-bit range")).cast("bigint")
    return F.when(total.isNull() & (F.count(value) > 0), problem).otherwise(total)


def _there(streams: Sequence[StreamIn], own: Mapping[str, Column]) -> Column:
    """Whether a row's lifetime is not empty: that of a window that is rounded may be."""
    windows = [(s.tag, s.feed.window) for s in streams if s.feed is not None and s.feed.window is not None]
    rounded = [tag for tag, window in windows if not window.never_empty]
    return ~F.col("kind").isin(rounded) | (own["lo"] < own["hi"]) if rounded else F.lit(True)


class _OnTime:
    """Late rows left out or moved, as their source's policy says (an error is raised elsewhere)."""

    @staticmethod
    def of(plan: StagePlan, sources: Mapping[str, ResolvedSource]) -> _OnTime | None:
        policies = [sources[source.name].source.late for source in plan.sources]
        return None if all(policy == "error" for policy in policies) else _OnTime(plan, policies)

    def __init__(self, plan: StagePlan, policies: Sequence[str]) -> None:
        vs, ve, promised = F.col("vs"), F.col("ve"), F.col("promised")
        moving = F.col("source").isin([at for at, policy in enumerate(policies) if policy == "adjust"])
        start = F.when(moving, F.greatest(vs, promised)).otherwise(vs)
        # an event of one tick is moved as a whole; of a longer one the part that is too late is cut off
        end = F.when(moving & (ve == vs + 1), start + 1).otherwise(ve)
        self._stays = (moving & (start < end)) | (~moving & (sync() >= promised))
        rest = [F.col(name) for name in ("source", "kind", "op", "vnew", *fed_slots(plan))]
        self._moved = JvmColumns([start.alias("vs"), end.alias("ve"), *rest])

    def of_those(self, frame: DataFrame) -> DataFrame:
        return self._moved.of(frame.where(self._stays))
