"""The part of a plan that stays in the JVM: feeds, and the rows of an exchange.

All sources are unioned into one frame, one branch per feed, so that an epoch is one consistent cut:

    source  tag  lead  op  vs  ve  vnew  problem  keep  slots…  match (if a source may promise something about data)

`keep` is what the feed's filters say; rows are not dropped by it before the progress of their source is known, which is
the largest start of all its rows (`lead`: one feed per source counts).  From this frame every stage that reads sources
gets its rows and one progress row per source and bucket (`fed_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.algebra import nodes as n
from everwhen.algebra.expr import Column as Name
from everwhen.errors import QueryError
from everwhen.model.elements import CTI, PUNCT
from everwhen.model.schema import Schema
from everwhen.model.time import INF, NEVER
from everwhen.plan.stages import Stage, StagePlan, StreamIn
from everwhen.runtime.spark.declarations import wrong_with
from everwhen.runtime.spark.expressions import translate
from everwhen.runtime.spark.layout import PROMISE, Layout, carried, slots
from everwhen.runtime.spark.merging import merged
from everwhen.runtime.spark.progress import marks, statistics, sync
from everwhen.runtime.spark.promises import BY_HASH, Address, SourceWords, bucket_of
from everwhen.runtime.spark.source import ResolvedSource


@dataclass(frozen=True)
class Cutoff:
    """What a source had promised before the epoch, by position of the source."""

    promised: tuple[int, ...]


def unioned(plan: StagePlan, elements: Mapping[str, DataFrame], sources: Mapping[str, ResolvedSource]) -> DataFrame:
    """One frame of all feeds, from the normalised frames of their sources."""
    streams = [stream for stage in plan.stages for stream in stage.inputs if stream.feed is not None]
    payload = Layout.of(_fed(stream) for stream in streams).payload
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
                F.lit(stream.tag).alias("tag"),
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


def fed_rows(
    frame: DataFrame,
    stage: Stage,
    plan: StagePlan,
    layout: Layout,
    sources: Mapping[str, ResolvedSource],
    cutoff: Cutoff,
    buckets: int,
) -> DataFrame | None:
    """The rows of a stage's feeds and the progress of their sources; None if it has no feeds."""
    own = stage_rows(frame, stage, plan, layout, sources, cutoff, buckets)
    if own is None:
        return None
    found = frame.where("lead").groupBy("source").agg(*statistics(promised_before(cutoff)))
    own = own.unionByName(marks(found, plan, sources, layout, buckets))
    words = _words(frame, stage, sources, layout, buckets)
    return own if words is None else own.unionByName(words)


def _words(
    frame: DataFrame, stage: Stage, sources: Mapping[str, ResolvedSource], layout: Layout, buckets: int
) -> DataFrame | None:
    """What the sources of a stage promise about their data; None if none of them can."""
    fed = {s.tag: (s, s.feed.source.name) for s in stage.inputs if s.feed is not None}
    saying = {tag: (stream, name) for tag, (stream, name) in fed.items() if sources[name].match is not None}
    if not saying:
        return None
    addresses = {tag: Address(tag, stream.schema, stream.by) for tag, (stream, _) in saying.items()}
    rows = frame.where(F.col("tag").isin(list(saying)) & (F.col("op") == PUNCT) & F.col("problem").isNull())
    task = SourceWords(addresses, {tag: name for tag, (_, name) in saying.items()}, layout, buckets)
    written = rows.select("tag", "vs", "match").mapInArrow(task, layout.spark)
    return bucketed(written, [stream for stream, _ in saying.values()], layout, buckets)


def stage_rows(
    frame: DataFrame,
    stage: Stage,
    plan: StagePlan,
    layout: Layout,
    sources: Mapping[str, ResolvedSource],
    cutoff: Cutoff,
    buckets: int,
) -> DataFrame | None:
    """The rows of a stage's feeds, with their buckets; None if it has no feeds."""
    streams = [stream for stream in stage.inputs if stream.feed is not None]
    if not streams:
        return None
    moved = _on_time(frame.where(F.col("keep") & (F.col("op") < CTI)), plan, sources, cutoff)
    plain = [stream for stream in streams if stream.feed is not None and stream.feed.partial is None]
    merging = [stream for stream in streams if stream.feed is not None and stream.feed.partial is not None]
    frames = []
    if plain:
        rows = moved.where(F.col("tag").isin([stream.tag for stream in plain]))
        frames.append(bucketed(_windowed(rows, plain), plain, layout, buckets))
    for stream in merging:
        assert stream.feed is not None
        rows = _windowed(moved.where(F.col("tag") == stream.tag), [stream])
        frames.append(bucketed(merged(rows, stream, stream.feed), [stream], layout, buckets))
    return reduce(DataFrame.unionByName, frames)


def too_late(cutoff: Cutoff, source: ResolvedSource) -> Column:
    """Whether a row is left out because of what its source had promised."""
    promised = promised_before(cutoff)
    if source.source.late == "adjust":
        return (F.col("ve") <= promised) & (F.col("ve") > F.col("vs") + 1)
    return sync() < promised


def promised_before(cutoff: Cutoff) -> Column:
    return F.element_at(F.array(*(F.lit(t) for t in cutoff.promised)), F.col("source") + 1)


def _on_time(frame: DataFrame, plan: StagePlan, sources: Mapping[str, ResolvedSource], cutoff: Cutoff) -> DataFrame:
    """Late rows left out or moved, as their source's policy says (an error is raised elsewhere)."""
    policies = [sources[source.name].source.late for source in plan.sources]
    if all(policy == "error" for policy in policies) or all(t == NEVER for t in cutoff.promised):
        return frame
    promised = promised_before(cutoff)
    moving = F.col("source").isin([at for at, policy in enumerate(policies) if policy == "adjust"])
    lateness = F.greatest(promised - F.col("vs"), F.lit(0))
    # an event of one tick is moved as a whole; of a longer one the part that is too late is cut off
    chronon = F.col("ve") == F.col("vs") + 1
    end = F.when(moving & chronon, F.col("ve") + lateness).otherwise(F.col("ve"))
    start = F.when(moving, F.col("vs") + lateness).otherwise(F.col("vs"))
    stays = (moving & (start < end)) | (~moving & (sync() >= promised))
    frame = frame.withColumns({"vs_": start, "ve_": end, "stays": stays}).where("stays")
    return frame.drop("vs", "ve", "stays").withColumnsRenamed({"vs_": "vs", "ve_": "ve"})


def _windowed(frame: DataFrame, streams: Sequence[StreamIn]) -> DataFrame:
    """The four numbers of each row: an element, or the segment that its window makes of it."""
    gone = ("vs", "ve", "vnew", "op", "source", "lead", "problem", "keep")
    rows = frame.withColumns(numbers(streams)).drop(*gone)
    sliding = [s.tag for s in streams if s.feed is not None and s.feed.window is not None and s.feed.window[1] > 1]
    return rows.where(~F.col("tag").isin(sliding) | (F.col("a") < F.col("b"))) if sliding else rows


def numbers(streams: Sequence[StreamIn]) -> dict[str, Column]:
    """What a row says in the columns a, b, c and w; a window's segment may be an empty one."""
    start, end, weight = F.col("vs"), F.col("ve"), F.col("op").cast("bigint")
    for stream in streams:
        assert stream.feed is not None
        if stream.form == "elements":
            continue
        mine = F.col("tag") == stream.tag
        lo, hi = F.col("vs"), F.col("ve")
        if stream.feed.window is not None:
            size, slide = stream.feed.window
            hi = F.lit(INF) if size == INF else F.col("vs") + F.lit(size)
            if slide > 1:
                lo = lo + F.pmod(F.lit(-1) - lo, F.lit(slide))
                hi = hi if size == INF else hi + F.pmod(F.lit(-1) - hi, F.lit(slide))
        only = len(streams) == 1
        start = lo if only else F.when(mine, lo).otherwise(start)
        end = hi if only else F.when(mine, hi).otherwise(end)
        weight = F.when(mine, F.lit(1).cast("bigint")).otherwise(weight)
    return {"a": start, "b": end, "c": F.col("vnew"), "w": weight}


# -- buckets ------------------------------------------------------------------------------------------------------


def bucketed(frame: DataFrame, streams: Sequence[StreamIn], layout: Layout, buckets: int) -> DataFrame:
    """Rows in the columns of a layout, each with the bucket it goes to; control rows (tag < 0) have theirs already."""
    return frame.select(*placed(streams, layout, buckets, {name: F.col(name) for name in frame.columns}))


def placed(streams: Sequence[StreamIn], layout: Layout, buckets: int, present: Mapping[str, Column]) -> list[Column]:
    """The columns of a layout, from rows that have some of them."""
    tag, where = present["tag"], present.get("bucket", F.lit(0).cast("int"))
    for stream in streams:
        if stream.by:
            mine = tag == stream.tag
            if "bucket" in present:  # promises about data that bind the key come here, too
                mine = mine | ((tag == PROMISE) & (F.col("w") == stream.tag) & (F.col("bucket") == BY_HASH))
            where = F.when(mine, bucket_of(stream.schema, stream.by, buckets)).otherwise(where)
        elif stream.by == ():
            where = F.when(tag == stream.tag, F.lit(0)).otherwise(where)
    copied = [stream.tag for stream in streams if stream.by is None]
    if copied:
        every = F.sequence(F.lit(0), F.lit(buckets - 1))
        where = F.explode(F.when(tag.isin(copied), every).otherwise(F.array(where)))
    rest = [
        (present[name] if name in present else F.lit(None).cast(carried(type_))).alias(name)
        for name, type_ in layout.columns
        if name != "bucket"
    ]
    return [where.alias("bucket"), *rest]
