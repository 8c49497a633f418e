"""Recursion: how far behind each strategy of the Flying Fixed-Point operator is, and how fast loops are.

    python bench/ffp.py disorder|idle|lulls|w|flying|reach
    python bench/ffp.py memory LINKS

The first three are figures 6 to 11 of the paper; `reach` and `memory` are in `ffp_reach.py`.  System time is counted in
rounds: one push is one round (flying, one round per push), so the figures do not depend on the machine.  The engine
does not step an operator without news; here it is stepped all the same in every round, as a scheduler would that knows
nothing of that (figure 7).

    lag            the average over rounds of: the earliest start that is still to come, less what is promised
    tokens         speculative punctuations sent round
    promises       punctuations that left the loop
    kept           events that the joins on the loop keep, on average
    silence        the longest time in rounds without a promise
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

import everwhen as ew
from everwhen.core.loop_options import ProgressStrategy
from everwhen.core.punctuation import Frontier
from everwhen.engine.local import LocalRuntime
from everwhen.operators.contract import Output
from everwhen.rows.changes import Changes, no_changes
from measure import report
from w_query import fair, loop_of, moves, tosses, w_query

WORK = "ffp"
STRATEGIES: tuple[ProgressStrategy, ...] = get_args(ProgressStrategy)
PER, GAP = 100, 40
"""Tosses per promise, and rounds from one promise to the next."""
TOSSES = 20_000


def _earliest(changes: Changes) -> int:
    """The earliest start of what has moved; seeds enter below the paper's operator, and are none of its events."""
    first, next_ = (changes.rows[:, changes.codec.words + column] for column in (0, 1))
    moved = changes.lo[next_ > first]
    return int(moved.min()) if len(moved) else ew.INF


class Rounds:
    """The W query on the loop, one round at a time; what came out in each."""

    def __init__(self, strategy: ProgressStrategy) -> None:
        self.runtime = LocalRuntime(w_query(rounds=1, progress=strategy), emit="all")
        self.loop = loop_of(self.runtime)
        self.lows: list[int] = []
        self.promises: list[int] = []
        self.kept: list[int] = []
        self._last: tuple[list[Any], Sequence[Any], int] | None = None
        self._stepped = False
        step = self.loop.step

        def watched(inputs: Sequence[Any], frontiers: Sequence[Any], tau: int) -> Output:
            output = step(inputs, frontiers, tau)
            resting = [each.time for each in frontiers]
            self._last = [no_changes(each.codec) for each in inputs], resting, tau
            self._stepped = True
            self.lows.append(_earliest(output.changes))
            return output

        self.loop.step = watched  # type: ignore[method-assign]
        self.runtime.push({"Move": moves()})
        for each in (self.lows, self.promises, self.kept):
            each.clear()
        self.sent, self.given = self.loop.progress.sent, self.loop.progress.given

    def round(self, epoch: dict[str, Any] | None = None) -> None:
        self._stepped = False
        self.runtime.push(epoch or {})
        if not self._stepped:
            assert self._last is not None
            changes, times, tau = self._last
            self.loop.step(changes, [Frontier(t) for t in times], tau)
        self.promises.append(self.loop.progress.promise)
        if len(self.promises) % 20 == 0:
            self.kept.append(sum(each.operator.state_size().rows for each in self.loop.body if "join" in each.name))

    def measures(self) -> dict[str, float]:
        """What the paper measures."""
        real = np.minimum.accumulate(np.array([*self.lows[1:], ew.INF])[::-1])[::-1]
        promised = np.maximum(np.array(self.promises), 0)
        known = real < ew.INF
        early = (promised > real).sum()
        if early:
            raise RuntimeError(f"{early} promises were broken")
        said = np.flatnonzero(np.diff(promised, prepend=-1))
        return {
            "lag": round(float((real - promised)[known].mean()), 2),
            "tokens": self.loop.progress.sent - self.sent,
            "promises": self.loop.progress.given - self.given,
            "kept": round(float(np.mean(self.kept)), 1),
            "silence": int(np.diff(said).max()),
            "rounds": len(promised),
        }


def followed(
    strategy: ProgressStrategy, n: int = TOSSES, disorder: int = 0, lull: float = 0.0, idle: int = 0
) -> dict[str, float]:
    """100 tosses and a promise every 40 rounds (and `idle` more).  `disorder`: every 100th toss comes so many promises
    early; `lull`: so many of the batches are left out, and only their promises come."""
    rng, up = np.random.default_rng(5), fair(n)
    batch = np.arange(n) // PER
    early = np.arange(n) % 100 == 50
    batch[early] = np.maximum(batch[early] - disorder, 0)
    run = Rounds(strategy)
    for b in range(n // PER):
        left_out = rng.random() < lull
        seq = np.flatnonzero(batch == b) if not left_out else np.empty(0, np.int64)
        run.round({"Toss": tosses(seq, up, (b + 1) * PER)})
        for _ in range(GAP + idle - 1):
            run.round()
    return run.measures()


SWEEPS: dict[str, tuple[str, tuple[float, ...], int]] = {
    "disorder": ("disorder", (0, 2, 5, 10), TOSSES),
    "idle": ("idle", (0, 100, 1000), 2_000),
    "lulls": ("lull", (0.0, 0.5, 0.9), TOSSES),
}


def figures(case: str) -> None:
    option, values, n = SWEEPS[case]
    followed("hybrid", 500)
    points = []
    began = time.process_time()
    for value in values:
        for strategy in STRATEGIES:
            found = followed(strategy, n, **{option: value})  # type: ignore[arg-type]
            points.append({"at": value, "strategy": strategy, **found})
    rounds = sum(int(each["rounds"]) for each in points)
    seconds = time.process_time() - began
    note = f"W with window 30, one round at a time; here rounds/s of CPU time; figures of {case} below"
    report(WORK, "everwhen-local", rounds, seconds, case=case, points=points, note=note)


# -- speed -------------------------------------------------------------------------------------------------------------


def w_run(n: int, per: int, rounds: int | None) -> tuple[float, float, int, int]:
    """CPU and wall seconds of n tosses, matches, and rows that went round."""
    up = fair(n)
    runtime = LocalRuntime(w_query(rounds=rounds).where(ew.col("q") == "F"), emit="all")
    runtime.push({"Move": moves()})
    batches = [tosses(np.arange(first, first + per), up, first + per) for first in range(0, n, per)]
    wall, cpu = time.perf_counter(), time.process_time()
    matches = 0
    for batch in batches:
        out = runtime.push({"Toss": batch})["out"]
        matches += int((out.op == out.INSERT).sum())
    matches += int((runtime.close()["out"].op == 0).sum())
    return time.process_time() - cpu, time.perf_counter() - wall, matches, loop_of(runtime).touched


def w_speed() -> None:
    n = 1_000_000
    w_run(50_000, 10_000, None)
    cpu, wall, matches, rows = min(w_run(n, 10_000, None) for _ in range(3))
    note = (
        f"{matches / n:.4f} matches and {rows / n:.2f} rows on the loop per toss; {n / wall:,.0f} a second of wall time"
    )
    report(WORK, "everwhen-local", n, cpu, case="w", points=[{"matches": matches / n, "rows": rows / n}], note=note)


def flying() -> None:
    n = 50_000
    points = []
    for rounds in (None, 1):
        w_run(5_000, 100, rounds)
        cpu, wall, matches, _ = min(w_run(n, 100, rounds) for _ in range(3))
        points.append({"rounds": rounds, "rate": round(n / cpu), "matches": matches})
        name = "staged" if rounds is None else "flying, one round per push"
        note = f"W, 100 tosses per push, {name}; {n / wall:,.0f} a second of wall time"
        report(WORK, "everwhen-local", n, cpu, case=f"flying {name}", points=points[-1:], note=note)


def main(case: str, *words: str) -> None:
    if case in SWEEPS:
        figures(case)
        return
    # what needs other systems is a file of its own
    from ffp_reach import memory, reach

    {"w": w_speed, "flying": flying, "reach": reach, "memory": memory}[case](*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
