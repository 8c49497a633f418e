"""Ctrl-C and SIGTERM take effect within a moment, also while a compiled loop runs."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everwhen.containers import live_runs as live
from everwhen.engine import interruption
from everwhen.engine.interruption import Abandoned, apart, interruptible
from everwhen.engine.session.sql_session import SqlSession
from everwhen.operators.join.loops import group_join, join, pairs
from everwhen.shell.input import Feeds
from everwhen.shell.session import Shell
from everwhen.storage import atomic_file as publish
from everwhen.stream.element_batch import ElementBatch
from example_counts import sampled_pairs

SOURCES = Path(__file__).parents[2] / "src"

SLOW = """
# A run whose step is one compiled loop of a minute, and some of whose answer is written already.
import sys, time
import numpy as np
from everwhen.compiled.njit import loop
from everwhen.engine.local import LocalRuntime

@loop
def spin(state, times):
    for i in range(times):
        state[0] = (state[0] * 6364136223846793005 + 1442695040888963407) ^ i

ready = sys.argv.pop(1)
state = np.ones(1, np.uint64)
spin(state, 1)
pushed = LocalRuntime.push
epochs = []

def push(self, *given, **named):
    found = pushed(self, *given, **named)
    epochs.append(1)
    if len(epochs) == 3:
        open(ready, "w").close()
        spin(state, 30_000_000_000)
    return found

LocalRuntime.push = push
from everwhen.cli.program import main
sys.exit(main())
"""


@contextmanager
def slow_run(place: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run in the middle of its long step."""
    (place / "slow.py").write_text(SLOW)
    (place / "q.sql").write_text("SELECT x FROM S")
    (place / "s.jsonl").write_text("".join(f'{{"vs":{i},"row":{{"x":{i}}}}}\n' for i in range(100)))
    command = [sys.executable, "slow.py", "ready", "run", "q.sql", "--in", "S=s.jsonl", "--engine", "local"]
    (place / "tmp").mkdir(exist_ok=True)
    (place / "ready").unlink(missing_ok=True)
    with subprocess.Popen(
        [*command, "--batch", "10", *options],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCES), "TMPDIR": str(place / "tmp")},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # tests in the background ignore it
    ) as process:
        try:
            wait_until(place / "ready", process)
            yield process
        finally:
            process.kill()


def wait_until(ready: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
        time.sleep(0.05)
    time.sleep(0.2)


def ends(process: subprocess.Popen[str], asked: signal.Signals) -> tuple[int, str, str, float]:
    began = time.monotonic()
    process.send_signal(asked)
    out, said = process.communicate(timeout=30)
    return process.returncode, out, said, time.monotonic() - began


@pytest.mark.parametrize(
    ("target", "asked"), sampled_pairs(["out.jsonl", "out.parquet", "-"], [signal.SIGINT, signal.SIGTERM])
)
def test_a_run_is_interrupted_within_a_compiled_loop(tmp_path: Path, asked: signal.Signals, target: str) -> None:
    status = {signal.SIGINT: 130, signal.SIGTERM: 143}[asked]
    with slow_run(tmp_path, "--out", target) as process:
        found, out, said, seconds = ends(process, asked)
    assert (found, out) == (status, "")
    kept = "" if target == "-" else "; the output is as it was"
    assert said == f"everwhen: interrupted{kept}\n"
    assert seconds < 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [
        "q.sql", "ready", "s.jsonl", "slow.py", "tmp",
    ]  # fmt: skip
    assert not list((tmp_path / "tmp").iterdir())


def test_a_checkpoint_is_free_after_an_interruption(tmp_path: Path) -> None:
    with slow_run(tmp_path, "--out", "out.jsonl", "--checkpoint", "state") as process:
        assert ends(process, signal.SIGINT)[0] == 130
    with slow_run(tmp_path, "--out", "out.jsonl", "--checkpoint", "state") as process:
        found, _, said, _ = ends(process, signal.SIGINT)
    assert found == 130
    words = "interrupted; the output is as it was; the same command goes on from the checkpoint"
    assert said == f"everwhen: {words}\n", "nor had anybody left it behind"


# -- the parts --------------------------------------------------------------------------------------------------------


def test_work_between_whose_pieces_it_is_asked_ends_by_itself() -> None:
    begun = threading.Event()

    def work(check: Callable[[], None]) -> None:
        begun.set()
        while True:
            check()
            time.sleep(0.01)

    for asked, kind in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
        begun.clear()
        handler = signal.getsignal(asked)
        threading.Thread(target=lambda asked=asked: begun.wait() and os.kill(os.getpid(), asked)).start()
        with pytest.raises(kind) as caught:
            interruptible(work)
        assert not isinstance(caught.value, Abandoned)
        assert signal.getsignal(asked) is handler


def test_what_work_returns_and_raises() -> None:
    assert interruptible(lambda check: 7) == 7
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda check: 1 // 0)


def test_work_that_is_given_up_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_ABANDONED", threading.Event())
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        try:
            with publish.directory_aside() as aside, publish.whole_file(tmp_path / "out") as part:
                (aside / "spool").write_text("half")
                part.write_text("half")
                begun.set()
                go_on.wait(10)
        finally:
            ended.set()

    with pytest.raises(Abandoned) as caught:
        apart(work, lambda: 130 if begun.is_set() else None)
    assert caught.value.status == 130
    assert not list(tmp_path.iterdir()) and publish._UNFINISHED
    go_on.set()
    assert ended.wait(10)
    assert not list(tmp_path.iterdir()), "nor later"
    assert interruption._GRACE < 1


def test_loops_that_may_run_for_long_give_up_the_lock() -> None:
    for kernel in (join.probe, join.probe_band, group_join.evaluate, live.pairs, pairs.overlap):
        assert kernel.targetoptions.get("nogil"), kernel.py_func.__name__


# -- the shell --------------------------------------------------------------------------------------------------------


def test_a_script_of_the_shell_is_interrupted_within_a_compiled_loop(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        SLOW.replace("LocalRuntime", "Session").replace("engine.local", "engine.session.session")
    )
    (tmp_path / "s.jsonl").write_text("".join(f'{{"vs":{i},"row":{{"x":{i}}}}}\n' for i in range(100)))
    with subprocess.Popen(
        [sys.executable, "slow.py", "ready", "shell", "--in", "S=s.jsonl", "--batch", "10"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write("CREATE STREAM S (x BIGINT); SELECT x FROM S;\n\\run\n")
            process.stdin.flush()
            wait_until(tmp_path / "ready", process)
            found, _, said, seconds = ends(process, signal.SIGINT)
        finally:
            process.kill()
    assert found == 130 and "Traceback" not in said
    assert seconds < 2


def test_at_a_terminal_a_second_one_leaves_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_ABANDONED", threading.Event())
    out, ended = io.StringIO(), threading.Event()
    shell = Shell(SqlSession(), Feeds(), out, is_live=True)

    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        until = time.monotonic() + 20
        while "once more" not in out.getvalue() and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    def step() -> dict[str, ElementBatch]:
        threading.Thread(target=press).start()
        ended.wait(30)
        return {}

    def epoch() -> None:
        shell._stepped(step)

    with pytest.raises(Abandoned) as caught, shell.interruptible():
        shell.tried(epoch)
    ended.set()
    assert caught.value.status == 130
    assert "an epoch is under way, which takes long; Ctrl-C once more leaves the shell" in out.getvalue()
