"""What is measured of a stream is what its definition says."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe.measure import (
    CHANGES,
    ENDED,
    FIRST,
    GRANULE,
    LAST,
    STARTS,
    TAKEN,
    Measure,
    measure_odd,
)
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element_batch import ADJUST, INSERT

CODEC = RowCodec(Schema.of({}), Interner())


def changes(*pieces: tuple[int, int, int]) -> Changes:
    lo, hi, weight = (np.array(column, np.int64) for column in zip(*pieces, strict=True))
    return Changes(CODEC, lo, hi, weight, np.empty((len(lo), 0), np.int64))


def elements(*given: tuple[int, int, int, int]) -> CheckedBatch:
    op, vs, ve, vnew = (np.array(column, np.int64) for column in zip(*given, strict=True))
    rows = np.empty((len(op), 0), np.int64)
    return CheckedBatch(CODEC, op.astype(np.uint8), vs, ve, vnew, rows, int((op == ADJUST).sum()))


def measured(*batches: Changes | CheckedBatch) -> Measure:
    found = Measure.empty()
    for each in batches:
        found.add(each)
    return found


def test_sums_over_random_pieces_in_any_cutting() -> None:
    rng = random.Random(3)
    for _ in range(30):
        granule = rng.choice((1, 4, 6))
        starts = [granule * rng.randrange(-20, 50) for _ in range(rng.randrange(1, 12))]
        pieces = [(a, a + granule * rng.randrange(1, 9), rng.choice((1, 1, 2, -1))) for a in starts]
        at = rng.randrange(len(pieces) + 1)
        found = Measure.empty()
        for part in (pieces[:at], pieces[at:]):
            if part:
                one = measured(changes(*part))
                found.merge(one)
        said = [(a, b, w) for a, b, w in pieces if w > 0]
        assert found.counts[CHANGES] == len(pieces) and found.counts[TAKEN] == len(pieces) - len(said)
        assert found.counts[STARTS] == found.counts[ENDED] == sum(w for _, _, w in said)
        assert found.counts[FIRST] == min((a for a, _, _ in said), default=INF)
        assert found.counts[LAST] == max((a for a, _, _ in said), default=NEVER)
        assert found.counts[GRANULE] == math.gcd(*(t for a, b, _ in pieces for t in (a, b)))
        assert found.lived(0, 0, 99) == sum(w * (b - a) for a, b, w in pieces)


@pytest.mark.parametrize("weights", [(1,), (1, -1), (1, -1, 2, -3)])
def test_the_quick_loops_measure_what_the_plain_one_does(weights: tuple[int, ...]) -> None:
    """What is said once, what is said or taken back once, and all else; with and without ends and beginnings."""
    rng = random.Random(str(weights))
    for _ in range(60):
        base = rng.choice((0, -500, 1_700_000_000_000))
        starts = [base + rng.randrange(1000) for _ in range(rng.randrange(1, 30))]
        odd = rng.choice((0.0, 0.0, 0.2))
        pieces = [
            (NEVER if rng.random() < odd else a, rng.choice((INF, 2**50)) if rng.random() < odd else a + 7,
             rng.choice(weights)) for a in starts
        ]  # fmt: skip
        given, plain = changes(*pieces), Measure.empty()
        measure_odd(given.lo, given.hi, given.weight, plain.counts, plain.sums)
        found = measured(given)
        assert found.counts.tolist() == plain.counts.tolist() and found.sums == pytest.approx(plain.sums), pieces


def test_pieces_without_an_end_count_by_littles_law() -> None:
    """Three pieces of 10 ticks each, one after the other, said without an end and cut off: as if each were whole."""
    found = measured(changes((0, INF, 1)), changes((10, INF, -1), (10, INF, 1)), changes((20, INF, -1), (20, INF, 1)))
    assert found.lived(0, NEVER, 20) == 20 and found.counts[ENDED] == 2
    later = measured(changes((20, INF, -1), (20, INF, 1)), changes((30, INF, -1), (30, INF, 1)))
    assert later.lived(1, 10, 30) == 20 and later.counts[ENDED] == 2, "one was alive when the window began, at 10"


def test_elements_and_their_changes_measure_the_same_lifetimes() -> None:
    batch = elements(
        (INSERT, 0, 10, 0), (INSERT, 4, INF, 0), (ADJUST, 0, 10, 6), (ADJUST, 4, INF, 8), (INSERT, 6, 9, 0)
    )
    one, other = measured(batch), measured(batch.events())
    assert one.lived(0, NEVER, 6) == other.lived(0, NEVER, 6) == 6 + 4 + 3
    assert one.counts[ENDED] == 3 and one.counts[STARTS] == 3 and one.counts[TAKEN] == 2


def test_an_event_that_is_removed_was_never_there() -> None:
    found = measured(elements((INSERT, 2, 8, 0), (INSERT, 5, 9, 0), (ADJUST, 2, 8, 2)))
    assert (found.counts[STARTS], found.counts[ENDED], found.lived(0, 0, 9)) == (1, 1, 4)


def test_instants_without_a_beginning_are_left_out() -> None:
    found = measured(changes((NEVER, 5, 1), (3, 5, 1)))
    assert found.counts[STARTS] == 1 and found.lived(0, 0, 9) == 2


@pytest.mark.parametrize("steps", [1, 3])
def test_as_plain_data(steps: int) -> None:
    found = measured(*[changes((6, 12, 1), (9, INF, 1))] * steps)
    again = Measure.of(found.snapshot())
    assert (again.counts == found.counts).all() and (again.sums == found.sums).all() and again.counts[GRANULE] == 3
