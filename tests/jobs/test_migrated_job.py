"""Jobs whose text changes: the new queries go on from the state of the old ones."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.errors import QueryError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from everwhen.jobs.status import read_status
from jobs.test_local_job import add, cti, line, rows_of, run_until

OLD = """
    CREATE STREAM Bid (item INT, price INT) SOURCE file('{0}/bids.jsonl');
    CREATE STREAM Best AS SELECT item, SUM(price) AS price FROM Bid WINDOW(RANGE 10) WHERE price > 2 GROUP BY item;
    CREATE SINK log FROM Best INTO changelog('{0}/log');
    CREATE SINK final FROM Best INTO file('{0}/final.jsonl');
    CREATE SINK now FROM Best INTO folder('{0}/now', form = 'upsert');
    CREATE SINK rows INTO file('{0}/rows.jsonl');
    INSERT INTO rows SELECT item FROM Bid WHERE price > 5 CONSISTENCY STRONG"""
NEW = OLD.replace("SUM(price) AS price", "SUM(2 * price) AS price").replace("price > 5", "price < 4")


def job(place: Path, text: str, told: list[str] | None = None, **options) -> LocalJob:
    tell = (lambda _: None) if told is None else told.append
    return LocalJob(job_plan(text.format(place)), place / "state", tell=tell, **options)


def answer(place: Path) -> ew.History:
    batches = list(ew.read_changelog(str(place / "log")))
    ew.testing.assert_valid([element for batch in batches for element in batch.elements()])
    return ew.History.of(batches, batches[0].schema)


def half_done(place: Path) -> None:
    """The old text has taken rows up to 7, and all is promised up to 6."""
    add(place, *(line(t, t % 2, t + 1) for t in range(8)), cti(6))
    run_until(place, lambda: read_status(place / "state").status["sources"]["Bid"]["rows"] == 8, OLD)


def test_all_sinks_of_a_view_go_over_one_after_the_other(tmp_path):
    half_done(tmp_path)
    with pytest.raises(QueryError, match=r"(?s)query of log.*query of rows.*or --migrate, if each new query has"):
        job(tmp_path, NEW).run()
    add(tmp_path, line(8, 0, 3), cti(9), line(11, 1, 4), cti(12), line(13, 0, 9), cti(30), cti(None))
    told: list[str] = []
    assert job(tmp_path, NEW, told, migrate=True, batch=2).run() == "done"
    assert [words.partition(": the new query counts from ")[0] for words in told] == [
        "job: log", "job: rows", "job: final", "job: now"
    ]  # fmt: skip
    at = int(told[0].split()[-2])
    assert 6 <= at <= 16
    nodes = [job_plan(text.format(tmp_path)).sinks["log"].node for text in (OLD, NEW)]
    old, new = (ew.History.of(list(ew.run(node, given(tmp_path))), node.schema) for node in nodes)
    found = answer(tmp_path)
    for t in range(40):
        assert found.snapshot(t) == (old if t < at else new).snapshot(t), t
    final = rows_of(tmp_path / "final.jsonl")
    switched = int(told[2].split()[-2])
    for t in range(40):
        alive = sorted((r["item"], r["price"]) for r in final if r["valid_from"] <= t < r["valid_to"])
        right = (old if t < switched else new).snapshot(t)
        assert alive == sorted(right.elements()), t
    assert job(tmp_path, NEW).run() == "done", "the checkpoint is the new text's"


def given(place: Path) -> dict[str, list[ew.Element]]:
    found: list[ew.Element] = []
    for text in (place / "bids.jsonl").read_text().splitlines():
        each = json.loads(text)
        if "op" not in each:
            found.append(ew.Insert(each["vs"], each["vs"] + 1, each["row"]))
    return {"Bid": [*found, ew.Cti(ew.INF)]}


def test_what_cannot_take_over_is_refused_and_the_old_text_goes_on(tmp_path):
    half_done(tmp_path)
    other = OLD.replace("SUM(price) AS price", "COUNT(*) AS price, 1 AS more")
    with pytest.raises(QueryError, match=r"one with .*more.* cannot take over"):
        job(tmp_path, other, migrate=True).run()
    with pytest.raises(QueryError, match=r"(?s)belongs to another run.*sink final"):
        job(tmp_path, OLD.replace("final.jsonl", "other.jsonl"), migrate=True).run()
    add(tmp_path, cti(None))
    assert job(tmp_path, OLD, migrate=True).run() == "done", "a text that has not changed goes on"


def test_one_of_several_that_cannot_take_over_is_told_and_goes_on_as_it_was(tmp_path):
    half_done(tmp_path)
    endless = NEW.replace("price < 4", "price < 9")
    text = endless.replace("SELECT item FROM Bid WHERE", "SELECT COUNT(*) AS item FROM Bid WINDOW(UNBOUNDED) WHERE")
    plan = job_plan(text.format(tmp_path), unbounded=True)
    add(tmp_path, line(40, 1, 1), cti(None))
    told: list[str] = []
    assert LocalJob(plan, tmp_path / "state", tell=told.append, migrate=True).run() == "done"
    assert "job: log: the new query counts from" in told[0]
    assert sum("job: rows: the old query goes on: " in words and "past" in words for words in told) == 1
    assert [row["item"] for row in rows_of(tmp_path / "rows.jsonl")] == [1, 0, 1], "prices above 5"


def test_before_a_state_is_kept_another_text_begins_or_is_refused(tmp_path):
    add(tmp_path, line(1, 1, 3))
    with job(tmp_path, OLD).held():
        pass  # nothing was read
    child = forked(tmp_path, NEW, every=1000.0)
    try:
        until = time.monotonic() + 30
        while not list((tmp_path / "log").glob("epoch=*")):
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with pytest.raises(QueryError, match="has no state yet, so no other query can go on from it"):
        job(tmp_path, OLD, migrate=True).run()
    add(tmp_path, cti(None))
    assert job(tmp_path, NEW).run() == "done"


def forked(place: Path, text: str, every: float = 0.02) -> int:
    child = os.fork()
    if child == 0:
        try:
            job(place, text, migrate=True, batch=20, every=every).run()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return child


@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_while_it_goes_over_it_writes_what_one_writes_that_is_not(tmp_path, kills):
    rng = random.Random(kills)
    lines = [line(t, rng.randrange(4), rng.randrange(9)) for t in range(40 * kills)]
    for at in range(5, len(lines), 7):
        lines[at] += cti(at - 3)
    places = [tmp_path / "plain", tmp_path / "killed"]
    for place in places:
        place.mkdir()
        add(place, *lines[: 10 * kills], cti(10 * kills - 3))
        run_until(place, lambda: read_status(place / "state").status["sources"]["Bid"]["rows"] == 10 * kills, OLD)  # noqa: B023
    add(places[0], *lines[10 * kills :], cti(None))
    told: list[str] = []
    assert job(places[0], NEW, told, migrate=True).run() == "done"
    for number in range(kills):
        add(places[1], *lines[(10 + 30 * number // kills) * kills : (10 + 30 * (number + 1) // kills) * kills])
        child = forked(places[1], NEW)
        try:
            time.sleep(rng.uniform(0, 0.15))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    add(places[1], cti(None))
    assert job(places[1], NEW, migrate=True).run() == "done"
    one, two = (answer(place) for place in places)
    ew.testing.assert_same_history(one, two)
    finals = [sorted(map(str, rows_of(place / "rows.jsonl"))) for place in places]
    assert finals[0] == finals[1]
