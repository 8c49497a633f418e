"""A form in front of a target: epochs that come again, crashes at any point, with the state beside or elsewhere."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.connectors.trying_out import DiscardRows
from everwhen.errors import SinkError, SinkLostError
from everwhen.jobs.formed_sink import FormedSink
from everwhen.jobs.forms import AsOfNow
from everwhen.stream.element import Adjust, Insert

S = ew.source("S", {"x": "int64"})


class Target(DiscardRows):
    """Keeps what it takes, outlives a crash, and refuses if it is told to."""

    lasting = True

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[list[tuple[int, int]]] = []
        self.refuses = self.dies_behind = False

    def commit(self, epoch, changes):
        if self.refuses:
            raise SinkError("no")
        if epoch > self._last:
            self.taken.append(list(zip(changes.op.tolist(), changes.rows["x"].to_pylist(), strict=True)))
        super().commit(epoch, changes)
        if self.dies_behind:
            raise KeyboardInterrupt


def batch(*elements):
    return ew.ElementBatch.of(elements, S.schema)


EPOCHS = [
    batch(Insert(0, 5, {"x": 1})),
    batch(Insert(3, 9, {"x": 2})),
    batch(Adjust(3, 9, 20, {"x": 2}), Insert(7, 8, {"x": 3})),
]
SAID = [[(0, 1)], [(0, 2)], [(1, 1), (0, 3)]]


def formed(target, memory=None):
    sink = FormedSink(AsOfNow(S.schema, (), "retract"), target, None if memory is None else str(memory))
    sink.prepare(S.schema)
    return sink


def test_an_epoch_that_is_refused_may_be_tried_again():
    target = Target()
    sink = formed(target)
    target.refuses = True
    with pytest.raises(SinkError):
        sink.commit(0, EPOCHS[0])
    target.refuses = False
    for n, each in enumerate(EPOCHS):
        sink.commit(n, each)
        sink.commit(n, each)
    assert target.taken == SAID and sink.changed == 4


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("moment", ["before", "behind"])
def test_with_a_memory_it_goes_on_after_a_crash_at_any_point(tmp_path, at, moment):
    target = Target()
    sink = formed(target, tmp_path)
    for n, each in enumerate(EPOCHS[:at]):
        sink.commit(n, each)
    target.refuses, target.dies_behind = moment == "before", moment == "behind"
    with pytest.raises((SinkError, KeyboardInterrupt)):
        sink.commit(at, EPOCHS[at])
    target.refuses = target.dies_behind = False
    again = formed(target, tmp_path)  # another process
    assert again.committed() == (at if moment == "behind" else at - 1)
    for n, each in enumerate(EPOCHS):
        if n >= at:  # the epoch under way comes again
            again.commit(n, each)
    assert target.taken == SAID
    assert len(list((tmp_path / "states").iterdir())) <= 2


def test_a_memory_that_is_gone_is_told(tmp_path):
    target = Target()
    formed(target, tmp_path / "a").commit(0, EPOCHS[0])
    with pytest.raises(SinkLostError, match="the state of the form is gone"):
        formed(target, tmp_path / "b")


def test_in_process_the_state_is_handed_on():
    target = Target()
    sink = formed(target)
    sink.commit(0, EPOCHS[0])
    state = sink.snapshot()
    sink.commit(1, EPOCHS[1])
    again = formed(target)
    again.restore(state)
    for n in (1, 2):  # epoch 1 goes through the form again, and not to the target
        again.commit(n, EPOCHS[n])
    assert target.taken == SAID and again.changed == 4
