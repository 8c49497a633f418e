"""Pieces of a step: per key in the order of time, what is taken back and what is said, and nothing else."""

from __future__ import annotations

import numpy as np

from everwhen.core.emit import Emit
from everwhen.core.time import NEVER
from everwhen.operators.contract import Policy
from everwhen.operators.sweep.sweep import Sweep
from everwhen.rows.interner import Interner


def test_a_step_says_where_the_answer_changed() -> None:
    sweep = Sweep(1, [], Interner(), Policy(Emit.ALL), ints=1)

    def step(*segments: tuple[int, int, int, int]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Segments (key, lo, hi, weight); pieces as (key, lo, hi, count)."""
        key, lo, hi, weight = (np.array([each[c] for each in segments], np.int64) for c in range(4))
        pieces = sweep.step(sweep.intern(key[:, None].copy()), lo, hi, weight[:, None].copy(), 0, NEVER)
        codes = sweep.keys.codes[pieces.keys][:, 0]
        return tuple([(int(codes[at]), *rest) for at, *rest in part.tolist()] for part in (pieces.taken, pieces.said))  # type: ignore[return-value]

    assert step((7, 0, 10, 1), (8, 2, 4, 2)) == ([], [(7, 0, 10, 1), (8, 2, 4, 2)])
    assert step((7, 4, 6, 1)) == ([(7, 4, 6, 1)], [(7, 4, 6, 2)]), "the rest stands"
    assert step((8, 2, 4, -2)) == ([(8, 2, 4, 2)], [])
