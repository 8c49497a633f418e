"""The head of a UNION ALL loop alone: derivations go round as they come."""

from __future__ import annotations

from everwhen.core.time import INF
from operators.loop.heads import bag_head
from operators.stepping import changes


def test_every_derivation_is_a_row() -> None:
    trial = bag_head()
    assert trial.insert((0, 10, 1, "A"), (0, 10, 1, "A"), (2, 5, 3, "A")) == {(0, 10, "A"): 2, (2, 5, "A"): 3}
    assert trial.rows == 0 and not trial.head.due


def test_what_goes_goes_first() -> None:
    trial = bag_head()
    assert trial.retract((0, 10, 1, "A"), (0, 10, -1, "B")) == {(0, 10, "B"): -1}
    assert trial.head.due
    assert trial.insert() == {(0, 10, "A"): 1}
    assert not trial.head.due


def test_what_comes_and_goes_at_once_is_not_mentioned() -> None:
    trial = bag_head()
    assert trial.retract((0, 10, 1, "A"), (4, 10, -1, "A")) == {}
    assert trial.insert() == {(0, 4, "A"): 1}


def test_what_is_taken_back_meets_what_is_under_way() -> None:
    """Flying: an event that still waits is taken back before it has gone round."""
    trial = bag_head()
    trial.hold((0, 10, 1, "A"))
    assert trial.head.due and trial.rows == 1
    assert trial.retract((5, 10, -1, "A")) == {}
    trial.restart()
    assert trial.insert((0, 3, 1, "B")) == {(0, 5, "A"): 1, (0, 3, "B"): 1}
    assert not trial.head.due


def test_many_are_added_up() -> None:
    """Rounds that grow: equal segments become one with a weight."""
    trial = bag_head()
    many = [(0, 10, 1, "A")] * 3000
    batch = trial.head.insert(changes(trial.head.sent, *many))
    assert len(batch) == 1 and batch.weight.tolist() == [3000]


def test_copies_without_end() -> None:
    trial = bag_head()
    many = [(0, 10, 1 << 40, "A")] * 3000
    trial.head.insert(changes(trial.head.sent, *many))
    assert trial.head.endless and not bag_head().head.endless


def test_it_keeps_nothing_and_does_not_know_what_stands() -> None:
    trial = bag_head()
    trial.insert((0, INF, 1, "A"))
    trial.head.expire(5)
    assert trial.rows == 0 and trial.head.standing() is None
