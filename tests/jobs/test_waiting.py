"""Rows that wait: what is due comes once, what was taken back does not, and little is kept."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.jobs.waiting import Entries, Waiting

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.float64())])


def entries(rows):
    """Rows as (k, x, vs, ve, weight)."""
    columns = (pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows], pa.float64()))
    times = [np.array([r[i] for r in rows], np.int64) for i in (2, 3, 4)]
    return Entries(columns, *times)


def listed(found):
    columns = [column.to_pylist() for column in found.columns]
    return Counter(
        {
            (*row, vs, ve): w
            for *row, vs, ve, w in zip(
                *columns, found.vs.tolist(), found.ve.tolist(), found.weight.tolist(), strict=True
            )
        }
    )


def test_against_a_bag_of_entries():
    for seed in range(20):
        rng = random.Random(seed)
        waiting, model = Waiting(SCHEMA), Counter()
        for t in range(0, 60, 3):
            rows = []
            for _ in range(rng.randint(0, 12)):
                if model and rng.random() < 0.4:
                    key = rng.choice([k for k, n in model.items() if n > 0] or [None])
                    if key is not None and key[3] > t:
                        rows.append((*key, -1))
                        model[key] -= 1
                        continue
                key = (rng.choice(["a", None]), rng.choice([0.0, -0.0, None]), t, t + rng.randint(1, 20))
                key = (key[0], None if key[1] is None else 0.0, *key[2:])
                rows.append((*key, 1))
                model[key] += 1
            waiting.add(entries(rows))
            if rng.random() < 0.2:
                state = waiting.snapshot()
                waiting = Waiting(SCHEMA)
                waiting.restore(state)
            expected = Counter({k: n for k, n in model.items() if n and k[3] <= t})
            assert listed(waiting.due(t)) == expected
            model = Counter({k: n for k, n in model.items() if n and k[3] > t})
        assert listed(waiting.due(10**9)) == model
        assert len(waiting) == 0


def test_what_was_taken_back_is_not_kept():
    waiting = Waiting(SCHEMA)
    for n in range(500):
        waiting.add(entries([("a", float(n % 7), 0, 10, 1)]))
        waiting.add(entries([("a", float(n % 7), 0, 10, -1)]))
    assert len(waiting) <= 4
