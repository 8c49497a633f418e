"""How far sources have come in an epoch, computed in the JVM, and the control rows that tell every bucket.

What is counted is of fixed size: a text among the results would make Spark sort all rows.  So wrong rows are counted
here, and looked for once there are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.model.elements import ADJUST, CTI, INSERT
from everwhen.model.time import NEVER
from everwhen.plan.stages import StagePlan
from everwhen.runtime.spark.layout import LATE, SOURCE, Layout, carried
from everwhen.runtime.spark.source import ResolvedSource

STATISTICS: Final = ("start", "said", "rows", "late", "earliest", "wrong")
WRONG: Final = "rows that cannot be read as elements"


def sync() -> Column:
    """The first instant that an element changes."""
    return F.when(F.col("op") == ADJUST, F.least("ve", "vnew")).otherwise(F.col("vs"))


def statistics(promised: Column, plain: bool = False) -> list[Column]:
    """The largest start and CTI, the number of rows, of late and of wrong ones, and the earliest late one.  `plain`:
    all rows are inserts."""
    op, vs = F.col("op"), F.col("vs")
    first = vs if plain else sync()
    late = first < promised if plain else (op < CTI) & (first < promised)
    return [
        F.max(vs if plain else F.when(op == INSERT, vs)).alias("start"),
        (F.lit(None).cast("bigint") if plain else F.max(F.when(op == CTI, vs))).alias("said"),
        F.count(F.lit(1) if plain else F.when(op < CTI, 1)).alias("rows"),
        F.count(F.when(late, 1)).alias("late"),
        F.min(F.when(late, first)).alias("earliest"),
        F.count(F.when(F.col("problem").isNotNull(), 1)).alias("wrong"),
    ]


def combined() -> list[Column]:
    """The same of the whole, from those of its parts."""
    how = {"start": F.max, "said": F.max, "earliest": F.min}
    return [how.get(name, F.sum)(name).alias(name) for name in STATISTICS]


def told(plan: StagePlan, sources: Mapping[str, ResolvedSource]) -> Column:
    """The control rows of a source, an array, from its row of statistics."""
    cti = F.lit(NEVER)
    for at, source in enumerate(plan.sources):
        bound = sources[source.name].source.disorder
        own = F.col("said") if bound is None else F.greatest(F.col("said"), F.col("start") - F.lit(bound))
        cti = F.when(F.col("source") == at, own).otherwise(cti)
    zero, nothing = F.lit(0).cast("bigint"), F.lit(None).cast("string")
    which = F.col("source").cast("bigint").alias("w")
    note = F.when(F.col("wrong") > 0, F.concat(F.col("wrong").cast("string"), F.lit(f" {WRONG}")))
    row = F.struct(
        F.lit(SOURCE).alias("tag"),
        F.coalesce("start", F.lit(NEVER)).alias("a"),
        F.coalesce(cti, F.lit(NEVER)).alias("b"),
        F.coalesce("rows", zero).alias("c"),
        which,
        note.alias("note"),
    )
    behind = F.struct(
        F.lit(LATE).alias("tag"),
        F.coalesce("late", zero).alias("a"),
        F.coalesce("earliest", zero).alias("b"),
        zero.alias("c"),
        which,
        nothing.alias("note"),
    )
    there = F.col("rows").isNotNull()  # of no rows at all there are no statistics, and the source has said nothing
    said = F.when(F.col("late") > 0, F.array(row, behind)).when(there, F.array(row))
    return F.explode(said).alias("mark")


def spread(layout: Layout, buckets: int) -> list[Column]:
    """The columns of control rows in a layout, a copy for every bucket."""
    every = F.explode(F.sequence(F.lit(0), F.lit(buckets - 1))).alias("bucket")
    own = ("tag", "a", "b", "c", "w", "note")
    rest = [
        (F.col(f"mark.{name}") if name in own else F.lit(None).cast(carried(type_))).alias(name)
        for name, type_ in layout.columns
        if name != "bucket"
    ]
    return [every, *rest]


def explanation(frame: DataFrame, plan: StagePlan) -> str | None:
    """What is wrong with the first wrong row of an epoch, with the row."""
    wrong = frame.where(F.col("lead") & F.col("problem").isNotNull()).first()
    if wrong is None:
        return None
    times = ", ".join(f"{name}={wrong[name]}" for name in ("vs", "ve", "vnew"))
    return f"{plan.sources[wrong['source']].name}: {wrong['problem']}; the row has {times}"
