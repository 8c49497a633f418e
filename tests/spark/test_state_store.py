"""The versioned state store: published once, whole or not at all, and every kind of damage is noticed."""

from __future__ import annotations

import datetime as dt
import errno
import json
import multiprocessing as mp
import os
import pickle
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from everwhen.errors import StateError
from everwhen.spark.state import state_store as module
from everwhen.spark.state.state_store import PartitionState, PartitionStore, inspect
from everwhen.storage.folder import LocalFolder, RemoteFolder, open_folder
from everwhen.storage.framed_file import LOG, PICKLED, SNAPSHOT, read_frames, write_frames

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
PAYLOADS = pa.table(
    {
        "bool": pa.array([True, None, False]),
        "int8": pa.array([1, None, -128], pa.int8()),
        "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "float": pa.array([float("nan"), -0.0, None]),
        "text": pa.array(["ä", "", None]),
        "binary": pa.array([b"\x00\xff", b"", None]),
        "date": pa.array([dt.date(1970, 1, 1), None, dt.date(2999, 1, 1)]),
        "timestamp": pa.array([1, None, -1], pa.timestamp("us", "UTC")),
        "decimal": pa.array([Decimal("1.25"), None, Decimal("-9.99")], pa.decimal128(9, 2)),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "words": pa.array(["a", "b", None]).dictionary_encode(),
        "nothing": pa.nulls(3),
    }
)


def table(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def path_of(store: PartitionStore, name: str) -> Path:
    return Path(store._folder.place(name))


@pytest.fixture(params=["local", "other file system"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PartitionStore:
    found = PartitionStore(tmp_path / "state", 1, 2)
    if request.param != "local":  # the code of hdfs and s3, on files that a test can look at
        place = found._folder.place()
        found._folder = RemoteFolder(fs.LocalFileSystem(), place, place)
    return found


def test_logs_come_back_as_they_were(store: PartitionStore) -> None:
    assert store.log(0) is None and store.newest_epoch() == -1
    assert store.publish_log(0, PAYLOADS, {"state_rows": 3, "text": "ä"})
    assert store.publish_log(1, PAYLOADS.slice(1, 1), {})
    assert store.publish_log(2, PAYLOADS.schema.empty_table(), {})
    assert store.publish_log(3, pa.concat_tables([PAYLOADS, PAYLOADS]), {})
    read, meta = store.log(0) or pytest.fail("not there")
    assert meta == {"state_rows": 3, "text": "ä"}
    assert read.schema == PAYLOADS.schema and [str(row) for row in read.to_pylist()] == [
        str(row) for row in PAYLOADS.to_pylist()
    ]
    assert [(epoch, found.num_rows) for epoch, found, _ in store.logs_between(-1, 3)] == [
        (0, 3),
        (1, 1),
        (2, 0),
        (3, 6),
    ]
    assert [epoch for epoch, _, _ in store.logs_between(1, 2)] == [2] and store.newest_epoch() == 3


def test_the_first_log_stays(store: PartitionStore) -> None:
    assert store.publish_log(5, table(1), {"who": "first"})
    assert not store.publish_log(5, table(2), {"who": "second"})
    found, meta = store.log(5) or pytest.fail("not there")
    assert meta == {"who": "first"} and found == table(1)
    assert [entry.name for entry in store._folder.entries()] == ["log-000000000005"]


def test_someone_publishes_while_we_write(store: PartitionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    other = PartitionStore.__new__(PartitionStore)
    other.__dict__ |= store.__dict__
    real = module.stream_of

    def slow(found: pa.Table) -> list[Any]:
        monkeypatch.setattr(module, "stream_of", real)
        assert other.publish_log(0, table(1), {})
        return real(found)

    monkeypatch.setattr(module, "stream_of", slow)
    assert not store.publish_log(0, table(2), {})
    assert (store.log(0) or pytest.fail("not there"))[0] == table(1)
    assert len(store._folder.entries()) == 1


def race(root: str, number: int, epochs: int, start: Any, results: Any) -> None:
    mine = PartitionStore(root, 0, 0)
    start.wait()
    results.put((number, [mine.publish_log(epoch, table(number, epoch), {"by": number}) for epoch in range(epochs)]))


def test_two_processes_race_and_exactly_one_wins(tmp_path: Path) -> None:
    context, epochs = mp.get_context("spawn"), 150
    start, results = context.Barrier(2), context.Queue()
    racers = [context.Process(target=race, args=(str(tmp_path), n, epochs, start, results)) for n in (1, 2)]
    for racer in racers:
        racer.start()
    won = dict(results.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join(30)
    found = PartitionStore(tmp_path, 0, 0)
    for epoch, read, meta in found.logs_between(-1, epochs - 1):
        assert won[1][epoch] != won[2][epoch]
        winner = 1 if won[1][epoch] else 2
        assert meta == {"by": winner} and read == table(winner, epoch)
    assert len(found._folder.entries()) == epochs


def test_snapshots_come_back_writable(store: PartitionStore) -> None:
    state = {"edges": np.arange(1000), "empty": np.empty(0), "fortran": np.ones((3, 4), order="F"), "rows": PAYLOADS}
    frozen = np.arange(5)
    frozen.flags.writeable = False
    assert store.newest_snapshot(10) is None
    size = store.publish_snapshot(4, [state, frozen, "text", None])
    assert size == path_of(store, "snapshot-000000000004").stat().st_size
    epoch, (found, *rest) = store.newest_snapshot(10) or pytest.fail("not there")
    assert epoch == 4 and str(found["rows"].to_pylist()) == str(PAYLOADS.to_pylist())
    assert all(np.array_equal(found[name], state[name]) for name in ("edges", "empty", "fortran"))
    assert np.array_equal(rest[0], frozen) and rest[1:] == ["text", None]
    found["edges"][0] = 7
    assert store.newest_snapshot(3) is None
    store.publish_snapshot(4, "again")
    assert store.newest_snapshot(4) == (4, "again")


def test_a_damaged_snapshot_is_skipped_and_named(store: PartitionStore) -> None:
    for epoch in (2, 5, 9):
        store.publish_snapshot(epoch, f"state {epoch}")
    newest = path_of(store, "snapshot-000000000009")
    newest.write_bytes(newest.read_bytes()[:-1])
    assert store.newest_snapshot(9) == (5, "state 5")
    assert store.newest_snapshot(9) == (5, "state 5")
    assert len(store.damaged) == 1 and str(newest) in store.damaged[0]
    assert store.restore_points() == (2, 5)


@pytest.mark.parametrize("kind", ["log", "snapshot"])
def test_no_truncation_goes_unnoticed(tmp_path: Path, kind: str) -> None:
    store = PartitionStore(tmp_path, 0, 0)
    store.publish_log(0, table(1, 2, 3), {"a": 1})
    store.publish_snapshot(0, {"x": np.arange(10), "y": [1, 2]})
    file = path_of(store, f"{kind}-000000000000")
    whole = file.read_bytes()
    assert len(whole) < 2000
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert unreadable(store, kind), length
        assert kind == "log" or store.restore_points() == ()
    file.write_bytes(whole + b"\0")
    assert unreadable(store, kind)
    file.write_bytes(whole)
    assert not unreadable(store, kind)


def unreadable(store: PartitionStore, kind: str) -> bool:
    if kind == "snapshot":
        return store.newest_snapshot(0) is None
    try:
        store.log(0)
    except StateError as bad:
        assert "stage 0, partition 0" in str(bad) and "epoch 0" in str(bad) and "log-000000000000" in str(bad)
        return True
    return False


@pytest.mark.parametrize("kind", ["log", "snapshot"])
def test_a_changed_byte_is_noticed_or_does_not_matter(tmp_path: Path, kind: str) -> None:
    store = PartitionStore(tmp_path, 0, 0)
    store.publish_log(0, table(1, 2, 3), {"a": 1})
    store.publish_snapshot(0, [1, "two", b"three" * 20])
    before = store.log(0), store.newest_snapshot(0)
    file = path_of(store, f"{kind}-000000000000")
    whole = file.read_bytes()
    noticed = 0
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        if unreadable(store, kind):
            noticed += 1
        else:
            assert (store.log(0), store.newest_snapshot(0)) == before  # a byte of the filling
    assert noticed > len(whole) / 2


def test_a_state_of_another_version_is_refused_by_name(store: PartitionStore) -> None:
    """It is whole, so nothing older may be taken in its place without a word."""
    store.publish_snapshot(0, "fine")
    newest = path_of(store, "snapshot-000000000001")
    newest.write_bytes(b"".join(write_frames(PICKLED, [[pickle.dumps("old")]])))
    with pytest.raises(
        StateError, match=r"snapshot-000000000001 cannot be read: Everwhen 0\.4 or an older.*pickle.*; go on"
    ):
        store.newest_snapshot(1)
    head = json.dumps({"format": 2, "software": "everwhen 9.1"}).encode()
    newest.write_bytes(b"".join(write_frames(SNAPSHOT, [[head]])))
    with pytest.raises(StateError, match=r"everwhen 9\.1 has written it, in format 2, .*; go on with the version that"):
        store.newest_snapshot(1)
    assert store.newest_snapshot(0) == (0, "fine") and not store.damaged


def test_a_pickle_in_the_place_of_a_state_runs_nothing(store: PartitionStore, tmp_path: Path) -> None:
    store.publish_snapshot(0, "fine")
    bomb = pickle.dumps(Bomb(tmp_path / "it ran"))
    path_of(store, "snapshot-000000000001").write_bytes(b"".join(write_frames(SNAPSHOT, [[bomb]])))
    assert store.newest_snapshot(1) == (0, "fine") and "it holds no state" in store.damaged[0]
    assert not (tmp_path / "it ran").exists()


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


def test_a_log_that_somebody_has_written_is_damaged_and_nothing_else(store: PartitionStore) -> None:
    store.publish_log(0, pa.table({"x": ["x" * 77]}), {})
    file = path_of(store, "log-000000000000")
    with open(file, "rb") as opened:
        meta, rows = map(bytes, read_frames(opened, LOG))
    before, found, after = rows.rpartition(np.array([0, 77], np.int32).tobytes())
    wild = before + np.array([0, 2_000_000_000], np.int32).tobytes() + after
    assert found
    for frames in ([b"[" * 100_000, rows], [b"no JSON", rows], [meta, b"no rows"], [meta, wild], [meta], []):
        file.write_bytes(b"".join(write_frames(LOG, [[frame] for frame in frames])))
        with pytest.raises(StateError, match=r"the log of epoch 0 .* is damaged"):
            store.log(0)


def test_missing_logs_are_named(store: PartitionStore) -> None:
    store.publish_log(3, table(1), {})
    with pytest.raises(
        StateError, match=r"log-000000000002: the log of epoch 2 of stage 1, partition 2 is missing.*anew"
    ):
        list(store.logs_between(1, 3))


def test_collect_keeps_two_ways_back(store: PartitionStore) -> None:
    for epoch in range(10):
        store.publish_log(epoch, table(epoch), {})
        if epoch in (2, 5, 8):
            store.publish_snapshot(epoch, epoch)
            store.collect(epoch)
    # Epoch 7 may be run again: it needs the state after 6, from 5; so does 8, if its own snapshot is damaged.
    assert store.restore_points() == (5, 8)
    assert [epoch for epoch in range(10) if store.log(epoch)] == [6, 7, 8, 9]
    assert store.collect(8) == 0


def test_collect_keeps_the_steps_of_a_loop_that_may_be_run_again(store: PartitionStore) -> None:
    for step in range(10):
        store.publish_log(step, table(step), {})
    for step in (2, 5, 8):
        store.publish_snapshot(step, step)
    store.collect(8, kept=5)  # the steps from 5 on may be run again, so the state after 4 is needed
    assert store.restore_points() == (2, 5, 8)
    assert [step for step in range(10) if store.log(step)] == list(range(3, 10))
    store.collect(8, kept=6)
    assert store.restore_points() == (5, 8)
    assert store.collect(8, kept=100) == 0  # the two ways back stay


def test_collect_with_a_snapshot_every_epoch(store: PartitionStore) -> None:
    for epoch in range(6):
        store.publish_log(epoch, table(epoch), {})
        store.publish_snapshot(epoch, epoch)
        store.collect(epoch)
    assert store.restore_points() == (3, 4, 5)
    assert [epoch for epoch in range(6) if store.log(epoch)] == [4, 5]


def test_collect_trusts_no_broken_snapshot(store: PartitionStore) -> None:
    for epoch in range(9):
        store.publish_log(epoch, table(epoch), {})
    for epoch in (1, 4, 8):
        store.publish_snapshot(epoch, epoch)
    path_of(store, "snapshot-000000000004").write_bytes(b"")
    store.collect(8)
    assert store.restore_points() == (1, 8)
    assert [epoch for epoch in range(9) if store.log(epoch)] == list(range(2, 9))


def test_collect_without_an_older_snapshot_deletes_nothing(store: PartitionStore) -> None:
    assert store.collect(4) == 0
    store.publish_log(0, table(), {})
    store.publish_snapshot(0, 0)
    assert store.collect(0) == 0 and store.log(0) and store.newest_snapshot(0)


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["snapshot", "damage", "nothing"]), min_size=1, max_size=12))
def test_the_last_two_epochs_can_always_be_run_again(tmp_path_factory: pytest.TempPathFactory, what: list[str]) -> None:
    """The state is the list of epochs so far; the newest snapshot may be damaged at any time."""
    store = PartitionStore(tmp_path_factory.mktemp("state"), 0, 0)
    for epoch, action in enumerate(what):
        store.publish_log(epoch, table(epoch), {})
        if action != "nothing":
            store.publish_snapshot(epoch, list(range(epoch + 1)))
            store.collect(epoch)
        file = path_of(store, f"snapshot-{epoch:012d}")
        whole = file.read_bytes() if action == "damage" else b""
        if whole:
            file.write_bytes(whole[:50])
        for wanted in (epoch - 2, epoch - 1, epoch):
            assert restored(store, wanted) == list(range(wanted + 1))
        if whole:
            file.write_bytes(whole)


def restored(store: PartitionStore, epoch: int) -> list[int]:
    start, state = store.newest_snapshot(epoch) or (-1, [])
    return state + [found["x"][0].as_py() for _, found, _ in store.logs_between(start, epoch)]


KILLED = """
import os, sys
import pyarrow as pa
from everwhen.storage import folder
from everwhen.spark.state.state_store import PartitionStore
os.link = lambda *_: (print("now", flush=True), __import__("time").sleep(60))
PartitionStore(sys.argv[1], 0, 0).publish_log(0, pa.table({"x": [1, 2]}), {})
"""


def test_what_a_killed_writer_leaves_is_not_read_and_goes_away(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout and writer.stdout.readline() == b"now\n"
        writer.send_signal(signal.SIGKILL)
    store = PartitionStore(tmp_path, 0, 0)
    (left,) = path_of(store, "").iterdir()
    assert left.name.endswith(".part") and store.log(0) is None and store.newest_epoch() == -1
    assert store.publish_log(0, table(7), {})
    strange = path_of(store, ".mine.part")
    strange.touch()
    os.utime(strange, (0, 0))
    assert store.collect(0) == 0 and left.exists()  # its writer may be alive
    os.utime(left, (time.time() - 3600,) * 2)
    assert store.collect(0) == 1 and not left.exists()
    assert strange.exists() and store.log(0)


def test_inspect(tmp_path: Path) -> None:
    assert inspect(tmp_path / "nowhere") == []
    for stage, bucket in ((0, 0), (0, 11), (1, 2)):
        store = PartitionStore(tmp_path, stage, bucket)
        store.publish_log(0, table(1), {"state_rows": 1, "state_bytes": 10})
        store.publish_log(1, table(1), {"state_rows": stage, "state_bytes": bucket} if stage else {})
    store.publish_snapshot(0, "x")
    (tmp_path / "stage=x").mkdir()
    (tmp_path / "notes").touch()
    (tmp_path / "stage=3" / "bucket=0").mkdir(parents=True)
    found = inspect(tmp_path)
    assert [(one.stage, one.bucket) for one in found] == [(0, 0), (0, 11), (1, 2), (3, 0)]
    assert found[0].rows is None and found[0].epoch == 1 and found[0].disk_bytes > 0
    disk = sum(file.stat().st_size for file in (tmp_path / "stage=1" / "bucket=2").iterdir())
    assert found[2] == PartitionState(1, 2, 1, 0, rows=1, bytes=2, log_files=2, disk_bytes=disk)
    assert found[3] == PartitionState(3, 0, -1, -1, None, None, 0, 0)
    path_of(store, "log-000000000001").write_bytes(b"EVER")
    assert inspect(tmp_path)[2].rows is None


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a directory")
    store = PartitionStore(tmp_path / "state", 0, 0)
    for attempt in (
        lambda: store.publish_log(0, table(1), {}),
        lambda: store.publish_snapshot(0, 1),
        lambda: store.newest_snapshot(0),
        lambda: store.log(0),
        lambda: inspect(tmp_path / "state"),
    ):
        with pytest.raises(StateError, match=r"state.*a file stands where a directory should be.*another place"):
            attempt()


@pytest.mark.skipif(AS_ROOT, reason="root may write anywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StateError, match=r"permission denied.*right to write"):
            PartitionStore(tmp_path, 0, 0).publish_log(0, table(1), {})
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "no space is left.*free some"), (errno.EACCES, "permission denied"), (errno.EIO, "reach it")],
)
def test_errors_of_the_file_system_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(LocalFolder, "_write", refuse)
    store = PartitionStore(tmp_path, 0, 0)
    with pytest.raises(StateError, match=f"log-000000000000: cannot write the input of the epoch: .*{words}"):
        store.publish_log(0, table(1), {})
    with pytest.raises(StateError, match=f"snapshot-000000000000.*{words}"):
        store.publish_snapshot(0, 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PartitionStore(tmp_path, 0, 0)
    store.publish_log(0, table(1), {})
    real = open
    monkeypatch.setattr("builtins.open", lambda path, mode="r", **k: real("/dev/full" if "x" in mode else path, "wb"))
    with pytest.raises(StateError, match="no space"):
        store.publish_log(1, table(*range(100_000)), {})
    monkeypatch.undo()
    assert store.newest_epoch() == 0 and len(store._folder.entries()) == 1


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot open it for the state: an empty path"):
        PartitionStore("", 0, 0)
    with pytest.raises(StateError, match=r"gopher://x/y: cannot open it for the state: .*a URI such as"):
        PartitionStore("gopher://x/y", 0, 0)
    store = PartitionStore(tmp_path, 0, 0)
    with pytest.raises(StateError, match="must be JSON"):
        store.publish_log(0, table(1), {"x": object()})
    with pytest.raises(StateError, match=r"the state itself is a builtins\.function, which is no plain data"):
        store.publish_snapshot(0, lambda: None)
    assert store._folder.entries() == []


def test_links_are_not_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    store = PartitionStore(tmp_path, 0, 0, durable=True)
    assert store.publish_log(0, table(1), {}) and not store.publish_log(0, table(2), {})
    store.publish_snapshot(0, 1)
    assert store.log(0) and len(store._folder.entries()) == 2


def test_uris(tmp_path: Path) -> None:
    assert open_folder(f"file://{tmp_path}/a%20b") == LocalFolder(f"{tmp_path}/a b")
    assert isinstance(open_folder("mock:///a/b"), RemoteFolder)
    store = PartitionStore(f"file://{tmp_path}", 0, 0)
    assert store.publish_log(0, table(1), {}) and PartitionStore(tmp_path, 0, 0).log(0)
