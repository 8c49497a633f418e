"""A sum of signed segments: netted when it is asked for, cut where it is over, no larger than what is left of it."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.time import INF
from everwhen.operators.signed_bag import SignedBag, after, before
from operators.stepping import changes, codec_of, said
from state_files import through_file

CODEC = codec_of({"k": pa.int64(), "s": pa.string()})
LAST = 20


def total(bag: SignedBag) -> np.ndarray:
    found = np.zeros((3, LAST), np.int64)
    for (lo, hi, key, _), weight in said(bag.netted()).items():
        found[key, lo : min(hi, LAST)] += weight
    return found


@given(seed=st.integers(0, 2**32))
def test_it_is_the_sum_of_what_came(seed: int) -> None:
    rng = random.Random(seed)
    bag, wanted = SignedBag(CODEC), np.zeros((3, LAST), np.int64)
    for _ in range(30):
        key, lo = rng.randrange(3), rng.randrange(LAST)
        hi, weight, sign = rng.randint(lo + 1, LAST), rng.choice([1, 2, -1]), rng.choice([1, -1])
        bag.add(changes(CODEC, (lo, hi, weight, key, "abc"[key])), sign)
        wanted[key, lo:hi] += sign * weight
        if rng.random() < 0.2:
            t = rng.randrange(LAST)
            bag.cut(t)
            wanted[:, :t] = 0
        if rng.random() < 0.2:
            again = SignedBag(CODEC)
            again.restore(through_file(bag.snapshot()))
            bag = again
        assert bag.first <= min((t for t in range(LAST) if wanted[:, t].any()), default=INF)
    assert (total(bag) == wanted).all()


def test_what_cancels_does_not_pile_up() -> None:
    bag = SignedBag(CODEC)
    for _ in range(3000):
        bag.add(changes(CODEC, (0, INF, 1, 1, "b")))
        bag.add(changes(CODEC, (0, INF, 1, 1, "b")), -1)
    assert bag.size < 100 and bag.state_size().rows == 0


def test_changes_before_and_after_a_time() -> None:
    some = changes(CODEC, (0, 4, 1, 1, "b"), (2, 9, 1, 2, "c"), (6, 8, 1, 0, "a"))
    assert said(after(some, 3)) == {(3, 4, 1, "b"): 1, (3, 9, 2, "c"): 1, (6, 8, 0, "a"): 1}
    assert said(before(some, 3)) == {(0, 3, 1, "b"): 1, (2, 3, 2, "c"): 1}
    assert said(before(some, np.array([9, 1, 7]))) == {(0, 4, 1, "b"): 1, (6, 7, 0, "a"): 1}
