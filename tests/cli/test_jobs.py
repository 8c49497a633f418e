"""`start`, `status`, `stop`, `logs`: in the foreground and in the background, by the directory of the checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from everwhen.cli.program import main

BIDS = '{"vs":1,"row":{"item":7,"price":40}}\n{"vs":6,"row":{"item":7,"price":90}}\n'
JOB = """
    CREATE STREAM Bid (item INT, price INT) SOURCE file('bids.jsonl');
    CREATE SINK dear INTO file('dear.jsonl', form = 'retract');
    INSERT INTO dear SELECT item, price FROM Bid WINDOW(UNBOUNDED) WHERE price > 50"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bids.jsonl").write_text(BIDS)
    (tmp_path / "job.sql").write_text(JOB)
    return tmp_path


def ran(capsys, *arguments):
    capsys.readouterr()
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def test_a_job_to_its_end_and_what_is_told_of_it(desk, capsys):
    with open("bids.jsonl", "a") as file:
        file.write('{"op":"cti","t":null}\n')
    status, out, err = ran(capsys, "start", "job.sql", "--checkpoint", "st", "--engine", "local")
    assert (status, out) == (0, "")
    assert "warning: Window unbounded" in err and err.endswith("everwhen: job.sql: done\n")
    assert json.loads((desk / "dear.jsonl").read_text()) == {
        "op": "c",
        "before": None,
        "after": {"item": 7, "price": 90},
    }
    status, out, _ = ran(capsys, "status", "st", "--json")
    found = json.loads(out)
    assert (status, found["state"], found["checkpoint"], found["sources"]["Bid"]["rows"]) == (0, "done", "st", 2)
    assert ran(capsys, "status")[1].startswith("job.sql: done (local)")  # all jobs below this directory
    assert ran(capsys, "stop", "st") == (0, "not running (done)\n", "")
    assert ran(capsys, "logs", "st")[1].rstrip().endswith("job.sql: done")


def test_what_is_wrong_is_told_with_status_2_and_nothing_is_made(desk, capsys):
    (desk / "job.sql").write_text(JOB.replace("file('dear", "flie('dear"))
    status, _, err = ran(capsys, "start", "job.sql", "--checkpoint", "st", "--engine", "local", "--detach")
    assert status == 2 and "there is no sink 'flie'; did you mean 'file'?" in err
    assert not (desk / "st").exists()
    (desk / "job.sql").write_text(JOB)
    status, _, err = ran(capsys, "start", "-", "--checkpoint", "st", "--detach")
    assert status == 2
    assert ran(capsys, "status", "nowhere")[0] == 1
    assert "there is no job" in ran(capsys, "stop", "nowhere")[2]
    assert "there is no log" in ran(capsys, "logs", "nowhere")[2]


def test_partitions_are_for_spark(desk, capsys):
    status, _, err = ran(capsys, "start", "job.sql", "--checkpoint", "st", "--engine", "local", "--buckets", "3")
    assert status == 2 and "--buckets spreads state over partitions, which only Spark has" in err
    assert not (desk / "st").exists()


def test_an_element_that_is_wrong_is_status_3_and_stands_in_the_log(desk, capsys):
    with open("bids.jsonl", "a") as file:
        file.write("no json\n")
    status, _, err = ran(capsys, "start", "job.sql", "--checkpoint", "st", "--engine", "local")
    assert status == 3 and "bids.jsonl:3" in err
    assert "failed: bids.jsonl:3" in (desk / "st" / "log").read_text()
    status, out, _ = ran(capsys, "status", "st")
    assert "job.sql: failed (local)" in out and "bids.jsonl:3" in out
    lines = (desk / "bids.jsonl").read_text().splitlines(keepends=True)
    (desk / "bids.jsonl").write_text("".join(lines[:2]) + '{"op":"cti","t":null}\n')  # it is put right
    assert ran(capsys, "start", "job.sql", "--checkpoint", "st", "--engine", "local")[0] == 0
    assert len((desk / "dear.jsonl").read_text().splitlines()) == 1


def waited(reached, seconds=60.0):
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_in_the_background_it_is_watched_stopped_and_killed(desk, capsys):
    arguments = ("start", "job.sql", "--checkpoint", "st", "--engine", "local", "--detach", "--metrics", "0")
    status, out, err = ran(capsys, *arguments)
    assert status == 0, err
    process = int(out.split()[2].rstrip(";"))
    waited(lambda: (desk / "dear.jsonl").exists() and (desk / "dear.jsonl").read_text().count("\n") == 1)
    assert "metrics at" in ran(capsys, "logs", "st")[1]
    found = json.loads(ran(capsys, "status", "st", "--json")[1])
    assert (found["state"], found["pid"]) == ("running", process)
    status, _, err = ran(capsys, *arguments)  # a second one is refused by name
    assert status == 1 and f"in use by another run: process {process} on" in err
    os.kill(process, signal.SIGKILL)
    waited(lambda: "killed" in ran(capsys, "status", "st")[1])
    assert ran(capsys, *arguments)[0] == 0
    began = time.monotonic()
    assert ran(capsys, "stop", "st") == (0, "stopped\n", "")
    assert time.monotonic() - began < 5.0  # a second, and more on a busy machine
    assert (desk / "dear.jsonl").read_text().count("\n") == 1


def test_a_job_that_is_asked_to_end_while_it_starts_says_so(desk):
    words = [sys.executable, "-m", "everwhen.cli", "start", "job.sql", "--checkpoint", "st", "--engine", "local"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as child:
        waited((desk / "st").exists)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 143
        assert child.stderr is not None and child.stderr.read().startswith(b"everwhen: ")


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_signals_stop_a_job_in_the_foreground_within_a_second(desk, number, ends):
    words = [sys.executable, "-m", "everwhen.cli", "start", "job.sql", "--checkpoint", "st", "--engine", "local"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as child:
        waited(lambda: (desk / "dear.jsonl").exists() and (desk / "dear.jsonl").read_text().count("\n") == 1)
        began = time.monotonic()
        child.send_signal(number)
        assert child.wait(60) == ends
        assert child.stderr is not None and b"job.sql: stopped; started again, it goes on" in child.stderr.read()
        assert time.monotonic() - began < 10.0  # a second, and what it takes to leave Python on a busy machine
    assert json.loads((desk / "st" / "status.json").read_text())["state"] == "stopped"
