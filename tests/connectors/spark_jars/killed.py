"""Bids for a query in a process that is killed within an epoch and started again, and what its answers have to be."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import everwhen as ew
from connectors.spark_jars.asked import BOUND, queries
from everwhen.sinks import read_changelog
from everwhen.stream.history import History
from everwhen.testing import assert_valid

BEGIN = 1_700_000_000_000
SPAN = BOUND - 5_000
"""So many milliseconds a feed covers, less than rows may be late: parts of a feed may be read in any order."""
PATIENCE = 300.0
Row = tuple[int, str, float]


class Bids(ABC):
    """Bids in no order."""

    def __init__(self, name: str) -> None:
        self.rng = random.Random(name)
        self.begin = BEGIN
        self.rows: list[Row] = []

    def feed(self, count: int = 100, later: int = 0) -> None:
        """More rows, none before those of earlier feeds, `later` than they would be."""
        self.begin += later
        times = (self.begin + self.rng.randrange(SPAN) for _ in range(count))
        self.put([(at, self.rng.choice("abcde"), float(self.rng.randrange(100))) for at in times])
        self.begin += SPAN

    @abstractmethod
    def put(self, rows: list[Row]) -> None:
        """Writes rows down where the query reads them, and adds to `rows` what is there then."""

    def answers(self) -> dict[str, History]:
        """In process, over the same rows."""
        events = [ew.Insert(at, at + 1, {"item": item, "price": price}) for at, item, price in sorted(self.rows)]
        asked = queries()
        return {name: History.of(list(ew.run(query, {"Bid": events})), query.schema) for name, query in asked.items()}


@contextmanager
def running(program: str, place: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A module of this folder in a process group of its own, which is killed at the end if it is still there."""
    paths = os.pathsep.join(path for path in sys.path if path)
    with open(place / "log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"connectors.spark_jars.{program}", *words],
            stdout=log, stderr=log, start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended(process: subprocess.Popen[bytes], place: Path) -> dict[str, Any]:
    """What the program reports in the end."""
    assert process.wait(PATIENCE) == 0, (place / "log").read_text()
    return json.loads((place / "report.json").read_text())


def epochs(place: Path) -> list[int]:
    """The epochs that are written."""
    return sorted(int(path.stem) for path in (place / "rows" / "_epochs").glob("*.json"))


def taken(place: Path) -> Counter[Row]:
    """The rows that have come through and were not taken back, by what is written."""
    found = History.of(list(read_changelog(place / "rows")), queries()["rows"].schema).multiset
    return Counter({(vs, *row): count for (vs, _, row), count in found.items()})


def until_epoch(process: subprocess.Popen[bytes], place: Path, count: int) -> None:
    """Waits until so many epochs are written."""
    end = time.monotonic() + PATIENCE
    while len(epochs(place)) < count:
        assert process.poll() is None and time.monotonic() < end, (place / "log").read_text()
        time.sleep(0.02)


def until_all(process: subprocess.Popen[bytes], place: Path, bids: Bids) -> None:
    """Waits until all rows are taken."""
    written = 1
    until_epoch(process, place, written)
    while taken(place) != Counter(bids.rows):
        written += 1  # counted before the next look, so that none is waited for that is there already
        until_epoch(process, place, written)


def same_up_to(found: History, expected: History, last: int) -> None:
    """Both say the same of every instant up to the last; of later ones a run that goes on has not spoken yet."""
    instants = {t for history in (found, expected) for start, end, _ in history.events() for t in (start, end)}
    for t in sorted(instant for instant in instants if instant <= last):
        assert found.snapshot(t) == expected.snapshot(t), t


def killed_and_started_again(program: str, place: Path, bids: Bids, more: int, *words: str) -> dict[str, Any]:
    """Driver and JVM are killed with `more` rows to read, two epochs into them; what is written in the end is what
    the query answers in process.  Returns what the program reports."""
    bids.feed()
    with running(program, place, *words) as process:
        until_all(process, place, bids)
        bids.feed(more)
        until_epoch(process, place, len(epochs(place)) + 2)
        time.sleep(0.15)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    killed_at = len(epochs(place))
    planned, done = (len(list((place / "checkpoint" / "spark" / log).glob("[0-9]*"))) for log in ("offsets", "commits"))
    assert taken(place) != Counter(bids.rows), "it was killed too late: nothing was left to read"
    with running(program, place, *words) as process:
        until_all(process, place, bids)
        bids.feed(10, later=3_600_000)  # all before is final
        until_all(process, place, bids)
        (place / "stop").touch()
        report = ended(process, place)
    count = len(epochs(place))
    print(report["spark"], f"killed with {killed_at} of {count} epochs written,", planned, "planned,", done, "done")
    assert not any(report["late"].values())
    assert epochs(place) == list(range(count))
    assert taken(place) == Counter(bids.rows)
    for name, expected in bids.answers().items():
        found = list(read_changelog(place / name))
        assert_valid(found)
        same_up_to(History.of(found, queries()[name].schema), expected, max(bids.rows)[0])
    return report
