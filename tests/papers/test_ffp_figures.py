"""The Flying Fixed-Point paper, 5.2 and 5.3: what figures 6 to 11 show, in small, on the operator itself.

System time is counted in rounds: one step of the loop, flying with one round, is one round.  Numbers in brackets are
rows of the table of statements in `docs/papers.md`; `make bench WORK=ffp` draws the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from everwhen.core.loop_options import ProgressStrategy
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.operators.contract import Output
from everwhen.rows.changes import no_changes
from papers.ffp_queries import loop_of, tosses, w_moves, w_query

PER, GAP = 100, 40
"""Tosses per promise, and rounds from one promise to the next."""


@dataclass(frozen=True)
class Measured:
    lag: float
    sent: int
    given: int
    kept: float
    silence: int


@cache
def followed(
    strategy: ProgressStrategy, n: int = 2000, disorder: int = 0, lull: float = 0.0, idle: int = 0
) -> Measured:
    """Every 100th toss comes so many promises early; so many batches are left out; more rounds have no input."""
    rng = np.random.default_rng(3)
    up = rng.integers(0, 2, n).astype(bool)
    batch = np.arange(n) // PER
    early = np.arange(n) % 100 == 50
    batch[early] = np.maximum(batch[early] - disorder, 0)
    runtime = LocalRuntime(w_query(rounds=1, progress=strategy), emit="all")
    loop = loop_of(runtime)
    step, last, lows, promises, kept = loop.step, [], [], [], []

    def watched(inputs: Sequence[Any], frontiers: Sequence[Frontier], tau: int) -> Output:
        output = step(inputs, frontiers, tau)
        last[:] = [[no_changes(each.codec) for each in inputs], [Frontier(each.time) for each in frontiers], tau]
        lows.append(int(output.changes.lo.min()) if len(output.changes) else INF)
        return output

    loop.step = watched  # type: ignore[method-assign]
    runtime.push({"Move": w_moves()})
    lows.clear()
    sent, given = loop.progress.sent, loop.progress.given
    for b in range(n // PER):
        at = np.flatnonzero(batch == b) if rng.random() >= lull else np.empty(0, np.int64)
        runtime.push({"Toss": tosses(at, up, (b + 1) * PER)})
        promises.append(loop.progress.promise)
        for _ in range(GAP + idle - 1):
            rounds = len(lows)
            runtime.push({})
            if len(lows) == rounds:  # the engine does not step an operator without news
                loop.step(*last)
            promises.append(loop.progress.promise)
            kept.append(loop.state_size().rows)
    real = np.minimum.accumulate(np.array([*lows[1:], INF])[::-1])[::-1]
    promised = np.maximum(np.array(promises), 0)
    assert (promised <= real).all(), "a promise was broken"
    said = np.flatnonzero(np.diff(promised, prepend=-1))
    ahead = real < INF
    return Measured(
        float((real - promised)[ahead].mean()), loop.progress.sent - sent, loop.progress.given - given,
        float(np.mean(kept)), int(np.diff(said).max()),
    )  # fmt: skip


HIGH: ProgressStrategy = "high water mark"


def test_disorder() -> None:
    """[53-55, 59; figures 6, 8, 10] The mark's lag and state grow with disorder, and its promises get fewer; Probing
    and Hybrid do not move, and Hybrid sends fewer tokens."""
    lags = [followed(HIGH, disorder=each).lag for each in (0, 2, 4)]
    assert lags[0] < 10 and lags[2] == pytest.approx(2 * lags[1], rel=0.2)
    assert followed(HIGH, disorder=4).given < followed(HIGH).given / 2
    assert followed(HIGH, disorder=4).kept > 1.5 * followed(HIGH).kept
    for strategy in ("probing", "hybrid"):
        assert followed(strategy, disorder=4).lag == followed(strategy).lag == 0.0
        assert followed(strategy, disorder=4).given == followed(strategy).given
        assert followed(strategy, disorder=4).kept < 1.2 * followed(strategy).kept
    assert followed("hybrid").sent < followed("probing").sent / 2
    assert followed(HIGH).sent > followed(HIGH).given, "sent again until what circulates has passed it"


def test_inactivity() -> None:
    """[56, 59; figure 7] With 25 times the time Probing's tokens grow 20-fold, the others' do not; state is alike."""
    grown = {each: followed(each, 600, idle=24 * GAP).sent / followed(each, 600).sent for each in (HIGH, "hybrid")}
    assert grown == {HIGH: 1.0, "hybrid": 1.0}
    assert followed("probing", 600, idle=24 * GAP).sent > 20 * followed("probing", 600).sent
    kept = [followed(each, 600, idle=24 * GAP).kept for each in (HIGH, "probing", "hybrid")]
    assert max(kept) < 1.05 * min(kept)


def test_lulls() -> None:
    """[41, 57, 59; figures 9, 11] With lulls the mark is silent ever longer, and twice as far behind."""
    mark, probing, hybrid = (followed(each, 6000, lull=0.8) for each in (HIGH, "probing", "hybrid"))
    assert mark.silence > 8 * hybrid.silence and probing.silence == hybrid.silence <= GAP + 1
    assert mark.silence > 5 * followed(HIGH).silence
    assert mark.lag > 1.5 * hybrid.lag and hybrid.lag == pytest.approx(probing.lag, rel=0.05)
    assert hybrid.sent < probing.sent / 5
