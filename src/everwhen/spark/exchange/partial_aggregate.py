"""Rows of one group and one lifetime, merged in the JVM into a single row of partial results."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from everwhen.plan.stages.model import Feed, StreamIn
from everwhen.spark.exchange.schema import carried, slots


def common(stream: StreamIn) -> dict[str, Column]:
    """What all merged rows of a stream have in common."""
    return {"tag": F.lit(stream.tag), "c": F.lit(0).cast("bigint"), "w": F.lit(1).cast("bigint")}


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
