"""The side output of rows that came too late: counted, and kept where they can be read.

    <checkpoint>/everwhen/late/<source, by path_name>/epoch=<n>/*.parquet

A source with `late="drop"` leaves out a row that changes something before what the source had promised; a source with
`late="adjust"` moves what it can and leaves out the rest.  Those left out stand here, with their times, as timestamps
where the source has them, and the columns that the query reads.  An adjust in time of an event that was left out is
itself left out, and only counted.

The totals stand in the epoch log, so a restart goes on counting.  A warning comes once per run and source when late
rows are more than a share of all, or of an epoch, and again whenever their number has doubled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.core.time import INF
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.operators.ingress.finalize import Reason
from everwhen.plan.stages.model import StagePlan
from everwhen.spark.driver.epoch_log import EpochState
from everwhen.spark.exchange.schema import slots
from everwhen.spark.exchange.source_scan import too_late, with_promised
from everwhen.spark.sources.source import ResolvedSource
from everwhen.storage.folder import path_name
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, OPS

_log = logging.getLogger(__name__)
_SHARE: Final = 0.01
"""Late rows are many if they are more than this share of all rows of their source,"""
_LEAST: Final = 100
"""and at least so many."""
_MICROSECOND: Final = 1_000
"""In nanoseconds."""


@dataclass(frozen=True)
class LateRows:
    """The side outputs of a query, below a folder of its checkpoint."""

    root: str

    def place(self, source: str) -> str:
        """The folder of a source's late rows: a Parquet data set with a column `epoch`."""
        return f"{self.root}/{path_name(source)}"

    def keep(
        self,
        feeds: Callable[[], DataFrame],
        plan: StagePlan,
        sources: Mapping[str, ResolvedSource],
        promised: Iterable[int],
        epoch: int,
        late: Iterable[str],
    ) -> None:
        """Write an epoch's late rows, of the sources that have any; `feeds` gives the frame of all feeds."""
        for name in late:
            at = next(i for i, source in enumerate(plan.sources) if source.name == name)
            stream = next(s for st in plan.stages for s in st.inputs if s.feed and s.feed.source.name == name)
            assert stream.feed is not None
            named = zip(stream.feed.node.schema.names, slots(stream.feed.node.schema), strict=True)
            own = F.col("lead") & (F.col("source") == at) & (F.col("op") < CTI)
            rows = with_promised(feeds(), promised).where(own & too_late(sources[name]))
            columns = [F.col(slot).alias(column) for column, (slot, _) in named]
            target = f"{self.place(name)}/epoch={epoch}"
            axis = next((axis for axis in (sources[name].axis, plan.sources[at].axis) if axis.dated), TICKS)
            rows.select(*_as_written(axis), *columns).write.mode("overwrite").parquet(target)


def _as_written(axis: TimeAxis) -> list[Column]:
    """The kind and the times of an element as the contract writes them: so the rows can be read again as input.  On a
    dated axis times are timestamps, unless a tick is shorter than what Spark's timestamps can tell."""
    adjust, ve, vnew = F.col("op") == ADJUST, F.col("ve"), F.col("vnew")

    def shown(time: Column) -> Column:
        dated = axis.dated and axis.tick % _MICROSECOND == 0
        return F.timestamp_micros(time * F.lit(axis.tick // _MICROSECOND)) if dated else time

    return [
        F.when(adjust, F.lit(OPS[ADJUST])).otherwise(F.lit(OPS[INSERT])).alias("op"),
        shown(F.col("vs")).alias("vs"),
        F.when(ve != F.lit(INF), shown(ve)).alias("ve"),
        F.when(adjust & (vnew != F.lit(INF)), shown(vnew)).alias("vnew"),
    ]


def counted(
    before: EpochState,
    after: EpochState,
    fed: Mapping[str, int],
    late: Mapping[str, int],
    lost: Mapping[str, Mapping[str, int]],
) -> EpochState:
    """What is known after an epoch, with the totals.  `lost` is what a level has given up so far, by source and reason:
    rows that came too late for it are never fed."""
    rows, behind = dict(before.rows), dict(before.late)
    for name, count in fed.items():
        rows[name] = rows.get(name, 0) + count
    for name, count in late.items():
        behind[name] = behind.get(name, 0) + count
    for name, reasons in lost.items():
        new = reasons.get(Reason.LATE.value, 0) - behind.get(name, 0)
        if new > 0:
            rows[name] = rows.get(name, 0) + new
            behind[name] = behind.get(name, 0) + new
    return replace(after, rows=rows, late=behind)


def late_words(known: EpochState) -> str:
    """The totals in a few words; "" if nothing was late."""
    return ", ".join(f"{name} {_of(known, name)}" for name, count in sorted(known.late.items()) if count)


def _of(known: EpochState, name: str) -> str:
    rows, late = max(known.rows.get(name, 0), known.late[name]), known.late[name]
    return f"{late:,} of {rows:,} rows ({100 * late / rows:.3g} %)"


@dataclass
class LateWarnings:
    """Says when late rows are many.  `place` is where those of a source are kept."""

    sources: Mapping[str, ResolvedSource]
    place: Callable[[str], str]
    _told: dict[str, int] = field(default_factory=dict)

    def look(
        self, known: EpochState, fed: Mapping[str, int] | None = None, now: Mapping[str, int] | None = None
    ) -> None:
        """Late rows are many in all, or among those of the last epoch: `fed` rows, of which `now` were late."""
        for name, late in known.late.items():
            fresh = (now or {}).get(name, 0)
            here = fresh >= _LEAST and fresh > _SHARE * (fed or {}).get(name, 0)
            many = late >= _LEAST and late > _SHARE * known.rows.get(name, 0)
            if (many or here) and late >= 2 * self._told.get(name, 0):
                self._told[name] = late
                self._warn(name, _of(known, name))

    def _warn(self, name: str, words: str) -> None:
        source = self.sources[name].source
        done = "moved, or dropped where that was not possible" if source.late == "adjust" else "dropped"
        bound = "" if source.disorder is None else f", {source.disorder} ticks now"
        other = "" if source.late == "adjust" else ", or choose late='adjust'"
        _log.warning(
            "source %r: %s so far came behind what the source had promised, and were %s; those that were dropped are "
            "in %s. Widen the bound of its disorder (SparkSource(progress=Disorder(…))%s), let its files be read in "
            "the order of their times%s",
            name, words, done, self.place(name), bound, other,
        )  # fmt: skip
