"""A pool of events: entries are found, used again, and let go with the room they had."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa

from everwhen.operators.merge import event_pool_loops as kernel
from everwhen.operators.merge.event_pool import EventPool
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.merge.merging import SCHEMA


def test_entries_are_used_again() -> None:
    """Random events of three parties come and go: who has which, however the pool grows, shrinks and is recoded."""
    rng = random.Random(5)
    codec = RowCodec(SCHEMA, Interner())
    pool = EventPool(codec)
    model: Counter[tuple[int, str, int, int]] = Counter()
    for turn in range(60):
        party = rng.randrange(3)
        mine = [key for key in model.elements() if key[0] == party]
        gone = rng.sample(mine, rng.randrange(len(mine) + 1)) if turn % 3 else []
        new = [
            (party, rng.choice("ABC"), rng.randrange(40), 50 + rng.randrange(9)) for _ in range(rng.choice([3, 400]))
        ]
        model.update(new)
        model.subtract(gone)
        model = +model
        both = [*new, *gone]
        rows = codec.encode([pa.array([p for _, p, _, _ in both])], len(both))
        rows = np.concatenate([rows, np.array([[vs] for _, _, vs, _ in both])], axis=1)
        weight = np.repeat([1, -1], [len(new), len(gone)])
        pool.reserve(len(new))
        ends, slots = np.array([ve for *_, ve in both]), np.empty(len(both) + 1, np.int64)
        top, missing = kernel.change(
            rows, ends, weight, 0, pool.pool, pool.heads, pool.free, pool.top, 1 << party, slots
        )
        pool.top = int(top)
        assert not missing
        if turn % 10 == 9:
            pool.swept()
            codec.pool.collect(force=True)
        entries = pool.pool[: pool.top]
        entries = entries[entries[:, kernel.HAVE] > 0]
        assert len(entries) == pool.used
        texts = codec.decode(np.ascontiguousarray(entries[:, kernel.ROW :]))[0].to_pylist()
        found: Counter[tuple[int, str, int, int]] = Counter()
        for entry, p in zip(entries.tolist(), texts, strict=True):
            for port in range(3):
                found[port, p, entry[kernel.VS], entry[kernel.VE]] += entry[kernel.HAVE] >> port & 1
        assert +found == model
    biggest = pool.nbytes
    pool.pool[: pool.top, kernel.HAVE] = 0
    pool.keep()
    assert pool.used == 0
    assert pool.nbytes < biggest / 2
