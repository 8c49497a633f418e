"""What heads that keep something per key have in common: numbers of keys, what is due, what ends."""

from __future__ import annotations

import pytest

from everwhen.core.time import INF, NEVER
from operators.loop.heads import Headed, best_head, set_head


def rows(which: str, *names: str, lo: int = 0, hi: int = 10, weight: int = 1) -> list[tuple[object, ...]]:
    value = (3,) if which == "best" else ()
    return [(lo, hi, weight, name, *value, 0) for name in names]


@pytest.fixture(params=["set", "best"])
def which(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def trial(which: str) -> Headed:
    return set_head() if which == "set" else best_head()


def keys(trial: Headed) -> int:
    return len(trial.head._keys.ids())  # type: ignore[attr-defined]


def test_many_keys_and_their_numbers_again(trial: Headed, which: str) -> None:
    """More keys than tables begin with; those that are gone give their numbers to others."""
    names = [f"n{i}" for i in range(500)]
    assert len(trial.insert(*rows(which, *names))) == 500
    trial.head.expire(10)
    assert keys(trial) == 0 and trial.rows == 0
    capacity = trial.head._keys.capacity  # type: ignore[attr-defined]
    for at in range(20):
        trial.insert(*rows(which, *(f"{name}-{at}" for name in names), lo=10 * at + 10, hi=10 * at + 20))
        trial.head.expire(10 * at + 20)
    assert keys(trial) == 0
    assert trial.head._keys.capacity <= 2 * capacity, "10,000 keys were there in turn"  # type: ignore[attr-defined]


def test_a_key_that_is_taken_back_is_forgotten(trial: Headed, which: str) -> None:
    trial.insert(*rows(which, "A", "B"))
    trial.retract(*rows(which, "A", weight=-1))
    trial.head.expire(NEVER)
    assert keys(trial) == 1


def test_what_is_due_comes_once(trial: Headed, which: str) -> None:
    trial.hold(*rows(which, "A", "B"))
    trial.hold(*rows(which, "A", lo=3, hi=12))
    assert len(trial.insert()) == 2
    assert trial.insert() == {} and not trial.head.due


def test_nothing_derived_is_nothing(trial: Headed, which: str) -> None:
    assert trial.retract() == {} == trial.insert()
    trial.hold()
    assert not trial.head.due
    trial.head.expire(5)
    trial.head.expire(INF)
    assert trial.rows == 0


def test_when_all_has_ended_nothing_is_kept(trial: Headed, which: str) -> None:
    trial.insert(*rows(which, "A", "B", hi=INF))
    trial.hold(*rows(which, "C"))
    trial.head.expire(INF)
    assert keys(trial) == 0 and trial.rows == 0 and not trial.head.due


def test_a_promise_that_was_there_changes_nothing(trial: Headed, which: str) -> None:
    trial.insert(*rows(which, "A"))
    trial.head.expire(4)
    before = trial.rows
    trial.head.expire(4)
    assert trial.rows == before
    trial.restart()
    assert trial.rows == before
    trial.head.expire(10)
    assert trial.rows == 0
