"""Which keys punctuation reaches, until when, and how floors per key are raised and let go."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Punctuation, Range
from everwhen.core.time import INF, NEVER
from everwhen.operators.key_frontiers import NONE, KeyFrontiers, keys_covered, upto
from operators.stepping import changes, codec_of

CODEC = codec_of({"k": pa.int64(), "s": pa.string()})
ROWS = changes(CODEC, *((0, 1, 1, k, "ab"[k % 2]) for k in range(6))).rows


def reached(*promises: Punctuation) -> dict[int, int]:
    keys = KeyTable(CODEC.width, CODEC.pooled)
    keys.intern(ROWS)
    ids, times = keys_covered(promises, CODEC, keys)
    assert ids.tolist() == sorted(set(ids.tolist())), "each once, in order"
    return dict(zip(ids.tolist(), times.tolist(), strict=True))


def test_constants_of_all_columns_are_looked_up_and_the_rest_is_compared() -> None:
    exact = Punctuation.constants({"k": 3, "s": "b"}, 9)
    assert reached(exact) == {3: 9}
    assert reached(Punctuation.constants({"k": 3, "s": "a"}, 9)) == {}, "there is no such key"
    assert reached(Punctuation.constants({"s": "a"})) == {0: INF, 2: INF, 4: INF}
    assert reached(exact, Punctuation({"k": Range(ge=2, lt=4)}, 12)) == {2: 12, 3: 12}, "the longest counts"
    assert keys_covered((), CODEC, KeyTable(CODEC.width)) is NONE


def test_upto_tells_of_each_row() -> None:
    found = upto([Punctuation.constants({"k": 1}, 5), Punctuation({"k": Range(ge=4)}, 7)], CODEC, ROWS)
    assert found.tolist() == [NEVER, 5, NEVER, NEVER, 7, 7]


def test_floors_are_raised_settled_and_gone_with_their_keys() -> None:
    floors, ids = KeyFrontiers(), np.array([0, 2])
    assert not floors.any
    assert floors.raise_to(ids, np.array([5, 8]), 4).tolist() == [0, 2]
    assert floors.raise_to(ids, np.array([4, 9]), 4).tolist() == [2], "what is known is no news"
    every = np.arange(3)
    assert floors.then(every, 3).tolist() == [3, 3, 3] and floors.until(every, 3).tolist() == [5, 3, 9]
    floors.settle(np.array([0]))
    assert floors.then(every, 3).tolist() == [3, 3, 9], "a key that is gone has no floor"
    again = KeyFrontiers()
    again.restore(every, floors.snapshot(every), 3)
    assert again.then(every, NEVER).tolist() == [NEVER, NEVER, 9]
