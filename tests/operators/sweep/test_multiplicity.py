"""Set operations by counting copies: each function against its definition, corrections, and rows that are gone."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from everwhen.core.emit import Emit
from everwhen.core.time import INF
from everwhen.operators.contract import Policy
from everwhen.operators.sweep.multiplicity import MULTIPLICITY, CountsOperator
from operators.stepping import Segment, Stepped, codec_of

CODEC = codec_of({"k": pa.int64(), "s": pa.string()})
DEFINED = {
    "clip": lambda a, b: a,
    "distinct": lambda a, b: min(a, 1),
    "difference": lambda a, b: max(a - b, 0),
    "strict_difference": lambda a, b: 0 if b else a,
    "intersect": min,
    "max_union": max,
}


def counts(function: str, emit: Emit = Emit.ALL) -> Stepped:
    ports, _ = MULTIPLICITY[function]
    return Stepped(lambda: CountsOperator(function, CODEC, Policy(emit)), *[CODEC] * ports)


@pytest.mark.parametrize("function", DEFINED)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_definition_at_every_instant(function: str, seed: int) -> None:
    """Events come, and are taken back, on both ports in random steps; the sum of what is said is the answer so far."""
    rng = random.Random(seed)
    ports, _ = MULTIPLICITY[function]
    trial = counts(function)
    given: list[list[Segment]] = [[], []]
    total: Counter[tuple[int, Any]] = Counter()
    for _ in range(12):
        batch: list[list[Segment]] = [[], []]
        for port in range(ports):
            for _ in range(rng.randint(0, 4)):
                lo = rng.randint(0, 15)
                batch[port].append((lo, lo + rng.randint(1, 9), rng.randint(1, 2), rng.randint(0, 1), rng.choice("ab")))
            if given[port] and rng.random() < 0.5:
                lo, hi, weight, *row = given[port].pop(rng.randrange(len(given[port])))
                batch[port].append((lo, hi, -weight, *row))
        for port in range(ports):
            given[port] += [each for each in batch[port] if each[2] > 0]
        for (lo, hi, *row), weight in trial.step(*batch[:ports]).items():
            for t in range(lo, hi):
                total[t, tuple(row)] += weight
        if rng.random() < 0.2:
            trial.restart()
        for t in range(26):
            for row in ((k, s) for k in (0, 1) for s in "ab"):
                a, b = (sum(w for lo, hi, w, *r in each if lo <= t < hi and tuple(r) == row) for each in given)
                assert total[t, row] == DEFINED[function](a, b), (function, t, row)
    trial.step(ctis=[INF] * ports)
    assert trial.rows == 0


def test_what_is_promised_on_one_port_only_is_kept() -> None:
    trial = counts("difference")
    trial.step([(0, 10, 1, 1, "a")], [(5, 20, 1, 1, "a")])
    trial.step(ctis=[30, 2])
    assert trial.rows > 0 and trial.frontier.time == 2
    trial.step(ctis=[30, 30])
    assert trial.rows == 0


def test_a_final_answer_says_only_what_is_promised() -> None:
    trial = counts("distinct", Emit.FINAL)
    assert trial.step([(0, 10, 2, 1, "a")], tau=5) == {}
    assert trial.step(ctis=[4], tau=5) == {(0, 4, 1, "a"): 1}
    assert trial.step([(6, 10, -2, 1, "a")], ctis=[INF], tau=5) == {(4, 6, 1, "a"): 1}
