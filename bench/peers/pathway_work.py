"""Pathway: the same keyed window sums over the inserts, in its own virtualenv.

Pathway updates its windows as rows come and has no CTIs.  It runs without a temporal behaviour, which would bound its
memory but more than halve its rate.  The clock runs from the first row handed in until the last result is out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pathway as pw

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import report


class Event(pw.Schema):
    key: str
    vs: int
    value: int


class Feed(pw.io.python.ConnectorSubject):
    """Hands rows in that are ready before, and commits every 10,000."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__()
        self.rows = rows
        self.started = 0.0

    def run(self) -> None:
        self.started = time.perf_counter()
        for i, row in enumerate(self.rows, 1):
            self.next(**row)
            if i % 10_000 == 0:
                self.commit()


def main(work: str, directory: Path) -> None:
    lines = (directory / "inserts.csv").read_text(encoding="ascii").splitlines()
    rows = [{"key": key, "vs": int(vs), "value": int(value)} for key, vs, value in (line.split(",") for line in lines)]
    windows = {"tumbling_sum": pw.temporal.tumbling(60), "sliding_sum": pw.temporal.sliding(hop=10, duration=60)}
    feed = Feed(rows)
    events = pw.io.python.read(feed, schema=Event, autocommit_duration_ms=None)
    sums = events.windowby(pw.this.vs, window=windows[work], instance=pw.this.key).reduce(
        key=pw.this._pw_instance, start=pw.this._pw_window_start, total=pw.reducers.sum(pw.this.value)
    )
    changes = 0

    def count(**_: Any) -> None:
        nonlocal changes
        changes += 1

    pw.io.subscribe(sums, on_change=count)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - feed.started
    note = "forgets nothing" + ("; 60 by 10" if work == "sliding_sum" else "")
    report(work, "pathway", len(rows), seconds, results=changes, note=note)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
