"""An epoch as one lazy frame: feeds, exchange, stage 1, exchange, stage 2 …  What all epochs share is made once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.model.schema import Schema
from everwhen.plan.stages import Stage, StagePlan
from everwhen.runtime.spark.answered import onward
from everwhen.runtime.spark.feeds import Cutoff, placed, promise_matters, with_promised
from everwhen.runtime.spark.layout import Layout
from everwhen.runtime.spark.one_pass import OnePass
from everwhen.runtime.spark.prepared import Prepared
from everwhen.runtime.spark.promises import Address, own_words
from everwhen.runtime.spark.source import ResolvedSource
from everwhen.runtime.spark.stage_feed import StageFeed
from everwhen.runtime.spark.task import StageTask


@dataclass(frozen=True)
class _Step:
    """A stage, and how rows come to it and leave it."""

    stage: Stage
    into: Layout
    out: Layout
    one_pass: OnePass | None
    feed: StageFeed | None
    handed: Prepared | None
    onward: Mapping[str, Address]
    said: Column | None
    """Which rows that leave are not words of a bucket about the rows of another one; None: all."""


class Job:
    """The work of every epoch of a plan."""

    def __init__(
        self,
        plan: StagePlan,
        sources: Mapping[str, ResolvedSource],
        schemas: Mapping[str, Schema],
        buckets: int,
    ) -> None:
        self._buckets = buckets
        self._promise_matters = promise_matters(sources)
        layouts = [Layout.of(stream.schema for stream in stage.inputs) for stage in plan.stages]
        layouts.append(Layout.of(schemas.values()))
        self._steps = []
        for at, stage in enumerate(plan.stages):
            into = layouts[at]
            fed = any(stream.feed is not None for stream in stage.inputs)
            one = OnePass(plan, sources, into, buckets) if at == 0 and OnePass.fits(plan, sources) else None
            feed = StageFeed(stage, plan, into, sources, buckets) if fed and one is None else None
            handed = None
            if at:
                streams = [stream for stream in stage.inputs if stream.feed is None]
                present = {name: F.col(name) for name, _ in into.columns}
                handed = Prepared(placed(streams, into, buckets, present))
            addresses = onward(plan, at, sources, schemas)
            said = own_words(list(addresses.values()), buckets)
            self._steps.append(_Step(stage, into, layouts[at + 1], one, feed, handed, addresses, said))

    def frame(
        self,
        inputs: DataFrame,
        cutoff: Cutoff,
        task: Callable[[Stage, Layout, Layout, Mapping[str, Address]], StageTask],
    ) -> tuple[DataFrame, list[DataFrame]]:
        """The answers of the last stage and the notes of all; and what is held in memory for them."""
        if self._promise_matters:
            inputs = with_promised(inputs, cutoff)
        flowing: DataFrame | None = None
        held: list[DataFrame] = []
        for step in self._steps:
            frames = [] if flowing is None or step.handed is None else [step.handed.of(flowing)]
            if step.one_pass is not None:
                fed = step.one_pass.rows(inputs)
                frames.append(fed.rows)
                held.append(fed.held)
            elif step.feed is not None:
                frames.append(step.feed.fed(inputs))
            rows = reduce(DataFrame.union, frames).repartitionById(self._buckets, "bucket")
            flowing = rows.mapInArrow(task(step.stage, step.into, step.out, step.onward), step.out.spark)
            if step.said is not None:
                flowing = flowing.where(step.said)
        assert flowing is not None
        return flowing, held
