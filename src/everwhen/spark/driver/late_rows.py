"""The side output of rows that came too late: counted, and kept where they can be read.

    <checkpoint>/everwhen/late/<source, by path_name>/epoch=<n>/*.parquet

A source with `late="drop"` leaves out a row that changes something before what the source had promised; a source with
`late="adjust"` moves what it can and leaves out the rest.  Those left out stand here, with their times and the columns
that the query reads.  An adjust in time of an event that was left out is itself left out, and only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from everwhen.plan.stages.model import StagePlan
from everwhen.spark.exchange.schema import slots
from everwhen.spark.exchange.source_scan import Cutoff, too_late, with_promised
from everwhen.spark.sources.source import ResolvedSource
from everwhen.storage.folder import path_name
from everwhen.stream.element_batch import CTI


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
        cutoff: Cutoff,
        epoch: int,
        notes: Sequence[Mapping[str, Any]],
    ) -> dict[str, int]:
        """Write an epoch's late rows, if the frame of all feeds has any; how many, by source."""
        found: dict[str, int] = {}
        for note in notes:
            for name, rows in note["late"].items():
                found[name] = max(found.get(name, 0), rows)
        for name in found:
            at = next(i for i, source in enumerate(plan.sources) if source.name == name)
            stream = next(s for st in plan.stages for s in st.inputs if s.feed and s.feed.source.name == name)
            assert stream.feed is not None
            named = zip(stream.feed.node.schema.names, slots(stream.feed.node.schema), strict=True)
            rows = with_promised(feeds(), cutoff).where(F.col("lead") & (F.col("source") == at) & (F.col("op") < CTI))
            rows = rows.where(too_late(sources[name]))
            columns = [F.col(slot).alias(column) for column, (slot, _) in named]
            target = f"{self.place(name)}/epoch={epoch}"
            rows.select("op", "vs", "ve", "vnew", *columns).write.mode("overwrite").parquet(target)
        return found
