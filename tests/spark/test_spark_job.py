"""The same text on Spark and in process: what is written is the same; restarts, locks, status."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.errors import InUseError, QueryError
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


OTHERS = (
    TEXT.replace("MAX(price)", "SUM(price)").replace("FROM Bid GROUP", "FROM Bid WINDOW(RANGE 4) GROUP")
    + "; CREATE SINK rows INTO file('{1}/rows.jsonl'); INSERT INTO rows SELECT Item FROM Bid CONSISTENCY STRONG"
)


def test_another_text_takes_over_from_that_of_the_checkpoint(spark, tmp_path):
    """All sinks of a view at once; those of another level run on."""

    def begun(text: str, told: list[str], **options: bool) -> str:
        plan = job_plan(text.format(tmp_path, tmp_path / "spark"), unbounded=True)
        return SparkJob(plan, tmp_path / "state", buckets=2, trigger="available", tell=told.append, **options).run()

    told: list[str] = []
    add(tmp_path, *(line(t, t + 1, t % 2, t) for t in range(8)), '{"op":"cti","t":6}\n')
    begun(OTHERS, told)
    assert told == [], "nothing takes over"
    new = OTHERS.replace("SUM(price)", "SUM(2 * price)")
    with pytest.raises(QueryError, match=r"(?s)belongs to another run.*or --migrate, if each new query has"):
        begun(new, told)
    with pytest.raises(QueryError, match=r"are of several levels.*change those of one level"):
        begun(new.replace("SELECT Item FROM Bid C", "SELECT Item FROM Bid WHERE price > 3 C"), told, migrate=True)
    begun(new, told, migrate=True)
    (words,) = told
    at = int(words.split()[-1])
    assert "log, file, now: another plan takes over at" in words and 6 <= at <= 12
    add(tmp_path, line(9, 10, 0, 5), '{"op":"cti","t":20}\n', '{"op":"cti","t":null}\n')
    begun(new, told)
    found = list(ew.read_changelog(str(tmp_path / "spark" / "log")))
    ew.testing.assert_valid([element for batch in found for element in batch.elements()])
    answer = ew.History.of(found, found[0].schema)
    bids = [
        *(ew.Insert(t, t + 1, {"Item": t % 2, "price": t}) for t in range(8)),
        ew.Insert(9, 10, {"Item": 0, "price": 5}),
    ]
    for t in range(20):
        text = (OTHERS if t < at else new).format(tmp_path, tmp_path)
        node = job_plan(text, unbounded=True).sinks["log"].node
        right = ew.History.of(list(ew.run(node, {"Bid": [*bids, ew.Cti(ew.INF)]})), node.schema)
        assert answer.snapshot(t) == right.snapshot(t), t
    assert len((tmp_path / "spark" / "rows.jsonl").read_text().splitlines()) == 9
