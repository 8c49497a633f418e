"""What a job tells of itself: a file beside its checkpoint, which others read, and the request to stop.

    <dir>/status.json    what the job does, written anew every half second
    <dir>/stop           the request to stop; the job looks for it several times a second
    <dir>/log            what the job has told

Counts are totals since the job was first started, restarts included; rates are of the last seconds.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from everwhen.core.time import INF, NEVER
from everwhen.errors import StateError
from everwhen.storage.atomic_file import whole_file
from everwhen.storage.folder import path_name
from everwhen.storage.lease import Holder, held_by

STATUS: Final = "status.json"
STOP: Final = "stop"
LOG: Final = "log"
LATE_ROWS: Final = "late"
_WINDOW: Final = 10.0
"""Rates are averages over so many seconds."""


@dataclass(frozen=True)
class SourceStatus:
    """A source: rows taken (inserts and adjusts) in total and per second, how much is there and not taken yet, what it
    has promised."""

    connector: str
    rows: int
    rows_per_second: float
    lag: int | None
    lag_unit: str
    promised: int | None
    late: int
    ended: bool


@dataclass(frozen=True)
class SinkStatus:
    """A sink: elements said, corrections among them, rows written in its form, and up to when the answer is final."""

    connector: str
    form: str
    elements: int
    elements_per_second: float
    corrections: int
    written: int | None
    final: int | None
    now: int | None
    waiting_rows: int


@dataclass(frozen=True)
class OperatorStatus:
    """An operator, on request: rows in and out since this start, what it keeps."""

    name: str
    rows_in: int
    rows_out: int
    state_rows: int
    state_bytes: int
    final: int | None


@dataclass(frozen=True)
class JobStatus:
    """A job.  `state`: starting, running, stopped, done or failed.  Times of streams are ticks; null: nothing is
    promised yet; "inf": everything is.  `tick`: how long one is; `dated`: to people they are timestamps."""

    state: str
    engine: str
    job: str
    pid: int
    host: str
    started: float
    updated: float
    epochs: int
    epoch_seconds: float
    slowest_epoch_seconds: float
    checkpoint_epoch: int
    restarts: int
    state_rows: int
    state_bytes: int
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    sinks: Mapping[str, SinkStatus] = field(default_factory=dict)
    waiting: str = ""
    error: str = ""
    operators: Sequence[OperatorStatus] = ()
    worked: float = 0.0
    """Seconds that all epochs since this start took."""
    tick: str = "1ms"
    dated: bool = False

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def shown_instant(t: int) -> Any:
    """An instant as JSON has it: null before everything, "inf" after it."""
    return None if t == NEVER else "inf" if t == INF else t


class Rates:
    """Counts by name over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def note(self, counts: Mapping[str, int], now: float) -> None:
        self._seen.append((now, dict(counts)))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()

    def of(self, name: str) -> float:
        """Per second."""
        if len(self._seen) < 2:
            return 0.0
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after.get(name, 0) - before.get(name, 0)) / max(last - first, 1e-9)


def write_status(place: Path, status: JobStatus) -> None:
    with whole_file(place / STATUS) as aside:
        aside.write_text(json.dumps(status.to_plain(), ensure_ascii=False), encoding="utf-8")


@dataclass(frozen=True)
class Found:
    """What is found at a checkpoint: the last status, and who holds it now, if anybody does."""

    place: str
    status: dict[str, Any]
    holder: Holder | None

    @property
    def state(self) -> str:
        """How the job is: what it said last, unless it is gone without a word."""
        said = str(self.status.get("state", "unknown"))
        return "killed" if self.holder is None and said in ("starting", "running") else said

    def to_plain(self) -> dict[str, Any]:
        return {**self.status, "checkpoint": self.place, "state": self.state}


def read_status(place: str | os.PathLike[str]) -> Found:
    """The status of the job of a checkpoint; `StateError` if there is none."""
    folder = Path(place)
    file = folder / STATUS
    if not file.exists():
        raise StateError(f"{folder}: there is no job (no {STATUS}); is it the directory that --checkpoint named?")
    try:
        return Found(str(folder), json.loads(file.read_text(encoding="utf-8")), held_by(folder / "job"))
    except ValueError as bad:
        raise StateError(f"{file} cannot be read: {bad}") from None


def jobs_in(place: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints of jobs in a directory, itself included."""
    folder = Path(place)
    below = sorted(each.parent for each in folder.glob(f"*/{STATUS}")) if folder.is_dir() else []
    return [*([folder] if (folder / STATUS).exists() else []), *below]


def late_rows_file(place: Path, source: str) -> Path:
    """Where a job in process keeps the rows of a source that came too late, as JSON lines."""
    return place / LATE_ROWS / f"{path_name(source)}.jsonl"


def late_rows_files(place: Path, source: str) -> list[Path]:
    """The files with the rows of a source that came too late: of a job in process one, on Spark one or more per epoch
    and level."""
    own = late_rows_file(place, source)
    parts = place.glob(f"spark-*/everwhen/late/{path_name(source)}/epoch=*/*.parquet")
    by_epoch = sorted(parts, key=lambda each: (each.parts[-5], int(each.parent.name.removeprefix("epoch=")), each.name))
    return [*([own] if own.exists() else []), *by_epoch]


def ask_to_stop(place: Path, holder: Holder) -> None:
    """Leave the request for the run that holds the checkpoint now."""
    with whole_file(place / STOP) as aside:
        aside.write_text(holder.id, encoding="utf-8")


def asked_to_stop(place: Path, holder: Holder) -> bool:
    """Whether this run was asked to stop."""
    try:
        return (place / STOP).read_text(encoding="utf-8").strip() == holder.id
    except OSError:
        return False


class JobLog:
    """What a job tells, in its log and to whoever is there."""

    def __init__(self, place: Path, also: Callable[[str], None] | None = None) -> None:
        self.place = place
        self._file = place / LOG
        self._also = also

    def __call__(self, words: str) -> None:
        if self._also is not None:
            self._also(words)
        if os.environ.get("EVERWHEN_DETACHED") != "1":  # then what is told goes there anyway
            self.quietly(words)

    def quietly(self, words: str) -> None:
        """In the log only.  A log that cannot be written ends no job, and hides no error of one."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with suppress(OSError), open(self._file, "a", encoding="utf-8") as file:
            file.write(f"{stamp} {words}\n")
