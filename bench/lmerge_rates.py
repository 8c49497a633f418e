"""The rate of a merge's output beside those of its inputs, where these are held up (LMerge, figures 8 and 9).

Time is simulated: every 100 ms the merge gets what has arrived by then.  An input that was held up brings what has
piled up four times as fast.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import CTI, INSERT
from lmerge_data import Shape, copy, sources

RATE = 5_000
TICK_MS = 100


def _arrivals(count: int, delays: Callable[[int, np.random.Generator], np.ndarray], seconds: int) -> list[np.ndarray]:
    """When the elements of each stream arrive, in ms: each waits for the one before it."""
    found = []
    for seed in range(count):
        sent = np.arange(seconds * RATE) * (1000 / RATE)
        held = delays(seed, np.random.default_rng(seed))
        gap = 1000 / RATE / 4  # what was held comes four times as fast
        shifted = sent + held - np.arange(len(sent)) * gap
        found.append(np.maximum.accumulate(shifted) + np.arange(len(sent)) * gap)
    return found


def _rates(arrivals: list[np.ndarray]) -> tuple[list[float], float, list[list[int]]]:
    """The variation of each input's rate per second and of the output's, and the rates."""
    count, events = len(arrivals), len(arrivals[0])
    shape = Shape(events=events, disorder=0.0, lifetime=RATE, stables=0.02)
    copies = [copy(shape, seed) for seed in range(count)]
    engine = LocalRuntime({"out": ew.lmerge(*sources(shape, count))})
    times = [  # a CTI comes with the element before it
        arrived[np.maximum(np.cumsum(each.op != CTI) - 1, 0)] for arrived, each in zip(arrivals, copies, strict=True)
    ]
    last = int(max(each[-1] for each in times)) + TICK_MS
    heard, said = [[0] * (last // 1000 + 1) for _ in range(count)], [0] * (last // 1000 + 1)
    places = [0] * count
    for now in range(TICK_MS, last + TICK_MS, TICK_MS):
        epoch = {}
        for port in range(count):
            end = int(np.searchsorted(times[port], now))
            if end > places[port]:
                epoch[f"c{port}"] = copies[port].slice(places[port], end - places[port])
                heard[port][(now - 1) // 1000] += end - places[port]
                places[port] = end
        if epoch:
            out = engine.push(epoch)["out"]
            said[(now - 1) // 1000] += int((out.op == INSERT).sum())
    whole = slice(1, events // RATE)  # seconds in which all had something to say

    def varies(rates: list[int]) -> float:
        return statistics.pstdev(rates[whole]) / max(statistics.mean(rates[whole]), 1)

    return [varies(each) for each in heard], varies(said), [*heard, said]


def bursts() -> list[dict[str, Any]]:
    """Figure 8: four streams of 5,000 elements/s; each is held up for about 2 s now and then, behind 1 of 20,000 to
    33,000 elements.  (The paper delays 0.3 % to 0.5 % by a mean of 20, without a unit.)"""

    def delays(seed: int, rng: np.random.Generator) -> np.ndarray:
        share = (0.00003, 0.000035, 0.00004, 0.00005)[seed]
        n = 30 * RATE
        return (rng.random(n) < share) * rng.normal(2_000, 500, n).clip(20)

    inputs, output, rates = _rates(_arrivals(4, delays, 30))
    return [{"inputs": inputs, "output": output, "rates": rates}]


def congestion() -> list[dict[str, Any]]:
    """Figure 9: three streams, each of which is held up for 4 s once, at 5 s, 18 s and 23 s."""

    def delays(seed: int, rng: np.random.Generator) -> np.ndarray:
        held = np.zeros(30 * RATE)
        if seed:
            first = (18 + 5 * (seed - 1)) * RATE
            held[first : first + 1] = 4_000
        else:
            held[5 * RATE] = 4_000
        return held

    inputs, output, rates = _rates(_arrivals(3, delays, 30))
    return [{"inputs": inputs, "output": output, "rates": rates}]
