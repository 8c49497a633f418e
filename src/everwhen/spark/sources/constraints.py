"""What a query declares of a source, checked in Spark: INSERT ONLY, and lifetimes of one tick.

Plans leave out work that rows against the declaration would need, also where the rows are merged before any guard sees
them.  So each row is looked at as it is read, and one that breaks the declaration is an error, as in one process.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from everwhen.core.time import INF
from everwhen.operators.ingress.guard import NOT_ONE_TICK, ONE_TICK
from everwhen.spark.sources.normalise import problems
from everwhen.spark.sources.source import ResolvedSource
from everwhen.stream.element_batch import ADJUST, CTI


def wrong_with(resolved: ResolvedSource) -> Column:
    """What is wrong with a row of the normalised frame, its declarations included; null if nothing is."""
    found = problems(resolved)
    op, vs, ve, vnew = (F.col(name) for name in ("op", "vs", "ve", "vnew"))
    adjust = op == F.lit(ADJUST)
    if resolved.insert_only:
        text = "an adjust on a source that is declared insert-only; declare it without, or give no adjusts"
        found = F.coalesce(found, F.when(adjust, F.lit(text)))
    if resolved.chronons:
        before, between, after = NOT_ONE_TICK.split("{}")
        end = F.when(adjust, vnew).otherwise(ve)
        shown = F.when(end == F.lit(INF), F.lit("∞")).otherwise(end.cast(StringType()))
        said = F.concat(F.lit(before), vs.cast(StringType()), F.lit(between), shown, F.lit(f"{after}; {ONE_TICK}"))
        # `try_subtract`: an infinite end and a start before zero are further apart than 64 bits
        longer = F.coalesce(F.try_subtract(ve, vs) != F.lit(1), F.lit(True)) | (adjust & (vnew > ve))
        found = F.coalesce(found, F.when((op < F.lit(CTI)) & longer, said))
    return found
