"""A query over files on Spark: the same histories as in process, the untouched output, runs that are taken up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from engine.element_files import some as disordered
from engine.element_files import write
from everwhen.engine.files.run import Progress, run_files
from everwhen.errors import InputError, QueryError
from everwhen.formats.input_file import InputFile
from everwhen.formats.parquet import read_elements
from everwhen.spark.api.run_files import run_files_on_spark
from everwhen.spark.driver.plan_log import read_record
from everwhen.stream.history import History, first_difference
from everwhen.stream.validity import check

S = ew.source("S", {"k": "string", "x": "int64"})
NAMES = ew.source("Names", {"k": "string", "Name": "string", "name": "string"})
QUERY = S.range(10).group_by("k").agg(n=ew.count(), s=ew.sum("x")).join(NAMES, on="k")


def some(seed: int, count: int) -> list[dict[str, Any]]:
    """A stream with disorder, adjusts, promises and patterns."""
    return [*disordered(seed, count, "x", adjusts=0.2, promises=0.1), {"op": "punct", "match": {"k": "z"}}]


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, str | InputFile]:
    rows = write(tmp_path / "names.jsonl", [{"k": k, "Name": k.upper(), "name": None} for k in "abd"])
    return {"S": write(tmp_path / "s.jsonl", some(5, 60)), "Names": InputFile(rows, NAMES.schema, "constant")}


@pytest.mark.parametrize(
    ("emit", "left_open", "name"),
    [pytest.param("final", False, "out.jsonl", marks=pytest.mark.slow), ("final", True, "out.parquet"),
     ("ended", False, "out.jsonl"), pytest.param("current", False, "out.parquet", marks=pytest.mark.slow),
     pytest.param("current", True, "out.jsonl", marks=pytest.mark.slow)],
)  # fmt: skip
def test_spark_says_what_the_local_engine_says(
    spark: SparkSession, tmp_path: Path, inputs: dict[str, str | InputFile], emit: str, left_open: bool, name: str
) -> None:
    a, b = tmp_path / f"local-{name}", tmp_path / f"spark-{name}"
    options: dict[str, Any] = {"emit": emit, "batch": 25, "open": left_open}
    run_files(QUERY, inputs, str(a), **options)
    seen: list[Progress] = []
    count = run_files_on_spark(QUERY, inputs, str(b), **options, progress=seen.append, buckets=2)
    local, on_spark = (History.of(read_elements(path)) for path in (a, b))
    assert first_difference(local, on_spark) is None and len(local)
    reports = [check(read_elements(path)) for path in (a, b)]
    assert reports[1].valid and reports[0].closed_up_to == reports[1].closed_up_to
    assert reports[1].elements == count and (emit != "final" or reports[1].perfect)
    assert seen[0].words == "reading" and any("starting Spark" in one.words for one in seen)


def test_a_wrong_element_is_named_before_spark_starts(
    tmp_path: Path, inputs: dict[str, str | InputFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everwhen.spark.api.run_files.session_for", lambda *_: pytest.fail("Spark was started"))
    late = write(tmp_path / "late.jsonl", [{"op": "cti", "t": 5}, {"vs": 1, "row": {"k": "a", "x": 1}}])
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    with pytest.raises(InputError, match=r"late\.jsonl:2: an insert that starts at 1, behind the CTI 5"):
        run_files_on_spark(QUERY, {**inputs, "S": late}, str(out))
    pattern = [{"op": "punct", "match": {"k": "a"}}, {"vs": 1, "row": {"k": "a", "x": 1}}]
    with pytest.raises(InputError, match=r"late\.jsonl:2: .*ruled out"):
        run_files_on_spark(QUERY, {**inputs, "S": write(tmp_path / "late.jsonl", pattern)}, str(out))
    assert out.read_text() == "old"
    odd = ew.source("S", {"x": pa.uint64()})
    with pytest.raises(QueryError, match=r"'x' of S is of type uint64, which Spark cannot carry.*--engine local"):
        run_files_on_spark(odd, {"S": late}, str(out))


def test_an_empty_input_that_is_left_open_needs_no_spark(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run_files_on_spark(S, {"S": write(tmp_path / "s.jsonl", [])}, str(out), open=True) == 0
    assert out.read_text() == ""


class Stop(Exception):
    """The end of a run in its middle."""


def test_a_run_that_was_stopped_goes_on(
    spark: SparkSession, tmp_path: Path, inputs: dict[str, str | InputFile]
) -> None:
    out, place = tmp_path / "out.jsonl", str(tmp_path / "c")
    run_files(QUERY, inputs, str(tmp_path / "expected.jsonl"), batch=20)

    others = {query.id for query in spark.streams.active}

    def stop(word: str) -> None:
        def watch(progress: Progress) -> None:
            if word in progress.words:
                raise Stop

        with pytest.raises(Stop):
            run_files_on_spark(QUERY, inputs, str(out), batch=20, checkpoint=place, progress=watch, buckets=2)
        assert not out.exists()
        assert not [query.name for query in spark.streams.active if query.isActive and query.id not in others]

    stop("reading")
    stop("starting")
    stop("running epoch 2")
    with pytest.raises(QueryError, match="batch: 20 before, 10 now"):
        run_files_on_spark(QUERY, inputs, str(out), batch=10, checkpoint=place)
    run_files_on_spark(QUERY, inputs, str(out), batch=20, checkpoint=place)
    difference = first_difference(*(History.of(read_elements(p)) for p in (tmp_path / "expected.jsonl", out)))
    assert difference is None and check(read_elements(out)).valid
    first = out.read_text()
    out.unlink()

    def fail(progress: Progress) -> None:
        pytest.fail("it was computed again")

    run_files_on_spark(QUERY, inputs, str(out), batch=20, checkpoint=place, progress=fail)
    assert out.read_text() == first


@pytest.mark.slow
def test_plans_texts_and_partitions_of_a_run_change(spark: SparkSession, tmp_path: Path) -> None:
    """A run that changes its plan every epoch; and one that goes on as another text, in more partitions."""
    rows = write(tmp_path / "s.jsonl", disordered(5, 60, "x", adjusts=0.2, promises=0.2))
    inner = "SELECT k, x, COUNT(*) AS c FROM S WINDOW(RANGE 3) WHERE x >= 2 GROUP BY k, x"
    first = ew.sql("SELECT k, COUNT(*) AS n, MAX(x) AS m FROM S WINDOW(RANGE 3) WHERE x >= 2 GROUP BY k", S)
    second = ew.sql(f"SELECT k, SUM(c) AS n, MAX(x) AS m FROM ({inner}) AS w GROUP BY k", S)
    out, place, given = tmp_path / "out.jsonl", str(tmp_path / "c"), {"S": rows}
    run_files(first, given, str(tmp_path / "expected.jsonl"), batch=8)

    def exact() -> bool:
        difference = first_difference(*(History.of(read_elements(p)) for p in (tmp_path / "expected.jsonl", out)))
        return difference is None and check(read_elements(out)).valid

    again = str(tmp_path / "again")
    run_files_on_spark(second, given, str(out), batch=12, checkpoint=again, buckets=2, replan_every=1)
    assert exact() and read_record(f"{again}/spark") is not None

    def watch(progress: Progress) -> None:
        if "running epoch 4" in progress.words:
            raise Stop

    with pytest.raises(Stop):
        run_files_on_spark(first, given, str(out), batch=8, checkpoint=place, progress=watch, buckets=2)
    with pytest.raises(QueryError, match="belongs to another run"):
        run_files_on_spark(second, given, str(out), batch=8, checkpoint=place)
    told: list[str] = []
    run_files_on_spark(second, given, str(out), batch=8, checkpoint=place, migrate=True, buckets=3, tell=told.append)
    assert exact() and any("the new text counts from" in words for words in told), told
    with pytest.raises(QueryError, match="is finished: there is nothing to go on from"):
        run_files_on_spark(first, given, str(out), batch=8, checkpoint=place, migrate=True, tell=told.append)
    told.clear()
    run_files_on_spark(first, given, str(out), batch=8, checkpoint=str(tmp_path / "n"), migrate=True, tell=told.append)
    assert exact() and "nothing was saved yet: the new text counts from the beginning" in told


# -- the program, stopped and killed -----------------------------------------------------------------------------------

PROGRAM = "SELECT k, COUNT(*) AS n FROM S WINDOW(RANGE 10) GROUP BY k"


def started(place: Path, *more: object) -> subprocess.Popen[bytes]:
    (place / "q.sql").write_text(PROGRAM)
    command = [sys.executable, "-m", "everwhen.cli", "run", "q.sql", "--in", "S=s.jsonl", "--out", "out.jsonl"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(
        [*command, "--engine", "spark", "--batch", "10", *map(str, more)],
        cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def alive(process: subprocess.Popen[bytes]) -> list[str]:
    """The processes of a session."""
    found = subprocess.run(["ps", "-eo", "sid,stat,args"], capture_output=True, text=True, check=True).stdout
    lines = (line.split(maxsplit=2) for line in found.splitlines())
    return [args for sid, stat, args in lines if sid == str(process.pid) and not stat.startswith("Z")]


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [0, 2])
def test_ctrl_c_ends_everything_quietly(tmp_path: Path, epochs: int) -> None:
    write(tmp_path / "s.jsonl", some(5, 500))
    (tmp_path / "out.jsonl").write_text("old")
    with started(tmp_path, "--checkpoint", "c") as process:
        while len(list(tmp_path.glob("c/answer/_epochs/*"))) < epochs or not (tmp_path / "c/spark.log").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(120) == 130
        told = b"everwhen: interrupted; the output is as it was; the same command goes on from the checkpoint\n"
        assert process.stderr is not None and process.stderr.read() == told
    for _ in range(100):
        if not alive(process):
            break
        time.sleep(0.1)
    assert not alive(process)
    assert (tmp_path / "out.jsonl").read_text() == "old"


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_history(tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", some(5, 300))
    for goal in (1, 4, 9):
        with started(tmp_path, "--checkpoint", "c") as process:
            while len(list(tmp_path.glob("c/answer/_epochs/*"))) < goal and process.poll() is None:
                time.sleep(0.05)
            process.kill()
        assert not (tmp_path / "out.jsonl").exists()
    with started(tmp_path, "--checkpoint", "c") as process:
        assert process.wait(600) == 0
    os.rename(tmp_path / "out.jsonl", tmp_path / "spark.jsonl")
    with started(tmp_path, "--engine", "local") as process:
        assert process.wait(600) == 0
    a, b = (History.of(read_elements(tmp_path / name)) for name in ("out.jsonl", "spark.jsonl"))
    assert first_difference(a, b) is None and check(read_elements(tmp_path / "spark.jsonl")).valid
