"""What a job tells of itself: rates, requests to stop, the log, what is found of a job that was killed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from everwhen.core.time import INF, NEVER, show
from everwhen.errors import StateError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from everwhen.jobs.status import (
    JobLog,
    JobStatus,
    Rates,
    SinkStatus,
    SourceStatus,
    ask_to_stop,
    asked_to_stop,
    jobs_in,
    read_status,
    shown_instant,
    write_status,
)
from everwhen.jobs.status_view import status_text
from everwhen.storage.folder import LocalFolder
from everwhen.storage.lease import held_by, take_lease

STATUS = JobStatus(
    "running", "local", "best.sql", 1, "here", 0.0, 0.0, 3, 0.5, 0.75, 2, 1, 1234, 45_600_000,
    {"Bid": SourceStatus("folder", 42, 1.5, 3, "files", None, 2, False)},
    {"best": SinkStatus("file", "append", 5, 0.0, 1, 4, "inf", None, 3)}, "Bid has promised nothing yet",
)  # fmt: skip


def test_rates_are_of_the_last_seconds():
    rates = Rates()
    assert rates.of("a") == 0.0
    for second in range(31):
        rates.note({"a": second * (100 if second > 20 else 1)}, float(second))
    assert rates.of("a") == pytest.approx((3000 - 20) / 10)
    assert rates.of("b") == 0.0


def test_instants_as_json_has_them():
    assert [shown_instant(t) for t in (NEVER, 5, INF)] == [None, 5, "inf"]


def test_a_job_that_says_it_runs_and_holds_nothing_was_killed(tmp_path):
    write_status(tmp_path, STATUS)
    assert read_status(tmp_path).state == "killed"
    lease = take_lease(LocalFolder(str(tmp_path / "job")), str(tmp_path))
    found = read_status(tmp_path)
    assert found.state == "running" and found.holder == lease.holder
    assert held_by(tmp_path / "job") == lease.holder  # to look does not take it
    lease.release()
    assert read_status(tmp_path).state == "killed"
    assert json.loads(json.dumps(read_status(tmp_path).to_plain()))["checkpoint"] == str(tmp_path)


def test_a_request_to_stop_is_for_one_run(tmp_path):
    first = take_lease(LocalFolder(str(tmp_path / "job")), str(tmp_path))
    assert not asked_to_stop(tmp_path, first.holder)
    ask_to_stop(tmp_path, first.holder)
    assert asked_to_stop(tmp_path, first.holder)
    first.release()
    second = take_lease(LocalFolder(str(tmp_path / "job")), str(tmp_path))
    assert not asked_to_stop(tmp_path, second.holder)
    second.release()


def test_jobs_of_a_directory(tmp_path):
    with pytest.raises(StateError, match="there is no job"):
        read_status(tmp_path)
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        write_status(tmp_path / name, STATUS)
    assert [each.name for each in jobs_in(tmp_path)] == ["a", "b"]


def test_the_words_for_people(tmp_path):
    write_status(tmp_path, STATUS)
    with_lock = take_lease(LocalFolder(str(tmp_path / "job")), str(tmp_path))
    lines = status_text(read_status(tmp_path)).splitlines()
    with_lock.release()
    assert lines[0].startswith("best.sql: running (local), process 1 on here, since ")
    assert "state 1,234 rows, 45.6 MB; started 2 times" in lines[1]
    assert lines[2].endswith("42 rows, 2 per second, nothing promised, 3 files behind, 2 late")
    assert lines[3].endswith("4 changes of rows written, 3 rows wait, final everything")
    assert lines[4] == "  Bid has promised nothing yet"


def test_one_is_told_as_one(tmp_path):
    source = replace(STATUS.sources["Bid"], rows=1)
    sinks = {name: replace(s, elements=1, corrections=1, written=1, waiting_rows=1) for name, s in STATUS.sinks.items()}
    write_status(tmp_path, replace(STATUS, state_rows=1, sources={"Bid": source}, sinks=sinks))
    lines = status_text(read_status(tmp_path)).splitlines()
    assert "state 1 row, " in lines[1] and ": 1 row, " in lines[2]
    assert ": 1 element, " in lines[3] and "1 of them a correction, 1 change of rows written, 1 row waits" in lines[3]


def test_times_are_told_as_the_sources_have_them(tmp_path):
    dated = replace(
        STATUS, dated=True, tick="1s", sources={"Bid": replace(STATUS.sources["Bid"], promised=86_400)},
        sinks={"best": replace(STATUS.sinks["best"], final=3_600)},
    )  # fmt: skip
    write_status(tmp_path, dated)
    text = status_text(read_status(tmp_path))
    assert "promised up to 1970-01-02 00:00:00" in text and "final up to 1970-01-01 01:00:00" in text
    write_status(tmp_path, replace(dated, dated=False))
    assert "promised up to 86400," in status_text(read_status(tmp_path))


def test_a_job_over_timestamps_tells_timestamps(tmp_path):
    (tmp_path / "bids.csv").write_text("at,item\n2024-03-01 08:00:00,7\n2024-03-01 09:00:00,8\n")
    plan = job_plan(f"""
        CREATE STREAM Bid (at TIMESTAMP, item INT) SOURCE file('{tmp_path}/bids.csv') ORDERED BY at WITHIN 1 HOUR;
        CREATE SINK k FROM Bid INTO discard(form = 'elements')""")
    told = []
    LocalJob(plan, tmp_path / "state", watch=lambda status: told.append((status.dated, status.tick, show(0)))).run()
    assert told[-1] == (True, "1ms", "1970-01-01 00:00:00")


def test_the_log_and_who_is_there(tmp_path, monkeypatch):
    told: list[str] = []
    log = JobLog(tmp_path, told.append)
    log("hello")
    log.quietly("aside")
    assert told == ["hello"]
    assert [text[20:] for text in (tmp_path / "log").read_text().splitlines()] == ["hello", "aside"]
    monkeypatch.setenv("EVERWHEN_DETACHED", "1")  # what is told goes to the log by itself
    log("again")
    assert told == ["hello", "again"] and "again" not in (tmp_path / "log").read_text()


def test_a_log_that_cannot_be_written_ends_no_job(tmp_path):
    (tmp_path / "log").mkdir()
    heard = []
    JobLog(tmp_path, heard.append)("still here")
    assert heard == ["still here"]
