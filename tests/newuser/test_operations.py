"""What a new user met when runs were interrupted, started and watched; each was a problem once."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import everwhen as ew
from everwhen import startup
from everwhen.algebra.node import walk
from everwhen.cli import input_size
from everwhen.cli import run as cli_run
from everwhen.cli.input_size import bytes_of, expected_elements
from everwhen.cli.program import main
from everwhen.cli.progress import _Line
from everwhen.engine import interruption
from everwhen.engine.files.run import Progress
from everwhen.engine.interruption import StepsApart, calls_functions, require_sound
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.sql_session import SqlSession
from everwhen.formats.input_file import InputFile
from everwhen.language.program import program
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.join.loops import join as join_loops

SOURCES = Path(__file__).parents[2] / "src"


# -- Ctrl-C and SIGTERM while the program is loaded ----------------------------------------------------------------


@pytest.mark.parametrize(("asked", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_the_program_is_loaded_is_a_line(asked: str, status: int) -> None:
    code = f"""
import os, runpy, signal, sys
sys.orig_argv[:] = ["python", "-m", "everwhen.cli", "run"]
runpy.run_path({str(SOURCES / "everwhen" / "startup.py")!r})
os.kill(os.getpid(), signal.{asked})
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "everwhen: interrupted\n")


def test_who_imports_the_library_keeps_his_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    for command in (["python", "-m", "pytest"], ["python", "mine.py", "everwhen"], ["python"], ["python", "-c", "x"]):
        assert not startup.is_program(command)
        monkeypatch.setattr(sys, "orig_argv", command)
        runpy.run_path(str(SOURCES / "everwhen" / "startup.py"))
    assert before == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]


def test_once_it_is_loaded_signals_are_as_python_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/everwhen", "run"])
    usual = (signal.default_int_handler, signal.SIG_DFL)
    try:
        for one, handler in zip((signal.SIGINT, signal.SIGTERM), usual, strict=True):
            signal.signal(one, handler)
        startup.loading()
        assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is startup._end
        startup.loaded()
        assert tuple(signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)) == usual
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        startup.loading()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "who ignores it goes on to do so"
    finally:
        for one, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(one, handler)


def test_ctrl_c_before_the_run_begins_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_run, "compiled", interrupted)
    assert main(["run", "q.sql", "--in", "S=s.jsonl"]) == 130
    assert capsys.readouterr().err == "everwhen: interrupted\n"


# -- Ctrl-C in Python ----------------------------------------------------------------------------------------------


@contextmanager
def pressed(begun: threading.Event) -> Iterator[None]:
    """Ctrl-C is pressed once a step has begun."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presses = threading.Thread(target=lambda: begun.wait(10) and os.kill(os.getpid(), signal.SIGINT))
    presses.start()
    try:
        yield
    finally:
        presses.join()
        signal.signal(signal.SIGINT, before)


def test_ew_run_is_interrupted_within_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()
    where: list[threading.Thread] = []

    def slow(self: LocalRuntime) -> Any:
        where.append(threading.current_thread())
        begun.set()
        ended.wait(30)

    monkeypatch.setattr(LocalRuntime, "_epoch", slow)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt), pressed(begun):
            list(ew.run(ew.source("S", {"x": "int64"}), {"S": [ew.Insert(0, 5, {"x": 1})]}))
        assert time.monotonic() - began < 5
    finally:
        ended.set()
    assert where != [threading.main_thread()]


def test_steps_that_are_quick_are_done_where_they_are_asked_for() -> None:
    now, where = [0.0], []
    steps = StepsApart(lambda: now[0])

    def step(seconds: float = 0.0) -> None:
        where.append(threading.current_thread() is threading.main_thread())
        now[0] += seconds

    for rows in (10, 10, 5, 11, 11):
        steps(rows, step)
    assert where == [False, True, True, False, True]
    steps(11, lambda: step(0.1))
    where.clear()
    steps(11, step)
    assert where == [False], "one that took long is no longer quick"


def test_functions_of_the_users_are_called_in_his_thread() -> None:
    threads: set[threading.Thread] = set()

    def noted(x: int) -> int:
        threads.add(threading.current_thread())
        return x

    s = ew.source("S", {"x": "int64"})
    query = s.where(ew.udf(noted, ew.col("x"), type="int64") > 0)
    assert any(map(calls_functions, walk(query.node))) and not any(map(calls_functions, walk(s.node)))
    list(ew.run(query, {"S": [ew.Insert(0, 5, {"x": 1})]}))
    assert threads == {threading.main_thread()}
    late: set[threading.Thread] = set()
    list(
        ew.run(
            s.aggregate(n=ew.count()),
            {"S": [ew.Insert(5, 6, {"x": 1}), ew.Insert(1, 2, {"x": 1})]},
            ew.WEAK,
            batch=1,
            dropped=lambda name, elements: late.add(threading.current_thread()),
        )
    )
    assert late == {threading.main_thread()}


def test_an_odd_error_of_a_loop_is_the_interruption_behind_it() -> None:
    odd = SystemError("returned a result with an exception set")
    odd.__cause__ = SystemError("returned a result with an exception set")
    require_sound(odd)
    odd.__cause__.__cause__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        require_sound(odd)


def test_a_query_of_a_session_does_not_fail_for_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SqlSession()
    session.execute("CREATE STREAM S (x BIGINT)")
    session.execute("SELECT COUNT(*) AS n FROM S")

    def odd(*_: object) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("everwhen.engine.dataflow.advance", odd)
    batch = ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1})], ew.source("S", {"x": "int64"}).schema)
    with pytest.raises(KeyboardInterrupt):
        session.push({"S": batch})
    assert [query.state for query in session.queries()] == ["running"]


def test_the_time_until_it_is_over() -> None:
    assert interruption._GRACE + interruption._MOMENT <= 0.5


# -- which engine runs files ---------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("q.sql").write_text("SELECT x FROM S")
    Path("s.jsonl").write_text("".join(f'{{"vs":{i},"row":{{"x":{i}}}}}\n' for i in range(1_000)))
    Path("s.csv").write_text("vs,x\n" + "".join(f"{i},{i}\n" for i in range(1_000)))
    pq.write_table(pa.table({"vs": range(1_000), "x": range(1_000)}), "s.parquet")
    return tmp_path


def test_small_files_run_in_process_and_a_line_says_so(desk: Path, capsys: Any) -> None:
    assert main(["run", "q.sql", "--in", "S=s.jsonl", "--out", "a.jsonl"]) == 0
    said = "everwhen: in process: the inputs are small; --engine spark runs it on Spark\n"
    assert capsys.readouterr().err == said
    assert main(["run", "q.sql", "--in", "S=s.jsonl", "--engine", "local", "--out", "b.jsonl"]) == 0
    assert capsys.readouterr().err == "", "who has chosen need not be told"
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()


def test_large_files_run_on_spark_and_a_line_says_so(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cli_run, "_engine", lambda name: asked.append(name) or (lambda *_, **__: 0))
    monkeypatch.setattr(input_size, "SMALL", 2**10)
    monkeypatch.setattr(input_size, "_has_spark", lambda: True)
    assert main(["run", "q.sql", "--in", "S=s.jsonl"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("everwhen: on Spark: the inputs have") and "--engine local" in said and said.count("\n") == 1
    assert main(["run", "q.sql", "--in", "S=s.jsonl", "--engine", "local"]) == 0
    monkeypatch.setattr(input_size, "_has_spark", lambda: False)
    assert main(["run", "q.sql", "--in", "S=s.jsonl"]) == 0
    assert asked == ["spark", "local", "local"]
    assert "not installed" in capsys.readouterr().err


def test_a_run_that_goes_on_stays_on_the_engine_where_it_was_begun(desk: Path, capsys: Any) -> None:
    assert (
        main(["run", "q.sql", "--in", "S=s.jsonl", "--engine", "local", "--checkpoint", "c", "--out", "a.jsonl"]) == 0
    )
    assert main(["run", "q.sql", "--in", "S=s.jsonl", "--checkpoint", "c", "--out", "b.jsonl"]) == 0
    assert capsys.readouterr().err == "everwhen: in process, where the checkpoint c was begun\n"
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    Path("s").mkdir()
    Path("s/run.json").write_text('{"engine": "spark"}')
    assert input_size.suited_engine([], "s")[0] == "spark"
    Path("s/run.json").write_text("[")
    assert input_size.suited_engine([], "s")[0] == "local"


def test_what_files_hold(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = ew.source("S", {"x": "int64"}).schema
    files = {name: InputFile(name, schema) for name in ("s.jsonl", "s.csv", "s.parquet", "-")}
    assert bytes_of(files["s.jsonl"]) == Path("s.jsonl").stat().st_size
    assert bytes_of(files["s.parquet"]) > 0 and bytes_of(files["-"]) == 0
    assert [expected_elements([files[name]]) for name in ("s.jsonl", "s.csv", "s.parquet")] == [1_000] * 3
    assert expected_elements(files.values()) is None, "nobody knows what comes"
    monkeypatch.setattr(input_size, "_SAMPLE", 512)
    monkeypatch.setattr(input_size, "_COUNTED", 4_096)
    found = expected_elements([files["s.jsonl"]])
    assert found is not None and found != 1_000 and abs(found - 1_000) < 50, "a part of it tells about how many"


def test_a_bounded_run_shows_a_percentage(desk: Path) -> None:
    said: list[str] = []

    class Status:
        start = stop = staticmethod(lambda: None)
        update = staticmethod(said.append)

    class Console:
        status = staticmethod(lambda _: Status())

    clock = iter([0.0, 2.0, 4.0, 6.0])
    shown = _Line(Console(), lambda: next(clock), lambda: 1_000)
    for read in (250, 1_000, 1_100):
        shown(Progress("running", read))
    assert [text.split(" %")[0].split()[-1] for text in said] == ["25", "99", "99"]
    assert said[0].startswith("━━━━━───────────────  25 % running: 250 elements read")


# -- joins where nothing is promised -------------------------------------------------------------------------------

TOP_3 = """
SELECT symbol, n FROM PerHour a WHERE (SELECT COUNT(*) FROM PerHour b WHERE b.n > a.n) < 3
"""
PER_HOUR = """
CREATE STREAM Tweets (ts INT, symbol TEXT, value INT) ORDERED BY ts;
CREATE STREAM PerHour AS SELECT symbol, SUM(value) AS n FROM Tweets WINDOW(RANGE 12) GROUP BY symbol;
"""


def looked_at(monkeypatch: pytest.MonkeyPatch, rows: int) -> int:
    """How many entries the joins of the three largest look at for so many rows of ten symbols, without a promise."""
    found = [0]

    def probe_band(lo: Any, hi: Any, low: Any, high: Any, first: int, entries: Any, values: Any, *more: Any) -> Any:
        met = np.searchsorted(values, high[first:], "right") - np.searchsorted(values, low[first:])
        found[0] += int(met.sum())
        return plain(lo, hi, low, high, first, entries, values, *more)

    plain = join_loops.probe_band
    monkeypatch.setattr(join_loops, "probe_band", probe_band)
    query = program(f"{PER_HOUR}{TOP_3}", tick="1s").query
    runtime = LocalRuntime(query)
    (source,) = runtime.inputs
    elements = [
        ew.Insert(i // 10, i // 10 + 1, {"symbol": f"s{i % 10}", "value": i * 7919 % 101 + 50 * (i % 10)})
        for i in range(rows)
    ]
    for first in range(0, rows, 500):
        batch = ew.ElementBatch.of(elements[first : first + 500], runtime.schema_of(source))
        runtime.push({source: batch})
    monkeypatch.undo()
    joins = [placed.operator for placed in runtime.plan.operators if isinstance(placed.operator, JoinOperator)]
    assert joins
    return found[0] + sum(join.touched for join in joins)


def test_joins_without_promises_look_at_what_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (looked_at(monkeypatch, rows) for rows in (4_000, 16_000))
    assert 0 < many < 4.5 * few, "four times the rows are about four times the work, though nothing can be forgotten"
