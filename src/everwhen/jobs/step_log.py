"""The log of a job in process: which steps an epoch was made of, written down before any sink has the epoch.

    <dir>/steps-<n>.jsonl    the epochs after the state n, a line each

A line that is not whole is of an epoch that no sink has seen: it is left out, and written over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from everwhen.errors import StateError
from everwhen.storage.blamed import blamed


@dataclass(frozen=True)
class LoggedEpoch:
    """An epoch: its steps as plain data, and how many elements were said to each sink."""

    epoch: int
    steps: list[dict[str, Any]]
    said: dict[str, int]


class StepLog:
    """The newest file is appended to; `cut` begins another one, and the old ones go."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._file: IO[bytes] | None = None

    def after(self, epoch: int) -> Iterator[LoggedEpoch]:
        """The epochs after one, in order; and what is written next stands behind them."""
        name = self._name(epoch)
        data = name.read_bytes() if name.exists() else b""
        whole = data.rfind(b"\n") + 1
        expected = epoch + 1
        for line in data[:whole].splitlines():
            try:
                found = LoggedEpoch(**json.loads(line))
            except (ValueError, TypeError) as bad:
                raise StateError(f"{name} cannot be read: {bad}; restore it, or begin with a new checkpoint") from None
            if found.epoch != expected:
                raise StateError(f"{name}: epoch {expected} is missing; restore it, or begin with a new checkpoint")
            expected += 1
            yield found
        self._begin(epoch, whole)

    def begun(self) -> bool:
        """Whether there is an epoch before any state was kept."""
        name = self._name(-1)
        return name.exists() and b"\n" in name.read_bytes()

    def _begin(self, epoch: int, length: int = 0) -> None:
        self.close()
        name = self._name(epoch)
        name.touch()
        os.truncate(name, length)
        self._file = open(name, "ab", buffering=0)  # noqa: SIM115 - for as long as the job runs

    def add(self, logged: LoggedEpoch) -> None:
        """Write an epoch down; when this returns it is on the disk."""
        assert self._file is not None
        text = json.dumps({"epoch": logged.epoch, "steps": logged.steps, "said": logged.said}, separators=(",", ":"))
        rest = text.encode() + b"\n"
        with blamed(str(self._place), "note an epoch"):
            while rest:  # a disk that becomes full takes a part
                rest = rest[self._file.write(rest) or 0 :]
            os.fsync(self._file.fileno())

    def cut(self, epoch: int) -> None:
        """The state after an epoch is kept, so what led to it goes."""
        self._begin(epoch)
        for old in self._place.glob("steps-*.jsonl"):
            if old != self._name(epoch):
                old.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _name(self, epoch: int) -> Path:
        return self._place / f"steps-{epoch + 1:09d}.jsonl"
