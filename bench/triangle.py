"""The triangle of consistency (CEDR's Figure 1), measured: each scenario at every point of a grid over B and M.

    python bench/triangle.py machines|web|stocks

Per point: how long an answer waits (ticks of application time from its instant until it is first said, and until it is
last changed), the peak of the state, corrections, what was given up, how right the answer is in the end, and events per
second of CPU time.  The exact answer is `middle`'s, which forgets nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from measure import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from scenarios import SCENARIOS, compare, follow

EVENTS = {"machines": 20_000, "web": 30_000, "stocks": 20_000}
HOUR = 3_600
AXES: dict[str, tuple[int, ...]] = {
    "machines": (0, 2 * 60, 8 * 60, 16 * 60, 32 * 60, ew.INF),
    "web": (0, 15, 60, 5 * 60, 15 * 60, ew.INF),
    "stocks": (0, HOUR, 6 * HOUR, 24 * HOUR, 72 * HOUR, ew.INF),
}
OWN = {"machines": "strong", "web": "weak", "stocks": "middle"}
SUITS = {"machines": (5, 5), "web": (0, 0), "stocks": (0, 5)}
"""The corner that the paper gives each scenario, as places on the axes."""


def duration(ticks: float) -> str:
    """Seconds in words, as short as a cell asks for."""
    if ticks >= ew.INF:
        return "∞"
    for size, unit in ((HOUR, "h"), (60, "min")):
        if ticks >= 2 * size or (ticks and ticks % size == 0):
            return f"{ticks / size:.0f} {unit}" if ticks >= 9.5 * size else f"{ticks / size:.2g} {unit}"
    return f"{ticks:.0f} s"


def main(name: str) -> None:
    scenario, axis = SCENARIOS[name], AXES[name]
    query = ew.sql(scenario.text, tick=scenario.tick)
    epochs = list(scenario.epochs(EVENTS[name]))
    for level in (ew.MIDDLE, ew.STRONG, ew.consistency(axis[1], axis[2])):  # compiled or loaded before
        follow(scenario, LocalRuntime(query, consistency=level), epochs[:200])
    exact = follow(scenario, LocalRuntime(query, consistency=ew.MIDDLE), epochs)
    points: list[dict[str, Any]] = []
    for m, remember in enumerate(axis):
        for b, block in enumerate(axis[: m + 1]):
            account = follow(scenario, LocalRuntime(query, consistency=ew.consistency(block, remember)), epochs)
            found = compare(account, exact)
            points.append(
                {
                    "at": [b, m],
                    "block": duration(block),
                    "remember": duration(remember),
                    "latency": round(found.latency, 1),
                    "latency_p95": found.percentile(0.95),
                    "changed": round(float(found.last.mean()), 1) if len(found.last) else 0.0,
                    "changed_p95": found.percentile(0.95, last=True),
                    "state_rows": account.peak_rows,
                    "state_kb": round(account.peak_bytes / 1e3),
                    "said": account.said,
                    "corrections": account.corrections,
                    "dropped": account.dropped,
                    "right": round(found.right, 4),
                    "off": round(found.off, 4),
                    "events_per_s": round(account.elements / account.seconds),
                }
            )
    report(
        "triangle",
        "everwhen-local",
        exact.elements,
        exact.seconds,
        case=name,
        points=points,
        note=f"{scenario.story}; {len(points)} points of the triangle, here middle",
    )


if __name__ == "__main__":
    main(sys.argv[1])
