"""The log of a job: what was written comes back, half a line does not, a gap is an error."""

from __future__ import annotations

import pytest

from everwhen.errors import StateError
from everwhen.jobs.step_log import LoggedEpoch, StepLog


def epoch(n: int) -> LoggedEpoch:
    return LoggedEpoch(n, [{"inputs": {"S": {"offset": n}}}], {"a": n})


def read(place, after: int) -> list[LoggedEpoch]:
    log = StepLog(place)
    found = list(log.after(after))
    log.close()
    return found


def test_epochs_come_back_and_half_a_line_is_written_over(tmp_path):
    log = StepLog(tmp_path)
    assert list(log.after(-1)) == []
    log.add(epoch(0))
    log.add(epoch(1))
    log.close()
    (file,) = tmp_path.glob("steps-*")
    with open(file, "ab") as out:
        out.write(b'{"epoch":2,"st')
    again = StepLog(tmp_path)
    assert list(again.after(-1)) == [epoch(0), epoch(1)]
    again.add(epoch(2))
    again.close()
    assert read(tmp_path, -1) == [epoch(0), epoch(1), epoch(2)]


def test_after_a_cut_only_what_follows_is_there(tmp_path):
    log = StepLog(tmp_path)
    list(log.after(-1))
    log.add(epoch(0))
    log.cut(0)
    log.add(epoch(1))
    log.close()
    assert len(list(tmp_path.glob("steps-*"))) == 1
    assert read(tmp_path, 0) == [epoch(1)]


def test_a_gap_and_a_damaged_line_are_errors(tmp_path):
    log = StepLog(tmp_path)
    list(log.after(-1))
    log.add(epoch(1))
    log.close()
    with pytest.raises(StateError, match="epoch 0 is missing"):
        list(StepLog(tmp_path).after(-1))
    (file,) = tmp_path.glob("steps-*")
    file.write_text("{}\n")
    with pytest.raises(StateError, match="cannot be read"):
        list(StepLog(tmp_path).after(-1))
