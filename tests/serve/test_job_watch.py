"""A job that is watched: what its checkpoint tells, as the page shows it; also when it fails, or is killed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.cli.program import main
from everwhen.errors import StateError
from everwhen.jobs.status import JobStatus, SinkStatus, SourceStatus, write_status
from everwhen.serve import watched
from everwhen.serve.job_watch import JobWatch
from everwhen.serve.observer import Observer
from everwhen.serve.subscribers import Subscribers

RUNNING = JobStatus(
    "running", "spark", "best.sql", 1, "here", 0.0, 0.0, 7, 0.1, 0.2, 6, 0, 120, 4_000,
    {"Bid": SourceStatus("kafka", 100, 10.0, 3, "rows", 40, 2, False),
     "Sale": SourceStatus("file", 50, 5.0, None, "", 30, 0, False)},
    {"best": SinkStatus("delta", "upsert", 60, 6.0, 9, 60, 30, 55, 4)}, "best: 4 rows wait for a promise of Sale",
)  # fmt: skip


def told(watch: JobWatch) -> dict[str, object]:
    return json.loads(Observer(watch, Subscribers()).look().session)


def test_a_job_that_ran_is_shown_with_its_sources_and_sinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"op": "insert", "vs": t, "ve": t + 1, "row": {"x": t}} for t in range(5)]
    Path("s.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [*rows, {"op": "cti", "t": None}]))
    Path("job.sql").write_text(
        "CREATE STREAM S (x INT) SOURCE file('s.jsonl');\nCREATE SINK k INTO file('k.jsonl');\n"
        "INSERT INTO k SELECT x FROM S WHERE x > 1"
    )
    assert main(["start", "job.sql", "--checkpoint", "state", "--engine", "local"]) == 0
    found = told(JobWatch("state"))
    assert found["state"] == "done" and found["job"]["job"] == "job.sql" and found["elements"] == 5
    (query,) = found["queries"]
    assert (query["name"], query["state"], query["final_before"]) == ("k", "stopped", "inf")
    assert query["inserts"] == 4  # three rows and a promise: a job counts elements
    assert [node["kind"] for node in found["nodes"]] == ["source", "operator", "query"]
    assert found["nodes"][0]["ended"] and not found["problem"]


def test_the_late_rows_of_a_job_are_kept_once_and_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("at,x\n1,1\n9,2\n3,3\n4,4\n")
    Path("job.sql").write_text(
        "CREATE STREAM S (at INT, x INT) ORDERED BY at WITHIN 2 LATE ROWS DROP SOURCE file('s.csv');\n"
        "CREATE SINK k INTO file('k.jsonl');\nINSERT INTO k SELECT x FROM S"
    )
    started = ["start", "job.sql", "--checkpoint", "state", "--engine", "local", "--batch", "1"]
    for _ in range(2):  # again, it goes on from its checkpoint
        assert main(started) == 0
        found = [element for batch in JobWatch("state").late_rows("S") for element in batch.elements()]
        assert [(each.vs, each.row["x"]) for each in found] == [(3, 3), (4, 4)]  # type: ignore[union-attr]
    assert JobWatch("state").late_rows("T") == []
    monkeypatch.setattr(watched, "MOST_LATE", 1)
    many = [{"op": "insert", "vs": t, "ve": t + 1, "row": {"x": t}} for t in range(9_000)]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(each) + "\n" for each in many))
    kept = watched.newest_late([tmp_path / "none.jsonl", tmp_path / "many.jsonl"])  # the first is not even opened
    assert int(kept[-1].vs[-1]) == 8_999 and len(kept) == 1


def test_the_late_rows_of_a_job_have_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("at,x\n2024-03-01 08:00:00,1\n2024-03-01 09:00:00,2\n2024-03-01 07:00:00,3\n")
    Path("job.sql").write_text(
        "CREATE STREAM S (at TIMESTAMP, x INT) ORDERED BY at WITHIN 1 MINUTE LATE ROWS DROP SOURCE file('s.csv');\n"
        "CREATE SINK k INTO file('k.jsonl');\nINSERT INTO k SELECT x FROM S"
    )
    assert main(["start", "job.sql", "--checkpoint", "state", "--engine", "local", "--batch", "1", "--tick", "1s"]) == 0
    (file,) = Path("state", "late").iterdir()
    assert json.loads(file.read_text())["vs"] == "2024-03-01T07:00:00Z"
    (batch,) = JobWatch("state").late_rows("S")
    assert batch.vs.tolist() == [1709276400]  # in its ticks, not in those that the file would do with


def test_it_tells_who_holds_the_job_back_and_takes_no_orders(tmp_path: Path) -> None:
    write_status(tmp_path, replace(RUNNING, updated=time.time()))
    watch = JobWatch(tmp_path)
    nodes = {node.id: node for node in watch.observe().graph}
    assert nodes["plan"].waits_for == ("source Sale",) and nodes["plan"].progress == 30
    assert nodes["query best"].state_rows == 4 and watch.books["best"].counts.corrections == 9
    assert "Sale" in watch.waiting("best")()["text"] and "best" in watch.analyze("best")["text"]
    assert watch.submit(watch.streams).result()[0]["from"] == "kafka"
    for order in (lambda: watch.execute("SELECT 1"), lambda: watch.stop_query("best"), lambda: watch.play(True)):
        with pytest.raises(ew.QueryError, match="everwhen stop"):
            order()


def test_a_job_that_fails_or_is_killed_while_it_is_watched_is_said_in_words(tmp_path: Path) -> None:
    write_status(tmp_path, RUNNING)
    watch = JobWatch(tmp_path)
    assert "its process was killed" in told(watch)["problem"]  # it runs, and nobody holds the checkpoint
    write_status(tmp_path, replace(RUNNING, state="failed", error="Bid: the broker is gone"))
    found = told(watch)
    assert found["problem"] == "the job failed: Bid: the broker is gone" and found["queries"][0]["state"] == "failed"
    (tmp_path / "status.json").unlink()
    assert "there is no job" in told(watch)["problem"]
    with pytest.raises(StateError):
        JobWatch(tmp_path)
