"""How far a run is said under each clip: against the sentences of the module's table."""

from __future__ import annotations

import random

import numpy as np
import pytest

from everwhen.core.time import INF
from everwhen.operators.clip import CUT, ENDED, ENDING, INFINITE, KNOWN, after, after_from, alive, frontier_of, raised


@pytest.mark.parametrize("seed", range(30))
def test_the_first_edge_after_an_instant(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.choice((1, 2, 9, 10, 11, 40, 41, 500))
    times = sorted(rng.sample(range(3 * n), n))
    s = rng.randint(0, 3)
    pool = np.array([[-1]] * s + [[t] for t in times], np.int64)
    for t in {times[0], times[-1], *(rng.randint(times[0], 3 * n) for _ in range(20))}:
        expected = s + sum(each <= t for each in times)
        assert after(pool, s, n, t) == expected
        at = s + rng.randrange(sum(each <= t for each in times))
        assert after_from(pool, at, s + n, t) == expected


@pytest.mark.parametrize(
    ("mode", "tau", "promise", "frontier"),
    [
        (CUT, 5, 0, 5),
        (ENDED, 12, 0, 10),
        (ENDED, 12, 11, 11),
        (ENDED, 30, 0, 20),
        (KNOWN, 12, 0, 20),
        (KNOWN, 10, 0, 20),
        (KNOWN, 25, 0, INF),
        (INFINITE, 12, 0, INF),
        (ENDING, 5, 0, 20),
        (ENDING, 25, 0, 25),
    ],
)
def test_the_frontier_of_edges_at_0_10_and_20(mode: int, tau: int, promise: int, frontier: int) -> None:
    pool = np.array([[0, 1], [10, 2], [20, 0]], np.int64)
    assert frontier_of(pool, 0, 3, mode, tau, promise) == frontier


def test_a_piece_is_alive_if_any_of_its_lanes_is() -> None:
    pool = np.array([[0, 0, 0, 5], [1, 0, -1, 0], [2, 3, 0, 0]], np.int64)
    assert [alive(pool, at, 2) for at in range(3)] == [False, True, True], "the last column is no lane"


def test_what_is_promised_of_a_key_alone_counts_for_it() -> None:
    floor = np.array([3, 9], np.int64)
    assert raised(floor, 0, KNOWN, 6, 4) == (6, 4), "less than what all are promised"
    assert raised(floor, 1, KNOWN, 6, 4) == (9, 9)
    assert raised(floor, 1, ENDED, 6, 4) == (6, 9), "what has ended by τ is not moved"
    assert raised(np.empty(0, np.int64), 1, KNOWN, 6, 4) == (6, 4)
