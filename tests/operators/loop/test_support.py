"""The head of a set loop alone: births and counts of derivations, over time."""

from __future__ import annotations

import pytest

from everwhen.core.time import INF
from everwhen.errors import EverwhenError
from everwhen.operators.loop.support_loops import ALL, BIRTH, HI, LO, LOW
from operators.loop.heads import Headed, set_head


def pieces(trial: Headed) -> dict[str, list[tuple[int, int, int, int, int]]]:
    """Per row (lo, hi, birth, low, n)."""
    head = trial.head
    ids = head._keys.ids()  # type: ignore[attr-defined]
    (names,) = head.codec.decode(head._keys.codes[ids])  # type: ignore[attr-defined]
    found: dict[str, list[tuple[int, int, int, int, int]]] = {}
    for name, key in zip(names.to_pylist(), ids, strict=True):
        own, _ = head._pieces.gather(ids[ids == key])  # type: ignore[attr-defined]
        found[name] = [tuple(int(v) for v in each[[LO, HI, BIRTH, LOW, ALL]]) for each in own]  # type: ignore[misc]
    return found


def test_the_cycle_of_the_notes() -> None:
    """Source A, links A→B and B→A; then the source ends at 5.  The body is told by hand, round by round."""
    trial = set_head()
    assert trial.insert((0, INF, 1, "A", 0)) == {(0, INF, "A", 1): 1}
    assert pieces(trial) == {"A": [(0, INF, 1, 1, 1)]}
    assert trial.insert((0, INF, 1, "B", 1)) == {(0, INF, "B", 2): 1}
    assert trial.insert((0, INF, 1, "A", 2)) == {}
    assert pieces(trial) == {"A": [(0, INF, 1, 1, 2)], "B": [(0, INF, 2, 1, 1)]}
    assert trial.retract((5, INF, -1, "A", 0)) == {(5, INF, "A", 1): -1}
    assert pieces(trial)["A"] == [(0, 5, 1, 1, 2), (5, INF, 0, 0, 1)]
    assert trial.retract((5, INF, -1, "B", 1)) == {(5, INF, "B", 2): -1}
    assert trial.retract((5, INF, -1, "A", 2)) == {}
    assert pieces(trial) == {"A": [(0, 5, 1, 1, 2)], "B": [(0, 5, 2, 1, 1)]}
    assert trial.insert() == {}


def test_a_row_with_other_support_comes_back() -> None:
    """As above, and B is a source, too: A goes, B does not, and A comes with a new birth."""
    trial = set_head()
    trial.insert((0, INF, 1, "A", 0), (0, INF, 1, "B", 0))
    trial.insert((0, INF, 1, "A", 1), (0, INF, 1, "B", 1))
    assert trial.retract((5, INF, -1, "A", 0)) == {(5, INF, "A", 1): -1}
    assert trial.retract((5, INF, -1, "B", 1)) == {}
    assert trial.head.due
    assert trial.insert() == {(5, INF, "A", 3): 1}
    assert not trial.head.due
    # B's old derivation of A is now older than A
    assert pieces(trial)["A"] == [(0, 5, 1, 1, 2), (5, INF, 3, 1, 1)]


def test_what_is_derived_again_is_not_said_again() -> None:
    trial = set_head()
    assert trial.insert((0, 10, 1, "A", 0), (5, 15, 2, "A", 0)) == {(0, 15, "A", 1): 1}
    assert trial.insert((12, 20, 1, "A", 1)) == {(15, 20, "A", 2): 1}
    covered = sorted(t for lo, hi, _ in trial.standing() for t in range(lo, hi))
    assert covered == list(range(20)), "once at every instant, in pieces that have other counts"


def test_a_birth_counts_only_older_premises() -> None:
    """Of two derivations the one from a younger premise does not hold the row."""
    trial = set_head()
    trial.insert((0, 10, 1, "A", 0))
    trial.insert((0, 10, 1, "A", 1), (0, 10, 1, "A", 7))
    assert pieces(trial)["A"] == [(0, 10, 1, 1, 3)]
    assert trial.retract((4, 10, -1, "A", 0)) == {(4, 10, "A", 1): -1}


def test_held_back_it_waits() -> None:
    """Flying: derivations are taken, and what is due comes with the next epoch, also after a restart."""
    trial = set_head()
    trial.hold((0, 10, 1, "A", 0))
    assert trial.head.due and trial.standing() == {}
    trial.restart()
    assert trial.head.due
    assert trial.insert() == {(0, 10, "A", 1): 1}


def test_what_waits_can_be_taken_back() -> None:
    trial = set_head()
    trial.hold((0, 10, 1, "A", 0), (0, 10, 1, "B", 0))
    assert trial.retract((0, 10, -1, "A", 0)) == {}
    assert trial.insert() == {(0, 10, "B", 1): 1}


def test_without_births_it_is_a_distinct() -> None:
    trial = set_head(births=False)
    assert trial.insert((0, 10, 1, "A"), (0, 10, 1, "A")) == {(0, 10, "A"): 1}
    assert trial.insert((5, 12, 1, "A")) == {(10, 12, "A"): 1}


def test_a_promise_frees_what_has_ended() -> None:
    trial = set_head()
    trial.insert((0, 10, 1, "A", 0), (0, 20, 1, "B", 0), (0, 5, 1, "C", 0), (5, 9, 1, "C", 0))
    trial.head.expire(9)
    assert sorted(pieces(trial)) == ["A", "B"]
    trial.head.expire(10)
    assert sorted(pieces(trial)) == ["B"] and trial.rows == 1
    trial.head.expire(INF)
    assert trial.rows == 0 and trial.standing() == {}


def test_a_promise_keeps_what_goes_on() -> None:
    trial = set_head()
    trial.insert((0, 10, 1, "A", 0))
    trial.insert((6, 10, 1, "A", 1))
    trial.head.expire(6)
    assert pieces(trial)["A"] == [(6, 10, 1, 1, 2)]
    assert trial.retract((8, 10, -1, "A", 0)) == {(8, 10, "A", 1): -1}


def test_a_derivation_that_is_not_there_cannot_go() -> None:
    trial = set_head()
    trial.insert((0, 10, 1, "A", 0))
    with pytest.raises(EverwhenError, match="takes back a derivation that is not there"):
        trial.retract((5, 15, -1, "A", 0))


def test_it_goes_on_from_a_file() -> None:
    trial = set_head()
    trial.insert((0, INF, 1, "A", 0))
    trial.insert((0, INF, 1, "B", 1))
    before = pieces(trial)
    trial.restart()
    assert pieces(trial) == before
    assert trial.insert((3, 9, 1, "C", 2)) == {(3, 9, "C", 3): 1}, "rounds are numbered on"
    assert trial.retract((2, INF, -1, "A", 0)) == {(2, INF, "A", 1): -1}


def test_many_derivations_of_one_row() -> None:
    """More edges than are sorted by hand: the same as one by one."""
    many = [(t, t + 50, 1, "A", t % 7) for t in range(100)]
    one, other = set_head(), set_head()
    assert one.insert(*many) == {(0, 149, "A", 1): 1}
    for each in many:
        other.head.insert(None)
        other.insert(each)
    assert [(lo, hi, n) for lo, hi, _, _, n in _merged(one)] == [(lo, hi, n) for lo, hi, _, _, n in _merged(other)]


def _merged(trial: Headed) -> list[tuple[int, int, int, int, int]]:
    """Pieces with the same number of derivations as one, whenever they were born."""
    found: list[tuple[int, int, int, int, int]] = []
    for lo, hi, _, _, n in pieces(trial)["A"]:
        if found and found[-1][1] == lo and found[-1][4] == n:
            found[-1] = (found[-1][0], hi, 0, 0, n)
        else:
            found.append((lo, hi, 0, 0, n))
    return found
