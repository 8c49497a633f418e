"""Times in order, by counting or by comparing: equal ones stay as they came."""

from __future__ import annotations

import random

import numpy as np
import pytest

from everwhen.containers.sort_by_time import by_time, pick


@pytest.mark.parametrize(
    ("spread", "apart"),
    [(1, 1), (3, 1_000_000), (5, 1), (1_000_000, 1)],
    ids=["few", "few that are far apart", "counted", "compared"],
)
@pytest.mark.parametrize("n", [0, 1, 2, 300])
def test_the_order_is_stable(n: int, spread: int, apart: int) -> None:
    rng = random.Random(n)
    times = np.array([apart * rng.randint(-spread, spread) for _ in range(n)], np.int64)
    order = by_time(times)
    assert order.tolist() == sorted(range(n), key=lambda at: times[at])
    rows = np.arange(2 * n).reshape(n, 2)
    vs, ve, some = np.empty(n, np.int64), np.empty(n, np.int64), np.empty((n, 2), np.int64)
    pick(order, times, times + 7, rows, vs, ve, some)
    assert vs.tolist() == sorted(times.tolist()) and (ve == vs + 7).all()
    assert some[:, 0].tolist() == [2 * at for at in order.tolist()]
