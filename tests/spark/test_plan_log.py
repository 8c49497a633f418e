"""What a checkpoint says of a query that took over from another one, and with which queries it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from everwhen.errors import QueryError, StateError
from everwhen.spark.driver.epoch_log import EpochLog, EpochState, Identity
from everwhen.spark.driver.plan_log import (
    PlanRecord,
    check_plans,
    read_identity,
    read_record,
    state_name,
    write_record,
)

RECORD = PlanRecord(2, "new", "old", 40, 5, 20, 3, ("a", "a", "b"))
NEW, OLD = Identity("new", 2, "current"), Identity("old", 2, "current")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_record(str(tmp_path / "none")) is None and not (tmp_path / "none").exists()
    log = EpochLog(str(tmp_path))
    assert read_record(str(tmp_path)) is None
    write_record(log, RECORD)
    assert read_record(str(tmp_path)) == RECORD
    log.folder.replace("plans.json", [b'{"number": 1}'])
    with pytest.raises(StateError, match=r"plans\.json is damaged"):
        read_record(str(tmp_path))


def test_the_old_plan_runs_until_everything_before_is_promised() -> None:
    for epoch, promised, both in ((5, 45, True), (6, 39, True), (6, 40, False), (7, 90, False)):
        assert RECORD.under_way(EpochState(queries={"out": promised}), epoch) is both
    assert RECORD.under_way(EpochState(queries={"x": 50, "y": 30}), 9), "of all queries"


def test_a_restart_is_given_the_queries_that_run(tmp_path: Path) -> None:
    log = EpochLog(str(tmp_path))
    write_record(log, RECORD)
    log.done(6, EpochState(queries={"out": 30}))
    check_plans(log, RECORD, NEW, OLD)
    for new, old, why in (
        (OLD, None, "was replaced, from 40 on, and this is the one before"),
        (NEW, None, "the old one still runs, .*: start both"),
        (NEW, replace(OLD, plan="other"), "holds the state of another query"),
        (replace(NEW, plan="other"), OLD, "holds the state of another query"),
    ):
        with pytest.raises(QueryError, match=why):
            check_plans(log, RECORD, new, old)
    log.done(7, EpochState(queries={"out": 40}))
    check_plans(log, RECORD, NEW, None)


def test_the_state_of_a_plan_that_was_replaced_is_deleted(tmp_path: Path) -> None:
    log = EpochLog(str(tmp_path))
    for number in (0, 1):
        place = tmp_path / "everwhen" / state_name(number) / "stage=1" / "bucket=0"
        place.mkdir(parents=True)
        (place / "log-000000000003").touch()
    assert log.state_folders() == ["state", "state-1"]
    log.drop_state("state")
    assert log.state_folders() == ["state-1"]
    log.begun(3, _decision())
    assert log.begun(3, _decision()) and not list((tmp_path / "everwhen" / "state-1").rglob("log-*")), "taken back"


def _decision():  # type: ignore[no-untyped-def]
    from everwhen.core.consistency import MIDDLE
    from everwhen.spark.driver.epoch_log import EpochDecision

    return EpochDecision(frozenset(), 1.0, MIDDLE.to_plain())


def test_what_runs_is_what_was_started_or_what_took_over(tmp_path: Path) -> None:
    assert read_identity(str(tmp_path / "none")) is None and not (tmp_path / "none").exists()
    log = EpochLog(str(tmp_path))
    first = Identity("old", 2, "current", "asked", "data")
    log.open(first)
    found = read_identity(str(tmp_path))
    assert found == first and found is not None and (found.asked, found.stored) == ("asked", "data")
    log.renew(replace(first, buckets=4))
    assert read_identity(str(tmp_path)) == Identity("old", 4, "current")
    write_record(log, replace(RECORD, asked="other", stored=None, buckets=3))
    found = read_identity(str(tmp_path))
    assert found == Identity("new", 3, "current") and found is not None and found.asked == "other"
    about = tmp_path / "everwhen" / "query.json"
    about.write_text(about.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(StateError, match="in format 1; this is"):
        read_identity(str(tmp_path))
    about.write_text("[]")
    with pytest.raises(StateError, match=r"query\.json is damaged"):
        read_identity(str(tmp_path))


def test_state_that_has_moved_is_there_and_nobody_runs_beside_it(tmp_path: Path) -> None:
    moved = replace(RECORD, moved=True)
    assert not moved.under_way(EpochState(queries={"out": 0}), 1)
    log = EpochLog(str(tmp_path))
    place = tmp_path / "everwhen" / state_name(2) / "stage=1" / "bucket=0"
    for record, stays in ((moved, True), (RECORD, False)):  # of an attempt that was never decided nothing stays
        place.mkdir(parents=True, exist_ok=True)
        (place / "snapshot-000000000003").touch()
        write_record(log, record)
        assert place.exists() is stays
