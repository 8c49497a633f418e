"""The work of an epoch: feeds, exchange, stage 1, exchange, stage 2 …  What all epochs share is made once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from everwhen.core.schema import Schema
from everwhen.plan.stages.lineage import lain_by
from everwhen.plan.stages.model import Stage, StagePlan
from everwhen.spark.driver.loop_rounds import LoopSteps, RoundsAnswer, carried_by, run_rounds
from everwhen.spark.exchange.punctuation_rows import Address, own_words
from everwhen.spark.exchange.schema import ExchangeSchema
from everwhen.spark.exchange.single_scan import SingleScan
from everwhen.spark.exchange.source_scan import nothing_for_all, placed, promise_matters, with_promised
from everwhen.spark.exchange.stage_input import StageInput
from everwhen.spark.internals.jvm_columns import JvmColumns, JvmMap
from everwhen.spark.internals.plan_cache import CachedPlan
from everwhen.spark.sources.source import ResolvedSource
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.stage_program import EpochTask, StageProgram

_log = logging.getLogger(__name__)

MakeProgram = Callable[[Stage, ExchangeSchema, Mapping[str, Address]], StageProgram]


@dataclass(frozen=True)
class _Step:
    """A stage, and how rows come to it and leave it."""

    feed: SingleScan | StageInput | None
    handed: JvmColumns | None
    work: JvmMap
    said: Column | None
    """A filter that leaves out punctuations of a partition about rows that it does not own; None if there are none."""
    returned: JvmColumns | None = None
    """How rows come to it that go round a loop."""


class EpochJob:
    """The work of every epoch of a plan.  `program` gives what a stage does; which epoch it is, its tasks are told.
    `session` is the one in which the query was started; `kept`: whether Spark's plans are kept from epoch to epoch."""

    def __init__(
        self,
        plan: StagePlan,
        sources: Mapping[str, ResolvedSource],
        schemas: Mapping[str, Schema],
        partitions: int,
        program: MakeProgram,
        session: SparkSession,
        kept: bool = True,
    ) -> None:
        self._session = session
        self._plan, self._sources, self._schemas, self._partitions, self._program = (
            plan,
            sources,
            schemas,
            partitions,
            program,
        )
        self._promise_matters = promise_matters(sources)
        self._layouts = [ExchangeSchema.of(carried_by(plan, stage)) for stage in plan.stages]
        self._layouts.append(ExchangeSchema.of(schemas.values()))
        fits = kept and not plan.loops and SingleScan.fits(plan, sources)
        self._one_pass = SingleScan(plan, sources, self._layouts[0], partitions) if fits else None
        self._chain: CachedPlan | None = None
        self._steps = self._made()

    def _made(self) -> list[_Step]:
        """How each stage is fed and what it does."""
        steps = []
        for at, stage in enumerate(self._plan.stages):
            into, out = self._layouts[at], self._layouts[at + 1]
            feed: SingleScan | StageInput | None = None
            if at == 0 and self._one_pass is not None:
                feed = self._one_pass
            elif any(stream.feed is not None for stream in stage.inputs):
                feed = StageInput(stage, self._plan, into, self._sources, self._partitions)
            handed = returned = None
            present = {name: F.col(name) for name, _ in into.columns}
            if at:
                streams = [stream for stream in stage.inputs if stream.feed is None and not stream.returning]
                handed = JvmColumns(placed(streams, into, self._partitions, present))
            back = [stream for stream in stage.inputs if stream.returning]
            if back and stage.loop is not None:
                there = {name for name, _ in self._layouts[self._plan.loops[stage.loop].last].columns}
                present = {name: column for name, column in present.items() if name in there}
                returned = JvmColumns(placed(back, into, self._partitions, present))
            addresses = _onward(self._plan, at, self._sources, self._schemas)
            task = EpochTask(self._program(stage, out, addresses), into, out, self._partitions, first=at == 0)
            steps.append(
                _Step(
                    feed,
                    handed,
                    JvmMap(task, [name for name, _ in into.columns], out.spark),
                    own_words(list(addresses.values()), self._partitions),
                    returned,
                )
            )
        return steps

    def run(self, inputs: DataFrame, feeds: Callable[[], DataFrame], told: EpochContext) -> pa.Table:
        """The answers of the last stage to an epoch's rows, and the notes of all stages; `feeds` gives the frame of all
        feeds, which is made of those rows."""
        told.tell(inputs.sparkSession.sparkContext)
        if self._one_pass is not None:
            found = self._chained(self._one_pass, inputs, feeds, told)
            if found is not None:
                return found
            self._one_pass = None
            self._steps = self._made()
            told.tell(inputs.sparkSession.sparkContext)
        return self._flow(feeds(), told).toArrow()

    def run_rounds(self, feeds: Callable[[], DataFrame], told: EpochContext, steps: LoopSteps) -> RoundsAnswer:
        """The same where loops cross exchanges, in a job per round; `steps` are those of the loops before."""
        fed = feeds()
        if self._promise_matters:
            fed = with_promised(fed, told.promised.values())
        return run_rounds(self._plan, self._levels, fed, told, steps)

    def _chained(
        self,
        one_pass: SingleScan,
        inputs: DataFrame,
        feeds: Callable[[], DataFrame],
        told: EpochContext,
    ) -> pa.Table | None:
        """The same by what Spark has planned before; None if this Spark's plans cannot be taken apart."""
        try:
            chain = self._chain
            if chain is None or not chain.fits(inputs):
                chain = CachedPlan.of(self._flow(feeds(), told))
            if chain is None:
                return None
            self._chain = None if self._promise_matters else chain  # what was promised stands in it
            counted = chain.count(inputs, told.epoch, self._partitions, self._session)
            replace(told, progress=tuple(one_pass.progress(counted.statistics))).tell(inputs.sparkSession.sparkContext)
            return counted.answers()
        except Py4JError as error:
            if isinstance(error, Py4JJavaError | Py4JNetworkError):
                raise
            _log.warning("the plans of this Spark cannot be kept from epoch to epoch: %s", error)
            return None

    def _flow(self, inputs: DataFrame, told: EpochContext) -> DataFrame:
        """The epoch as one lazy frame."""
        if self._promise_matters:
            inputs = with_promised(inputs, told.promised.values())
        return self._levels(range(1, len(self._steps) + 1), None, inputs, None)

    def _levels(
        self, levels: range, below: DataFrame | None, inputs: DataFrame | None, back: DataFrame | None
    ) -> DataFrame:
        """What some levels give for what comes from the level below them, from the sources, and round a loop."""
        flowing = below
        for level in levels:
            step, stage = self._steps[level - 1], self._plan.stages[level - 1]
            frames = [] if flowing is None or step.handed is None else [step.handed.of(flowing)]
            if step.feed is not None and inputs is not None:
                frames.append(step.feed.fed(inputs))
            if step.returned is not None and back is not None:
                tags = [stream.tag for stream in stage.inputs if stream.returning]
                frames.append(step.returned.of(back.where(F.col("kind").isin(tags))))
            if not frames:  # in the first round, where nothing but what goes round comes in
                assert inputs is not None
                frames.append(nothing_for_all(inputs.sparkSession, self._layouts[level - 1], self._partitions))
            rows = reduce(DataFrame.union, frames).repartitionById(self._partitions, "partition")
            flowing = step.work.of(rows)
            if step.said is not None:
                flowing = flowing.where(step.said)
        assert flowing is not None
        return flowing


def _onward(
    plan: StagePlan, at: int, sources: Mapping[str, ResolvedSource], schemas: Mapping[str, Schema]
) -> dict[str, Address]:
    """Where punctuations of what a stage hands on or answers go, by name; none if no source makes any."""
    if not any(source.schemes or sources[source.name].match is not None for source in plan.sources):
        return {}
    stage = plan.stages[at]
    by = {stream.name: stream.by for stream in stage.inputs}
    found = {}
    for name, node in stage.handed.items():
        stream = plan.stream(name)
        found[name] = Address(stream.tag, stream.schema, stream.by, lain_by(node, by))
    for tag, (name, schema) in enumerate(schemas.items()):
        if name in stage.queries:
            found[name] = Address(tag, schema, None, lain_by(stage.queries[name], by), everywhere=False)
    return found
