"""Lanes by name: whole numbers, floats of two parts behind them, evaluated lanes behind these."""

from __future__ import annotations

import numpy as np

from everwhen.operators.sweep.lane_view import Lanes


def test_lanes_are_found_by_what_they_add_up() -> None:
    words = np.zeros((2, 7), np.int64)
    words[:, 0], words[:, 1], words[:, 6] = [5, 6], [2, 3], [8, 9]
    words.view(np.float64)[:, 4], words.view(np.float64)[:, 5] = [0.5, 1.5], [1e-20, 0.0]
    lanes = Lanes(words, {("rows", -1): 0, ("valid", 0): 1}, {("summed", 0): 0, ("summed", 1): 1}, ints=2)
    assert lanes.int_("rows", -1).tolist() == [5, 6] and lanes.int_("valid", 0).tolist() == [2, 3]
    high, low = lanes.float_("summed", 1)
    assert high.tolist() == [0.5, 1.5] and low.tolist() == [1e-20, 0.0]
    assert lanes.evaluated(0).tolist() == [8, 9]
