"""A query over files in this process: the answer, the untouched output, checkpoints that survive any kill."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everwhen as ew
from engine.checkpointed_run import query as joined_query
from engine.element_files import some, write
from everwhen.core.replay import EpochSize
from everwhen.engine.files.checkpoint import Checkpoint
from everwhen.engine.files.run import Progress, run_files
from everwhen.errors import EvaluationError, InputError, QueryError, StateError
from everwhen.formats.input_file import InputFile
from everwhen.formats.parquet import read_elements
from everwhen.storage.framed_file import PICKLED, SNAPSHOT, write_frames
from everwhen.stream.history import History
from everwhen.stream.validity import check
from state_files import loaded, stored

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
S = ew.source("S", {"k": "string", "x": "int64"})
QUERY = S.range(10).group_by("k").agg(n=ew.count(), s=ew.sum("x"))


def history(path: Path) -> History:
    return History.of(read_elements(path))


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
@pytest.mark.parametrize("emit", ["final", "ended", "current"])
def test_the_answer_is_that_of_run(tmp_path: Path, name: str, emit: str) -> None:
    elements = some(1, 300, "x")
    file = write(tmp_path / "s.jsonl", elements)
    seen: list[Progress] = []
    count = run_files(QUERY, {"S": file}, str(tmp_path / name), emit=emit, batch=7, progress=seen.append)
    expected = list(ew.run(QUERY, {"S": file}, emit=emit, batch=7))
    found = [e for batch in read_elements(tmp_path / name) for e in batch.elements()]
    assert list(map(str, found)) == list(map(str, expected)) and count == len(found)
    report = check(read_elements(tmp_path / name))
    assert report.valid and report.closed and (emit != "final" or report.perfect)
    assert seen[-1].read == len(elements) and seen[-1].said == count and seen[-1].ctis == {"S": ew.INF}


def test_an_open_run_says_what_a_running_query_had_said(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [{"vs": 1, "row": {"k": "a", "x": 2}}, {"op": "cti", "t": 5}])
    out = tmp_path / "out.jsonl"
    run_files(QUERY, {"S": file}, str(out), consistency=ew.STRONG, open=True)
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"op": "insert", "vs": 1, "ve": 5, "row": {"k": "a", "n": 1, "s": 2}},
        {"op": "cti", "t": 5},
    ]


def test_relations_are_there_before_the_first_element(tmp_path: Path) -> None:
    names = ew.source("N", {"k": "string", "name": "string"})
    query = S.join(names, on="k").select("name", "x")
    file = write(tmp_path / "s.jsonl", [{"vs": 1, "row": {"k": "a", "x": 2}}, {"vs": 4, "row": {"k": "b", "x": 3}}])
    rows = tmp_path / "n.csv"
    rows.write_text("k,name\na,Ann\nb,Bob\n")
    out = tmp_path / "out.jsonl"
    relation = InputFile(str(rows), names.schema, "constant")
    run_files(query, {"S": file, "N": relation}, str(out), emit="current", open=True, batch=1)
    assert [json.loads(line)["row"] for line in out.read_text().splitlines()] == [
        {"name": "Ann", "x": 2},
        {"name": "Bob", "x": 3},
    ]


def interrupt(progress: Progress) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("elements", "watch", "raised"),
    [
        ([{"vs": 1, "row": {"k": "a", "x": 1}}, {"op": "cti", "t": 9}, {"vs": 1, "row": {"k": "a"}}], None, InputError),
        ([{"vs": 1, "row": {"k": "a", "x": 2**62}}, {"vs": 1, "row": {"k": "a", "x": 2**62}}], None, EvaluationError),
        ([{"vs": 1, "row": {"k": "a", "x": 1}}], interrupt, KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_the_output_is_not_touched_on_errors(
    tmp_path: Path, elements: list[dict[str, Any]], watch: Callable[[Progress], None] | None, raised: type, name: str
) -> None:
    file = write(tmp_path / "s.jsonl", elements)
    out = tmp_path / name
    out.write_text("old")
    with pytest.raises(raised):
        run_files(QUERY, {"S": file}, str(out), batch=1, progress=watch)
    assert out.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == sorted(["s.jsonl", name])


def test_a_pipe_gets_nothing_on_errors_and_everything_else(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = write(tmp_path / "s.jsonl", [{"vs": 1, "row": {"k": "a", "x": 1}}])
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        run_files(QUERY, {"S": file}, str(pipe))
        assert reader.stdout is not None
        assert reader.stdout.read().count(b"\n") == 3
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "no input for S; the query reads S"),
        ({"S": "s.jsonl", "T": "s.jsonl"}, "the query does not read T; it reads S"),
    ],
)
def test_inputs_that_do_not_fit_the_query(inputs: dict[str, str], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        run_files(QUERY, inputs)


def test_batch_sizes_and_the_standard_input_are_checked(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", [])
    with pytest.raises(QueryError, match="at least one element"):
        run_files(QUERY, {"S": file}, batch=0)
    with pytest.raises(QueryError, match="cannot go on from the standard input"):
        run_files(QUERY, {"S": "-"}, checkpoint=str(tmp_path / "c"))
    two = QUERY.union(ew.source("T", QUERY.schema))
    with pytest.raises(QueryError, match="only one input"):
        run_files(two, {"S": "-", "T": "-"})
    with pytest.raises(FileNotFoundError):
        run_files(QUERY, {"S": str(tmp_path / "none")})


# -- checkpoints -------------------------------------------------------------------------------------------------------


class Stop(Exception):
    """The end of a run, as sudden as one within a process can be."""


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("every", [0.0, 3600.0])
def test_a_run_goes_on_where_it_was(tmp_path: Path, numbered: bool, every: float) -> None:
    streams = {"A": some(3, 200, "x"), "B": some(4, 90, "y")}
    if numbered:
        streams = {name: [{**e, "at": i} for i, e in enumerate(found)] for name, found in streams.items()}
    inputs: dict[str, str | InputFile] = {n: write(tmp_path / f"{n}.jsonl", found) for n, found in streams.items()}
    run_files(joined_query(), inputs, str(tmp_path / "expected.jsonl"), batch=20)
    place, out = tmp_path / "c", tmp_path / "out.jsonl"
    for stop in (1, 2, 5):
        left = [stop]

        def count(_: Progress, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Stop

        with pytest.raises(Stop):
            run_files(joined_query(), inputs, str(out), batch=20, checkpoint=str(place), progress=count, every=every)
        assert not out.exists()
    reads: list[int] = []

    def note(progress: Progress) -> None:
        reads.append(progress.read)

    run_files(joined_query(), inputs, str(out), batch=20, checkpoint=str(place), progress=note, every=every)
    assert out.read_text() == (tmp_path / "expected.jsonl").read_text()
    assert (reads[0] > 150) == (every == 0.0)  # eight epochs were saved, or none
    out.unlink()
    run_files(joined_query(), inputs, str(out), batch=20, checkpoint=str(place), progress=interrupt)
    assert out.read_text() == (tmp_path / "expected.jsonl").read_text()  # nothing was computed again


@pytest.mark.parametrize("now", [20, EpochSize(20, 3)])
def test_a_replay_goes_on_at_another_rate(tmp_path: Path, now: int | EpochSize) -> None:
    inputs = {"A": write(tmp_path / "A.jsonl", some(3, 200, "x")), "B": write(tmp_path / "B.jsonl", some(4, 90, "y"))}
    run_files(joined_query(), inputs, str(tmp_path / "expected.jsonl"), batch=20)
    out = str(tmp_path / "out.jsonl")
    more: dict[str, Any] = {"checkpoint": str(tmp_path / "c"), "every": 0.0}
    with pytest.raises(Stop):
        run_files(joined_query(), inputs, out, batch=EpochSize(20, 7), progress=_stop_after(90), **more)
    reads: list[int] = []

    def note(progress: Progress) -> None:
        reads.append(progress.read)

    run_files(joined_query(), inputs, out, batch=now, progress=note, **more)
    assert reads[0] > 80  # the epochs before were saved
    assert history(tmp_path / "out.jsonl").level_form == history(tmp_path / "expected.jsonl").level_form


def test_a_replay_that_forgets_goes_on_at_its_rate(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(1, 50, "x"))
    more: dict[str, Any] = {"consistency": ew.consistency(0, 5), "checkpoint": str(tmp_path / "c")}
    run_files(QUERY, {"S": file}, str(tmp_path / "out.jsonl"), batch=EpochSize(10_000, 7), **more)
    with pytest.raises(QueryError) as caught:
        run_files(QUERY, {"S": file}, str(tmp_path / "out.jsonl"), **more)
    assert "--rate or --speed: epochs of 7 elements before, none now" in str(caught.value)
    with pytest.raises(QueryError, match=r"or --migrate, .* same columns \(--rate or --speed as before\)"):
        run_files(QUERY.where(ew.col("n") > 1), {"S": file}, str(tmp_path / "out.jsonl"), **more)


def _stop_after(read: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.read > read:
            raise Stop

    return watch


def test_a_checkpoint_belongs_to_one_run(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(1, 50, "x"))
    out, place = str(tmp_path / "out.jsonl"), str(tmp_path / "c")
    run_files(QUERY, {"S": file}, out, checkpoint=place)

    def again(query: ew.Stream = QUERY, **options: Any) -> str:
        with pytest.raises(QueryError) as caught:
            run_files(query, {"S": file}, out, checkpoint=place, **options)
        return str(caught.value)

    assert "emit: current before, final now" in again(consistency=ew.STRONG)
    assert "batch: 10000 before, 5 now" in again(batch=5)
    assert "open: False before, True now" in again(open=True)
    assert "now   : Filter n > 1" in again(QUERY.where(ew.col("n") > 1))
    write(tmp_path / "s.jsonl", some(2, 50, "x"))
    assert "input S: " in again() and "take a new directory" in again()


def test_damage_is_noticed(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(1, 50, "x"))
    out, place = str(tmp_path / "out.jsonl"), tmp_path / "c"
    run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    (part,) = place.glob("part-*")
    kept = part.read_bytes()
    part.unlink()
    with pytest.raises(StateError, match="is missing"):
        run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    part.write_bytes(kept)
    (state,) = place.glob("state-*")
    state.write_bytes(state.read_bytes()[:-70])
    with pytest.raises(StateError, match=r"state-\d+ cannot be read: it ends within"):
        run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    (place / "run.json").write_text("{")
    with pytest.raises(StateError, match=r"run\.json cannot be read"):
        run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot use it as a checkpoint: a file stands where"):
        run_files(QUERY, {"S": file}, out, checkpoint=str(tmp_path / "file"))


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


def test_a_checkpoint_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(1, 50, "x"))
    out, place = str(tmp_path / "out.jsonl"), tmp_path / "c"
    run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    about, (state,) = place / "run.json", place.glob("state-*")
    now = about.read_text()
    about.write_text(json.dumps(json.loads(now) | {"format": 1, "version": "0.4.0"}))
    with pytest.raises(
        StateError, match=r"written by Everwhen 0\.4\.0, in format 1; this is Everwhen .* Finish the run"
    ):
        run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    about.write_text(now)
    bomb = pickle.dumps(Bomb(tmp_path / "it ran"), protocol=5)
    state.write_bytes(b"".join(write_frames(PICKLED, [[bomb]])))
    with pytest.raises(
        StateError, match=r"state-\d+ cannot be read: Everwhen 0\.4 or an older version .*; go on with the"
    ):
        run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    state.write_bytes(b"".join(write_frames(SNAPSHOT, [[bomb]])))
    with pytest.raises(StateError, match=r"state-\d+ cannot be read: it holds no state"):
        run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    assert not (tmp_path / "it ran").exists()


def test_a_state_that_somebody_has_written_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(1, 50, "x"))
    out, place = str(tmp_path / "out.jsonl"), tmp_path / "c"
    (tmp_path / "part-000000001.jsonl").write_text("a secret")
    run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    (state,) = place.glob("state-*")
    good = loaded(state.read_bytes())
    for wrong in (
        1,
        {},
        good | {"more": 1},
        good | {"epoch": "1"},
        good | {"taken": {"S": "all"}},
        good | {"parts": ("../part-000000001.jsonl",)},
        good | {"parts": (str(tmp_path / "part-000000001.jsonl"),)},
        good | {"parts": (7,)},
    ):
        state.write_bytes(stored(wrong))
        with pytest.raises(StateError, match=r"state-\d+ cannot be read: it "):
            run_files(QUERY, {"S": file}, out, checkpoint=str(place))
    for wrong in ({}, 5, {"bounds": (0, 0, "final"), "intakes": {}, "graph": {}}):
        state.write_bytes(stored(good | {"done": False, "state": wrong}))
        with pytest.raises(StateError, match="the state does not fit the query"):
            run_files(QUERY, {"S": file}, out, checkpoint=str(place))


def test_a_checkpoint_is_used_by_one_run_at_a_time(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(1, 50, "x"))
    store = Checkpoint(tmp_path / "c", QUERY.schema)
    with (
        store.held({"query": "another"}),
        pytest.raises(StateError, match=rf"in use by another run: process {os.getpid()} on"),
    ):
        run_files(QUERY, {"S": file}, str(tmp_path / "out.jsonl"), checkpoint=str(tmp_path / "c"))


def test_columns_that_parquet_has_no_room_for(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", some(1, 50, "x"))
    query = QUERY.rename(n="vs")
    run_files(query, {"S": file}, str(tmp_path / "a.jsonl"))
    run_files(query, {"S": file}, str(tmp_path / "b.jsonl"), checkpoint=str(tmp_path / "c"))
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()


@pytest.mark.property
def test_a_killed_run_ends_with_the_same_output(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.jsonl", some(i, 500, column)) for i, (name, column) in enumerate(["ax", "by"])]
    run_files(joined_query(), dict(zip("AB", files, strict=True)), str(tmp_path / "expected.jsonl"), batch=20)
    out, place = tmp_path / "out.jsonl", tmp_path / "c"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(HERE)])}
    rng = random.Random(7)

    def started(pause: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(HERE / "checkpointed_run.py"), *files, str(out), str(place), str(pause)]
        return subprocess.Popen(command, env=environment)

    def newest() -> int:
        return max((int(path.name[6:]) for path in place.glob("state-*")), default=0)

    kills = 0
    for _ in range(5):
        process = started(0.01)
        goal = newest() + rng.randrange(1, 5)
        while newest() < goal and process.poll() is None:
            time.sleep(0.003)
        time.sleep(rng.random() * 0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 3 and not out.exists()
    assert started(0.0).wait() == 0
    assert out.read_text() == (tmp_path / "expected.jsonl").read_text()
