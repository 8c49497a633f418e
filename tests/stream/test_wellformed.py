"""What an element must satisfy by itself: the columns' rule and the message agree, case by case."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, PUNCT, ill_formed, lifetime_problem, well_formed

TIMES = (NEVER, MIN_TIME, 0, 1, MAX_TIME, INF)


@pytest.mark.parametrize("op", [INSERT, ADJUST, CTI, PUNCT])
def test_an_element_is_wrong_exactly_if_there_is_something_to_say(op: int) -> None:
    every = np.array(list(itertools.product(TIMES, repeat=3)), np.int64)
    vs, ve, vnew = (every[:, c].copy() for c in range(3))
    found = well_formed(np.full(len(every), op, np.uint8), vs, ve, vnew)
    for ok, times in zip(found.tolist(), every.tolist(), strict=True):
        problem, remedy = lifetime_problem(op, *times)
        assert ok == (problem == "") == (remedy == ""), (op, times, problem)


@pytest.mark.parametrize(
    ("op", "times", "problem"),
    [
        (INSERT, (5, 5, 0), "the lifetime [5, 5) is empty"),
        (INSERT, (INF, INF, 0), "out of range"),
        (ADJUST, (5, 9, 4), '"vnew" is 4, before the start 5'),
        (CTI, (NEVER, 0, 0), "out of range"),
        (INSERT, (0, MAX_TIME + 1, 0), "out of range"),
    ],
)
def test_what_is_said(op: int, times: tuple[int, int, int], problem: str) -> None:
    assert problem in lifetime_problem(op, *times)[0]


def test_the_first_one_is_named() -> None:
    op, vs = np.array([INSERT, CTI, INSERT, INSERT], np.uint8), np.array([1, 2, 3, 4])
    assert ill_formed(op, vs, vs + 1, vs) is None
    assert ill_formed(op, vs, np.array([2, 0, 3, 4]), vs) == 2
