"""Copies of a query in processes of their own: the merged answer is exact, whoever is killed and whenever."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import everwhen as ew
from engine.element_files import some, write
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError, QueryError
from everwhen.formats.changelog.layout import epochs_there, read_manifest, read_time
from everwhen.formats.changelog.reading import read_changelog
from everwhen.storage.folder import LocalFolder
from everwhen.stream.history import History
from everwhen.stream.validity import check

S = ew.source("S", {"k": "string", "x": "int64"})
QUERY = S.range(10).group_by("k").agg(n=ew.count(), s=ew.sum("x"))
OTHER = S.where(ew.col("x") >= 0).range(10).group_by("k").agg(n=ew.count(), s=ew.sum("x"))
END: dict[str, Any] = {"op": "cti", "t": None}


def history(path: Path) -> History:
    assert check(read_changelog(path)).valid
    return History.of(read_changelog(path)).coalesced()


def expected(query: ew.Stream, file: Path) -> History:
    return History.of(list(ew.run(query, {"S": str(file)})), query.schema).coalesced()


def process_of(place: Path, member: str) -> int | None:
    """The process that does the work of a copy (`copy-1`) or of the merge."""
    folder = place / member / "checkpoint" if member != "merge" else place / "merge"
    try:
        return int(json.loads((folder / "lock").read_text())["process"])
    except (OSError, ValueError, KeyError):
        return None


@contextmanager
def fed(
    path: Path, elements: list[dict[str, Any]], seconds: float, begins: Path, ends: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """A file that gets its elements one by one, for so long, once there is an output; the last one waits for `ends`."""
    path.touch()
    given_up = time.monotonic() + 100

    def wait_for(true: Callable[[], bool]) -> None:
        while not true() and time.monotonic() < given_up:
            time.sleep(0.02)

    def feed() -> None:
        wait_for((begins / "_changelog.json").exists)
        began = time.monotonic()
        with open(path, "ab", buffering=0) as file:
            for at, element in enumerate(elements):
                if at == len(elements) - 1:
                    wait_for(ends)
                time.sleep(max(0.0, began + seconds * at / len(elements) - time.monotonic()))
                file.write(json.dumps(element).encode() + b"\n")

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    yield
    thread.join()


@contextmanager
def killer(place: Path, members: list[str], pause: float, seed: int, most: int = 1000) -> Iterator[list[str]]:
    """Somebody who kills members at random moments; whom he has killed."""
    rng, over, killed = random.Random(seed), threading.Event(), list[str]()

    def kill() -> None:
        while len(killed) < most and not over.wait(pause * (0.5 + rng.random())):
            member = rng.choice(members)
            pid = process_of(place, member)
            with suppress(ProcessLookupError):
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(member)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.property
def test_three_copies_two_plans_and_kills(tmp_path: Path) -> None:
    file, place, out = tmp_path / "s.jsonl", tmp_path / "copies", tmp_path / "out"
    told: list[str] = []
    members = ["copy-1", "copy-2", "copy-3", "merge"]
    inputs = {"S": str(file)}
    with (
        killer(place, members, 0.4, 3, 5) as killed,
        fed(file, [*some(1, 400, "x"), END], 2.0, out, lambda: len(killed) == 5),
    ):
        count = ew.copies([QUERY, OTHER, QUERY], inputs, str(out), place=str(place), every=0.3, tell=told.append)
    assert history(out) == expected(QUERY, file)
    assert count == sum(len(batch) for batch in read_changelog(out)) and killed
    assert any("has died (signal 9); it is started again" in words for words in told)


def test_a_copy_without_state_begins_with_that_of_another(tmp_path: Path) -> None:
    file, place, out = tmp_path / "s.jsonl", tmp_path / "copies", tmp_path / "out"
    told: list[str] = []

    def lose() -> None:
        while not all(list((place / name / "checkpoint").glob("state-*")) for name in ("copy-1", "copy-2")):
            time.sleep(0.02)
        pid = process_of(place, "copy-1")
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(place / "copy-1" / "checkpoint", ignore_errors=True)

    seeded = "copy 1 has no state, and begins with that of copy-2"
    with fed(file, [*some(2, 300, "x"), END], 1.0, out, lambda: seeded in told):
        threading.Thread(target=lose, daemon=True).start()
        ew.copies([QUERY, QUERY], {"S": str(file)}, str(out), place=str(place), every=0.2, tell=told.append)
    assert history(out) == expected(QUERY, file)
    assert seeded in told
    folder = LocalFolder(str(place / "copy-1" / "out"))
    start = read_manifest(folder, epochs_there(folder)[-1]).start
    assert start.first > 0  # a new stream behind the old one


def test_what_is_wrong_ends_all(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    write(file, some(3, 20, "x"))
    with open(file, "ab") as stream:
        stream.write(b"{nonsense}\n")
    with pytest.raises(InputError, match=r"s\.jsonl:\d+: not JSON"):
        ew.copies([QUERY, QUERY], {"S": str(file)}, f"{tmp_path}/out", place=f"{tmp_path}/copies")
    for name in ("copy-1", "copy-2", "merge"):
        assert process_of(tmp_path / "copies", name) is None


def test_what_cannot_be_copied(tmp_path: Path) -> None:
    inputs, place = {"S": "s.jsonl"}, f"{tmp_path}/copies"
    with pytest.raises(QueryError, match="no query to run"):
        ew.copies([], inputs, f"{tmp_path}/out", place=place)
    with pytest.raises(QueryError, match="copy 2 has the columns"):
        ew.copies([QUERY, S], inputs, f"{tmp_path}/out", place=place)
    with pytest.raises(QueryError, match="at least two streams"):
        ew.copies([QUERY], inputs, f"{tmp_path}/out", place=place)
    odd = S.select(y=ew.udf(lambda x: x, ew.col("x"), type="int64"))
    with pytest.raises(QueryError, match="cannot be sent to a process of its own"):
        ew.copies([odd, odd], inputs, f"{tmp_path}/out", place=place)


# -- a minute of kill -9 ----------------------------------------------------------------------------------------------


class _Promises:
    """When folders promised what, looked at all the time."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = {name: LocalFolder(str(path)) for name, path in folders.items()}
        self.seen: dict[str, list[tuple[float, int]]] = {name: [] for name in folders}
        self._last = dict.fromkeys(folders, -1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Promises:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for name, folder in self.folders.items():
                with suppress(Exception):
                    last = epochs_there(folder)[-1]
                    if last == self._last[name]:
                        continue
                    promise = read_time((read_manifest(folder, last).run or {})["promise"])
                    self._last[name] = last
                    self.seen[name].append((time.monotonic(), promise))

    def lags(self, out: str) -> list[float]:
        """How much later than the first copy the output promised each time."""
        best, firsts = NEVER, list[tuple[float, int]]()
        for at, promise in sorted(each for name in self.seen if name != out for each in self.seen[name]):
            if best < promise < INF:
                best = promise
                firsts.append((at, promise))
        reached = self.seen[out]
        found = []
        for at, promise in firsts:
            later = [when for when, until in reached if until >= promise]
            if later:
                found.append(max(0.0, later[0] - at))
                if found[-1] > 1.0:
                    print(f"{at:.2f} promised {promise}, {found[-1]:.2f} s before it was out")
        return found


def _print_when(words: str) -> None:
    print(f"{time.monotonic():.2f} {words}")


@pytest.mark.slow
@pytest.mark.parametrize("members", [["copy-1", "copy-2", "copy-3"], ["copy-1", "copy-2", "copy-3", "merge"]])
def test_a_minute_of_random_kills(tmp_path: Path, members: list[str]) -> None:
    """The answer is exact; the promise is never more than a second behind that of the best copy."""
    file, place, out = tmp_path / "s.jsonl", tmp_path / "copies", tmp_path / "out"
    folders = {f"copy-{i}": place / f"copy-{i}" / "out" for i in (1, 2, 3)} | {"out": out}
    with (
        fed(file, [*some(5, 6000, "x"), END], 60.0, out),
        _Promises(folders) as promises,
        killer(place, members, 2.0, 7) as killed,
    ):
        ew.copies([QUERY] * 3, {"S": str(file)}, str(out), place=str(place), tell=_print_when)
    lags = sorted(promises.lags("out"))
    print(
        f"kills {len(killed)}, promises {len(lags)}, lag in s: median {lags[len(lags) // 2]:.3f}, largest {lags[-9:]}"
    )
    assert history(out) == expected(QUERY, file)
    count = sum(len(batch) for batch in read_changelog(out))
    assert ew.copies([QUERY] * 3, {"S": str(file)}, str(out), place=str(place)) == count  # done is done
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # a second of a machine that has nothing else to do
    assert len(killed) > 15 and lags[-1] < 1.0 * busy


@pytest.mark.slow
def test_a_restarted_copy_with_a_window_of_a_day_joins_soon(tmp_path: Path) -> None:
    """A copy that has lost all, with a day of rows in its window, is as far as the others within five seconds."""
    file, place, out = tmp_path / "s.jsonl", tmp_path / "copies", tmp_path / "out"
    query = S.range("1 day").group_by("k").agg(n=ew.count(), s=ew.sum("x"))
    step = 100  # ms: 864,000 rows a day, of which a quarter is there at once
    past = [{"vs": t * step, "row": {"k": f"k{t % 50}", "x": t % 97}} for t in range(216_000)]
    write(file, [*past, {"op": "cti", "t": 216_000 * step}])
    later: list[dict[str, Any]] = []
    for t in range(216_000, 216_600):
        later += [{"vs": t * step, "row": {"k": f"k{t % 50}", "x": 1}}, {"op": "cti", "t": t * step}]
    took: list[float] = []
    folders = {name: place / name / "out" for name in ("copy-1", "copy-2")}

    def lose() -> None:
        while not list((place / "copy-2" / "checkpoint").glob("state-*")):
            time.sleep(0.05)
        time.sleep(3.0)
        pid = process_of(place, "copy-1")
        assert pid is not None
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(place / "copy-1" / "checkpoint", ignore_errors=True)
        with _Promises(folders) as promises:
            target = None
            while not took and time.monotonic() < began + 30:
                time.sleep(0.02)
                best = [promise for _, promise in promises.seen["copy-2"]]
                target = best[-1] if best and target is None else target
                mine = LocalFolder(str(folders["copy-1"]))
                with suppress(Exception):
                    last = read_manifest(mine, epochs_there(mine)[-1])
                    promise = read_time((last.run or {})["promise"])
                    if last.start.first > 0 and target is not None and promise >= target:
                        took.append(time.monotonic() - began)

    with fed(file, [*later, END], 40.0, out):
        thread = threading.Thread(target=lose, daemon=True)
        thread.start()
        ew.copies([query] * 2, {"S": str(file)}, str(out), place=str(place), tell=_print_when)
        thread.join()
    print(f"joined after {took} s")
    assert history(out) == expected(query, file)
    assert took and took[0] < 5.0
