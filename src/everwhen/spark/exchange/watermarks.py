"""How far sources have come in an epoch, computed in the JVM, and the messages that tell every partition.

What is counted is of fixed size: a text among the results would make Spark sort all rows.  So wrong rows are counted
here, and looked for once there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.core.time import NEVER, show
from everwhen.errors import InputError
from everwhen.plan.stages.model import StagePlan
from everwhen.spark.exchange.messages import Message, RowsLate, SourceProgress, encode_in_jvm, kind_of
from everwhen.spark.exchange.schema import ExchangeSchema, carried
from everwhen.spark.sources.source import ResolvedSource
from everwhen.stream.element_batch import ADJUST, CTI, INSERT

STATISTICS: Final = ("start", "said", "rows", "late", "earliest", "wrong")
WRONG: Final = "rows that cannot be read as elements"
BEHIND: Final = "came behind the promise of their source"


def sync() -> Column:
    """The first instant that an element changes."""
    return F.when(F.col("op") == ADJUST, F.least("ve", "vnew")).otherwise(F.col("vs"))


def statistics(inserts: bool, promised: Column | None) -> list[Column]:
    """The largest start and CTI, the number of rows, of late and of wrong ones, and the earliest late one.

    `inserts`: all rows are inserts.  Without `promised` nobody has to know how many are late: that number is null, and
    the earliest one is that of all.
    """
    op, vs = F.col("op"), F.col("vs")
    event = F.lit(True) if inserts else op < CTI
    first = vs if inserts else sync()
    late = event if promised is None else event & (first < promised)
    nothing = F.lit(None).cast("bigint")
    return [
        F.max(vs if inserts else F.when(op == INSERT, vs)).alias("start"),
        (nothing if inserts else F.max(F.when(op == CTI, vs))).alias("said"),
        F.count(F.lit(1) if inserts else F.when(event, 1)).alias("rows"),
        (nothing if promised is None else F.count(F.when(late, 1))).alias("late"),
        F.min(F.when(late, first)).alias("earliest"),
        F.count(F.when(F.col("problem").isNotNull(), 1)).alias("wrong"),
    ]


def combined() -> list[Column]:
    """The same of the whole, from those of its parts."""
    how = {"start": F.max, "said": F.max, "earliest": F.min}
    return [how.get(name, F.sum)(name).alias(name) for name in STATISTICS]


def marks(plan: StagePlan, sources: Mapping[str, ResolvedSource], layout: ExchangeSchema, partitions: int) -> Column:
    """The messages of a source in a layout, a copy for every partition, from its row of statistics."""
    cti = F.lit(NEVER)
    for at, source in enumerate(plan.sources):
        bound = sources[source.name].source.disorder
        own = F.col("said") if bound is None else F.greatest(F.col("said"), F.col("start") - F.lit(bound))
        cti = F.when(F.col("source") == at, own).otherwise(cti)
    zero, never = F.lit(0).cast("bigint"), F.lit(NEVER)
    progress = {
        "source": F.col("source"),
        "start": F.coalesce("start", never),
        "cti": F.coalesce(cti, never),
        "rows": F.coalesce("rows", zero),
        "wrong": F.coalesce("wrong", zero),
    }
    behind = {"source": F.col("source"), "earliest": F.col("earliest"), "rows": F.coalesce("late", zero)}

    def everywhere(message: type[Message], given: Mapping[str, Column]) -> Column:
        def copy(partition: Column) -> Column:
            text = encode_in_jvm(message, given)
            fields = {"partition": partition, "kind": F.lit(kind_of(message)), "message": text}
            return F.struct(
                *(
                    (fields[name] if name in fields else F.lit(None)).cast(carried(type_)).alias(name)
                    for name, type_ in layout.columns
                )
            )

        return F.transform(F.sequence(F.lit(0), F.lit(partitions - 1)), copy)

    late = F.col("earliest").isNotNull() & (F.coalesce("late", F.lit(1)) > 0)
    there = F.col("rows").isNotNull()  # of no rows at all there are no statistics, and the source has said nothing
    row = everywhere(SourceProgress, progress)
    return F.inline(F.when(late, F.concat(row, everywhere(RowsLate, behind))).when(there, row))


def source_progress(source: int, disorder: int | None, counted: Mapping[str, int | None]) -> list[Message]:
    """The same messages, from statistics that are known."""
    rows, start, said, earliest, late = (counted[name] for name in ("rows", "start", "said", "earliest", "late"))
    if rows is None:
        return []
    promises = [said, None if start is None or disorder is None else start - disorder]
    cti = max((promise for promise in promises if promise is not None), default=NEVER)
    found: list[Message] = [SourceProgress(source, NEVER if start is None else start, cti, rows, counted["wrong"] or 0)]
    if earliest is not None and late != 0:
        found.append(RowsLate(source, earliest, late or 0))
    return found


def explanation(frame: DataFrame, plan: StagePlan) -> str | None:
    """What is wrong with the first wrong row of an epoch, with the row."""
    wrong = frame.where(F.col("lead") & F.col("problem").isNotNull()).first()
    if wrong is None:
        return None
    times = ", ".join(f"{name}={wrong[name]}" for name in ("vs", "ve", "vnew"))
    return f"{plan.sources[wrong['source']].name}: {wrong['problem']}; the row has {times}"


def late_rows(frame: DataFrame, plan: StagePlan, strict: Sequence[str]) -> InputError | None:
    """Which of the sources that promise it for sure had rows too late, and how many; the frame has `promised`."""
    mine = F.col("source").isin([at for at, source in enumerate(plan.sources) if source.name in strict])
    late = frame.where(F.col("lead") & mine & (F.col("op") < CTI) & (sync() < F.col("promised")))
    found = (
        late.groupBy("source").agg(F.count("*").alias("rows"), F.min(sync()).alias("earliest")).sort("source").first()
    )
    if found is None:
        return None
    rows = found["rows"]
    return InputError(
        f"{rows} row{'s' if rows > 1 else ''} {BEHIND}, the earliest at {show(found['earliest'])}",
        source=plan.sources[found["source"]].name,
        remedy="widen the bound of its disorder, or choose late='drop' or late='adjust'",
    )
