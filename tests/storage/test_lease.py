"""One run at a time uses a checkpoint; the second is told who is the first."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from everwhen.errors import InUseError, StateError
from everwhen.storage import lease as lease_module
from everwhen.storage.folder import Folder, LocalFolder, RemoteFolder
from everwhen.storage.lease import take_lease

SOURCES = Path(__file__).parents[2] / "src"

HOLDER = """
import sys
from pyarrow import fs
from everwhen.storage.folder import LocalFolder, RemoteFolder
from everwhen.storage.lease import take_lease
place = sys.argv[1]
folder = LocalFolder(place) if sys.argv[2] == "here" else RemoteFolder(fs.LocalFileSystem(), place, place)
lease = take_lease(folder, place)
print("held", flush=True)
sys.stdin.read()
lease.release()
"""


@pytest.fixture(params=["here", "elsewhere"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def folder_of(place: Path, where: str) -> Folder:
    return LocalFolder(str(place)) if where == "here" else RemoteFolder(fs.LocalFileSystem(), str(place), str(place))


def held_by_another(place: Path, where: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place), where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_second_run_is_told_who_is_the_first(tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture) -> None:
    with held_by_another(tmp_path, where) as other:
        for _ in range(2):
            with pytest.raises(InUseError) as caught:
                take_lease(folder_of(tmp_path, where), "my checkpoint")
            told = str(caught.value)
            assert told.startswith("the checkpoint my checkpoint is in use by another run: process ")
            assert f"process {other.pid} on {socket.gethostname()}" in told and "take another directory" in told
        other.communicate()
    assert other.returncode == 0
    take_lease(folder_of(tmp_path, where), "my checkpoint").release()
    assert not caplog.records, "what was given back is taken without a word"


def test_a_dead_holder_is_taken_over_with_a_message(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    with held_by_another(tmp_path, where) as other:
        token = json.loads((tmp_path / "lock").read_text())["token"]
        other.send_signal(signal.SIGKILL)
        other.communicate()
    lease = take_lease(folder_of(tmp_path, where), str(tmp_path))
    lease.check()
    assert json.loads((tmp_path / "lock").read_text())["token"] == token + 1
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"left behind by process {other.pid} on" in record.getMessage()
    lease.release()
    lease.release()


def test_within_a_process_there_is_one_too(tmp_path: Path, where: str) -> None:
    first = take_lease(folder_of(tmp_path, where), str(tmp_path))
    with pytest.raises(InUseError, match=f"process {os.getpid()} on"):
        take_lease(folder_of(tmp_path, where), str(tmp_path))
    first.is_used = lambda: False  # it has ended, and nobody has said so
    second = take_lease(folder_of(tmp_path, where), str(tmp_path))
    second.check()
    second.release()


def waited(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def test_a_lease_that_is_renewed_stays_and_one_that_is_not_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "_RENEWED", 0.1)
    monkeypatch.setattr(lease_module, "_LEASE", 0.0)
    folder = folder_of(tmp_path, "elsewhere")
    first = take_lease(folder, str(tmp_path))
    before = (tmp_path / "lock").read_text()
    assert waited(lambda: (tmp_path / "lock").read_text() != before), "it is renewed"
    with pytest.raises(InUseError):  # whatever the clocks say, it is seen to be renewed
        take_lease(folder, str(tmp_path))
    slow = json.loads((tmp_path / "lock").read_text()) | {"id": "of another", "machine": "another", "token": 7}
    (tmp_path / "lock").write_text(json.dumps(slow))
    with pytest.raises(StateError, match=r"was taken over from this run.*held by process .* nothing is lost"):
        first.check()
    third = take_lease(folder, str(tmp_path))
    assert third.holder.token == 8
    first.release()
    third.check()
    third.release()
    assert not (tmp_path / "lock").exists()


def test_a_damaged_lock_is_no_obstacle(tmp_path: Path, where: str) -> None:
    (tmp_path / "lock").write_text("{")
    lease = take_lease(folder_of(tmp_path, where), str(tmp_path))
    lease.check()
    lease.release()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError, match=r"my checkpoint: cannot use it as a checkpoint: a file stands where"):
        take_lease(LocalFolder(str(tmp_path / "file")), "my checkpoint")


def test_what_is_held_is_named(tmp_path: Path) -> None:
    lease = take_lease(LocalFolder(str(tmp_path)), "out/", "output folder")
    with pytest.raises(InUseError, match=r"^the output folder out/ is in use by another run: process"):
        take_lease(LocalFolder(str(tmp_path)), "out/", "output folder")
    lease.release()
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="out/: cannot use it as an output folder"):
        take_lease(LocalFolder(str(tmp_path / "file")), "out/", "output folder")
