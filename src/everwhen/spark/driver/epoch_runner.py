"""An epoch: one call of `foreachBatch`, one Spark job or two, one commit per sink.

    begun n ─▶ job: feeds ▶ exchange ▶ stage 1 ▶ exchange ▶ stage 2 … ─▶ done n ─▶ sinks commit n ─▶ Spark commits n

Whatever dies on the way, Spark runs the epoch again with the same input; the published inputs of the stages make it
give the same output, and a sink that has the epoch already leaves it alone.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.core.moment import moment, moments
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.core.time_axis import common_axis
from everwhen.engine.observe.analyze import Analysis
from everwhen.errors import SinkError, SinkLostError, StateError
from everwhen.plan.stages.model import StagePlan
from everwhen.sinks.base import EpochSink, PartedSink
from everwhen.spark.driver.copy_changes import CopyChanges
from everwhen.spark.driver.cutover import finished, from_instant, together
from everwhen.spark.driver.epoch_log import EpochDecision, EpochLog, EpochState, check_first_epoch
from everwhen.spark.driver.epoch_outcome import EpochOutcome, last_words
from everwhen.spark.driver.ingress_stage import IngressStage
from everwhen.spark.driver.late_rows import LateRows, LateWarnings, counted
from everwhen.spark.driver.loop_rounds import first_steps
from everwhen.spark.driver.partition_metadata import PartitionObserver
from everwhen.spark.driver.plan_jobs import PlanJobs
from everwhen.spark.driver.plan_log import PlanRecord
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.spark.internals.jvm_columns import JvmMap
from everwhen.spark.sources.source import ResolvedSource
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.ingress_program import STAGE as INGRESS
from everwhen.spark.worker.stage_program import part_number
from everwhen.storage.lease import Lease
from everwhen.stream.element_batch import ElementBatch, joined

_log = logging.getLogger(__name__)
_PATIENCE: Final = (0.2, 1.0, 3.0, 10.0)
"""Seconds to wait before a sink is tried again."""
_TOLD: Final = 500
"""Characters of an error that are told to Spark; the handle has the error itself."""
_SETTINGS: Final = {
    # stages are few and their sizes known: planning them anew after each exchange costs more than it can gain
    "spark.sql.adaptive.enabled": "false",
    # what is held in memory is read within the second
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
_STOPPED: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling the job: java.lang.InterruptedException"
"""The words by which Spark knows that an epoch did not fail but was stopped."""


@dataclass(frozen=True)
class EpochReport:
    """What an epoch did.  `progress` has the frontier of each source, `answered` that of each query.  Times are ticks;
    where the sources have timestamps they print as such (`everwhen.core.moment`).

    >>> import everwhen as ew
    >>> report = ew.spark.EpochReport(
    ...     epoch=3, seconds=0.5, rows_in=100, rows_out=4, state_rows=9, state_bytes=400, progress={"Bid": 60},
    ...     answered={"out": 60}, tau=65, idle=frozenset(), holding=("Bid",), late={"Bid": 0},
    ... )
    >>> report.rows_per_second
    200.0
    """

    epoch: int
    seconds: float
    rows_in: int
    rows_out: int
    state_rows: int
    state_bytes: int
    progress: Mapping[str, int]
    answered: Mapping[str, int]
    tau: int
    idle: frozenset[str]
    holding: tuple[str, ...]
    late: Mapping[str, int]
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many elements were dropped at this level since the start, by source and reason."""
    buckets: Sequence[Mapping[str, Any]] = field(repr=False, default=())
    late_total: Mapping[str, int] = field(default_factory=dict)
    """How many rows of each source came too late since the query was first started; `late` is of this epoch."""
    rows_total: Mapping[str, int] = field(default_factory=dict)
    """How many rows each source had since the query was first started."""

    @property
    def rows_per_second(self) -> float:
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0


@dataclass
class EpochRunner:
    """The function that `foreachBatch` calls."""

    session: SparkSession
    runs: Sequence[PlanRun]
    """The plan that runs; and the one that takes over, while a query is being replaced."""
    schemas: Mapping[str, Schema]
    sinks: Mapping[str, EpochSink]
    journal: EpochLog
    changes: CopyChanges
    query: str
    emit: Emit
    snapshot_every: int
    late: LateRows
    level: Consistency = MIDDLE
    record: PlanRecord | None = None
    """How the query was replaced last."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """The epochs with which sources end, where that is known."""
    clock: Callable[[], float] = time.time
    patience: Sequence[float] = _PATIENCE
    reports: list[EpochReport] = field(default_factory=list)
    error: BaseException | None = None
    stopping: bool = False
    listener: Callable[[EpochReport], None] | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    known: EpochState = field(default_factory=EpochState)
    """What is known after the last epoch that is done."""
    replan: Callable[[EpochRunner, int], None] | None = None
    """What may let another plan take over before an epoch."""
    lease: Lease | None = None
    """That the checkpoint is this run's alone."""
    gate: threading.Lock = field(default_factory=threading.Lock)
    """Held while an epoch runs."""
    retrying: dict[str, str] = field(default_factory=dict)
    """Sinks that have not taken an epoch and are tried again, with what is wrong."""
    taps: list[Callable[[str, int, ElementBatch], None]] = field(default_factory=list)
    """Who is told what a sink in this process has taken, by query and epoch."""
    _starts: list[str] | None = None

    @property
    def plan(self) -> StagePlan:
        return self.runs[0].plan

    @property
    def sources(self) -> Mapping[str, ResolvedSource]:
        return self.runs[0].sources

    @property
    def intake(self) -> IngressStage | None:
        return self.runs[0].intake

    @property
    def replaced_at(self) -> int | None:
        """The instant at which another plan takes over that is there already; None if there is none."""
        going = self.record is not None and self.record.under_way(self.known, self.journal.newest() + 1)
        return self.record.at if self.record is not None and going else None

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        try:
            with self.gate:
                if self.stopping:
                    raise RuntimeError(_STOPPED)
                self._run(frame, epoch)
        except BaseException as error:
            if self.stopping:
                raise RuntimeError(_STOPPED) from None
            self.error = error
            # Spark searches the text by a pattern that recurses per character: a long one overflows its stack.
            raise RuntimeError(f"{type(error).__name__}: {str(error)[:_TOLD]}") from None

    def _run(self, frame: DataFrame, epoch: int) -> None:
        if not self.reports:
            check_first_epoch(epoch, self.journal, self.sinks)
        self.journal.check_plan(epoch)
        if self.journal.has(epoch) and all(sink.committed() >= epoch for sink in self.sinks.values()):
            return  # only Spark's own commit was missing
        started = time.perf_counter()
        for name, value in _SETTINGS.items():
            frame.sparkSession.conf.set(name, value)
        known = self.journal.known(epoch - 1)
        if self.replan is not None:
            self.replan(self, epoch)
        self._settle(known, epoch)
        now = self.clock()
        asked = EpochDecision(self._idle(known, now), now, self.level.to_plain(), ended=self.ended(epoch))
        wanted = self.changes.wanted(asked, epoch)
        self._check_starts(epoch, wanted)
        decided = self.changes.decide(wanted, epoch, first_steps(self.plan, known.steps))
        known = replace(known, sources={k: v for k, v in known.sources.items() if k not in decided.anew})
        level = Consistency.from_plain(decided.level)
        copies = (decided.ended, decided.detached, decided.anew, decided.until)
        before = {source.name: known.sources.get(source.name, NEVER) for source in self.plan.sources}
        measure = self.observer.windows
        context = EpochContext(epoch, decided.idle, decided.now, level, before, *copies, measure=measure)
        context.tell(frame.sparkSession.sparkContext)
        admitted = None
        if self.intake is not None:
            admitted = self.intake.admitted(frame, self._ingress)
            frame = admitted.frame
        try:
            found = self._found(frame, context, known)
            if admitted is not None and self.intake is not None:
                self.intake.keep(admitted.held, epoch)
        finally:
            if admitted is not None:
                admitted.held.unpersist()
        feeds = partial(self.runs[0].feeds, frame)
        after = found.after(known, now, before, self.schemas)
        promised, after = found.promised(known, after, self.schemas, self.runs[-1].partitions)
        self.late.keep(feeds, self.plan, self.runs[0].behind, before.values(), epoch, found.late)
        late = dict(found.late)
        for name, rows in found.left_out(self.plan).items():
            late[name] = late.get(name, 0) + rows
        lost = {} if admitted is None else admitted.note.dropped
        after = replace(counted(known, after, found.fed, late, lost), steps=found.steps)
        if self.lease is not None:
            self.lease.check()
        self.journal.done(epoch, after)
        self.known = after
        self._warnings.look(after, found.fed, late)
        for name, sink in self.sinks.items():
            now_said, before_said = after.queries[name], known.queries.get(name, NEVER)
            tail = last_words(self.schemas[name], promised.get(name, []), before_said, now_said)
            if isinstance(sink, PartedSink):
                parts = [*self._told_part(name, sink, epoch, found), *found.parts(name)]
                self._commit(name, epoch, partial(sink.commit_parts, epoch, parts, tail))
            else:
                batch = joined(found.results[name], tail)
                self._commit(name, epoch, partial(sink.commit, epoch, batch))
                for tap in self.taps:
                    tap(name, epoch, batch)
        self._report(epoch, time.perf_counter() - started, found, after, decided.idle, late, lost)
        self.observer.note(found.notes, measure)

    # -- plans --------------------------------------------------------------------------------------------------

    def _settle(self, known: EpochState, epoch: int) -> None:
        """Which plans run in an epoch, before which this is known.  A plan that has said all it had to is dropped: the
        epoch before is committed, so nobody will ask for it again."""
        if len(self.runs) > 1 and self.record is not None and not self.record.under_way(known, epoch):
            self.runs = self.runs[1:]
        if self.record is not None:
            for name in self.journal.state_folders():
                if name not in {run.state for run in self.runs}:
                    self.journal.drop_state(name)

    def _found(self, frame: DataFrame, context: EpochContext, known: EpochState) -> EpochOutcome:
        """What the plans that run make of an epoch."""
        run, *others = self.runs
        if not others or self.record is None or context.epoch < self.record.first:
            return self.jobs.done(run, run.span(), frame, context, known.steps)
        (new,) = others
        old = self.jobs.done(run, run.span(until=new.since), frame, context)
        found = [old]
        if self.record.first == context.epoch:
            found.append(self.jobs.told(run, new, frame.sparkSession, context, known, self.changes))
        if not finished(old, new.since):
            return together([*found, self.jobs.done(new, new.beginning(), frame, context)], context.level.emit)
        rest = from_instant(self.jobs.done(new, new.span(), frame, context), new.since)
        return together([*found, rest], context.level.emit, leading=len(found))

    def _told_part(self, name: str, sink: PartedSink, epoch: int, found: EpochOutcome) -> list[str]:
        """What a plan says because of the past that it was told, as a part before all others: these may adjust it."""
        if not len(found.results[name]):
            return []
        return [sink.write_part(epoch, part_number(self.runs[-1].number + 1, 0), found.results[name])]

    @cached_property
    def observer(self) -> PartitionObserver:
        """Who has subscribed to what partitions measure."""
        return PartitionObserver(self.plan, self.emit, self.clock)

    @cached_property
    def jobs(self) -> PlanJobs:
        return PlanJobs(
            self.session, self.schemas, self.sinks, self.journal, self.query, self.run, self.emit,
            self.snapshot_every,
        )  # fmt: skip

    @cached_property
    def _ingress(self) -> JvmMap:
        assert self.intake is not None
        return self.intake.work(self.jobs.state(self.runs[0], INGRESS))

    @cached_property
    def _warnings(self) -> LateWarnings:
        kept = self.late.place if self.intake is None else self.intake.place
        return LateWarnings(self.sources, kept)

    def _idle(self, known: EpochState, now: float) -> frozenset[str]:
        """Sources without rows for longer than they may be; one that never had any counts from the first epoch.  A copy
        that is merged is never among them: what is believed of it would be followed."""
        found = set()
        for name, source in self.sources.items():
            patience = None if name in self.plan.copies.merged else source.source.idle
            if patience is not None and now - known.seen.get(name, now) >= patience:
                found.add(name)
        return frozenset(found)

    def ended(self, epoch: int) -> frozenset[str]:
        """The copies of merges that have ended."""
        merged = self.plan.copies.merged
        return frozenset(name for name, last in self.ends.items() if last <= epoch and name in merged)

    def _check_starts(self, epoch: int, decided: EpochDecision) -> None:
        """Another start of a changelog folder is another stream: only a copy that begins anew may go over to it."""
        before, now = self._starts or self.journal.folder_starts(epoch - 1), self.journal.folder_starts(epoch)
        self._starts = now
        if before is None or now is None or len(before) != len(now) or self.journal.has_begun(epoch):
            return
        changed = sum(bool(old and new and old != new) for old, new in zip(before, now, strict=True))
        if changed > len(decided.anew.keys() | decided.detached):
            raise StateError(
                f"the checkpoint {self.journal.checkpoint}: the writer of a changelog folder that this query reads has "
                "begun anew, and what it says now is another stream of the same history. Nothing was written. Merge "
                "folders (LMERGE), detach the input and attach the new one; or start with a new checkpoint and sinks"
            )

    # -- sinks --------------------------------------------------------------------------------------------------

    def _commit(self, name: str, epoch: int, commit: Callable[[], None]) -> None:
        for attempt, pause in enumerate([*self.patience, None]):
            try:
                commit()
                self.retrying.pop(name, None)
                return
            except SinkLostError:
                raise
            except Exception as bad:
                self.retrying[name] = f"epoch {epoch}, attempt {attempt + 1}: {bad}"
                if pause is None:
                    raise SinkError(
                        f"the sink of {name!r} has not taken epoch {epoch} in {attempt + 1} attempts: {bad}. Nothing "
                        "is lost: start the query again with the same checkpoint when the sink works"
                    ) from bad
                _log.warning("the sink of %r did not take epoch %d (%s); trying again in %s s", name, epoch, bad, pause)
                time.sleep(pause)

    def _holding(self, after: EpochState) -> tuple[str, ...]:
        """The sources that hold answers back: those that have promised least; of copies any one would do."""
        merged = self.plan.copies.merged
        best = max((cti for name, cti in after.sources.items() if name in merged), default=NEVER)
        read = {source.name for source in self.plan.sources} - self.changes.detached
        held = {name: best if name in merged else cti for name, cti in after.sources.items() if name in read}
        low = min(held.values(), default=INF)
        return tuple(name for name, cti in held.items() if cti == low) if low < INF else ()

    def _report(
        self,
        epoch: int,
        seconds: float,
        found: EpochOutcome,
        after: EpochState,
        idle: frozenset[str],
        late: Mapping[str, int],
        dropped: Mapping[str, Mapping[str, int]],
    ) -> None:
        notes = list({(note.stage, note.partition): note for note in found.notes}.values())  # the last of each
        axes = {name: source.axis for name, source in self.sources.items()}
        axis = common_axis(axes.values())
        report = EpochReport(
            epoch,
            seconds,
            sum(found.fed.values()),
            found.written,
            sum(note.state_rows for note in notes),
            sum(note.state_bytes for note in notes),
            moments(after.sources, axes),
            {name: moment(t, axis) for name, t in after.queries.items()},
            moment(max((note.tau for note in notes), default=NEVER), axis),
            idle,
            self._holding(after),
            late,
            dropped,
            [note.to_plain() for note in notes],
            dict(after.late),
            dict(after.rows),
        )
        self.reports.append(report)
        del self.reports[:-1000]
        if self.listener is not None:
            self.listener(report)


def analysis(runner: EpochRunner) -> Analysis:
    """What inputs and operators of a query have done since this was asked first."""
    fresh = runner.observer.analyzed is None
    wanted = runner.observer.analyzed = runner.observer.analyzed or runner.observer.subscribe()
    remark = "It is measured from the next epoch on: ask again." if fresh else ""
    seconds = sum(each.seconds for each in runner.reports)
    said = sum(each.rows_out for each in runner.reports)
    return Analysis(sum(runner.known.rows.values()), said, seconds, wanted.observed(), remark)
