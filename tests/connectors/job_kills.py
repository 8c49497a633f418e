"""Jobs that are killed with SIGKILL again and again, in process or on Spark, while their inputs grow; then they end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from connectors import killed_job
from connectors.forked import forking
from everwhen.jobs.status import ask_to_stop, read_status

_PROCESSES = forking("connectors.warm_job")
BETWEEN, PLANNED, COMPUTED, WRITTEN = "between epochs", "planned", "under way", "being written"
"""Where a kill fell on Spark: nothing was under way; Spark had planned an epoch; it had begun and was not done; it was
done, and Spark did not know yet that the sinks have it."""


class Running(Protocol):
    """A run of a job in a process of its own."""

    pid: int
    early: float

    def ended(self) -> int | None: ...

    def kill(self) -> None: ...

    def aim(self, rng: random.Random, longest: float) -> None:
        """Wait for a moment to kill it, after more input was written."""
        ...

    def struck(self) -> str:
        """Where the kill fell, if that can be told."""
        ...


class InProcess:
    """A job in a forked process, where everything is loaded already.  Some are killed before they are at work."""

    early = 0.2

    def __init__(self, text: str, checkpoint: Path, every: float) -> None:
        self._process = _PROCESSES.Process(target=killed_job.run, args=(text, str(checkpoint), every))
        self._process.start()
        self.pid = self._process.pid or 0

    def ended(self) -> int | None:
        self._process.join(0.0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def aim(self, rng: random.Random, longest: float) -> None:
        time.sleep(rng.uniform(0.0, longest / 2))

    def struck(self) -> str:
        return ""


class OnSpark:
    """`everwhen start` on Spark; its JVM and workers are killed with it, most of them within an epoch."""

    early = 0.0

    def __init__(self, text: str, checkpoint: Path, every: float) -> None:
        self._checkpoint = checkpoint
        file = checkpoint.with_suffix(".sql")
        file.write_text(text, encoding="utf-8")
        words = [sys.executable, "-m", "everwhen.cli", "start", str(file), "--checkpoint", str(checkpoint)]
        self._process = subprocess.Popen(
            [*words, "--allow-unbounded"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        self.pid = self._process.pid

    def ended(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def aim(self, rng: random.Random, longest: float) -> None:
        """A moment in a phase of the next epoch, whichever is drawn."""
        wanted, until = rng.choice([PLANNED, COMPUTED, COMPUTED, WRITTEN]), time.monotonic() + 10 * longest
        while time.monotonic() < until and self.struck() != wanted and self.ended() is None:
            time.sleep(0.002)
        time.sleep(rng.choice([0.0, rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.5)]))

    def struck(self) -> str:
        found = [_under_way(each) for each in self._checkpoint.glob("spark-*")]
        return next((where for where in (WRITTEN, COMPUTED, PLANNED) if where in found), BETWEEN)


def _under_way(query: Path) -> str:
    """What the logs of Spark and of Everwhen say about the last epoch of a query."""
    planned, committed = (_last(query / "spark" / name, "") for name in ("offsets", "commits"))
    if planned == committed:
        return BETWEEN
    begun, done = (_last(query / "everwhen" / "epochs", ending) for ending in (".begun", ".done"))
    return WRITTEN if done == planned else COMPUTED if begun == planned else PLANNED


def _last(folder: Path, ending: str) -> int:
    names = [name.removesuffix(ending) for name in os.listdir(folder)] if folder.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def is_running(job: Running, checkpoint: Path) -> bool:
    """Whether a run has told that it is at work, and an epoch is behind it."""
    file = checkpoint / "status.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return bool(found.get("pid") == job.pid and found["state"] == "running" and found["epochs"])


def kill_jobs(
    start: Callable[[str, Path, float], Running],
    text: str,
    checkpoint: Path,
    kills: int,
    feed: Callable[[int], None],
    is_done: Callable[[], bool],
    longest: float,
) -> dict[str, Any]:
    """`feed(i)` writes more input: before a start, and while it runs.  Most runs are killed within `longest` seconds
    from when they are at work and have an epoch behind them, in process some within that time from their start.  At the
    end a run is let alone until `is_done`, and then stopped.  Gives what happened.  With EVERWHEN_KILL_SECONDS in the
    environment nobody is killed after that time, so there may be fewer kills."""
    rng, hits, working, struck = random.Random(kills), 0, 0, Counter[str]()
    budget = time.monotonic() + float(os.environ.get("EVERWHEN_KILL_SECONDS", "inf"))
    for i in range(kills):
        if time.monotonic() > budget:
            break
        feed(2 * i)
        job = start(text, checkpoint, rng.choice([0.0, 0.2, 5.0]))
        early, until = i and rng.random() < job.early, time.monotonic() + 300
        while not early and time.monotonic() < until and not is_running(job, checkpoint):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, longest / 2))
        feed(2 * i + 1)
        job.aim(rng, longest)
        assert job.ended() is None, f"it ended by itself: {job.ended()}"
        working += is_running(job, checkpoint)
        job.kill()
        struck[job.struck()] += 1
        hits += 1
    feed(2 * kills)
    job = start(text, checkpoint, 0.5)
    until = time.monotonic() + max(longest * 60, 300)
    while not is_done() and time.monotonic() < until:
        assert job.ended() in (None, 0), f"it ended by itself: {job.ended()}"  # with its input, if that ends
        time.sleep(0.2)
    time.sleep(1.0)  # and nothing comes twice
    _stop(checkpoint)
    while job.ended() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert job.ended() == 0
    status = read_status(checkpoint).status
    found = {"kills": hits, "at work": working, "starts": status["restarts"] + 1, "epochs": status["epochs"]}
    return found | dict(struck)


def _stop(checkpoint: Path) -> None:
    holder = read_status(checkpoint).holder
    if holder is not None:
        ask_to_stop(checkpoint, holder)
