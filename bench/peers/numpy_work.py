"""NumPy: one plain sweep over the corrected history, everything in memory: what an analyst would write in an afternoon.

Sums at every instant come from sorted edges and a running total per key; tumbling sums from one `bincount`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import RUNS, report

Columns = dict[str, np.ndarray]


def sliding_sum(rows: Columns, width: int) -> tuple[int, int]:
    """Pieces of constant sum per key; returns their number and the sum over pieces of value times duration."""
    n = len(rows["key"])
    key = np.concatenate([rows["key"], rows["key"]])
    t = np.concatenate([rows["vs"], rows["vs"] + width])
    delta = np.concatenate([rows["value"], -rows["value"]])
    count = np.concatenate([np.ones(n, np.int64), -np.ones(n, np.int64)])
    order = np.lexsort((t, key))
    key, t, total, alive = key[order], t[order], np.cumsum(delta[order]), np.cumsum(count[order])
    # Totals return to zero between keys, so one running total serves all of them.
    piece = (alive[:-1] > 0) & (t[1:] > t[:-1]) & (key[1:] == key[:-1])
    return int(piece.sum()), int((total[:-1] * (t[1:] - t[:-1]))[piece].sum())


def tumbling_sum(rows: Columns, width: int) -> tuple[int, int]:
    slot = rows["vs"] // width * (int(rows["key"].max()) + 1) + rows["key"]
    totals = np.bincount(slot, weights=rows["value"])
    return int(np.count_nonzero(np.bincount(slot))), int(totals.sum()) * width


def filter_map(rows: Columns) -> tuple[int, int]:
    kept = (rows["value"] >= 500) & (rows["key"] != 1)
    doubled = rows["value"][kept] * 2 + 1
    return len(doubled), int(doubled.sum())


def timed(work: str, rows: Columns, width: int) -> tuple[float, int, int]:
    began = time.perf_counter()
    match work:
        case "sliding_sum" | "sliding_sum_100k":
            results, checksum = sliding_sum(rows, width)
        case "tumbling_sum":
            results, checksum = tumbling_sum(rows, width)
        case "filter_map":
            results, checksum = filter_map(rows)
        case _:
            raise SystemExit(f"no NumPy form of {work!r}")
    return time.perf_counter() - began, results, checksum


def main(work: str, directory: Path) -> None:
    name, tick = ("events_100k", 1_000_000) if work == "sliding_sum_100k" else ("events", 1)
    with np.load(directory / f"{name}.npz") as file:
        rows = {column: file[column] for column in ("key", "value", "vs", "ve")}
    seconds, results, checksum = min(timed(work, rows, 60 * tick) for _ in range(RUNS))
    report(work, "numpy", len(rows["key"]), seconds, results=results, checksum=checksum, note="one shot")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
