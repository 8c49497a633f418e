"""Partitions stay where their state is, and nothing is lost where they cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from everwhen.spark.worker import owner_rpc
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.owner_rpc import StateServer, ask
from everwhen.spark.worker.state_host import StateHost, StateSpec, _Owned
from spark.fault_driver import SOURCES, epochs, go_on
from spark.spark_epochs import write_epochs

ROWS = pa.table({"x": pa.array(range(300_000), pa.int64()), "s": pa.array(["a", None, "ccc"] * 100_000)})

NEIGHBOUR = """
import os, sys, time
from pathlib import Path
import pyarrow as pa
from everwhen.spark.worker.owner_rpc import StateServer

def agrees(words):
    def answer(rows):
        yield pa.record_batch({"n": [rows.num_rows], "of": [words["of"]]})
        if words["do"] == "die":
            os._exit(1)
        if words["do"] == "fail":
            raise RuntimeError("whatever")
        if words["do"] == "work":
            until = time.monotonic() + 2
            while time.monotonic() < until:
                pass
        if words["do"] == "sleep":
            time.sleep(60)
        yield from rows.to_batches()
    return None if words["do"] == "refuse" else answer

home = StateServer(agrees, Path(sys.argv[1]))
home.keep("partition")
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Neighbour:
    """Another process, which is the owner of a partition."""

    folder: Path
    process: subprocess.Popen[str]

    def asked(self, do: str) -> list[pa.RecordBatch] | None:
        return ask("partition", {"do": do, "of": "me"}, ROWS, self.folder)


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Neighbour]:
    command = [sys.executable, "-c", NEIGHBOUR, str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(SOURCES)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdin is not None and process.stdout is not None
    with process:
        assert process.stdout.readline() == "ready\n"
        yield Neighbour(tmp_path, process)
        process.stdin.close()


def test_the_owner_of_a_partition_answers(neighbour: Neighbour) -> None:
    for _ in range(2):
        answer = neighbour.asked("answer")
        assert answer is not None
        assert answer[0].to_pydict() == {"n": [300_000], "of": ["me"]}
        assert pa.Table.from_batches(answer[1:]) == ROWS


@pytest.mark.parametrize("what", ["refuse", "fail"])
def test_an_owner_that_hangs_up_is_asked_again(neighbour: Neighbour, what: str) -> None:
    assert neighbour.asked(what) is None
    assert neighbour.asked("answer") is not None


def test_an_owner_that_dies_does_not_answer(neighbour: Neighbour) -> None:
    assert neighbour.asked("die") is None
    neighbour.process.wait()
    assert neighbour.asked("answer") is None
    assert {path.name for path in neighbour.folder.iterdir()} == {"partition", str(neighbour.process.pid)}
    home = StateServer(lambda words: None, neighbour.folder)
    try:
        assert [path.name for path in neighbour.folder.iterdir()] == [str(os.getpid())]
        home.keep("partition")
        home.keep("partition")
        assert os.readlink(neighbour.folder / "partition") == str(os.getpid())
    finally:
        home.close()


@pytest.mark.parametrize("shown", [True, False], ids=["the system shows it", "the system does not tell"])
def test_an_owner_that_is_stopped_is_not_waited_for(
    neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    if not shown:
        monkeypatch.setattr(owner_rpc, "_seen", lambda process: ("?", -1))
        monkeypatch.setattr(owner_rpc, "_SILENCE", 1.0)
    os.kill(neighbour.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert neighbour.asked("answer") is None
        assert time.monotonic() - began < 8
    finally:
        os.kill(neighbour.process.pid, signal.SIGCONT)
    assert neighbour.asked("answer") is not None, "it is well again"


def test_an_owner_that_works_is_waited_for_and_one_that_does_not_is_not(
    neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_rpc, "_SILENCE", 1.0)
    assert neighbour.asked("work") is not None
    assert neighbour.asked("sleep") is None


def test_a_partition_without_an_owner_or_at_home_is_not_sent_away(tmp_path: Path) -> None:
    assert ask("partition", {}, ROWS, tmp_path) is None
    home = StateServer(lambda words: pytest.fail("asked itself"), tmp_path)
    try:
        home.keep("partition")
        assert ask("partition", {}, ROWS, tmp_path) is None
    finally:
        home.close()


def test_a_folder_that_others_can_look_into_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_rpc.tempfile, "gettempdir", lambda: str(tmp_path))
    own = owner_rpc._folder()
    assert owner_rpc._folder() == own and own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o755)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        StateServer(lambda words: None)
    assert ask("partition", {}, ROWS) is None
    own.rmdir()
    own.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        StateServer(lambda words: None)


# -- which owner answers ----------------------------------------------------------------------------------------------


@dataclass
class Idle:
    """A program that does nothing."""

    state: StateSpec


def holding(partitions: int) -> StateHost:
    """A worker that owns so many partitions after epoch 6, and one of another run."""
    host = StateHost()
    for at in range(partitions):
        host._owned["q", 1, at] = _Owned(Idle(StateSpec("q", "run", "", 1)), 6, None)  # type: ignore[arg-type]
    host._owned["other", 1, 0] = _Owned(Idle(StateSpec("other", "other run", "", 1)), 6, None)  # type: ignore[arg-type]
    return host


def request(epoch: int = 7, **other: Any) -> dict[str, Any]:
    context = EpochContext(epoch).to_plain()
    return {"key": ["q", 1, 0], "run": "run", "held": 0, "started": 0.0, "context": context} | other


def test_only_the_state_before_the_epoch_answers() -> None:
    host = holding(2)
    assert host.offer(request()) is not None
    others: list[dict[str, Any]] = [{"epoch": 6}, {"epoch": 8}, {"run": "next"}, {"key": ["q", 2, 0]}]
    for other in [*others, {"key": ["q", 1, 2]}]:
        assert host.offer(request(**other)) is None, other


def test_a_busy_owner_lets_a_worker_with_less_have_the_partition() -> None:
    host = holding(3)
    with host._stepping:
        assert host.offer(request(held=2)) is not None
        assert host.offer(request(held=1)) is None
        assert ("q", 1, 0) not in host._owned and len(host._owned) == 3
        assert host.offer(request(key=["q", 1, 1], held=1)) is not None


def test_partitions_stay_although_spark_moves_their_tasks(spark: SparkSession, tmp_path: Path) -> None:
    count = 24
    write_epochs(tmp_path / "S", epochs(count, 9))
    handle = go_on(spark, tmp_path)
    notes = [note for report in handle.recent for note in report.buckets]
    assert len(notes) == 4 * count  # two stages of two partitions
    # A worker that has just come may take a partition over once, since the one it lives in is busy with others.
    assert sum(note["caught_up"] > 0 for note in notes) <= 4
