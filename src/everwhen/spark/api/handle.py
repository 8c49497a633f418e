"""A running query: how it is doing, what it last did, how to wait for it and how to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from everwhen.core.consistency import Consistency, Duration
from everwhen.core.emit import Emit
from everwhen.core.time import NEVER, require_time, show
from everwhen.engine.observe.analyze import Analysis
from everwhen.engine.observe.silence.find_waiting import Writes
from everwhen.engine.observe.silence.waiting import Waiting
from everwhen.errors import EverwhenError, InputError, QueryError, SparkLostError
from everwhen.plan.explain import explain_stages
from everwhen.plan.stages.model import StagePlan
from everwhen.spark.api.job import Query, Rebinding
from everwhen.spark.api.replacing import replaced
from everwhen.spark.driver.epoch_runner import EpochReport, EpochRunner, analysis
from everwhen.spark.driver.late_rows import late_words
from everwhen.spark.driver.partition_metadata import PartitionObserver
from everwhen.spark.driver.plan_log import write_record
from everwhen.spark.driver.silence import who_holds, why_silent
from everwhen.spark.internals.jvm_reach import said, short
from everwhen.spark.sources.source import SparkSource
from everwhen.spark.state.state_store import PartitionState, inspect


class Handle:
    """A running query on Spark, as `start` returns it.

    >>> import everwhen as ew
    >>> from tempfile import mkdtemp
    >>> query, frame = ew.source("Tick", {"value": "int64"}), spark.readStream.format("rate").load()
    >>> described = {"Tick": ew.spark.SparkSource("timestamp")}
    >>> handle = ew.spark.start(
    ...     query, {"Tick": frame}, sources=described, sink=ew.spark.DiscardSink(), checkpoint=mkdtemp()
    ... )
    >>> handle.is_active
    True
    >>> handle.stop()
    >>> handle.status
    'stopped'
    """

    def __init__(self, stream: StreamingQuery, runner: EpochRunner, bound: Rebinding) -> None:
        self.stream = stream
        self._runner = runner
        self._bound = bound
        self._rebinding = threading.RLock()
        self._stopped = False
        self.picture: Callable[[], str] | None = None
        if runner.lease is not None:
            runner.lease.is_used = lambda: self.is_active

    @property
    def _plan(self) -> StagePlan:
        return self._runner.plan

    @property
    def is_active(self) -> bool:
        """Whether the query runs.  One whose Spark is gone does not."""
        with self._rebinding:
            try:
                active = bool(said(lambda: self.stream.isActive))
            except SparkLostError:
                active = False
            if not active:
                self._release()
            return active

    @property
    def status(self) -> str:
        """One line: running, stopped, or failed and why."""
        if self.last_error is not None:
            return f"failed: {self.last_error}"
        if not self.is_active:
            return "stopped"
        reports = self._runner.reports
        if not reports:
            return f"starting: {said(lambda: self.stream.status)['message']}"
        late = late_words(self._runner.known)
        said_so = f"running: epoch {reports[-1].epoch} done" + (f"; late so far: {late}" if late else "")
        at = self.replaced_at
        return said_so if at is None else f"{said_so}; another query takes over at {show(at)}"

    @property
    def replaced_at(self) -> int | None:
        """The instant at which another query takes over (`replace`), as long as this one still speaks; else None."""
        return self._runner.replaced_at

    @property
    def progress(self) -> EpochReport | None:
        """What the last epoch did."""
        return self._runner.reports[-1] if self._runner.reports else None

    @property
    def recent(self) -> tuple[EpochReport, ...]:
        """What the last epochs did, at most a thousand, the newest last."""
        return tuple(self._runner.reports)

    @property
    def spark_progress(self) -> Mapping[str, Any] | None:
        """Spark's own word on the last epoch: offsets, durations, rates."""
        return said(lambda: self.stream.lastProgress)

    @property
    def last_error(self) -> EverwhenError | None:
        """Why the query stopped; None if it runs or was asked to stop."""
        if self.is_active:
            return None
        try:
            failed = said(self.stream.exception)
        except SparkLostError as lost:
            return None if self._stopped else self._explained(lost)
        return None if failed is None else self._explained(failed)

    def waiting(self, query: str | None = None, writes: Writes | None = None) -> Waiting:
        """Why a query says nothing: which source holds it back, what it has promised, which promise would bring
        something; it tries on copies of the partitions' states, in the driver (`driver/silence.py`).  `writes`: how
        many rows a sink that lets some wait would write if something was said."""
        return why_silent(self._runner, next(iter(self._runner.schemas)) if query is None else query, writes)

    def waits_for(self) -> str:
        """Who holds the answer back, in a sentence, at no cost: what the last epoch tells."""
        return who_holds(self._runner)

    def metadata(self) -> PartitionObserver:
        """The operators and inputs of all stages, to subscribe to: what partitions measure, each and in sum."""
        return self._runner.observer

    def analyze(self) -> Analysis:
        """What inputs and operators have done, in all partitions, since this was asked first; with the skew."""
        return analysis(self._runner)

    def explain(self) -> str:
        """The stages that run."""
        return explain_stages(self._plan)

    def state(self) -> list[PartitionState]:
        """What each partition of each stage keeps; while a query is being replaced, of both plans."""
        folder = self._runner.journal.folder
        return [each for run in self._runner.runs for each in inspect(folder.place(run.state))]

    @property
    def late(self) -> Mapping[str, int]:
        """How many rows of each source came too late since the query was first started, restarts included."""
        return dict(self._runner.known.late)

    def late_rows(self, source: str) -> str:
        """The folder of Parquet files with a source's rows that came too late."""
        return self._runner.late.place(source)

    @property
    def consistency(self) -> Consistency:
        """The level of the next epoch."""
        return self._runner.level

    def change(
        self,
        block: Duration | None = None,
        remember: Duration | None = None,
        tick: str = "1ms",
        *,
        emit: str | Emit | None = None,
    ) -> None:
        """Move the query to another level from the next epoch on; that epoch notes it, and started again the query goes
        on with it.

        What has been said and promised stands.  To wait or forget the query must have been started at a level that
        does, if only with `remember="inf"`: else its rows do not go through the stage that could.
        """
        level = self._runner.level.changed(block, remember, emit, tick)
        if self._runner.intake is None and (level.finalizes or level.aligns):
            raise QueryError(
                "this query was started at a level that neither waits nor forgets, so it cannot begin to while it "
                "runs; start it with consistency(remember='inf'), and it can be moved anywhere"
            )
        self._runner.level = level

    # -- another query ------------------------------------------------------------------------------------------

    def replace(self, query: Query | Mapping[str, Query], *, at: int | None = None) -> int:
        """Let another query with the same columns take the place of this one: before an instant T the answer is this
        one's, from T on the other one's.  Returns T, as early as possible, but not before `at`.

        T is not before what is promised, nor before the instant from which on the other query knows its answer.  Both
        run until everything before T is promised; `replaced_at` is T so long.  It waits for the epoch under way.  The
        level stays.  Started again, the new query is given.
        """
        return self._take_over(query, at, alike=False)

    def migrate(self, query: Query | Mapping[str, Query]) -> int:
        """Let another plan of the same query take the place of the one that runs: as it is written instead of
        rewritten, say, or with another order of joins.  Returns the instant T from which on it speaks.

        As `replace`; but the checkpoint stays that of the query as it was asked: started again with that or with the
        new plan, it goes on.  That both mean the same is the caller's word.
        """
        return self._take_over(query, None, alike=True)

    def _take_over(self, query: Query | Mapping[str, Query], at: int | None, alike: bool) -> int:
        if at is not None:
            require_time(at)
        with self._rebinding:
            if self._stopped or not self.is_active:
                failed = self.last_error is not None
                raise QueryError(
                    f"the query has {'failed' if failed else 'stopped'}, so it cannot be replaced while it runs: start "
                    "the new one with its checkpoint and migrate=True"
                )
            runner = self._runner
            with runner.gate:  # no epoch is under way now, and none begins
                ready = replaced(self._bound, query, runner, at, alike)
                assert ready.record is not None
                write_record(runner.journal, ready.record)
                runner.stopping = True
            said(self.stream.stop)
            self.stream, self._runner = self._bound.job.begin_again(ready, runner)
            return ready.record.at

    # -- inputs of a merge --------------------------------------------------------------------------------------

    def detach(self, name: str, *, at: int | None = None) -> None:
        """Let an input of a merge leave, from the next epoch on: what it has promised counts no more, and its rows are
        ignored.  What it has decided stands.

        With `at` it leaves at an instant: what it says before counts as ever, and from `at` on only what others
        promise.  So with another input that is right from there on (`attach`, `since=at`) the answer is the old one's
        before and the new one's from there.  What is not final follows the policy of the merge.

        The next epoch notes it, and started again the query goes on without the input.
        """
        self._check_copies()
        changes = self._runner.changes
        self._plan.copies.check_leaving(name, changes.detached if at is None else {*changes.detached, *changes.until})
        if at is not None:
            self._checked(name, at)
        changes.detach(name, at)

    def attach(
        self,
        name: str,
        frame: DataFrame | None = None,
        *,
        since: int | None = None,
        source: SparkSource | None = None,
    ) -> None:
        """Let another stream come in at an input of a merge, in the place of the one there was, from the next epoch on.
        It is right from the instant `since` on; without, throughout.

        `frame` is the streaming DataFrame of the other stream, described by `source` if not as before.  Spark fixes the
        inputs of a streaming query when it starts, so it is started again between two epochs, with the same checkpoint.
        Without `frame`, what the input's DataFrame brings from the next epoch on is the other stream, from its
        beginning.
        """
        self._check_copies()
        start = self._plan.copies.check_joining(name, since)
        changes = self._runner.changes
        if frame is None:
            changes.attach(name, start, -1)
            return
        ready = self._bound.ready(name, frame, source, self._plan)
        if self._stopped or self.last_error is not None:
            raise QueryError(
                f"the query has {'been stopped' if self._stopped else 'failed'}: start it again with the checkpoint, "
                f"then attach {name!r}"
            )
        with self._rebinding:
            runner = self._runner
            with runner.gate:  # no epoch is under way now, and none begins
                runner.stopping = True
            said(self.stream.stop)
            changes.attach(name, start, runner.journal.planned())
            self.stream, self._runner = self._bound.job.begin_again(ready, runner)
            self._bound.bound(name, frame, source)

    def hand_over(
        self,
        old: str,
        new: str,
        frame: DataFrame | None = None,
        *,
        at: int | None = None,
        source: SparkSource | None = None,
    ) -> None:
        """Let an input of a merge take over from another one at an instant: the answer is the old one's before `at` and
        the new one's from there, no instant missing or doubled.  Without `at`: at what is final now.

        The new one is attached as another stream (`attach`); it must bring all that is needed to be right from `at` on.
        """
        self._check_copies()
        copies, changes = self._plan.copies, self._runner.changes
        if old == new:
            raise QueryError(f"{old!r} cannot take over from itself; give a merge a second input for that")
        instant = self._checked(old, self._final if at is None else at)
        copies.check_joining(new, instant)
        copies.check_leaving(old, {*changes.detached, *changes.until} - {new})
        if frame is not None:
            self._bound.ready(new, frame, source, self._plan)
        changes.detach(old, instant)  # first: nobody goes beyond the instant before the other one is there
        self.attach(new, frame, since=instant, source=source)

    @property
    def _final(self) -> int:
        return max(self._runner.known.queries.values(), default=NEVER)

    def _checked(self, name: str, at: int) -> int:
        if at < self._final:
            raise QueryError(f"{name!r} cannot leave at {show(at)}: answers up to {show(self._final)} are final")
        return at

    def _check_copies(self) -> None:
        if self.replaced_at is not None:
            raise QueryError(
                f"inputs cannot come and go while another query takes over, which it does at {show(self.replaced_at)}"
            )
        if self._runner.intake is not None:
            raise QueryError(
                "inputs cannot come and go at a level that waits or forgets (block, remember): rows that wait are in "
                "no order yet; start the query at the level middle or strong"
            )

    @property
    def dropped(self) -> Mapping[str, Mapping[str, int]]:
        """How many elements the level has given up, by source and reason."""
        report = self.progress
        return {} if report is None else report.dropped

    def dropped_rows(self, source: str) -> str:
        """The folder of Parquet files with a source's elements that the level gave up, and the reasons."""
        if self._runner.intake is None:
            raise QueryError("this query's level gives nothing up")
        return self._runner.intake.place(source)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, or for so many seconds; whether it has ended.  If it failed, its error is
        raised."""
        stream = self.stream
        try:
            ended = timeout is None
            if timeout is None:
                said(stream.awaitTermination)
            else:
                ended = bool(said(lambda: stream.awaitTermination(timeout)))  # type: ignore[arg-type]  # 0.5 is fine
        except (StreamingQueryException, SparkLostError) as failed:
            self._release()
            raise self._explained(failed) from None
        with self._rebinding:
            again = self.stream is not stream
            if ended and not again:
                self._release()
        return self.await_termination(timeout) if ended and again else ended

    def process_available(self) -> None:
        """Wait until everything that is there now has been processed.  If the query failed, its error is raised."""
        try:
            said(self.stream.processAllAvailable)
        except (StreamingQueryException, SparkLostError) as failed:
            self._release()
            raise self._explained(failed) from None

    def _explained(self, failed: BaseException) -> EverwhenError:
        """Our own error where there is one; else what Spark says, in a line."""
        error = self._runner.error
        if isinstance(error, EverwhenError):
            return error
        if isinstance(failed, SparkLostError):
            return failed
        told = short(str(failed if error is None else error))
        if told.startswith(wrong := "everwhen.errors.InputError: "):  # the process that reads a source says so
            return InputError(told.removeprefix(wrong))
        return EverwhenError(f"the query failed: {told}")

    def stop(self) -> None:
        """Stop now; started again with the same checkpoint, the query goes on, and an epoch under way is run again."""
        self._runner.stopping = True
        with suppress(SparkLostError):  # then it has stopped
            said(self.stream.stop)
            self._stopped = True
        for sink in self._runner.sinks.values():
            sink.close()
        self._release()

    def _repr_html_(self) -> str | None:
        """How it is, its graph, and its answers as of now, for notebooks (`handle_html.py`)."""
        return None if self.picture is None else self.picture()

    def _release(self) -> None:
        """The checkpoint may be used by others again."""
        if self._runner.lease is not None:
            self._runner.lease.release()
