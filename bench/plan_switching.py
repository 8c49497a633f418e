"""Plan switching with fast-forward, figure 10 of the LMerge paper: two plans of one query, in a process each, merged.

    python bench/plan_switching.py [ELEMENTS]

The query picks rows by a condition that is computed in two ways, one cheap for small numbers and one for large ones
(`slow_predicates.py`): 0.14 and 2.52 ms for a row.  The stream has 50,000 elements, a quarter of the paper's, in ten
batches of 2,500 to 7,500, with small and large numbers in turn, so the better plan changes nine times.  One event per
tick, alive for 20 ticks, a CTI after every 50.

Measured: each plan alone (`ew.follow`; two processes at the same time, which know nothing of each other), both merged
(`ew.copies`: two processes and the merge) without feedback (`EVERWHEN_LAG=inf`), and with it.  The clock runs from the
moment at which the input is there, when all processes are up, to the last manifest of the answer.  The ideal is what
the faster plan took alone, summed over the batches.  Every answer is compared with the one that is computed here.

What a condition costs is slept, so that the ratios are those of the plans, whatever else the machine does; what the
engine costs is not, and on a busy machine it is more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.engine.files.run import Progress
from everwhen.formats.parquet import write_elements
from everwhen.stream.element_batch import CTI, ElementBatch
from measure import report
from slow_predicates import CHEAP, DEAR, VALUES, good_from_above, good_from_below

ELEMENTS, BATCHES, LIFETIME, EVERY = 50_000, 10, 20, 50
LEAST, MOST = ELEMENTS // 20, ELEMENTS * 3 // 20
TRIES = 3
"""So often it is measured with feedback, which takes seconds; the best counts, since the machine has other work."""
AT_ONCE = 100
"""Elements of a step (`batch`): a plan that is behind hears of it between two steps."""
WORK = "plan_switching"

S = ew.source("S", {"n": "int64", "x": "int64"})
PLANS = {
    "from below": S.where(ew.udf(good_from_below, ew.col("x"), type="bool")),
    "from above": S.where(ew.udf(good_from_above, ew.col("x"), type="bool")),
}


def sizes(elements: int) -> list[int]:
    """The sizes of the batches, a twentieth to three twentieths of all each."""
    rng = np.random.default_rng(10)
    while True:
        found = rng.integers(LEAST, MOST + 1, BATCHES - 1)
        if LEAST <= ELEMENTS - found.sum() <= MOST:
            return [int(n) * elements // ELEMENTS for n in (*found, ELEMENTS - found.sum())]


def numbers(given: Sequence[int]) -> np.ndarray:
    """Small and large numbers in turn."""
    rng = np.random.default_rng(11)
    half = VALUES // 2
    return np.concatenate([rng.integers(0, half, n) + half * (i % 2) for i, n in enumerate(given)])


def write(x: np.ndarray, file: Path) -> None:
    """The stream as a file of elements."""
    n = len(x)
    ends = np.arange(EVERY, n + 1, EVERY)
    op = np.insert(np.zeros(n, np.uint8), ends, CTI)
    vs = np.insert(np.arange(n), ends, ends)
    columns = tuple(pa.array(np.insert(values, ends, 0)) for values in (np.arange(n), x))
    none = np.zeros(len(op), np.int64)
    write_elements([ElementBatch(S.schema, op, vs, np.where(op == CTI, 0, vs + LIFETIME), none, columns)], file)


def require_exact(folder: Path, x: np.ndarray) -> None:
    """At every instant the answer is every event whose number is good."""
    wanted = [(n, n + LIFETIME, (n, value)) for n, value in enumerate(x.tolist()) if value % 4 == 0]
    found = sorted(ew.History.of(ew.read_changelog(str(folder))).coalesced().events())
    if found != wanted:
        odd = sorted(set(found) ^ set(wanted))
        raise RuntimeError(f"{folder.name}: the answer is another one, {len(odd)} events differ: {odd[:6]}")


def ended(folder: Path) -> float:
    """When the last manifest was published."""
    return max(each.stat().st_mtime for each in (folder / "_epochs").glob("[0-9]*.json"))


def alone(name: str, file: Path, folder: Path) -> tuple[float, list[tuple[int, float]]]:
    """Seconds in all, and how many had passed when so many elements were read."""
    passed: list[tuple[int, float]] = [(0, 0.0)]
    began = time.time()
    ew.follow(
        PLANS[name], {"S": str(file)}, str(folder), batch=AT_ONCE, checkpoint=f"{folder}-state",
        progress=lambda now: passed.append((now.read, time.time() - began)),
    )  # fmt: skip
    return ended(folder) - began, passed


def merged(file: Path, place: Path, lag: str | None) -> float:
    """Seconds of both plans, merged."""
    place.mkdir()
    there, out = place / "input.parquet", place / "merged"
    began = 0.0

    def release(_: Progress) -> None:
        nonlocal began
        folders = (out, *(place / "copies" / f"copy-{i}" / "out" for i in (1, 2)))
        if not began and all((folder / "_changelog.json").exists() for folder in folders):
            time.sleep(1.0)
            began = time.time()
            os.link(file, there)

    os.environ.pop("EVERWHEN_LAG", None)
    if lag is not None:
        os.environ["EVERWHEN_LAG"] = lag
    ew.copies(
        list(PLANS.values()), {"S": str(there)}, str(out), place=f"{place}/copies", batch=AT_ONCE, progress=release,
        tell=lambda words: sys.stderr.write(f"{words}\n"),
    )  # fmt: skip
    return ended(out) - began


def by_batch(passed: Sequence[tuple[int, float]], given: Sequence[int]) -> np.ndarray:
    """Seconds for each batch."""
    read, seconds = (np.array(column, float) for column in zip(*passed, strict=True))
    ends = np.concatenate([[0], np.cumsum(given)]) * (1 + 1 / EVERY)
    return np.diff(np.interp(ends, read, seconds))


def main(elements: int) -> None:
    given = sizes(elements)
    x = numbers(given)
    with TemporaryDirectory() as home:
        file = Path(home, "input.parquet")
        _warm_up(Path(home))
        write(x, file)
        times: dict[str, float] = {}
        batches: dict[str, np.ndarray] = {}
        folders = {name: Path(home, name.replace(" ", "-")) for name in PLANS}
        with ProcessPoolExecutor(len(PLANS), get_context("spawn"), _warm_up_alone) as pool:
            found = pool.map(alone, PLANS, [file] * len(PLANS), folders.values())
            for name, (seconds, passed) in zip(PLANS, found, strict=True):
                times[name], batches[name] = seconds, by_batch(passed, given)
                require_exact(folders[name], x)
        tries: list[float] = []
        for lag in ("inf", *[None] * TRIES):
            folder = Path(home, f"merged-{len(tries)}")
            tries.append(merged(file, folder, lag))
            require_exact(folder / "merged", x)
        times["merged, no feedback"], times["merged, feedback"] = tries[0], min(tries[1:])
    ideal = float(np.minimum(*batches.values()).sum())
    faster, over = times["merged, no feedback"] / times["merged, feedback"], times["merged, feedback"] / ideal
    for name, seconds in (*times.items(), ("ideal", ideal)):
        report(WORK, "everwhen-local", elements, seconds, case=name, note=f"{name}: {seconds:.2f} s")
    points = [
        {"what": "feedback, times as fast as without", "found": faster, "least": 4.5, "holds": faster >= 4.5},
        {"what": "feedback, against the faster plan per batch", "found": over, "most": 1.3, "holds": over <= 1.3},
    ]
    report(
        WORK, "everwhen-local", elements, times["merged, feedback"], case="wanted", points=points,
        tries=[round(each, 2) for each in tries[1:]],
        by_batch={name: each.round(3).tolist() for name, each in batches.items()},
        note=f"a row costs {CHEAP * 1e6:.0f} or {DEAR * 1e6:.0f} us; {faster:.2f} times as fast, {over:.2f} of ideal",
    )  # fmt: skip


def _warm_up(home: Path) -> None:
    """Have every loop compiled and kept, for the processes of copies, too."""
    write(numbers([400, 400]), home / "small.parquet")
    merged(home / "small.parquet", home / "small-merged", "0")


def _warm_up_alone() -> None:
    """Have what a run needs loaded in this process."""
    with TemporaryDirectory() as home:
        write(numbers([400]), Path(home, "small.parquet"))
        alone("from below", Path(home, "small.parquet"), Path(home, "small"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ELEMENTS)
