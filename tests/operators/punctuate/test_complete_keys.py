"""How far all units have come: row by row, against the smallest of their largest values."""

from __future__ import annotations

import random

import numpy as np
import pytest

from everwhen.operators.punctuate.complete_keys import low_water


@pytest.mark.parametrize("seed", range(25))
def test_it_is_the_smallest_of_the_largest(seed: int) -> None:
    rng = random.Random(seed)
    units = rng.randint(1, 4)
    tops, at, reached = np.zeros(units, np.int64), np.full(units, -1), np.zeros(units, np.bool_)
    largest: dict[int, int] = {}
    for batch in range(5):
        n = rng.randint(0, 8)
        values = np.array([rng.randint(0, 6 + 3 * batch) for _ in range(n)], np.int64)
        unit = np.array([rng.randint(-1, units - 1) for _ in range(n)], np.int64)
        first = -1
        for i in range(n):
            if first < 0 and len(largest) == units and values[i] < min(largest.values()):
                first = i
            if unit[i] >= 0:
                largest[int(unit[i])] = max(largest.get(int(unit[i]), -1), int(values[i]))
        broken, last = low_water(values, unit, np.arange(n), tops, at, reached, True)
        assert broken == first
        assert reached.tolist() == [u in largest for u in range(units)]
        assert [int(tops[u]) for u in largest] == list(largest.values())
        if len(largest) < units:
            assert last == -1
        else:
            assert largest[last] == min(largest.values())


def test_without_a_check_rows_are_only_taken_in() -> None:
    tops, at, reached = np.array([5]), np.array([0]), np.array([True])
    given = np.array([1, 7]), np.array([0, 0]), np.array([3, 4]), tops, at, reached
    assert low_water(*given, False) == (-1, 0)
    assert tops.tolist() == [7] and at.tolist() == [4]
