"""What every run of a job is, whatever runs it: it holds its checkpoint, has a name for ever, and tells how it goes.

<dir>/job/        the lock: a second run is refused, with process, host and time of the first
<dir>/job.json    the job's own name, and how often it was started
<dir>/status      how it is (`status.py`)
"""

from __future__ import annotations

import json
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from everwhen.core.time import NEVER
from everwhen.core.time_axis import times_shown
from everwhen.engine.files.checkpoint import agree, note_run
from everwhen.errors import StateError
from everwhen.jobs.formed_sink import FormedSink
from everwhen.jobs.plan import JobPlan
from everwhen.jobs.questions import ANSWER, QUESTION, Tell, answer
from everwhen.jobs.status import (
    LOG,
    STATUS,
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
from everwhen.storage.blamed import blamed
from everwhen.storage.folder import LocalFolder
from everwhen.storage.lease import Lease, take_lease

_TOLD: Final = 0.5
"""Seconds between two words on how it goes."""
_EVERY_START: Final = frozenset({"job", "job.json", "run.json", LOG, STATUS, STOP, QUESTION, ANSWER})
"""What every start leaves, also one that fails before its first epoch."""
Words = Callable[[str], None]


class JobRun(ABC):
    """One run of a job at its checkpoint."""

    engine: str

    def __init__(
        self,
        plan: JobPlan,
        checkpoint: str | os.PathLike[str],
        name: str,
        note: Words,
        watch: Callable[[JobStatus], None],
        migrate: bool = False,
    ) -> None:
        self.plan, self.place, self.name = plan, Path(os.path.abspath(checkpoint)), name
        self.migrate = migrate
        """Whether queries may be others than those of the checkpoint: they take over."""
        self.restarts = 0
        self._note, self._watch = note, watch
        self._rates = Rates()
        self._started, self._told = time.time(), 0.0
        self._lease: Lease | None = None
        self.changed: list[str] = []
        """The sinks whose queries are others than those of the checkpoint, until `confirm`."""

    @contextmanager
    def held(self) -> Iterator[str]:
        """Around the run: the checkpoint is this run's alone, and of this text.  Gives the job's name for ever."""
        self._lease = take_lease(LocalFolder(str(self.place / "job")), str(self.place))
        try:
            (self.place / STOP).unlink(missing_ok=True)
            free = [f"query of {name}" for name in self.plan.sinks] if self.migrate else []
            with blamed(str(self.place), "use it as a checkpoint"):
                if self._is_untouched():
                    note_run(self.place, self._identity)
                self.changed = [name.removeprefix("query of ") for name in agree(self.place, self._identity, free)]
                writer = self._writer()
            again = f", start number {self.restarts + 1}" if self.restarts else ""
            self._note(f"{self.name}: started as process {os.getpid()}{again}")
            with times_shown(self.plan.axis):
                yield writer
        finally:
            self._lease.release()

    def _is_untouched(self) -> bool:
        """Whether no epoch was begun and nothing of a source is kept: what was started here may be corrected."""
        made = [each for each in self.place.iterdir() if each.name not in _EVERY_START]
        return not any(any(each.iterdir()) if each.is_dir() else each.stat().st_size for each in made)

    @property
    def _identity(self) -> dict[str, str]:
        return {"engine": f"{self.engine} job", **self.plan.identity(asked=self.engine == "spark")}

    def confirm(self) -> None:
        """Queries have taken over, or will: the checkpoint is that of this text from now on."""
        if self.changed:
            note_run(self.place, self._identity)
            self.changed = []

    def _writer(self) -> str:
        file = self.place / "job.json"
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.restarts, own = int(found.get("starts", 0)), str(found.get("id", uuid.uuid4().hex))
        with whole_file(file) as aside:
            aside.write_text(json.dumps({"id": own, "starts": self.restarts + 1}), encoding="utf-8")
        return own

    def asked_to_stop(self) -> bool:
        """Whether somebody has asked this run to stop."""
        assert self._lease is not None
        return asked_to_stop(self.place, self._lease.holder)

    def answer(self, tell: Tell) -> None:
        """Answer what somebody has asked this run."""
        assert self._lease is not None
        answer(self.place, self._lease.holder, tell)

    # -- words --------------------------------------------------------------------------------------------------

    @abstractmethod
    def status(self, state: str, error: str = "") -> JobStatus:
        """How the job is."""

    def say(self, state: str, *, force: bool = False, error: str = "") -> None:
        """Tell how it is, if that was not told just now."""
        now = time.monotonic()
        if not force and now - self._told < _TOLD:
            return
        self._told = now
        status = self.status(state, error)
        with blamed(str(self.place), "tell its status"):
            write_status(self.place, status)
        self._watch(status)

    def say_end(self, bad: BaseException) -> None:
        """Tell that it has ended by an error, or because it was interrupted."""
        interrupted = isinstance(bad, KeyboardInterrupt | SystemExit) or type(bad).__name__ == "_Stopped"
        with suppress(OSError, StateError):
            self.say("stopped" if interrupted else "failed", force=True, error="" if interrupted else str(bad))

    def status_with(
        self,
        state: str,
        error: str,
        sources: Mapping[str, SourceStatus],
        sinks: Mapping[str, SinkStatus],
        **figures: Any,
    ) -> JobStatus:
        """What every status says, and figures of the engine."""
        assert self._lease is not None
        holder = self._lease.holder
        return JobStatus(
            state=state, engine=self.engine, job=self.name, pid=holder.process, host=holder.host, started=self._started,
            updated=time.time(), restarts=self.restarts, sources=dict(sources), sinks=dict(sinks), error=error,
            tick=self.plan.axis.tick_text, dated=self.plan.axis.dated, **figures,
        )  # fmt: skip

    def note_rates(self, rows: Mapping[str, int], elements: Mapping[str, int]) -> None:
        """How many rows each source has brought so far, and how many elements each sink was given."""
        counts = {f"source {name}": count for name, count in rows.items()}
        self._rates.note({**counts, **{f"sink {name}": n for name, n in elements.items()}}, time.monotonic())

    def source_status(
        self, name: str, rows: int, promised: int, late: int, ended: bool, lag: int | None = None, unit: str = ""
    ) -> SourceStatus:
        """How a source is."""
        kind, rate = self.plan.sources[name].connector.name, self._rates.of(f"source {name}")
        return SourceStatus(
            kind, rows, rate, lag, unit if lag is not None else "", shown_instant(promised), late, ended
        )

    def sink_status(self, name: str, sink: EpochSink | None, said: int, corrections: int, promised: int) -> SinkStatus:
        """How a sink is."""
        each, formed = self.plan.sinks[name], sink if isinstance(sink, FormedSink) else None
        form = None if formed is None else formed.form
        return SinkStatus(
            each.connector.name, each.form, said, self._rates.of(f"sink {name}"), corrections,
            None if formed is None else formed.changed, shown_instant(promised),
            shown_instant(getattr(form, "now", NEVER)), 0 if form is None else len(form.waiting),
        )  # fmt: skip
