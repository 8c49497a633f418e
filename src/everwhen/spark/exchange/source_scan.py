"""The part of a plan that stays in the JVM: feeds, and the rows of an exchange.

All sources are unioned into one frame, one branch per feed, so that an epoch is one consistent cut:

    source  kind  lead  op  vs  ve  vnew  problem  keep  slots…  match (if a source may promise something about data)

`keep` is what the feed's filters say; rows are not dropped by it before the progress of their source is known, which is
the largest start of all its rows (`lead`: one feed per source counts).  From this frame every stage that reads sources
gets its rows and one progress row per source and partition (`stage_feed`, `one_pass`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column as Name
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.plan.stages.feed_window import HopWindow, SlidingWindow
from everwhen.plan.stages.model import StagePlan, StreamIn
from everwhen.spark.exchange.messages import PUNCTUATION, field_in_jvm
from everwhen.spark.exchange.punctuation_rows import BY_HASH, partition_of
from everwhen.spark.exchange.schema import NOTHING, ExchangeSchema, carried, slots
from everwhen.spark.exchange.watermarks import sync
from everwhen.spark.sources.constraints import wrong_with
from everwhen.spark.sources.source import ResolvedSource
from everwhen.spark.translate.expressions import translate


def unioned(plan: StagePlan, elements: Mapping[str, DataFrame], sources: Mapping[str, ResolvedSource]) -> DataFrame:
    """One frame of all feeds, from the normalised frames of their sources."""
    streams = [stream for stage in plan.stages for stream in stage.inputs if stream.feed is not None]
    payload = ExchangeSchema.of(_fed(stream) for stream in streams).payload
    position = {source.name: at for at, source in enumerate(plan.sources)}
    promising = {name for name in elements if sources[name].match is not None and "match" in elements[name].columns}
    seen: set[str] = set()
    branches = []
    for stream in streams:
        assert stream.feed is not None
        name = stream.feed.source.name
        resolved = sources[name]
        rows = elements[name]
        columns = payload_columns(stream.feed.source, resolved)
        keep, columns = _evaluated(stream.feed.node, columns)
        given = dict(zip([slot for slot, _ in slots(_fed(stream))], columns.values(), strict=True))
        branches.append(
            rows.select(
                F.lit(position[name]).alias("source"),
                F.lit(stream.tag).alias("kind"),
                F.lit(name not in seen).alias("lead"),
                "op",
                "vs",
                "ve",
                "vnew",
                wrong_with(resolved).alias("problem"),
                keep.alias("keep"),
                *((given[slot] if slot in given else F.lit(None)).cast(carried(t)).alias(slot) for slot, t in payload),
                *(
                    [(F.col("match") if name in promising else F.lit(None).cast("string")).alias("match")]
                    if promising
                    else []
                ),
            )
        )
        seen.add(name)
    return reduce(DataFrame.unionByName, branches)


def fed_layout(plan: StagePlan) -> ExchangeSchema:
    """The layout of rows as the feeds of a plan have made them."""
    return ExchangeSchema.of(_fed(s) for stage in plan.stages for s in stage.inputs if s.feed is not None)


def fed_again(rows: DataFrame, plan: StagePlan) -> DataFrame:
    """The frame of all feeds, from rows that feeds have made before: elements in that layout."""
    streams = [stream for stage in plan.stages for stream in stage.inputs if stream.feed is not None]
    position = {source.name: at for at, source in enumerate(plan.sources)}
    source, lead, seen = F.lit(0), F.lit(False), set[str]()
    for stream in streams:
        assert stream.feed is not None
        name, mine = stream.feed.source.name, F.col("kind") == stream.tag
        source = F.when(mine, F.lit(position[name])).otherwise(source)
        lead = F.when(mine, F.lit(name not in seen)).otherwise(lead)
        seen.add(name)
    return rows.select(
        source.alias("source"),
        "kind",
        lead.alias("lead"),
        F.col("weight").cast("tinyint").alias("op"),
        F.col("lo").alias("vs"),
        F.col("hi").alias("ve"),
        "vnew",
        F.lit(None).cast("string").alias("problem"),
        F.lit(True).alias("keep"),
        *(F.col(slot) for slot, _ in fed_layout(plan).payload),
    )


def fed_slots(plan: StagePlan) -> list[str]:
    """The slots of the frame of all feeds."""
    fed = (_fed(stream) for stage in plan.stages for stream in stage.inputs if stream.feed is not None)
    return [slot for slot, _ in ExchangeSchema.of(fed).payload]


def payload_columns(source: n.Source, resolved: ResolvedSource) -> dict[str, Column]:
    """Where the columns that the query reads stand in the normalised frame."""
    found = {}
    for field in source.schema.fields:
        at = resolved.schema.index(field.name, f"the frame of {source.name!r}")
        if resolved.schema.types[at] != field.type:
            raise QueryError(
                f"source {source.name!r}: the query reads {field.name!r} as {field.type}, and the frame has it as "
                f"{resolved.schema.types[at]}; cast the column, or declare it so in the query"
            )
        found[field.name] = F.col(f"p{at}")
    return found


def _fed(stream: StreamIn) -> Schema:
    """The columns of a feed before rows are merged."""
    assert stream.feed is not None
    return stream.feed.node.schema


def _evaluated(node: n.Node, columns: dict[str, Column]) -> tuple[Column, dict[str, Column]]:
    """What a feed's filters and projections make of a row: whether it stays, and its columns."""
    match node:
        case n.Source():
            return F.lit(True), columns
        case n.Filter(input, predicate):
            keep, columns = _evaluated(input, columns)
            return keep & F.coalesce(_translated(predicate, input.schema, columns), F.lit(False)), columns
        case n.Map(input, expressions):
            keep, columns = _evaluated(input, columns)
            return keep, {name: _translated(e, input.schema, columns) for name, e in expressions}
    raise AssertionError(f"{type(node).__name__} is not computed by Spark")


def _translated(expr: object, schema: Schema, columns: Mapping[str, Column]) -> Column:
    if isinstance(expr, Name):
        return columns[expr.name]
    found = translate(expr, schema, columns)  # type: ignore[arg-type]
    if found is None:
        raise QueryError(f"{expr} cannot be computed by Spark: please report this as a defect")
    return found


# -- the rows of a stage ------------------------------------------------------------------------------------------


def with_promised(frame: DataFrame, promised: Iterable[int]) -> DataFrame:
    """The frame with a column `promised`: what the source of the row had promised before the epoch, by its position.

    The numbers change from epoch to epoch, so they may not stand in an expression as they are: they would become part
    of the generated code, which would be compiled anew, and run cold, every time.  An array is handed to the code.
    """
    return frame.withColumn("promised", F.element_at(F.array(*map(F.lit, promised)), F.col("source") + 1))


def promise_matters(sources: Mapping[str, ResolvedSource]) -> bool:
    """Whether rows that are late are treated differently; if all are errors, they are noticed afterwards."""
    return any(source.source.late != "error" for source in sources.values())


def too_late(source: ResolvedSource) -> Column:
    """Whether a row is left out because of what its source had promised."""
    promised = F.col("promised")
    if source.source.late == "adjust":
        return (F.col("ve") <= promised) & (F.col("ve") > F.col("vs") + 1)
    return sync() < promised


def numbers(streams: Sequence[StreamIn]) -> dict[str, Column]:
    """The four numbers of a row (`schema`); a window's segment may be an empty one."""
    start, end, weight = F.col("vs"), F.col("ve"), F.col("op").cast("bigint")
    for stream in streams:
        assert stream.feed is not None
        if stream.form == "elements":
            continue
        mine = F.col("kind") == stream.tag
        lo, hi = F.col("vs"), F.col("ve")
        match stream.feed.window:
            case SlidingWindow(size, slide):
                hi = F.lit(INF) if size == INF else F.col("vs") + F.lit(size)
                if slide > 1:
                    lo = lo + F.pmod(F.lit(-1) - lo, F.lit(slide))
                    hi = hi if size == INF else hi + F.pmod(F.lit(-1) - hi, F.lit(slide))
            case HopWindow(hop, shift, length):
                lo = lo - F.pmod(lo, F.lit(hop)) + F.lit(shift)
                hi = F.lit(INF) if length == INF else lo + F.lit(length)
        only = len(streams) == 1
        start = lo if only else F.when(mine, lo).otherwise(start)
        end = hi if only else F.when(mine, hi).otherwise(end)
        weight = F.when(mine, F.lit(1).cast("bigint")).otherwise(weight)
    return {"lo": start, "hi": end, "vnew": F.col("vnew"), "weight": weight}


# -- partitions ------------------------------------------------------------------------------------------------------


def partitioned(frame: DataFrame, streams: Sequence[StreamIn], layout: ExchangeSchema, partitions: int) -> DataFrame:
    """Rows in the columns of a layout, each with the partition it goes to; messages have theirs already."""
    return frame.select(*placed(streams, layout, partitions, {name: F.col(name) for name in frame.columns}))


def nothing_for_all(session: SparkSession, layout: ExchangeSchema, partitions: int) -> DataFrame:
    """A row for every partition that says nothing, so that each has its turn."""
    given = {"partition": F.col("id"), "kind": F.lit(NOTHING)}
    columns = [(given.get(name, F.lit(None))).cast(carried(type_)).alias(name) for name, type_ in layout.columns]
    return session.range(partitions).select(*columns)


def placed(
    streams: Sequence[StreamIn], layout: ExchangeSchema, partitions: int, present: Mapping[str, Column]
) -> list[Column]:
    """The columns of a layout, from rows that have some of them."""
    kind, where = present["kind"], present.get("partition", F.lit(0).cast("int"))
    for stream in streams:
        if stream.by:
            mine = kind == stream.tag
            if "partition" in present:  # punctuations that bind the key come here, too
                hashed = (kind == PUNCTUATION) & (F.col("partition") == BY_HASH)
                mine = mine | (hashed & (field_in_jvm("stream") == stream.tag))
            where = F.when(mine, partition_of(stream.schema, stream.by, partitions)).otherwise(where)
        elif stream.by == ():
            where = F.when(kind == stream.tag, F.lit(0)).otherwise(where)
    copied = [stream.tag for stream in streams if stream.by is None]
    if copied:
        every = F.sequence(F.lit(0), F.lit(partitions - 1))
        where = F.explode(F.when(kind.isin(copied), every).otherwise(F.array(where)))
    rest = [
        (present[name] if name in present else F.lit(None).cast(carried(type_))).alias(name)
        for name, type_ in layout.columns
        if name != "partition"
    ]
    return [where.alias("partition"), *rest]
