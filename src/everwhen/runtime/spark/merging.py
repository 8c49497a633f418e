"""Rows of one group and one lifetime, merged in the JVM into a single row of partial results."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.plan.stages import Feed, StreamIn
from everwhen.runtime.spark.layout import carried, slots


def merged(frame: DataFrame, stream: StreamIn, feed: Feed) -> DataFrame:
    """Rows with the numbers a and b, merged."""
    keys, lanes = partial(feed, F.lit(True))
    return frame.groupBy("a", "b", *keys).agg(*lanes).select(*in_place(stream, feed))


def partial(feed: Feed, fits: Column) -> tuple[list[Column], list[Column]]:
    """The keys and the partial results of rows that fit."""
    assert feed.partial is not None
    before = dict(zip(feed.node.schema.names, (slot for slot, _ in slots(feed.node.schema)), strict=True))
    keys = [F.when(fits, F.col(before[key])).alias(f"k{at}") for at, key in enumerate(feed.partial.keys)]
    lanes: list[Column] = []
    for lane in feed.partial.lanes:
        value = F.when(fits, F.col(before[lane.columns[0]]) if lane.columns else F.lit(1))
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
        lanes.append(found.alias(f"l{len(lanes)}"))
    return keys, lanes


def in_place(stream: StreamIn, feed: Feed, more: Sequence[str] = ()) -> list[Column]:
    """Merged rows as rows of their stream, and further columns."""
    assert feed.partial is not None
    names = [f"k{at}" for at in range(len(feed.partial.keys))] + [f"l{at}" for at in range(len(feed.partial.lanes))]
    payload = [
        F.col(name).cast(carried(type_)).alias(slot)
        for name, (slot, type_) in zip(names, slots(stream.schema), strict=True)
    ]
    one, zero = F.lit(1).cast("bigint").alias("w"), F.lit(0).cast("bigint").alias("c")
    return [
        F.lit(stream.tag).alias("tag"),
        F.col("a"),
        F.col("b"),
        zero,
        one,
        *payload,
        *(F.col(name) for name in more),
    ]


def _checked_sum(value: Column, name: str) -> Column:
    """A sum of integers that fails instead of wrapping around, whatever the session's settings."""
    total = F.try_sum(value)
    problem = F.raise_error(F.lit(f"the sum of {name!r} leaves the 64-bit range")).cast("bigint")
    return F.when(total.isNull() & (F.count(value) > 0), problem).otherwise(total)
