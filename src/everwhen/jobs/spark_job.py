"""A job on Spark: each source is a streaming DataFrame, queries of one level are one streaming query.

Exactly once as `ew.spark.start` is: the epochs of its log are repeated after a crash, and sinks know which they have.
The state of a form is kept beside the checkpoint (`formed_sink.py`).

    <dir>/spark-<n>     the checkpoint of the n-th level
    <dir>/forms/<sink>  the state of its form
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import sources_of
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, show
from everwhen.errors import QueryError
from everwhen.jobs.formed_sink import FormedSink, would_write
from everwhen.jobs.job_run import JobRun
from everwhen.jobs.plan import JobPlan
from everwhen.jobs.status import JobStatus, SinkStatus, SourceStatus
from everwhen.sinks.base import EpochSink
from everwhen.storage.atomic_file import whole_file
from everwhen.stream.element_batch import ADJUST, ElementBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from everwhen.spark.api.handle import Handle

_LOOK: Final = 0.1


class CountedSink(EpochSink):
    """A sink that counts what it is given: elements and corrections, since the job was first started.

    It remembers epochs without elements, of which its target may keep no trace."""

    def __init__(self, target: EpochSink, note: Path) -> None:
        self.target, self._note = target, note
        self.lasting = target.lasting  # type: ignore[misc]  # as its target
        self.counts: Counter[str] = Counter()
        self._last = self._filled = -1

    def resume(self, published: int) -> None:
        self.target.resume(published)

    def prepare(self, schema: Schema) -> None:
        if self._note.exists():
            found = json.loads(self._note.read_text(encoding="utf-8"))
            self._last = found.pop("epoch")
            self._filled = found.pop("filled", self._last)
            self.counts = Counter(found)
        self.target.prepare(schema)

    def committed(self) -> int:
        there = self.target.committed()
        return there if there < self._filled else max(there, self._last)

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        self.target.commit(epoch, batch)
        if epoch > self._last:
            self.counts += Counter(elements=len(batch), corrections=int(np.count_nonzero(batch.op == ADJUST)))
            self._last, self._filled = epoch, epoch if len(batch) else self._filled
            with whole_file(self._note) as aside:
                told = {**self.counts, "epoch": epoch, "filled": self._filled}
                aside.write_text(json.dumps(told), encoding="utf-8")

    def close(self) -> None:
        self.target.close()


class SparkJob(JobRun):
    """One run of a job at its checkpoint, on the Spark session there is, or a new one."""

    engine = "spark"

    def __init__(
        self,
        plan: JobPlan,
        checkpoint: str | os.PathLike[str],
        *,
        name: str = "job",
        trigger: str | None = None,
        buckets: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
        note: Callable[[str], None] = lambda _: None,
        watch: Callable[[JobStatus], None] = lambda _: None,
        migrate: bool = False,
    ) -> None:
        super().__init__(plan, checkpoint, name, note, watch, migrate)
        self._trigger, self._buckets, self._tell = trigger, buckets, tell
        self._handles: dict[tuple[str, ...], Handle] = {}
        self._sinks: dict[str, CountedSink] = {}
        self._counted: dict[tuple[str, ...], int] = {}
        self._worked, self._slowest = 0.0, 0.0

    def run(self) -> str:
        """Runs until everything is promised ("done"), or until it is asked to stop ("stopped")."""
        from everwhen.spark.api.launch import kept_signals
        from everwhen.spark.api.run_files import session_for
        from everwhen.spark.internals.jvm_reach import stopped_after

        with ExitStack() as stack:
            writer = stack.enter_context(self.held())
            try:
                self.say("starting", force=True)
                check = stack.enter_context(kept_signals())
                spark = stack.enter_context(session_for(self.place, check))
                stack.enter_context(stopped_after(self._stop))
                self._begin(spark, writer)
                self.confirm()
                ended = self._wait(check)
                self._stop()
                self.say(ended, force=True)
                return ended
            except BaseException as bad:
                self.say_end(bad)
                raise

    def _begin(self, spark: SparkSession, writer: str) -> None:
        from everwhen.spark.api.start import start

        sinks = self.plan.sinks
        levels: list[Consistency] = list(dict.fromkeys(sink.level for sink in sinks.values()))
        if len({sinks[name].level for name in self.changed}) > 1:
            raise QueryError(
                f"the queries of {', '.join(self.changed)} have changed, and are of several levels, which run apart "
                "from each other: change those of one level, start the job, stop it, then change the others"
            )
        (self.place / "counts").mkdir(exist_ok=True)
        for number, level in enumerate(levels):
            mine = {name: Stream(sink.node, asked=sink.asked) for name, sink in sinks.items() if sink.level == level}
            reads = set(sources_of(*(query.node for query in mine.values())))
            opened = {
                name: each.connector.on_spark(
                    each.options, self.plan.source_place(name, self.place, number), spark, f"job {self.place} {number}"
                )
                for name, each in self.plan.sources.items()
                if name in reads
            }
            for name in mine:
                sink = self.plan.open_sink(name, writer)
                if isinstance(sink, FormedSink):
                    sink = FormedSink(sink.form, sink.target, str(self.place / "forms" / name))
                self._sinks[name] = CountedSink(sink, self.place / "counts" / name)
            handle = self._handles[tuple(mine)] = start(
                mine,
                {name: each.frame for name, each in opened.items()},
                sources={name: each.source for name, each in opened.items() if each.source is not None},
                sink={name: self._sinks[name] for name in mine},
                checkpoint=self.place / f"spark-{number}",
                trigger=self._trigger,
                consistency=level,
                buckets=self._buckets,
                migrate=bool(set(self.changed) & set(mine)),
            )
            if handle.replaced_at is not None:
                self._tell(f"{self.name}: {', '.join(mine)}: another plan takes over at {show(handle.replaced_at)}")

    def _wait(self, check: Callable[[], None]) -> str:
        while True:
            check()
            self.say("running")
            if self.asked_to_stop():
                return "stopped"
            self.answer(self._explained)
            alive = False
            for handle in self._handles.values():
                alive |= not handle.await_termination(_LOOK / len(self._handles))
            if self._promised() and all(t == INF for t in self._promised().values()):
                return "done"
            if not alive:
                return "done" if self._trigger == "available" else "stopped"

    def _explained(self, word: str) -> list[tuple[str, Any]]:
        """WAITING of all queries, or ANALYZE of all that run together, as text and as plain data."""
        found: list[tuple[str, Any]] = []
        for names, handle in self._handles.items():
            if word == "waiting":
                writes = would_write({name: self._sinks[name].target for name in names})
                waits = [handle.waiting(name, writes.get(name)) for name in names]
                found += [(str(each), each.to_plain()) for each in waits]
            else:
                told = handle.analyze()
                found.append(("\n".join([f"{', '.join(names)}:", *told.lines()]), {"query": names, **told.to_plain()}))
        return found

    def _stop(self) -> None:
        for handle in self._handles.values():
            handle.stop()

    # -- words --------------------------------------------------------------------------------------------------

    def _promised(self) -> dict[str, int]:
        """Up to when each answer is final; empty as long as one has said nothing."""
        found: dict[str, int] = {}
        for names, handle in self._handles.items():
            report = handle.progress
            if report is None:
                return {}
            found |= {name: int(report.answered.get(name, NEVER)) for name in names}
        return found

    def status(self, state: str, error: str = "") -> JobStatus:
        reports = [h.progress for h in self._handles.values() if h.progress is not None]
        for names, handle in self._handles.items():
            for each in handle.recent:
                if each.epoch > self._counted.get(names, -1):
                    self._counted[names] = each.epoch
                    self._worked += each.seconds
                    self._slowest = max(self._slowest, each.seconds)
        sources, sinks = self._source_status(), self._sink_status()
        self.note_rates({n: s.rows for n, s in sources.items()}, {n: s.elements for n, s in sinks.items()})
        waiting = "; ".join(handle.waits_for() for handle in self._handles.values()) if state == "running" else ""
        return self.status_with(
            state, error, sources, sinks, epochs=max((each.epoch + 1 for each in reports), default=0),
            epoch_seconds=max((each.seconds for each in reports), default=0.0),
            slowest_epoch_seconds=self._slowest, worked=self._worked,
            checkpoint_epoch=min((each.epoch for each in reports), default=-1),
            state_rows=sum(each.state_rows for each in reports), state_bytes=sum(each.state_bytes for each in reports),
            waiting=waiting,
        )  # fmt: skip

    def _source_status(self) -> dict[str, SourceStatus]:
        found: dict[str, SourceStatus] = {}
        for name in self.plan.sources:
            rows, late, promised = 0, 0, NEVER
            for handle in self._handles.values():
                report = handle.progress
                if report is not None and name in report.progress:
                    rows = max(rows, int(report.rows_total.get(name, 0)))
                    late = max(late, int(report.late_total.get(name, 0)))
                    promised = max(promised, int(report.progress[name]))
            found[name] = self.source_status(name, rows, promised, late, promised == INF)
        return found

    def _sink_status(self) -> dict[str, SinkStatus]:
        promised = self._promised()
        found: dict[str, SinkStatus] = {}
        for name in self.plan.sinks:
            sink = self._sinks.get(name)
            counts: Mapping[str, int] = {} if sink is None else sink.counts
            said, corrections = counts.get("elements", 0), counts.get("corrections", 0)
            target = None if sink is None else sink.target
            found[name] = self.sink_status(name, target, said, corrections, promised.get(name, NEVER))
        return found
