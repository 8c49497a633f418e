"""The same text on Spark and in process: what is written is the same; restarts, locks, status."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.errors import InUseError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from everwhen.jobs.spark_job import SparkJob
from everwhen.jobs.status import ask_to_stop, read_status
from everwhen.storage.lease import held_by

TEXT = """
    CREATE STREAM Bid (Item INT, price INT) SOURCE file('{0}/bids.jsonl');
    CREATE STREAM Best AS SELECT Item, MAX(price) AS price FROM Bid GROUP BY Item;
    CREATE SINK log FROM Best INTO changelog('{1}/log');
    CREATE SINK file FROM Best INTO file('{1}/best.jsonl');
    CREATE SINK now FROM Best INTO folder('{1}/now', form = 'upsert')"""


def line(vs: int, ve: int | None, item: int, price: int) -> str:
    return json.dumps({"vs": vs, "ve": ve, "row": {"Item": item, "price": price}}) + "\n"


def add(place: Path, *lines: str) -> None:
    with open(place / "bids.jsonl", "a", encoding="utf-8") as file:
        file.writelines(lines)


def spark_job(place: Path) -> SparkJob:
    text = TEXT.format(place, place / "spark")
    return SparkJob(job_plan(text, unbounded=True), place / "state", buckets=2)


def table(place: Path) -> dict:
    found: dict = {}
    for file in sorted((place / "now").glob("*.jsonl")):
        for text in file.read_text().splitlines():
            change = json.loads(text)
            found.pop(change["row"]["Item"], None)
            if change["op"] == "put":
                found[change["row"]["Item"]] = change["row"]["price"]
    return found


def test_started_stopped_and_started_again_it_writes_what_a_job_in_process_does(spark, tmp_path):
    add(tmp_path, line(1, None, 7, 3), line(2, 9, 7, 5), '{"op":"cti","t":4}\n')
    failed: list[BaseException] = []

    def work() -> None:
        try:
            spark_job(tmp_path).run()
        except BaseException as bad:
            failed.append(bad)

    thread = threading.Thread(target=work)
    thread.start()
    state = tmp_path / "state"
    until = time.monotonic() + 300
    while True:
        assert thread.is_alive() and time.monotonic() < until, failed
        if (state / "status.json").exists() and read_status(state).status["sources"]["Bid"]["rows"] == 2:
            break
        time.sleep(0.1)
    with pytest.raises(InUseError, match=r"in use by another run: process \d+ on .+ since"):
        spark_job(tmp_path).run()
    with pytest.raises(InUseError, match="in use by another run"):  # in process, too: one lock per checkpoint
        LocalJob(job_plan(TEXT.format(tmp_path, tmp_path / "x"), unbounded=True), state).run()
    ask_to_stop(state, held_by(state / "job"))
    thread.join(120)
    assert not failed
    assert read_status(state).state == "stopped"
    add(tmp_path, line(5, 8, 8, 1), line(6, None, 9, 2), '{"op":"cti","t":null}\n')
    assert spark_job(tmp_path).run() == "done"
    LocalJob(job_plan(TEXT.format(tmp_path, tmp_path / "local"), unbounded=True), tmp_path / "state2").run()
    rows = {out: Counter((tmp_path / out / "best.jsonl").read_text().splitlines()) for out in ("spark", "local")}
    assert rows["spark"] == rows["local"]
    assert table(tmp_path / "spark") == table(tmp_path / "local") != {}
    said = {
        out: [e for batch in ew.read_changelog(str(tmp_path / out / "log")) for e in batch.elements()]
        for out in ("spark", "local")
    }
    ew.testing.assert_same_history(said["spark"], said["local"])
    found = read_status(state).status
    assert (found["restarts"], found["sources"]["Bid"]["rows"]) == (1, 4)
    assert found["sinks"]["file"]["final"] == "inf"
    assert found["sinks"]["log"]["elements"] == len(said["spark"])
