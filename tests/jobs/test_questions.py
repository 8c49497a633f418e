"""Questions to a running job: WAITING and ANALYZE, asked from outside."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everwhen.cli.program import main
from everwhen.errors import StateError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from everwhen.jobs.questions import QUESTION, answer, ask
from everwhen.jobs.status import ask_to_stop, read_status
from everwhen.storage.lease import Holder

TEXT = """
    CREATE STREAM Bid (item INT, price INT) SOURCE file('{0}/bids.jsonl');
    CREATE SINK final INTO file('{0}/final.jsonl');
    INSERT INTO final SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10) GROUP BY item"""

ME = Holder("me", 1, "machine", "here", 1, "now", 0.0, 0.0, "a test")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A job that has read two rows and waits."""
    bids = [(1, {"item": 7, "price": 40}), (4, {"item": 8, "price": 55})]
    rows = [*({"vs": t, "row": row} for t, row in bids), {"op": "cti", "t": 1}]
    (tmp_path / "bids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    place = tmp_path / "state"
    work = threading.Thread(target=LocalJob(job_plan(TEXT.format(tmp_path)), place, name="job").run)
    work.start()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (place / "status.json").exists() and read_status(place).status["sources"]["Bid"]["rows"] == 2:
            break
        time.sleep(0.02)
    yield place
    holder = read_status(place).holder
    assert holder is not None
    ask_to_stop(place, holder)
    work.join(60)


def test_a_running_job_says_why_it_waits_and_what_it_did(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(running), "--waiting", "--analyze"]) == 0
    told = capsys.readouterr().out
    assert "final: 1 row from 1 on waits for a promise of 12 of Bid" in told and '-> {"op":"cti","t":12} of Bid' in told
    assert "It is measured from now on: ask again." in told
    assert main(["status", str(running), "--waiting", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["waiting"]
    assert (found["reason"], found["sources"][0]["promised"]) == ("promise", 1)
    assert main(["status", str(running)]) == 0 and "waits for a promise" not in capsys.readouterr().out


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"has not answered within 0\.1 seconds; it may be in a long epoch: ask again"):
        ask(tmp_path, ME, ["waiting"], 0.1)


def test_a_question_to_an_earlier_run_is_not_answered(tmp_path: Path) -> None:
    (tmp_path / QUESTION).write_text(json.dumps({"holder": "before", "words": ["waiting"], "number": "1"}))
    assert not answer(tmp_path, ME, lambda word: pytest.fail("asked"))
    assert not (tmp_path / QUESTION).exists() and not answer(tmp_path, ME, lambda word: [])


def test_an_error_is_an_answer(tmp_path: Path) -> None:
    def fails(word: str) -> list[tuple[str, object]]:
        raise StateError("no state")

    asking = threading.Thread(target=lambda: [time.sleep(0.1), answer(tmp_path, ME, fails)])
    asking.start()
    with pytest.raises(StateError, match="no state"):
        ask(tmp_path, ME, ["waiting"], 10)
    asking.join()
