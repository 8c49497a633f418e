"""What every measurement shares: the peak memory of its own process, percentiles, one JSON line for the driver.

Only the standard library: peers run it in virtualenvs of their own.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

RUNS = 4
"""So often a short measurement is made, of every system alike; the best counts, since the machine has other work."""
MARK = "RESULT "


def peak_rss_mb() -> float:
    """The high-water mark of this process.  `ru_maxrss` alone would remember the parent that started it."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass  # no /proc: not Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, without interpolation."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(work: str, system: str, events: int, seconds: float, **extra: object) -> None:
    """Hand one result to the driver."""
    row: dict[str, object] = {
        "work": work,
        "system": system,
        "events_per_s": round(events / seconds) if seconds > 0 else None,
        "peak_rss_mb": round(peak_rss_mb(), 1),
        "events": events,
        "seconds": round(seconds, 4),
        **extra,
    }
    sys.stdout.write(MARK + json.dumps(row) + "\n")
    sys.stdout.flush()
