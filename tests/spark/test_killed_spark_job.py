"""A job on Spark that is killed with SIGKILL, JVM and workers too: nothing is lost, nothing is doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan

pytestmark = pytest.mark.slow

TEXT = """
    CREATE STREAM Bid (item INT, price INT) SOURCE file('{0}/bids.jsonl');
    CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid GROUP BY item;
    CREATE SINK log FROM Best INTO changelog('{1}/log');
    CREATE SINK file FROM Best INTO file('{1}/best.jsonl');
    CREATE SINK now FROM Best INTO folder('{1}/now', form = 'upsert')"""


def feed(place: Path, rng: random.Random, begin: int) -> None:
    lines = []
    for t in range(begin, begin + 50):
        row = {"item": rng.randint(0, 5), "price": rng.randint(0, 9)}
        lines.append({"vs": t, "ve": rng.choice([t + 1, t + rng.randint(1, 30), None]), "row": row})
    lines.append({"op": "cti", "t": begin + 40})
    with open(place / "bids.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def started(place: Path) -> subprocess.Popen[bytes]:
    words = [
        sys.executable,
        "-m",
        "everwhen.cli",
        "start",
        str(place / "job.sql"),
        "--checkpoint",
        str(place / "state"),
    ]
    return subprocess.Popen([*words, "--allow-unbounded"], stderr=subprocess.DEVNULL, start_new_session=True)


def table(place: Path) -> dict:
    found: dict = {}
    for file in sorted((place / "now").glob("*.jsonl")):
        for text in file.read_text().splitlines():
            change = json.loads(text)
            found.pop(change["row"]["item"], None)
            if change["op"] == "put":
                found[change["row"]["item"]] = change["row"]["price"]
    return found


def epochs(place: Path) -> int:
    file = place / "state" / "status.json"
    return json.loads(file.read_text())["epochs"] if file.exists() else 0


def test_killed_on_spark(tmp_path):
    rng = random.Random(3)
    (tmp_path / "job.sql").write_text(TEXT.format(tmp_path, tmp_path / "spark"))
    for number in range(4):
        feed(tmp_path, rng, number * 100)
        child = started(tmp_path)
        until, before = time.monotonic() + 300, time.time()
        while time.monotonic() < until and child.poll() is None:
            if epochs(tmp_path) and os.stat(tmp_path / "state" / "status.json").st_mtime > before + 1:
                feed(tmp_path, rng, number * 100 + 50)  # an epoch is under way when it is killed
                time.sleep(rng.random() * 3)
                break
            time.sleep(0.1)
        assert child.poll() is None, (tmp_path / "state" / "log").read_text()
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    with open(tmp_path / "bids.jsonl", "a", encoding="utf-8") as file:
        file.write('{"op":"cti","t":null}\n')
    assert started(tmp_path).wait(600) == 0
    LocalJob(job_plan(TEXT.format(tmp_path, tmp_path / "local"), unbounded=True), tmp_path / "quiet").run()
    rows = {out: Counter((tmp_path / out / "best.jsonl").read_text().splitlines()) for out in ("spark", "local")}
    assert rows["spark"] == rows["local"] and rows["local"]
    assert table(tmp_path / "spark") == table(tmp_path / "local") != {}
    said = {
        out: [e for batch in ew.read_changelog(str(tmp_path / out / "log")) for e in batch.elements()]
        for out in ("spark", "local")
    }
    ew.testing.assert_same_history(said["spark"], said["local"])
