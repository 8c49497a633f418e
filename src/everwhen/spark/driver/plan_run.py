"""A plan as it runs: which rows it takes, since when, and for which instants it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame

from everwhen.core.time import INF, NEVER
from everwhen.plan.stages.model import StagePlan
from everwhen.spark.driver.ingress_stage import AN_OWN_COLUMN, IngressStage
from everwhen.spark.driver.plan_log import state_name
from everwhen.spark.exchange.raw_rows import RawRows
from everwhen.spark.exchange.single_scan import SourceProjection
from everwhen.spark.sources.source import NoProgress, ResolvedSource
from everwhen.spark.worker.answer_span import AnswerSpan


@dataclass(frozen=True)
class PlanRun:
    """Plan `number` of a query, from epoch `first` on; it speaks from the instant `since` on, and runs in so many
    partitions.  An epoch's frame is that of all feeds, or what `narrow`, `raw` or `intake` make it of."""

    plan: StagePlan
    sources: Mapping[str, ResolvedSource]
    intake: IngressStage | None = None
    narrow: SourceProjection | None = None
    raw: RawRows | None = None
    number: int = 0
    first: int = 0
    since: int = NEVER
    partitions: int = 1

    @cached_property
    def behind(self) -> Mapping[str, ResolvedSource]:
        """The sources as the feeds read them."""
        return self.sources if self.intake is None else self.intake.behind

    @property
    def told(self) -> Mapping[str, ResolvedSource]:
        """The sources as the past is told: promises are rows, and nothing is late."""
        return {
            name: replace(
                each,
                source=replace(each.source, progress=NoProgress(), late="error", idle=None),
                op=AN_OWN_COLUMN,
            )
            for name, each in self.sources.items()
        }

    def feeds(self, frame: DataFrame) -> DataFrame:
        """The frame of all feeds, from that of an epoch."""
        if self.raw is not None:
            return self.raw.feeds(frame, self.plan, self.sources)
        return frame if self.narrow is None else self.narrow.tagged(frame)

    def span(self, until: int = INF) -> AnswerSpan:
        """What it speaks for, if another plan takes over at an instant."""
        return AnswerSpan(self.since, until, until)

    def beginning(self) -> AnswerSpan:
        """What it speaks for while the plan before it still runs."""
        return AnswerSpan(self.since, INF, self.since)

    def named(self, text: str) -> str:
        """The name of something of this plan: plans that run side by side share nothing."""
        return f"{text}.{self.number}" if self.number else text

    @property
    def state(self) -> str:
        return state_name(self.number)
