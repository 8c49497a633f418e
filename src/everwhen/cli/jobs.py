"""`start`, `status`, `stop`, `logs`: a text of sources and sinks as a job, by the directory of its checkpoint."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from everwhen.cli.command import (
    DONE,
    FAILED,
    Command,
    Interrupted,
    count_of,
    count_option,
    fail,
    note,
    tick_option,
    warn,
)
from everwhen.cli.query import query_text
from everwhen.engine.interruption import interruptible
from everwhen.errors import InUseError, QueryError, StateError

if TYPE_CHECKING:
    from everwhen.jobs.status import JobLog

_STARTING: Final = 120.0
"""Seconds that a job in the background has to come up; Spark takes long."""
_STOPPING: Final = 60.0


def _declare_start(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "job",
        metavar="JOB.sql",
        help="the job: CREATE STREAM … SOURCE, CREATE SINK, INSERT INTO; - is the standard input",
    )
    add(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help="keep state here; the same command goes on after it was killed",
    )
    add("--engine", choices=("spark", "local"), default="spark", help="what runs it: Spark (default), or this process")
    add("--detach", action="store_true", help="run in the background; see status, logs and stop")
    add(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve metrics for Prometheus there; on this machine only unless a host is given",
    )
    add("--operators", action="store_true", help="with --engine local, figures of each operator in status and metrics")
    add("--batch", metavar="N", type=count_option, default=10_000, help="elements of each source in turn (10000)")
    add(
        "--buckets",
        metavar="N",
        type=count_of("partitions"),
        help="with --engine spark, partitions of the state; another number than before moves it to that many",
    )
    add(
        "--migrate",
        action="store_true",
        help="queries of the text may be others than those of the checkpoint, with the same columns: they take over",
    )
    add("--tick", metavar="LENGTH", type=tick_option, default="1ms", help="how long a tick is (default 1ms)")
    add("--allow-unbounded", action="store_true", help="run queries whose state nothing bounds")


def _start(options: argparse.Namespace) -> int:
    from everwhen.jobs.plan import job_plan

    if options.detach and options.job == "-":
        raise QueryError("a job in the background is read from a file, not from the standard input")
    if options.buckets is not None and options.engine != "spark":
        raise QueryError("--buckets spreads state over partitions, which only Spark has: leave one of them out")
    plan = job_plan(query_text(options.job), options.tick, unbounded=options.allow_unbounded)
    if options.detach:
        return _detached(options)
    from everwhen.jobs.metrics import serving
    from everwhen.jobs.status import JobLog

    place = Path(options.checkpoint)
    place.mkdir(parents=True, exist_ok=True)
    tell = JobLog(place, note)
    for each in (*plan.grows, *plan.alone):
        warn(each)
    name = Path(options.job).name
    with serving(options.metrics, tell) as watch:
        if options.engine == "local":
            from everwhen.jobs.local_job import LocalJob

            def work(check: Callable[[], None]) -> str:
                job = LocalJob(
                    plan,
                    place,
                    name=name,
                    batch=options.batch,
                    operators=options.operators,
                    tell=tell,
                    note=tell.quietly,
                    check=check,
                    watch=watch,
                    migrate=options.migrate,
                )
                return job.run()

            ended = _logged(tell, name, lambda: interruptible(work))
        else:
            from everwhen.spark import require_pyspark

            require_pyspark()
            from everwhen.jobs.spark_job import SparkJob  # it brings Spark along

            spark_job = SparkJob(
                plan, place, name=name, buckets=options.buckets, tell=tell, note=tell.quietly, watch=watch,
                migrate=options.migrate,
            )  # fmt: skip
            ended = _logged(tell, name, spark_job.run)
    sys.stderr.write(f"everwhen: {name}: {ended}\n")
    return DONE


def _logged(tell: JobLog, name: str, work: Callable[[], str]) -> str:
    """What ended a job stands in its log; a job that was refused has none."""
    quiet = tell.quietly
    try:
        ended = work()
    except (KeyboardInterrupt, SystemExit) as stop:
        quiet(f"{name}: stopped")
        raise Interrupted(f"{name}: stopped; started again, it goes on", stop) from None
    except InUseError:
        raise
    except Exception as bad:
        quiet(f"{name}: failed: {bad}")
        raise
    quiet(f"{name}: {ended}")
    return ended


def _detached(options: argparse.Namespace) -> int:
    """The same command in a process of its own, which has come up when this returns."""
    from everwhen.jobs.status import LOG, read_status

    place = Path(options.checkpoint)
    place.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "everwhen.cli", "start", options.job, "--checkpoint", options.checkpoint]
    words += ["--engine", options.engine, "--batch", str(options.batch), "--tick", options.tick]
    words += ["--metrics", options.metrics] if options.metrics else []
    words += ["--operators"] if options.operators else []
    words += ["--buckets", str(options.buckets)] if options.buckets is not None else []
    words += ["--allow-unbounded"] if options.allow_unbounded else []
    words += ["--migrate"] if options.migrate else []
    with open(place / LOG, "ab") as log:
        begin = log.tell()
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "EVERWHEN_DETACHED": "1"},
        )  # fmt: skip
    until = time.monotonic() + _STARTING
    while child.poll() is None and time.monotonic() < until:
        try:
            found = read_status(place).status
        except StateError:
            found = {}
        if found.get("pid") == child.pid and found.get("state") not in (None, "starting", "failed"):
            break  # who has failed ends by itself, with its status
        time.sleep(0.05)
    if child.poll() not in (None, DONE):
        with open(place / LOG, "rb") as file:
            file.seek(begin)
            lines = file.read().decode(errors="replace").splitlines(keepends=True)
        last = next((at for at, line in enumerate(lines) if line.startswith("everwhen: ")), 0)  # the job's own lines
        sys.stderr.writelines(lines[last:])
        return int(child.returncode)
    child.returncode = DONE  # from here on it is on its own
    sys.stdout.write(f"started process {child.pid}; everwhen status {options.checkpoint}\n")
    return DONE


# -- status ------------------------------------------------------------------------------------------------------------


def _declare_status(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="DIR", nargs="?", default=".", help="a checkpoint, or a directory of them"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, a line per job")
    parser.add_argument("--waiting", action="store_true", help="also ask it why its queries say nothing")
    parser.add_argument("--analyze", action="store_true", help="also ask it what its operators did")


def _status(options: argparse.Namespace) -> int:
    from everwhen.jobs.questions import WORDS, ask
    from everwhen.jobs.status import jobs_in, read_status
    from everwhen.jobs.status_view import status_text

    places = jobs_in(options.checkpoint)
    if not places:
        read_status(options.checkpoint)  # says that there is none
    for place in places:
        found = read_status(place)
        words = [word for word in WORDS if getattr(options, word)]
        told = ask(place, found.holder, words) if words and found.holder is not None else {}
        text = json.dumps({**found.to_plain(), **{word: told[word]["data"] for word in told}}, ensure_ascii=False)
        if not options.json:
            silent = [f"  it does not run, so it cannot be asked ({', '.join(words)})"] if words and not told else []
            text = "\n".join([status_text(found), *silent, *(line for word in told for line in told[word]["text"])])
        sys.stdout.write(text + "\n")
    return DONE


# -- stop --------------------------------------------------------------------------------------------------------------


def _declare_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="DIR", help="the checkpoint of the job")


def _stop(options: argparse.Namespace) -> int:
    from everwhen.jobs.status import ask_to_stop, read_status

    found = read_status(options.checkpoint)
    if found.holder is None:
        sys.stdout.write(f"not running ({found.state})\n")
        return DONE
    ask_to_stop(Path(options.checkpoint), found.holder)
    until = time.monotonic() + _STOPPING
    while time.monotonic() < until:
        now = read_status(options.checkpoint)
        if now.holder is None or now.holder.id != found.holder.id:
            sys.stdout.write(f"{now.state}\n")
            return DONE
        time.sleep(0.02)
    return fail(f"{found.holder} has not stopped within {_STOPPING:g} seconds; it was asked to", FAILED)


# -- logs --------------------------------------------------------------------------------------------------------------


def _declare_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="DIR", help="the checkpoint of the job")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")


def _logs(options: argparse.Namespace) -> int:
    from everwhen.jobs.status import LOG, read_status

    place = Path(options.checkpoint)
    if not (place / LOG).exists():
        raise StateError(f"{place}: there is no log; is it the directory that --checkpoint named?")
    with open(place / LOG, "rb") as file:
        while True:
            running = options.follow and read_status(place).holder is not None
            while piece := file.read(1 << 16):
                sys.stdout.write(piece.decode(errors="replace"))
            sys.stdout.flush()
            if not running:
                return DONE
            time.sleep(0.1)


START: Final = Command(
    "start",
    "Start a job: a text of streams with their sources, sinks, and what is written to them. It runs until everything "
    "is promised or it is stopped. The same command goes on where it was, exactly once, also after it was killed.",
    (
        "everwhen start best.sql --checkpoint state --engine local",
        "everwhen start best.sql --checkpoint state --detach --metrics 9100",
    ),
    _declare_start,
    _start,
)
STATUS: Final = Command(
    "status",
    "How a job is: rows and rates of its sources and sinks, lag, state, corrections, what it waits for.",
    ("everwhen status state", "everwhen status state --json", "everwhen status state --waiting"),
    _declare_status,
    _status,
)
STOP: Final = Command(
    "stop",
    "Stop a job between two epochs. Started again with its checkpoint, it goes on.",
    ("everwhen stop state",),
    _declare_stop,
    _stop,
)
LOGS: Final = Command(
    "logs", "What a job has told.", ("everwhen logs state -f",), _declare_logs, _logs
)  # fmt: skip
COMMANDS: Final = (START, STATUS, STOP, LOGS)
