"""Runs that go on: growing files and folders, exactly once whenever they are killed, and input that is wrong."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import everwhen as ew
from engine.checkpointed_run import query as joined_query
from engine.element_files import some, write
from everwhen.core.time import NEVER
from everwhen.engine.files.live.options import LiveOptions
from everwhen.engine.files.live.run import LiveRun
from everwhen.engine.files.run import run_files
from everwhen.errors import InputError, QueryError, SinkLostError, StateError
from everwhen.formats.changelog.layout import epochs_there, read_header, read_manifest
from everwhen.formats.changelog.readers import Word, leave_word, words
from everwhen.formats.changelog.reading import read_changelog
from everwhen.formats.input_file import InputFile
from everwhen.formats.parquet import read_elements
from everwhen.sinks.changelog import ChangelogSink
from everwhen.storage.folder import LocalFolder
from everwhen.stream.history import History
from everwhen.stream.validity import check

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
S = ew.source("S", {"k": "string", "x": "int64"})
QUERY = S.range(10).group_by("k").agg(n=ew.count(), s=ew.sum("x"))
END: dict[str, Any] = {"op": "cti", "t": None}


def lines(elements: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(element) + "\n" for element in elements).encode()


def said(path: Path) -> list[str]:
    return [str(element) for batch in read_changelog(path) for element in batch.elements()]


def history(path: Path) -> History:
    assert check(read_changelog(path)).valid
    return History.of(read_changelog(path)).coalesced()


def expected(query: ew.Stream, inputs: dict[str, Any], **options: Any) -> History:
    return History.of(list(ew.run(query, inputs, **options)), query.schema).coalesced()


@contextmanager
def growing(path: Path, pieces: list[bytes], pause: float = 0.03) -> Iterator[None]:
    """A file to which somebody appends."""

    def append() -> None:
        with open(path, "ab", buffering=0) as file:
            for piece in pieces:
                time.sleep(pause)
                file.write(piece)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("emit", ["final", "current"])
def test_a_file_that_grows(tmp_path: Path, emit: str) -> None:
    elements = [*some(3, 300, "x"), END]
    data = lines(elements)
    cuts = sorted(random.Random(5).sample(range(len(data)), 12))  # in the middle of lines
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    with growing(tmp_path / "s.jsonl", pieces):
        count = ew.follow(QUERY, {"S": f"{tmp_path}/s.jsonl"}, f"{tmp_path}/out", emit=emit, checkpoint=f"{tmp_path}/c")
    assert history(tmp_path / "out") == expected(QUERY, {"S": f"{tmp_path}/s.jsonl"}, emit=emit)
    assert count == len(said(tmp_path / "out")) and said(tmp_path / "out")[-1] == "cti ∞"
    again = ew.follow(QUERY, {"S": f"{tmp_path}/s.jsonl"}, f"{tmp_path}/out", emit=emit, checkpoint=f"{tmp_path}/c")
    assert again == count == len(said(tmp_path / "out"))


def test_a_chain_of_folders_and_a_relation(tmp_path: Path) -> None:
    """The answer of a run is the input of the next one, while both go on; a relation is there first."""
    (tmp_path / "names.csv").write_text("k,name\na,Anna\nb,Ben\nc,Cy\n")
    names = ew.source("N", {"k": "string", "name": "string"})
    second = ew.source("A", QUERY.schema).join(names, on="k").select("name", "n")
    elements = [*some(4, 200, "x"), END]
    data = lines(elements)
    pieces = [data[a : a + 1500] for a in range(0, len(data), 1500)]
    inputs = {
        "A": InputFile(f"{tmp_path}/first/", QUERY.schema),
        "N": InputFile(f"{tmp_path}/names.csv", names.schema, "constant"),
    }
    thread = _aside(second, inputs, f"{tmp_path}/second")
    with growing(tmp_path / "s.jsonl", pieces):
        ew.follow(QUERY, {"S": f"{tmp_path}/s.jsonl"}, f"{tmp_path}/first", keep="unread", checkpoint=f"{tmp_path}/c")
    _ended(thread)
    rows = [ew.Insert(0, ew.INF, {"k": k, "name": n}) for k, n in (("a", "Anna"), ("b", "Ben"), ("c", "Cy"))]
    whole = S.range(10).group_by("k").agg(n=ew.count(), s=ew.sum("x")).join(names, on="k").select("name", "n")
    assert history(tmp_path / "second") == expected(whole, {"S": f"{tmp_path}/s.jsonl", "N": rows})
    (word,) = words(LocalFolder(str(tmp_path / "first")))
    assert word.read == epochs_there(LocalFolder(str(tmp_path / "first")))[-1] + 1


def test_little_is_said_soon(tmp_path: Path) -> None:
    """An element that comes while nothing else does is answered within a moment."""
    path, out = tmp_path / "s.jsonl", tmp_path / "out"
    path.write_bytes(lines([{"vs": 1, "row": {"k": "a", "x": 1}}]))
    thread = _aside(S, {"S": str(path)}, str(out))
    folder = LocalFolder(str(out))
    delays = []
    try:
        for number in range(1, 12):
            _until(lambda n=number: len(epochs_there(folder)) >= n)  # type: ignore[misc]
            began = time.monotonic()
            with open(path, "ab") as file:
                file.write(lines([{"vs": 1 + number, "row": {"k": "a", "x": number}}]))
            _until(lambda n=number: len(epochs_there(folder)) > n)  # type: ignore[misc]
            delays.append(time.monotonic() - began)
    finally:
        with open(path, "ab") as file:
            file.write(lines([END]))
        _ended(thread)
    assert sorted(delays)[len(delays) // 2] < 0.1, delays


def _aside(*arguments: Any) -> threading.Thread:
    """A run in a thread of its own."""
    thread = threading.Thread(target=ew.follow, args=arguments, daemon=True)
    thread.start()
    return thread


def _ended(thread: threading.Thread) -> None:
    thread.join(60.0)  # loops may have to be compiled
    assert not thread.is_alive(), "the run goes on"


def _until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.005)


# -- killed -----------------------------------------------------------------------------------------------------------


class _Killed(BaseException):
    """What a kill -9 is to a test in one process: nothing more happens."""


@contextmanager
def killed_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process dies at some change of the file system, the n-th: just before it or just after it."""
    calls = [0]
    with monkeypatch.context() as patch:
        for name in ("link", "replace"):
            real = getattr(os, name)

            def dying(*arguments: Any, _real: Any = real, **named: Any) -> Any:
                calls[0] += 1
                if moment == 2 * calls[0]:
                    raise _Killed
                found = _real(*arguments, **named)
                if moment == 2 * calls[0] + 1:
                    raise _Killed
                return found

            patch.setattr(os, name, dying)
        yield calls


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_changes_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Wherever it dies, it goes on, and says every element once, in the same epochs as if nothing had happened."""
    inputs = {"S": write(tmp_path / "s.jsonl", [*some(5, 120, "x"), END])}

    def run(name: str) -> None:
        place = tmp_path / name
        ew.follow(QUERY, inputs, f"{place}/out", checkpoint=f"{place}/c", batch=25, every=0.0)

    with killed_at(-1, monkeypatch) as calls:
        run("whole")
    whole = said(tmp_path / "whole" / "out")
    assert calls[0] > 15
    for moment in range(2, 2 * calls[0] + 2, every):
        with killed_at(moment, monkeypatch), pytest.raises(_Killed):
            run("killed")
        if moment % 3 == 0:  # and again, on the way back
            with killed_at(3 + moment % 7, monkeypatch), suppress(_Killed):
                run("killed")
        run("killed")
        assert said(tmp_path / "killed" / "out") == whole, moment
        shutil.rmtree(tmp_path / "killed")


PROGRAM = """
import sys
from engine.checkpointed_run import query
import everwhen as ew
a, b, out, checkpoint = sys.argv[1:]
ew.follow(query(), {"A": a, "B": b}, out, checkpoint=checkpoint, batch=50, every=0.1)
"""


def _kill_often(tmp_path: Path, kills: int, seed: int) -> None:
    """A run over two growing files is killed at random moments; the answer is that of an undisturbed one."""
    rng = random.Random(seed)
    data = {name: lines([*some(seed + i, 400 * kills, "xy"[i]), END]) for i, name in enumerate("AB")}
    files = {name: tmp_path / f"{name}.jsonl" for name in data}
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", PROGRAM, *map(str, files.values()), f"{tmp_path}/out", f"{tmp_path}/c"]
    pieces = {name: [text[a : a + 3000] for a in range(0, len(text), 3000)] for name, text in data.items()}
    with growing(files["A"], pieces["A"], 0.04), growing(files["B"], pieces["B"], 0.05):
        for _ in range(kills):
            process = subprocess.Popen(command, env=env)
            seen = len(epochs_there(LocalFolder(f"{tmp_path}/out")))
            while process.poll() is None and len(epochs_there(LocalFolder(f"{tmp_path}/out"))) <= seen:
                time.sleep(0.01)
            time.sleep(rng.random() * 0.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run(command, env=env, check=True)
    inputs = {name: str(path) for name, path in files.items()}
    assert history(tmp_path / "out") == expected(joined_query(), inputs)


@pytest.mark.property
def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    _kill_often(tmp_path, 1, 11)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_kill_9_at_many_random_moments(tmp_path: Path, seed: int) -> None:
    _kill_often(tmp_path, 12, seed)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """An error of whoever watches ends the run between two epochs; without a checkpoint it repeats all."""
    elements = some(6, 300, "x")
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(elements[:200]))

    def stop(progress: Any) -> None:
        if progress.read >= 100:
            raise KeyboardInterrupt

    for place in (None, f"{tmp_path}/c"):
        out = tmp_path / ("without" if place is None else "with")
        with pytest.raises(KeyboardInterrupt):
            ew.follow(QUERY, {"S": str(path)}, str(out), checkpoint=place, batch=30, progress=stop)
    with open(path, "ab") as file:
        file.write(lines([*elements[200:], END]))
    for place in (None, f"{tmp_path}/c"):
        out = tmp_path / ("without" if place is None else "with")
        ew.follow(QUERY, {"S": str(path)}, str(out), checkpoint=place, batch=40)
        assert history(out) == expected(QUERY, {"S": str(path)})


# -- copies that begin anew -------------------------------------------------------------------------------------------


def _copy(path: Path) -> ChangelogSink:
    sink = ChangelogSink(path)
    sink.prepare(S.schema)
    return sink


def _elements(*found: Any) -> ew.ElementBatch:
    return ew.ElementBatch.of(found, S.schema)


def test_a_merge_takes_a_writer_that_began_anew_for_a_new_input(tmp_path: Path) -> None:
    a, b = (ew.source(name, S.schema) for name in "ab")
    merged = ew.lmerge(a, b)
    one, two, three = ({"k": "a", "x": x} for x in (1, 2, 3))
    first, second = _copy(tmp_path / "a"), _copy(tmp_path / "b")
    first.commit(0, _elements(ew.Insert(0, 9, one), ew.Insert(4, ew.INF, two), ew.Cti(5)))
    second.commit(0, _elements(ew.Insert(0, 9, one), ew.Cti(2)))
    inputs = {name: f"{tmp_path}/{name}/" for name in "ab"}
    thread = _aside(merged, inputs, f"{tmp_path}/out")
    folder = LocalFolder(f"{tmp_path}/out")
    _until(lambda: "cti 5" in _said_so_far(folder))
    # the first copy loses its state, and goes on with what it knows from 5 on: an event has kept its name
    first.begin_anew(since=5)
    first.commit(1, _elements(ew.Insert(0, 9, one), ew.Insert(4, ew.INF, two), ew.Cti(5)))
    first.commit(2, _elements(ew.Adjust(4, ew.INF, 8, two), ew.Insert(7, 12, three), ew.Cti(8)))
    _until(lambda: "cti 8" in _said_so_far(folder))
    second.commit(1, _elements(ew.Insert(4, 8, two), ew.Insert(7, 12, three), ew.Cti(ew.INF)))
    thread.join()
    assert (
        history(tmp_path / "out")
        == History.of(_elements(ew.Insert(0, 9, one), ew.Insert(4, 8, two), ew.Insert(7, 12, three))).coalesced()
    )
    assert {word.cares for word in words(LocalFolder(f"{tmp_path}/a"))} == {ew.INF}


def _said_so_far(folder: LocalFolder) -> list[str]:
    return said(Path(folder.path)) if (Path(folder.path) / "_changelog.json").exists() else []


def test_what_is_right_from_an_instant_on_gives_an_answer_from_later_on(tmp_path: Path) -> None:
    sink = ChangelogSink(tmp_path / "s", since=100)
    sink.prepare(S.schema)
    sink.commit(0, _elements(ew.Insert(100, 101, {"k": "a", "x": 1}), ew.Cti(ew.INF)))
    ew.follow(QUERY, {"S": f"{tmp_path}/s/"}, f"{tmp_path}/out")
    assert read_header(LocalFolder(f"{tmp_path}/out")).start.since == 109  # the window has a past of ten ticks
    rows = S.rows(3)
    with pytest.raises(QueryError, match="never be right: S is right from 100 on only"):
        ew.follow(rows, {"S": f"{tmp_path}/s/"}, f"{tmp_path}/rows")


def test_a_finite_run_over_what_is_right_from_an_instant_on(tmp_path: Path) -> None:
    """A merge counts it from there on; of another answer it is told from when on it is right."""
    row = {"k": "a", "x": 1}
    whole, late = ChangelogSink(tmp_path / "a"), ChangelogSink(tmp_path / "b", since=100)
    for sink, elements in (
        (whole, [ew.Insert(50, 120, row), ew.Cti(110)]),
        (late, [ew.Insert(100, 120, row), ew.Insert(130, 131, row), ew.Cti(140)]),
    ):
        sink.prepare(S.schema)
        sink.commit(0, _elements(*elements))
    a, b = (ew.source(name, S.schema) for name in "ab")
    told: list[str] = []
    inputs = {"a": f"{tmp_path}/a/", "b": f"{tmp_path}/b/"}
    run_files(ew.lmerge(a, b), inputs, f"{tmp_path}/out.jsonl", tell=told.append)
    found = History.of(read_elements(tmp_path / "out.jsonl", S.schema)).coalesced()
    assert found == History.of(_elements(ew.Insert(50, 120, row), ew.Insert(130, 131, row))) and not told
    run_files(QUERY, {"S": f"{tmp_path}/b/"}, f"{tmp_path}/other.jsonl", tell=told.append)
    assert told == ["S is right from 100 on, so the answer is right from 109 on"]


def test_a_seed_begins_with_what_stands(tmp_path: Path) -> None:
    """A run without state takes that of another one: from the instant in its header on it says the same."""
    elements = some(8, 400, "x")
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(elements[:250]))

    class _Enough(Exception):
        pass

    def stop_at(count: int) -> Callable[[Any], None]:
        def stop(progress: Any) -> None:
            if progress.read >= count:
                raise _Enough

        return stop

    for number, query in enumerate((QUERY, S.where(ew.col("x") > 2), S.range(10).select("k"))):
        place = tmp_path / str(number)
        inputs = {"S": str(path)}
        with pytest.raises(_Enough):
            ew.follow(
                query, inputs, f"{place}/out", checkpoint=f"{place}/c", batch=50, every=0.0, progress=stop_at(250)
            )
        options = LiveOptions(batch=50, seed=f"{place}/c")
        path.write_bytes(lines([*elements, END]))
        LiveRun(query, inputs, f"{place}/copy", f"{place}/c2", ew.MIDDLE, options).run()
        start = read_header(LocalFolder(f"{place}/copy")).start
        whole = expected(query, inputs)
        assert start.since > NEVER and check(read_changelog(f"{place}/copy")).valid
        assert _from(history(place / "copy"), start.since) == _from(whole, start.since)
        assert (read_manifest(LocalFolder(f"{place}/copy"), 0).run or {})["seeded"]
        path.write_bytes(lines(elements[:250]))


def _from(found: History, since: int) -> set[Any]:
    return {(max(vs, since), ve, row) for vs, ve, row in found.events() if ve > since}


def test_who_lags_is_fast_forwarded_to_where_its_readers_care(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers' word reaches the runtime once; the manifest tells of it, and a restart does the same again."""
    monkeypatch.setenv("EVERWHEN_LAG", "0")
    asked: list[int] = []

    def fast_forward(self: ew.LocalRuntime, t: int) -> dict[str, ew.ElementBatch]:
        asked.append(t)
        return self.push({})

    monkeypatch.setattr(ew.LocalRuntime, "fast_forward", fast_forward)
    path, out = tmp_path / "s.jsonl", LocalFolder(f"{tmp_path}/out")
    path.write_bytes(lines([{"vs": t, "row": {"k": "a", "x": t}} for t in range(3)]))
    leave_word(out, Word("merge", 0, 2))
    leave_word(out, Word("another", 0, 40))

    def stop(progress: Any) -> None:
        if asked and progress.read == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ew.follow(S, {"S": str(path)}, out.path, batch=1, progress=stop)
    runs = [read_manifest(out, epoch).run or {} for epoch in epochs_there(out)]
    assert asked == [2] and [step["forward"] for run in runs for step in run["steps"] if "forward" in step] == [2]
    assert read_header(out).start.since == 2
    with open(path, "ab") as file:
        file.write(lines([END]))
    ew.follow(S, {"S": str(path)}, out.path)
    assert asked == [2, 2] and said(Path(out.path))[-1] == "cti ∞"


def test_a_fast_forwarded_run_is_exact_from_there_on_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERWHEN_LAG", "0")
    elements = some(12, 300, "x")
    path, out = tmp_path / "s.jsonl", LocalFolder(f"{tmp_path}/out")
    path.write_bytes(lines(elements[:150]))
    leave_word(out, Word("merge", 0, 30))

    def stop(progress: Any) -> None:
        if progress.read >= 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ew.follow(QUERY, {"S": str(path)}, out.path, batch=20, checkpoint=f"{tmp_path}/c", every=0.0, progress=stop)
    with open(path, "ab") as file:
        file.write(lines([*elements[150:], END]))
    leave_word(out, Word("merge", 0, 50))
    ew.follow(QUERY, {"S": str(path)}, out.path, batch=20, checkpoint=f"{tmp_path}/c")
    since = read_header(out).start.since
    whole = expected(QUERY, {"S": str(path)})
    assert since in (30, 50) and _from(history(Path(out.path)), since) == _from(whole, since)


# -- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_wrong_line_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    good = [{"vs": t, "row": {"k": "a", "x": t}} for t in range(6)]
    path.write_bytes(lines(good[:3]) + b'{"vs":3,"row"}\n' + lines([*good[4:], END]))
    inputs, out = {"S": str(path)}, f"{tmp_path}/out"
    with pytest.raises(InputError, match=r"s\.jsonl:4: not JSON"):
        ew.follow(S, inputs, out, checkpoint=f"{tmp_path}/c")
    assert epochs_there(LocalFolder(out)) == []
    path.write_bytes(lines([*good, END]))
    ew.follow(S, inputs, out, checkpoint=f"{tmp_path}/c")
    assert history(Path(out)) == expected(S, inputs)


@pytest.mark.parametrize("where", ["file", "folder"])
def test_an_adjust_of_nothing(tmp_path: Path, where: str) -> None:
    nothing = ew.Adjust(3, 9, 4, {"k": "b", "x": 7})
    good = [ew.Insert(t, t + 1, {"k": "a", "x": t}) for t in range(3)]
    if where == "folder":
        sink = _copy(tmp_path / "s")
        sink.commit(0, _elements(*good[:2]))
        sink.commit(1, _elements(good[2], nothing))
        file, place = f"{tmp_path}/s/", r"epoch=1/part-00000\.parquet:2"
    else:
        file = str(tmp_path / "s.jsonl")
        found = [{"vs": e.vs, "row": dict(e.row)} for e in good]
        (tmp_path / "s.jsonl").write_bytes(
            lines([*found, {"op": "adjust", "vs": 3, "ve": 9, "vnew": 4, "row": {"k": "b", "x": 7}}])
        )
        place = r"s\.jsonl:4"
    with pytest.raises(InputError, match=place):
        ew.follow(S, {"S": file}, f"{tmp_path}/out")
    assert epochs_there(LocalFolder(f"{tmp_path}/out")) == []


def test_other_columns_and_names(tmp_path: Path) -> None:
    sink = ChangelogSink(tmp_path / "s")
    sink.prepare(QUERY.schema)
    sink.commit(0, ew.ElementBatch.of([ew.Cti(ew.INF)], QUERY.schema))
    with pytest.raises(InputError, match=r"_changelog\.json: the changelog has the columns \(k string, n int64"):
        ew.follow(S, {"S": f"{tmp_path}/s/"}, f"{tmp_path}/out")
    with pytest.raises(QueryError, match="no input for S"):
        ew.follow(S, {}, f"{tmp_path}/out")
    with pytest.raises(QueryError, match="does not read T; it reads S"):
        ew.follow(S, {"S": "s.jsonl", "T": "t.jsonl"}, f"{tmp_path}/out")
    with pytest.raises(QueryError, match="cannot be followed"):
        ew.follow(S, {"S": "-"}, f"{tmp_path}/out")
    with pytest.raises(QueryError, match=r"nowhere\.jsonl: not there after 0\.1 seconds"):
        ew.follow(S, {"S": f"{tmp_path}/nowhere.jsonl"}, f"{tmp_path}/out", wait=0.1)


def test_a_file_that_is_not_what_it_was(tmp_path: Path) -> None:
    path, out = tmp_path / "s.jsonl", f"{tmp_path}/out"
    good = [{"vs": t, "row": {"k": "a", "x": t}} for t in range(6)]
    path.write_bytes(lines(good))

    def stop(progress: Any) -> None:
        if progress.read == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ew.follow(S, {"S": str(path)}, out, checkpoint=f"{tmp_path}/c", every=0.0, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        ew.follow(S, {"S": str(path)}, out, checkpoint=f"{tmp_path}/c", every=0.0, progress=stop)
    path.write_bytes(lines(good[::-1]))
    with pytest.raises(StateError, match="not the file that was read"):
        ew.follow(S, {"S": str(path)}, out, checkpoint=f"{tmp_path}/c")
    path.write_bytes(lines(good[:2]))
    with pytest.raises(StateError, match=r"not the file that was read|shorter"):
        ew.follow(S, {"S": str(path)}, out, checkpoint=f"{tmp_path}/c")
    path.write_bytes(lines(good))

    def shorten(progress: Any) -> None:
        if progress.read == 6:
            path.write_bytes(lines(good[:3]))

    with pytest.raises(InputError, match="become shorter"):
        ew.follow(S, {"S": str(path)}, f"{tmp_path}/other", progress=shorten)


def test_an_output_that_belongs_to_another_run_or_is_lost(tmp_path: Path) -> None:
    inputs = {"S": write(tmp_path / "s.jsonl", [*some(9, 60, "x"), END])}
    ew.follow(QUERY, inputs, f"{tmp_path}/out", checkpoint=f"{tmp_path}/c", every=0.0, batch=10)
    with pytest.raises(QueryError, match="belongs to another run"):
        ew.follow(QUERY, inputs, f"{tmp_path}/out", checkpoint=f"{tmp_path}/c", emit="final")
    with pytest.raises(QueryError, match="there is the answer of another run"):
        ew.follow(QUERY, inputs, f"{tmp_path}/out", emit="final")
    with pytest.raises(SinkLostError, match="of the changelog is gone"):
        ew.follow(QUERY, inputs, f"{tmp_path}/other", checkpoint=f"{tmp_path}/c")
    with pytest.raises(QueryError, match="belongs to another run"):
        ew.follow(QUERY, inputs, f"{tmp_path}/other", checkpoint=f"{tmp_path}/c", emit="final")
    assert not (tmp_path / "other").exists()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(SinkLostError, match="of the changelog is gone"):
        ew.follow(QUERY, inputs, f"{tmp_path}/out", checkpoint=f"{tmp_path}/c")


def test_a_writer_that_begins_anew_ends_a_query_that_is_no_merge(tmp_path: Path) -> None:
    sink = _copy(tmp_path / "s")
    sink.commit(0, _elements(ew.Insert(0, 9, {"k": "a", "x": 1})))

    def anew(progress: Any) -> None:
        if progress.read == 1 and sink.committed() == 0:
            sink.begin_anew()
            sink.commit(1, _elements(ew.Insert(0, 9, {"k": "a", "x": 1}), ew.Cti(ew.INF)))

    with pytest.raises(InputError, match="the writer of S has begun anew"):
        ew.follow(S, {"S": f"{tmp_path}/s/"}, f"{tmp_path}/out", progress=anew)


def test_a_function_that_does_not_always_give_the_same_is_noticed(tmp_path: Path) -> None:
    inputs = {"S": write(tmp_path / "s.jsonl", some(10, 60, "x"))}

    def stop(progress: Any) -> None:
        if progress.read >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ew.follow(QUERY, inputs, f"{tmp_path}/out", batch=10, progress=stop)
    manifest = tmp_path / "out" / "_epochs" / "0.json"
    told = json.loads(manifest.read_text())
    told["run"]["elements"] += 1
    manifest.write_text(json.dumps(told))
    with pytest.raises(StateError, match="does not always give the same"):
        ew.follow(QUERY, inputs, f"{tmp_path}/out", batch=10)
