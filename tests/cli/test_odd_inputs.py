"""Files that are not what they should be: each is refused with its place and a remedy, and nothing dies of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import everwhen as ew
from everwhen.cli.program import main
from everwhen.errors import SqlError

NOT_TEXT = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\xfe"]).buffers())
TEXT = "CREATE STREAM S (ts TIMESTAMP, a TEXT) ORDERED BY ts; SELECT a FROM S"

Capture = pytest.CaptureFixture[str]


def tried(tmp_path: Path, capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    said = capsys.readouterr()
    return status, said.out, said.err.replace(f"{tmp_path}/", "")


def run(tmp_path: Path, capsys: Capture, file: str, *options: str, query: str = TEXT) -> tuple[int, str, str]:
    (tmp_path / "q.sql").write_text(query)
    given = ("--in", f"S={tmp_path / file}", "--engine", "local", *options)
    return tried(tmp_path, capsys, "run", str(tmp_path / "q.sql"), *given)


CSV = {
    b"ts,a,a\n1,2,3\n": "in.csv:1: the column 'a' is there twice (rename one of them)",
    b"ts,a\n1,x\n2,\xff\xfe\n": "in.csv:3: byte 3 of the line is not UTF-8 (save the file as UTF-8)",
    b"ts,\xff\n1,2\n": "in.csv:1: byte 4 of the line is not UTF-8 (save the file as UTF-8)",
    b"ts,a\n1,x\n99999999999999999999,y\n": "in.csv:3: the time in 'ts' is out of range",
    b"ts,a\n-99999999999999999999,y\n": "in.csv:2: the time in 'ts' is out of range",
    b"ts,a\n" + b"9" * 5000 + b",y\n": "in.csv:2: the time in 'ts' is out of range",
    b"ts,b\n1,x\n": "in.csv: the declared column 'a' is not in the file (there is ts, b; rename the column, or",
    b"ts,a\n2022-01-01T00:00:00.1234Z,x\n": "in.csv:2: the time in 'ts' is no whole number of ticks of 1 ms: "
    'the text "2022-01-01T00:00:00.1234Z" (run with --tick 1us, in Python',
    b"ts,a\n2022-01-01T00:00:00.123000001Z,x\n": "(run with --tick 1ns",
}


@pytest.mark.parametrize("content", CSV)
def test_a_csv_that_is_refused(tmp_path: Path, capsys: Capture, content: bytes) -> None:
    (tmp_path / "in.csv").write_bytes(content)
    status, out, err = run(tmp_path, capsys, "in.csv")
    assert (status, out) == (3, "")
    assert CSV[content] in err


@pytest.mark.parametrize(("content", "said"), [(each, CSV[each]) for each in list(CSV)[:3]])
def test_the_same_where_the_file_gives_the_columns(tmp_path: Path, capsys: Capture, content: bytes, said: str) -> None:
    (tmp_path / "in.csv").write_bytes(content)
    status, _, err = run(tmp_path, capsys, "in.csv", query="SELECT a FROM S")
    assert status == 3 and said in err


def test_columns_that_are_not_declared_are_left_alone(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "in.csv").write_text("more,ts,a,other\n?,7,x,\n")
    pq.write_table(pa.table({"ts": [7], "more": [[1]], "a": ["x"]}), tmp_path / "in.parquet")
    for file in ("in.csv", "in.parquet"):
        status, out, err = run(tmp_path, capsys, file)
        assert (status, err) == (0, "")
        assert out.startswith('{"op":"insert","vs":7,"ve":8,"row":{"a":"x"}}')


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_time_between_two_ticks_needs_a_finer_tick(tmp_path: Path, capsys: Capture, form: str) -> None:
    file = tmp_path / f"in.{form}"
    if form == "parquet":
        moments = pa.array([1640995200123000, None, 1640995200123456], pa.timestamp("us"))
        pq.write_table(pa.table({"ts": moments.take([0, 2]), "a": ["x", "y"]}), file)
    elif form == "csv":
        file.write_text("ts,a\n2022-01-01T00:00:00.123Z,x\n2022-01-01T00:00:00.123456Z,y\n")
    else:
        file.write_text('{"ts":"2022-01-01T00:00:00.123Z","a":"x"}\n{"ts":"2022-01-01T00:00:00.123456Z","a":"y"}\n')
    line = 3 if form == "csv" else 2
    status, out, err = run(tmp_path, capsys, file.name)
    assert (status, out) == (3, "")
    assert f"in.{form}:{line}: the time in 'ts' is no whole number of ticks of 1 ms" in err and "--tick 1us" in err
    status, out, err = run(tmp_path, capsys, file.name, "--tick", "1us")
    assert (status, err) == (0, "")
    assert '"vs":"2022-01-01T00:00:00.123456Z",' in out


def test_nanoseconds_are_read_where_the_tick_is_one(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "in.csv").write_text("ts,a\n1970-01-01T00:00:00.123456789Z,x\n")
    status, out, _ = run(tmp_path, capsys, "in.csv", "--tick", "1ns")
    assert status == 0 and '"vs":"1970-01-01T00:00:00.123456789Z",' in out
    (tmp_path / "in.csv").write_text("ts,a\n1970-01-01T00:00:00.1234567891Z,x\n")
    status, _, err = run(tmp_path, capsys, "in.csv", "--tick", "1ns")
    assert status == 3 and "no whole number of ticks of 1 ns" in err and "(round the times)" in err


@pytest.mark.parametrize("command", ["run", "history", "check"])
def test_a_parquet_file_with_bytes_for_text(tmp_path: Path, capsys: Capture, command: str) -> None:
    pq.write_table(pa.table({"vs": [1, 2], "a": NOT_TEXT}), tmp_path / "in.parquet")
    if command == "run":
        status, out, err = run(tmp_path, capsys, "in.parquet", query="SELECT a FROM S")
    else:
        status, out, err = tried(tmp_path, capsys, command, str(tmp_path / "in.parquet"))
    assert status == 3 and "\xff" not in out
    assert "in.parquet:2: bytes that are not UTF-8 in column 'a' (write text as UTF-8, or as a column of bytes)" in err


ODD = {
    "list of maps": (pa.array([[[("k", 1)]]], pa.list_(pa.map_(pa.string(), pa.int64()))), "list<"),
    "map": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "map<"),
}


@pytest.mark.parametrize("name", ODD)
def test_the_history_of_a_parquet_file_with_odd_types(tmp_path: Path, capsys: Capture, name: str) -> None:
    column, shown = ODD[name]
    pq.write_table(pa.table({"vs": [1], "s": column}), tmp_path / "in.parquet")
    status, out, err = tried(tmp_path, capsys, "history", str(tmp_path / "in.parquet"))
    assert (status, out) == (3, "")
    assert f"in.parquet: the column 's' is of type {shown}" in err and "--out FILE.parquet" in err
    status, _, err = tried(
        tmp_path, capsys, "history", str(tmp_path / "in.parquet"), "--out", str(tmp_path / "out.parquet")
    )
    assert (status, err) == (0, "")
    assert pq.read_table(tmp_path / "out.parquet").column("s").to_pylist() == column.to_pylist()


@pytest.mark.parametrize("column", [pa.array([1, 2**62], pa.timestamp("us")), pa.array([1, 2**30], pa.date32())])
def test_the_history_of_a_parquet_file_with_times_beyond_the_calendar(
    tmp_path: Path, capsys: Capture, column: Any
) -> None:
    pq.write_table(pa.table({"vs": [1, 2], "t": column}), tmp_path / "in.parquet")
    status, _, err = tried(tmp_path, capsys, "history", str(tmp_path / "in.parquet"))
    assert status == 3
    assert "in.parquet:2: a time beyond the years 1 to 9999 in column 't'" in err


DEEP = {
    "arrays": '{"vs":1,"row":{"a":' + "[" * 30_000 + "]" * 30_000 + "}}",
    "objects": '{"vs":1,"row":{"a":' + '{"b":' * 30_000 + "1" + "}" * 30_000 + "}}",
    "open arrays": '{"vs":1,"row":{"a":' + "[" * 30_000,
    "a pattern": '{"op":"punct","match":' + '{"b":' * 30_000 + "1" + "}" * 30_000 + "}",
    "just too deep": '{"vs":1,"row":{"a":' + '{"a long name":' * 100 + "1" + "}" * 100 + "}}",
}


def test_lines_that_are_nested_too_deeply(tmp_path: Path) -> None:
    """In a process of its own, since it might die."""
    (tmp_path / "q.sql").write_text("CREATE STREAM S (a TEXT); SELECT a FROM S")
    commands = []
    for name, line in DEEP.items():
        (tmp_path / f"{name}.jsonl").write_text('{"vs":1,"row":{"a":"[[[["}}\n' + line + "\n")
        commands.append(["check", f"{name}.jsonl"])
        commands.append(["run", "q.sql", "--in", f"S={name}.jsonl", "--engine", "local"])
    program = f"from everwhen.cli.program import main\nfor command in {commands!r}:\n    print(main(command))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3"] * len(commands)
    said = ":2: nested more than 100 levels deep (an element is an object with a row of scalars)"
    assert done.stderr.splitlines() == [f"everwhen: {name}.jsonl{said}" for name in DEEP for _ in range(2)]


def test_brackets_in_a_text_are_no_depth(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "in.jsonl").write_text('{"vs":1,"row":{"a":"' + '[{\\\\\\"' * 300 + '"}}\n')
    status, out, err = run(tmp_path, capsys, "in.jsonl", query="CREATE STREAM S (a TEXT); SELECT a FROM S")
    assert (status, err) == (0, "")
    assert "[{" * 2 not in out and out.count("[{") == 300


@pytest.mark.parametrize("text", ["SELECT '\ud800' AS x FROM S", 'SELECT "\udfff" FROM S', "SELECT 1 -- \ud800"])
def test_half_a_character_in_a_query(text: str) -> None:
    at = next(i for i, c in enumerate(text) if 0xD800 <= ord(c) < 0xE000)
    with pytest.raises(SqlError, match="is half of a character; write the whole one") as caught:
        ew.sql(f"CREATE STREAM S (a INT); {text}")
    assert caught.value.start == at + len("CREATE STREAM S (a INT); ")
    str(caught.value).encode("utf-8")  # can be shown
