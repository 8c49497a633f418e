"""`run --follow` and `run --copies` on the command line; changelog folders as files."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.cli.program import main
from everwhen.formats.changelog.layout import epochs_there
from everwhen.sinks.changelog import ChangelogSink
from everwhen.storage.folder import LocalFolder

ROOT = Path(__file__).resolve().parents[2]
LINES = [
    '{"vs":1,"row":{"item":7,"price":40}}',
    '{"vs":3,"row":{"item":8,"price":55}}',
    '{"op":"cti","t":4}',
    '{"vs":6,"row":{"item":7,"price":90}}',
    '{"op":"cti","t":null}',
]
QUERY = "SELECT item, MAX(price) AS best FROM Bid WINDOW(RANGE 5) GROUP BY item"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("best.sql").write_text(QUERY)
    Path("declared.sql").write_text(f"CREATE STREAM Bid (item INT, price INT); {QUERY}")
    Path("all.sql").write_text("SELECT * FROM B")
    Path("bids.jsonl").write_text("\n".join(LINES) + "\n")
    return tmp_path


def same(a: str, b: str) -> bool:
    return main(["diff", a, b]) == 0


def test_a_followed_file_gives_the_answer_of_a_plain_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "best.sql", "--in", "Bid=bids.jsonl", "--engine", "local", "--out", "plain.jsonl"]) == 0
    follow = ["run", "best.sql", "--follow", "--in", "Bid=bids.jsonl", "--out", "best/", "--checkpoint", "state"]
    assert main(follow) == 0 and same("plain.jsonl", "best/")
    assert main(follow) == 0 and same("plain.jsonl", "best/")  # it is done
    assert main(["run", "all.sql", "--in", "B=best/", "--engine", "local", "--out", "again/"]) == 0
    assert main(["run", "all.sql", "--in", "B=again", "--follow", "--out", "third/"]) == 0
    assert same("plain.jsonl", "again/") and same("plain.jsonl", "third/")
    capsys.readouterr()
    assert main(["check", "third/"]) == 0 and "valid" in capsys.readouterr().out
    assert main(["history", "third/"]) == 0


def test_a_refused_run_leaves_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    follow = ["run", "best.sql", "--follow", "--in", "Bid=bids.jsonl", "--checkpoint", "state"]
    assert main([*follow, "--out", "best/"]) == 0
    assert main([*follow, "--out", "other/", "--consistency", "strong"]) == 2
    assert "belongs to another run" in capsys.readouterr().err and not Path("other").exists()


def test_columns_are_those_of_the_first_start(place: Path) -> None:
    """A file that is not declared gets its columns once: later lines must fit them."""
    Path("bids.jsonl").write_text("\n".join(LINES[:3]) + '\n{"vs":5,"row":{"item"')
    command = [sys.executable, "-m", "everwhen.cli", "run", "best.sql", "--follow", "--in", "Bid=bids.jsonl"]
    command += ["--out", "best/", "--checkpoint", "state"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stderr=subprocess.PIPE)
    _until_said(place / "best")
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 143 and b"interrupted; what was said is in best/; the same command goes on" in told
    with open("bids.jsonl", "a") as file:
        file.write(':7,"price":1}}\n' + "\n".join(LINES[3:]) + "\n")
    assert main(command[3:]) == 0
    assert main(["run", "best.sql", "--in", "Bid=bids.jsonl", "--engine", "local", "--out", "plain.jsonl"]) == 0
    assert same("plain.jsonl", "best/")


def _until_said(folder: Path) -> None:
    limit = time.monotonic() + 30
    while not epochs_there(LocalFolder(str(folder))):
        assert time.monotonic() < limit, "nothing was said"
        time.sleep(0.02)


def test_copies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "best.sql", "--in", "Bid=bids.jsonl", "--engine", "local", "--out", "plain.jsonl"]) == 0
    run = ["run", "best.sql", "--follow", "--copies", "2", "--in", "Bid=bids.jsonl", "--out", "best/"]
    assert main([*run, "--checkpoint", "copies"]) == 0 and same("plain.jsonl", "best/")


def test_a_broken_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bids.jsonl").write_text(f"{LINES[0]}\n{{broken\n{LINES[4]}\n")
    run = ["run", "declared.sql", "--follow", "--in", "Bid=bids.jsonl", "--out", "best/", "--checkpoint", "state"]
    assert main(run) == 3 and "bids.jsonl:2: not JSON" in capsys.readouterr().err
    Path("bids.jsonl").write_text("\n".join(LINES) + "\n")
    assert main(run) == 0


def test_other_columns(capsys: pytest.CaptureFixture[str]) -> None:
    schema = ew.source("S", {"item": "int64"}).schema
    sink = ChangelogSink("bids")
    sink.prepare(schema)
    sink.commit(0, ew.ElementBatch.of([ew.Cti(ew.INF)], schema))
    for options in ([], ["--follow"]):
        run = ["run", "declared.sql", "--in", "Bid=bids/", "--out", "best/", "--engine", "local", *options]
        assert main(run) == 3
        assert "the changelog has the columns (item int64)" in capsys.readouterr().err
    assert not Path("best/_epochs/0.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--follow"], "--follow writes a changelog folder, and '-' is none"),
        (["--follow", "--out", "x.jsonl"], "is none: --out DIR/"),
        (["--follow", "--out", "x/", "--engine", "spark"], "--follow runs in this process"),
        (["--follow", "--out", "x/", "--open"], "--open is for inputs that end here"),
        (["--follow", "--out", "x/", "--copies", "2"], "--copies needs a place for their state"),
        (["--follow", "--out", "x/", "--copies", "1", "--checkpoint", "c"], "--copies needs at least two"),
        (["--follow", "--out", "x/", "--wait", "-1"], "to wait for -1 seconds is impossible"),
        (["--copies", "2"], "--copies is for runs that go on: add --follow"),
        (["--wait", "2"], "--wait is for runs that go on"),
        (["--keep", "unread"], "--keep is for runs that go on"),
    ],
)
def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert main(["run", "declared.sql", "--in", "Bid=bids.jsonl", *options]) == 2
    assert message in capsys.readouterr().err
    assert not Path("x").exists()


@pytest.mark.parametrize("query", ["best.sql", "declared.sql"])
@pytest.mark.parametrize("file", ["nowhere.jsonl", "nowhere/"])
def test_an_input_that_does_not_come(capsys: pytest.CaptureFixture[str], query: str, file: str) -> None:
    assert main(["run", query, "--follow", "--in", f"Bid={file}", "--out", "x/", "--wait", "0.2"]) == 2
    assert f"{file}: not there after 0.2 seconds" in capsys.readouterr().err


def test_a_folder_that_is_no_changelog(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert main(["run", "declared.sql", "--in", "Bid=empty/", "--engine", "local"]) == 3
    assert "there is no _changelog.json" in capsys.readouterr().err
    Path("odd").mkdir()
    Path("odd/_changelog.json").write_text(json.dumps({"version": 99}))
    assert main(["run", "declared.sql", "--in", "Bid=odd/", "--engine", "local"]) == 3
    assert "version 99, not 1" in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_place(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    command = ["run", "best.sql", "--follow", "--in", "Bid=bids.jsonl", "--out", "out/"]
    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_text", full)
        assert main(command) == 1
    assert "out/_writer/columns.json: cannot write it: no space is left (free some space" in capsys.readouterr().err
    assert main(command) == 0
