"""The log of a job: what was written comes back, half a line does not, a gap is an error."""

from __future__ import annotations

import errno

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


class Slow:
    """A file that takes few bytes at a time, and none at last: as on a disk that becomes full."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.file.write(data[: min(7, self.room)])
        self.room -= taken
        return taken

    def fileno(self):
        return self.file.fileno()

    def close(self):
        self.file.close()


def test_a_line_is_written_whole_or_it_is_an_error(tmp_path):
    log = StepLog(tmp_path)
    assert list(log.after(-1)) == []
    log._file = Slow(log._file, 1000)
    log.add(LoggedEpoch(0, [{"a": "x" * 50}], {"k": 1}))
    log._file.room = 20
    with pytest.raises(StateError, match=r"cannot note an epoch: no space is left \(free some space there"):
        log.add(LoggedEpoch(1, [{"a": "y" * 50}], {"k": 1}))
    log.close()
    again = StepLog(tmp_path)
    assert [each.epoch for each in again.after(-1)] == [0]  # half a line is of an epoch that no sink has
    again.add(LoggedEpoch(1, [], {}))
    again.close()
    assert [each.epoch for each in read(tmp_path, -1)] == [0, 1]
