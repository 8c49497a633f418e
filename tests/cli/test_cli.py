"""The program as a user meets it: what it prints, its exit status, and that it never shows a traceback."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from everwhen.cli import streams as cli_streams
from everwhen.cli.program import main

ROOT = Path(__file__).resolve().parents[2]
STREAM = [
    {"op": "insert", "vs": 1, "ve": 5, "row": {"item": 7, "price": 2.5}},
    {"op": "insert", "vs": 5, "ve": None, "row": {"item": 7, "price": 2.5}},
    {"vs": 3, "row": {"item": 8, "price": None}},
    {"op": "adjust", "vs": 5, "ve": None, "vnew": 9, "row": {"item": 7, "price": 2.5}},
    {"op": "cti", "t": 9},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "in.jsonl", STREAM)


def write(path: Path, elements: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(element) + "\n" for element in elements))
    return path


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


Capture = pytest.CaptureFixture[str]


def test_check_tells_what_a_stream_is(capsys: Capture, file: Path) -> None:
    status, out, err = run(capsys, "check", file)
    assert (status, err) == (0, "")
    found = dict(line.split(maxsplit=1) for line in out.splitlines() if not line.startswith("closed"))
    assert found["valid"] == "yes" and found["ordered"].startswith("no") and found["insert-only"].startswith("no")
    assert "closed up to  9" in out and "closed        no" in out


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        ({"itm": 1}, "names the attribute 'itm', which no row has"),
        ({"price": {"ge": "x"}}, "in the pattern of 'price': the text \"x\" is not of type DOUBLE"),
        ({"item": {"ge": 5, "lt": 5}}, 'the range {"ge":5,"lt":5} of \'item\' holds no value'),
    ],
)
def test_a_bad_pattern_has_its_file_and_line(capsys: Capture, tmp_path: Path, match: Any, problem: str) -> None:
    path = write(tmp_path / "bad.jsonl", [*STREAM, {"op": "punct", "match": match}])
    for command in ("check", "history"):
        status, out, err = run(capsys, command, path)
        assert (status, out) == (3, "")
        assert err.startswith(f"everwhen: {path}:6: ") and problem in err and err.endswith(")\n")


def test_check_names_the_line_of_an_invalid_stream(capsys: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "late.jsonl", [*STREAM, {"vs": 2, "row": {"item": 1, "price": 0.5}}])
    status, out, err = run(capsys, "check", path)
    assert status == 3
    assert "valid         no   line 6: insert [2, 3)" in out
    assert err.startswith(f"everwhen: {path}:6: insert [2, 3) item=1 price=0.5 changes instant 2, but cti 9")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "history", "diff"])
def test_a_malformed_line_is_status_3(capsys: Capture, tmp_path: Path, file: Path, command: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"vs":1,"row":{}}\n{"vs":1.5,"row":{}}\n')
    status, out, err = run(capsys, command, path, *([file] if command == "diff" else []))
    assert (status, out) == (3, "")
    assert err.startswith(f'everwhen: {path}:2: "vs" must be a whole number')


@pytest.mark.parametrize("command", ["check", "history", "diff"])
@pytest.mark.parametrize("name", ["none.jsonl", "none.parquet", ""])
def test_a_missing_file_or_a_directory_is_status_2(capsys: Capture, tmp_path: Path, name: str, command: str) -> None:
    place = tmp_path / name
    status, out, err = run(capsys, command, place, *([place] if command == "diff" else []))
    assert (status, out) == (2, "")
    assert str(place) in err and err.count("\n") == 1


def test_history_prints_events(capsys: Capture, file: Path) -> None:
    status, out, _ = run(capsys, "history", file)
    assert status == 0
    assert lines(out) == [
        {"op": "insert", "vs": 1, "ve": 5, "row": {"item": 7, "price": 2.5}},
        {"op": "insert", "vs": 3, "ve": 4, "row": {"item": 8, "price": None}},
        {"op": "insert", "vs": 5, "ve": 9, "row": {"item": 7, "price": 2.5}},
    ]
    status, out, _ = run(capsys, "history", file, "--coalesce")
    assert [(e["vs"], e["ve"]) for e in lines(out)] == [(1, 9), (3, 4)]


@pytest.mark.parametrize(("t", "items"), [("3", [7, 8]), ("4", [7]), ("9", []), ("-5", [])])
def test_history_at_an_instant(capsys: Capture, file: Path, t: str, items: list[int]) -> None:
    status, out, _ = run(capsys, "history", file, "--at", t)
    assert status == 0
    assert [(e["vs"], e["ve"], e["row"]["item"]) for e in lines(out)] == [(int(t), int(t) + 1, item) for item in items]


def test_history_writes_files_of_both_kinds(capsys: Capture, file: Path, tmp_path: Path) -> None:
    for name in ("out.jsonl", "out.parquet"):
        status, out, _ = run(capsys, "history", file, "--out", tmp_path / name)
        assert (status, out) == (0, "")
        assert run(capsys, "diff", file, tmp_path / name)[0] == 0
    assert pq.read_schema(tmp_path / "out.parquet").names == ["op", "vs", "ve", "vnew", "item", "price"]


def test_an_output_file_is_not_touched_on_errors(capsys: Capture, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.jsonl", [*STREAM, {"op": "adjust", "vs": 0, "ve": 1, "vnew": 0, "row": {"item": 7}}])
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    assert run(capsys, "history", bad, "--out", out)[0] == 3
    assert run(capsys, "history", tmp_path / "none", "--out", out)[0] == 2
    assert out.read_text() == "old"
    status, _, err = run(capsys, "history", bad.parent / "in.jsonl", "--out", tmp_path / "none" / "out")
    assert status == 2 and str(tmp_path) in err


def test_history_refuses_what_contradicts_a_promise(capsys: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "late.jsonl", [*STREAM, {"vs": 2, "row": {"item": 1}}])
    status, _, err = run(capsys, "history", path)
    assert status == 3 and f"{path}:6:" in err


def test_history_is_a_table_on_a_terminal(capsys: Capture, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    _, out, _ = run(capsys, "history", file)
    assert "vs" in out and "item" in out and "null" in out and "3 events" in out and "{" not in out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, out, _ = run(capsys, "history", file, "--at", "3")
    assert "alive at 3" in out


def test_diff_of_equal_histories(capsys: Capture, file: Path, tmp_path: Path) -> None:
    other = [
        {"vs": 3, "ve": 4, "row": {"price": None, "item": 8}},
        {"vs": 1, "ve": 9, "row": {"item": 7, "price": 2.5}},
    ]
    status, out, _ = run(capsys, "diff", file, write(tmp_path / "b.jsonl", other))
    assert (status, out) == (0, "equal at every instant\n")


def test_diff_names_the_first_instant_and_the_rows(capsys: Capture, file: Path, tmp_path: Path) -> None:
    other = [{"vs": 1, "ve": 9, "row": {"item": 7, "price": 2.5}}, {"vs": 3, "ve": 6, "row": {"item": 9, "price": 1}}]
    status, out, err = run(capsys, "diff", file, write(tmp_path / "b.jsonl", other))
    assert (status, err) == (1, "")
    assert out.splitlines() == [
        "differ first at instant 3",
        "  missing: item=8 price=None",
        "  extra: item=9 price=1.0",
    ]


def test_diff_takes_numbers_by_value_and_a_tolerance(capsys: Capture, tmp_path: Path) -> None:
    whole = write(tmp_path / "a.jsonl", [{"vs": 1, "row": {"x": 2}}])
    point = write(tmp_path / "b.jsonl", [{"vs": 1, "row": {"x": 2.0}}])
    near = write(tmp_path / "c.jsonl", [{"vs": 1, "row": {"x": 2.0000001}}])
    truth = write(tmp_path / "d.jsonl", [{"vs": 1, "row": {"x": True}}])
    assert run(capsys, "diff", whole, point)[0] == 0
    assert run(capsys, "diff", whole, near)[0] == 1
    assert run(capsys, "diff", whole, near, "--tolerance", "1e-6")[0] == 0
    assert run(capsys, "diff", point, near, "--tolerance", "1e-9")[0] == 1
    assert run(capsys, "diff", whole, truth)[0] == 1


def test_the_standard_input_is_a_file(capsys: Capture, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (["check", "-"], ["history", "-"], ["diff", "-", str(file)]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        assert run(capsys, *command)[0] == 0
    assert run(capsys, "diff", "-", "-")[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["check"],
        ["check", "a", "b"],
        ["history", "x", "--at", "soon"],
        ["history", "x", "--at", "1.5"],
        ["history", "x", "--at", "9223372036854775807"],
        ["diff", "x"],
        ["diff", "x", "y", "--tolerance", "-1"],
        ["diff", "x", "y", "--tolerance", "much"],
    ],
)
def test_a_wrong_command_is_status_2(capsys: Capture, arguments: list[str]) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert "usage: everwhen" in err and "error:" in err


@pytest.mark.parametrize("command", [[], ["run"], ["explain"], ["check"], ["history"], ["diff"], ["demo"]])
def test_help_has_an_example(capsys: Capture, command: list[str]) -> None:
    status, out, _ = run(capsys, *command, "--help")
    assert status == 0
    assert f"everwhen {command[0]} " in re.split("examples?:", out)[1] if command else "COMMAND" in out


def test_version(capsys: Capture) -> None:
    status, out, _ = run(capsys, "--version")
    assert status == 0 and out.startswith("everwhen ")


def test_demo_gets_its_options(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    module = types.ModuleType("everwhen.demo.program")
    module.main = lambda argv: calls.append(argv) or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "everwhen.demo.program", module)
    assert run(capsys, "demo")[0] == 0
    assert run(capsys, "demo", "--seconds", 5, "--engine", "local", "--events", 10, "--plain")[0] == 0
    assert calls == [[], ["--plain", "--seconds", "5", "--events", "10", "--engine", "local"]]
    monkeypatch.setitem(sys.modules, "everwhen.demo.program", None)
    status, _, err = run(capsys, "demo")
    assert status == 1 and "the demo cannot run" in err


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "everwhen: interrupted\n"),
        (ZeroDivisionError("oh"), 1, "unforeseen ZeroDivisionError: oh"),
        (OSError(28, "No space left on device"), 1, "No space left"),
        (PermissionError(13, "Permission denied", "x.jsonl"), 2, "x.jsonl: Permission denied"),
    ],
)
def test_how_it_ends(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, file: Path, raised: BaseException, status: int, said: str
) -> None:
    def fail(_: str, __: object = None) -> None:
        raise raised

    monkeypatch.setattr(cli_streams, "read", fail)
    found, out, err = run(capsys, "check", file)
    assert (found, out) == (status, "")
    assert said in err and (said or not err)


def program(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "everwhen.cli", *map(str, arguments)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def test_the_program_itself(tmp_path: Path, file: Path) -> None:
    done = subprocess.run(program("history", file, "--at", 3), capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [e["row"]["item"] for e in lines(done.stdout)] == [7, 8]
    done = subprocess.run(program("check", tmp_path / "no"), capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "") and "No such file" in done.stderr


def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("".join(f'{{"vs":{i},"row":{{"x":{i}}}}}\n' for i in range(30_000)))
    with subprocess.Popen(
        program("history", path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_the_package_is_a_program_too() -> None:
    done = subprocess.run([sys.executable, "-m", "everwhen", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("everwhen ")


def test_warnings_of_the_library_are_told_in_the_words_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == main(["--version"]) == 0
    capsys.readouterr()
    logging.getLogger("everwhen.storage.lease").warning("%s was left behind", "it")
    assert capsys.readouterr().err == "everwhen: warning: it was left behind\n"


def test_elements_are_not_written_into_a_file_that_would_be_read_as_rows(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = tmp_path / "q.sql"
    query.write_text("SELECT item FROM S")
    for command in (["run", str(query), "--in", f"S={file}", "--engine", "local"], ["history", str(file)]):
        assert main([*command, "--out", str(tmp_path / "out.csv")]) == 2
        assert "would be read as plain rows" in capsys.readouterr().err and not (tmp_path / "out.csv").exists()


def test_files_and_folders_that_hold_no_elements_are_told_from_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    for name, said in (
        ("rows.csv", "rows.csv: CSV is read by run and shell"),
        ("empty", "Is a directory (of folders only changelogs are read, which have a _changelog.json)"),
        ("absent/", "absent/: No such file or directory"),
    ):
        assert main(["check", f"{tmp_path}/{name}"]) == 2
        assert said in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_file_and_what_to_do(capsys: Capture, file: Path, tmp_path: Path) -> None:
    query = tmp_path / "q.sql"
    query.write_text("SELECT * FROM S")
    status, _, err = run(capsys, "run", query, "--in", f"S={file}", "--engine", "local", "--out", "/dev/full")
    assert status == 1
    assert "/dev/full: cannot write the answer: no space is left (free some space there" in err


def test_an_option_that_is_cut_off_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "SELECT 1", "--engin", "local"]) == 2
    assert "unrecognized arguments: --engin local" in capsys.readouterr().err
