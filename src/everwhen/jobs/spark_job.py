"""A job on Spark: each source is a streaming DataFrame, queries of one level are one streaming query.

Exactly once as `ew.spark.start` is: the epochs of its log are repeated after a crash, and sinks know which they have.
The state of a form is kept beside the checkpoint (`formed_sink.py`).

    <dir>/spark-<n>     the checkpoint of the n-th level
    <dir>/forms/<sink>  the state of its form
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from everwhen.algebra.nodes import Source, walk
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.checkpoint import agree
from everwhen.jobs.formed_sink import FormedSink
from everwhen.jobs.plan import JobPlan
from everwhen.jobs.status import (
    STOP,
    JobStatus,
    Rates,
    SinkStatus,
    SourceStatus,
    asked_to_stop,
    shown_instant,
    write_status,
)
from everwhen.sinks.base import EpochSink
from everwhen.storage.atomic_file import whole_file
from everwhen.storage.folder import LocalFolder
from everwhen.storage.lease import Lease, take_lease
from everwhen.stream.element_batch import ADJUST, ElementBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from everwhen.spark.api.handle import Handle

_LOOK: Final = 0.1
_TOLD: Final = 0.5


class CountedSink(EpochSink):
    """A sink that counts what it is given: elements and corrections, since the job was first started."""

    def __init__(self, target: EpochSink, note: Path) -> None:
        self.target, self._note = target, note
        self.lasting = target.lasting  # type: ignore[misc]  # as its target
        self.counts: Counter[str] = Counter()
        self._last = -1

    def resume(self, published: int) -> None:
        self.target.resume(published)

    def prepare(self, schema: Schema) -> None:
        if self._note.exists():
            found = json.loads(self._note.read_text(encoding="utf-8"))
            self._last = found.pop("epoch")
            self.counts = Counter(found)
        self.target.prepare(schema)

    def committed(self) -> int:
        return self.target.committed()

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        self.target.commit(epoch, batch)
        if epoch > self._last:
            self.counts += Counter(elements=len(batch), corrections=int(np.count_nonzero(batch.op == ADJUST)))
            self._last = epoch
            with whole_file(self._note) as aside:
                aside.write_text(json.dumps({**self.counts, "epoch": epoch}), encoding="utf-8")

    def close(self) -> None:
        self.target.close()


class SparkJob:
    """One run of a job at its checkpoint, on the Spark session there is, or a new one."""

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
    ) -> None:
        self.plan, self.place, self.name = plan, Path(os.path.abspath(checkpoint)), name
        self._trigger, self._buckets, self._watch = trigger, buckets, watch
        self._tell, self._note = tell, note
        self.restarts = 0
        self._handles: dict[tuple[str, ...], Handle] = {}
        self._sinks: dict[str, CountedSink] = {}
        self._rates = Rates()
        self._started, self._told = time.time(), 0.0
        self._lease: Lease | None = None

    def run(self) -> str:
        """Runs until everything is promised ("done"), or until it is asked to stop ("stopped")."""
        from everwhen.spark.api.launch import kept_signals
        from everwhen.spark.api.run_files import session_for

        with ExitStack() as stack:
            self._lease = take_lease(LocalFolder(str(self.place / "job")), str(self.place))
            stack.callback(self._lease.release)
            (self.place / STOP).unlink(missing_ok=True)
            agree(self.place, {"engine": "spark job", **self.plan.identity()})
            writer = self._writer()
            again = f", start number {self.restarts + 1}" if self.restarts else ""
            self._note(f"{self.name}: started as process {os.getpid()}{again}")
            try:
                self._say("starting", force=True)
                check = stack.enter_context(kept_signals())
                spark = stack.enter_context(session_for(self.place, check))
                stack.callback(self._stop)
                self._begin(spark, writer)
                ended = self._wait(check)
                self._stop()
                self._say(ended, force=True)
                return ended
            except BaseException as bad:
                interrupted = isinstance(bad, KeyboardInterrupt | SystemExit)
                with suppress(OSError):
                    self._say("stopped" if interrupted else "failed", force=True, error="" if interrupted else str(bad))
                raise

    def _writer(self) -> str:
        file = self.place / "job.json"
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.restarts, own = int(found.get("starts", 0)), str(found.get("id", uuid.uuid4().hex))
        with whole_file(file) as aside:
            aside.write_text(json.dumps({"id": own, "starts": self.restarts + 1}), encoding="utf-8")
        return own

    def _begin(self, spark: SparkSession, writer: str) -> None:
        from everwhen.connectors.spark_bridge import spark_input
        from everwhen.spark.api.start import start

        sinks = self.plan.sinks
        levels: list[Consistency] = list(dict.fromkeys(sink.level for sink in sinks.values()))
        (self.place / "counts").mkdir(exist_ok=True)
        for number, level in enumerate(levels):
            mine = {name: sink.node for name, sink in sinks.items() if sink.level == level}
            reads = {each.name for each in walk(*mine.values()) if isinstance(each, Source)}
            opened = {
                name: spark_input(each.connector, each.options, each.place, spark, f"job {self.place} {number}")
                for name, each in self.plan.sources.items()
                if name in reads
            }
            for name in mine:
                sink = self.plan.open_sink(name, writer)
                if isinstance(sink, FormedSink):
                    sink = FormedSink(sink.form, sink.target, str(self.place / "forms" / name))
                self._sinks[name] = CountedSink(sink, self.place / "counts" / name)
            self._handles[tuple(mine)] = start(
                mine,
                {name: each.frame for name, each in opened.items()},
                sources={name: each.source for name, each in opened.items() if each.source is not None},
                sink={name: self._sinks[name] for name in mine},
                checkpoint=self.place / f"spark-{number}",
                trigger=self._trigger,
                consistency=level,
                buckets=self._buckets,
            )

    def _wait(self, check: Callable[[], None]) -> str:
        assert self._lease is not None
        while True:
            check()
            self._say("running")
            if asked_to_stop(self.place, self._lease.holder):
                return "stopped"
            alive = False
            for handle in self._handles.values():
                alive |= not handle.await_termination(_LOOK / len(self._handles))
            if self._promised() and all(t == INF for t in self._promised().values()):
                return "done"
            if not alive:
                return "done" if self._trigger == "available" else "stopped"

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

    def _say(self, state: str, *, force: bool = False, error: str = "") -> None:
        now = time.monotonic()
        if not force and now - self._told < _TOLD:
            return
        self._told = now
        status = self.status(state, error)
        write_status(self.place, status)
        self._watch(status)

    def status(self, state: str, error: str = "") -> JobStatus:
        """How the job is."""
        assert self._lease is not None
        holder, reports = self._lease.holder, [h.progress for h in self._handles.values() if h.progress is not None]
        recent = [each.seconds for handle in self._handles.values() for each in handle.recent]
        sources, sinks = self._source_status(), self._sink_status()
        counts: Mapping[str, int] = {f"source {n}": s.rows for n, s in sources.items()}
        self._rates.note({**counts, **{f"sink {n}": s.elements for n, s in sinks.items()}}, time.monotonic())
        waiting = "; ".join(handle.waiting() for handle in self._handles.values()) if state == "running" else ""
        return JobStatus(
            state=state, engine="spark", job=self.name, pid=holder.process, host=holder.host, started=self._started,
            updated=time.time(), epochs=max((each.epoch + 1 for each in reports), default=0),
            epoch_seconds=max((each.seconds for each in reports), default=0.0),
            slowest_epoch_seconds=max(recent, default=0.0),
            checkpoint_epoch=min((each.epoch for each in reports), default=-1), restarts=self.restarts,
            state_rows=sum(each.state_rows for each in reports), state_bytes=sum(each.state_bytes for each in reports),
            sources=sources, sinks=sinks, waiting=waiting, error=error,
        )  # fmt: skip

    def _source_status(self) -> dict[str, SourceStatus]:
        found: dict[str, SourceStatus] = {}
        for name, each in self.plan.sources.items():
            rows, late, promised = 0, 0, NEVER
            for handle in self._handles.values():
                report = handle.progress
                if report is not None and name in report.progress:
                    rows = max(rows, int(report.rows_total.get(name, 0)))
                    late = max(late, int(report.late_total.get(name, 0)))
                    promised = max(promised, int(report.progress[name]))
            found[name] = SourceStatus(
                each.connector.name, rows, self._rates.of(f"source {name}"), None, "", shown_instant(promised), late,
                promised == INF,
            )  # fmt: skip
        return found

    def _sink_status(self) -> dict[str, SinkStatus]:
        promised = self._promised()
        found: dict[str, SinkStatus] = {}
        for name, each in self.plan.sinks.items():
            sink = self._sinks.get(name)
            counts: Mapping[str, int] = {} if sink is None else sink.counts
            formed = sink.target if sink is not None and isinstance(sink.target, FormedSink) else None
            form: Any = None if formed is None else formed.form
            found[name] = SinkStatus(
                each.connector.name, each.form, counts.get("elements", 0), self._rates.of(f"sink {name}"),
                counts.get("corrections", 0), None if formed is None else formed.changed,
                shown_instant(promised.get(name, NEVER)), shown_instant(getattr(form, "now", NEVER)),
                0 if form is None else len(form.waiting),
            )  # fmt: skip
        return found
