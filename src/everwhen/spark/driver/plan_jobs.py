"""The jobs of the plans of a query: what each does in an epoch, and what a new one is told of the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.core.time_axis import common_axis, times_shown
from everwhen.errors import InputError
from everwhen.plan.stages.model import Stage
from everwhen.sinks.base import EpochSink, PartedSink
from everwhen.spark.driver.copy_changes import CopyChanges
from everwhen.spark.driver.cutover import past_frame
from everwhen.spark.driver.epoch_job import EpochJob
from everwhen.spark.driver.epoch_log import EpochLog, EpochState
from everwhen.spark.driver.epoch_outcome import EpochOutcome
from everwhen.spark.driver.loop_rounds import LoopSteps, RoundsAnswer
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.spark.exchange.messages import RowsBehind, WrongRows
from everwhen.spark.exchange.punctuation_rows import Address
from everwhen.spark.exchange.schema import ExchangeSchema
from everwhen.spark.exchange.source_scan import with_promised
from everwhen.spark.exchange.watermarks import explanation, late_rows
from everwhen.spark.worker.answer_span import AnswerSpan
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.ingress_program import STAGE as INGRESS
from everwhen.spark.worker.stage_program import StageProgram
from everwhen.spark.worker.state_host import StateSpec

_NO_STEPS: Final[LoopSteps] = MappingProxyType({})


@dataclass(frozen=True)
class PlanJobs:
    """What all plans of a query share.  `query` names the query's state, `run` this start of it."""

    session: SparkSession
    schemas: Mapping[str, Schema]
    sinks: Mapping[str, EpochSink]
    journal: EpochLog
    query: str
    run: str
    emit: Emit
    snapshot_every: int
    _jobs: dict[int, EpochJob] = field(default_factory=dict)

    def done(
        self, run: PlanRun, span: AnswerSpan, frame: DataFrame, context: EpochContext, steps: LoopSteps = _NO_STEPS
    ) -> EpochOutcome:
        """An epoch of a plan; `steps`: those of its loops whose rounds cross exchanges, in the epoch before."""
        before = {source.name: context.promised.get(source.name, NEVER) for source in run.plan.sources}
        told = replace(context, promised=before, span=span)
        feeds = partial(run.feeds, frame)
        if run.number not in self._jobs:
            self._jobs[run.number] = EpochJob(
                run.plan, run.behind, self.schemas, run.partitions, partial(self.program, run), self.session
            )
        job = self._jobs[run.number]
        loops = run.plan.loops
        answer = job.run_rounds(feeds, told, steps) if loops else RoundsAnswer(job.run(frame, feeds, told))
        try:
            stages = len(run.plan.stages)
            found = EpochOutcome.of(answer.table, self.schemas, context.level.emit, stages, answer.earlier)
            return replace(found, steps=answer.steps)
        except WrongRows as error:
            raise InputError(explanation(feeds(), run.plan) or str(error)) from None
        except RowsBehind as error:
            strict = [name for name, source in run.behind.items() if source.source.late == "error"]
            with times_shown(common_axis(source.axis for source in run.sources.values())):
                late = late_rows(with_promised(feeds(), before.values()), run.plan, strict)
            raise late or InputError(error.problem, source=error.source) from None

    def told(
        self, old: PlanRun, new: PlanRun, session: SparkSession, context: EpochContext, known: EpochState,
        changes: CopyChanges,
    ) -> EpochOutcome:  # fmt: skip
        """What a new plan says when it has been told the past, before its first epoch."""
        programs = [self.alone(old, stage) for stage in old.plan.stages]
        frame = past_frame(session, old, new, programs, known, context.detached, context.epoch, old.partitions)
        anew = {name: each.since for name, each in changes.attached.items() if name in new.sources}
        tau = NEVER if known.tau is None else known.tau
        before = replace(
            context, epoch=context.epoch - 1, promised=dict.fromkeys((s.name for s in new.plan.sources), NEVER),
            idle=frozenset(), anew=anew, span=new.beginning(), tau=tau,
        )  # fmt: skip
        program = partial(self.program, new, telling=True)
        job = EpochJob(new.plan, new.told, self.schemas, new.partitions, program, self.session, kept=False)
        table = job.run(frame, lambda: frame, before)
        return EpochOutcome.of(table, self.schemas, context.level.emit, len(new.plan.stages))

    def state(self, run: PlanRun, stage: int, telling: bool = False) -> StateSpec:
        """Where the state of a stage is.  `telling`: who tells a plan its past does not own its state."""
        name = f"{run.named(self.run)}.past" if telling else run.named(self.run)
        root = self.journal.folder.place(run.state)
        loop = None if stage == INGRESS else run.plan.stages[stage - 1].loop
        return StateSpec(run.named(self.query), name, root, stage, self.snapshot_every, run.first, loop)

    def alone(self, run: PlanRun, stage: Stage) -> StageProgram:
        """What a stage does, for its state alone."""
        return self.program(run, stage, ExchangeSchema(()), {}, telling=True)

    def program(
        self, run: PlanRun, stage: Stage, out: ExchangeSchema, onward: Mapping[str, Address], telling: bool = False
    ) -> StageProgram:
        """What the partitions of a stage do in every epoch."""
        writes = stage.level == len(run.plan.stages) and not telling
        sinks = {name: sink for name, sink in self.sinks.items() if isinstance(sink, PartedSink) and writes}
        return StageProgram(
            self.state(run, stage.level, telling),
            stage,
            self.emit,
            run.partitions,
            tuple(source.name for source in run.plan.sources),
            out,
            frozenset(name for name, source in run.behind.items() if source.source.late != "error"),
            sinks,
            onward,
            run.number,
        )
