"""How fast rows are matched against live punctuations: ten of them, and a million.

    python bench/punctuation_match.py KIND          consecutive, random, dense or text

A `PunctuationStore` takes a million promises `item = constant` in batches of 1,000, then says of 100,000 rows, half
of which match one, what is promised.  The same is done with ten promises, on the same rows.  Times are processor
times, best of several.  `ratio` is the million beside the ten; the aim is at most 3.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.punctuation.api import PunctuationStore
from measure import report

MANY, FEW, BATCH, ROWS, TRIES = 1_000_000, 10, 1_000, 100_000, 15


def constants(kind: str) -> list[int] | list[str]:
    random = np.random.default_rng(7)
    match kind:
        case "consecutive":
            return list(range(MANY))
        case "random":
            return random.integers(-(2**62), 2**62, MANY).tolist()
        case "dense":  # a third of the numbers up to three million, in any order
            return random.permutation(3 * MANY)[:MANY].tolist()
        case "text":
            return [f"item-{number}" for number in random.permutation(10**8 + np.arange(MANY)).tolist()]
    raise SystemExit(f"unknown kind {kind!r}")


def rows(kind: str, values: list[int] | list[str]) -> pa.Array:
    """Half of them match a constant, the others none."""
    picked = np.random.default_rng(8).integers(0, MANY, ROWS).tolist()
    if kind == "text":
        return pa.array([values[i] if i % 2 else f"{values[i]}x" for i in picked], pa.string())
    return pa.array([values[i] if i % 2 else 4 * MANY + i for i in picked], pa.int64())


def seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(TRIES):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def taken(schema: Schema, promises: list[Punctuation]) -> tuple[PunctuationStore, float]:
    began = time.process_time()
    kept = PunctuationStore(schema)
    for first in range(0, len(promises), BATCH):
        kept.add(promises[first : first + BATCH])
    return kept, time.process_time() - began


def main(kind: str) -> None:
    values = constants(kind)
    column = rows(kind, values)
    schema = Schema.of([("item", column.type)])
    promises = [Punctuation({"item": OneOf((value,))}) for value in values]
    taken(schema, promises[: 2 * BATCH])  # compiles or loads the kernels
    few, _ = taken(schema, promises[:: MANY // FEW])
    many, adding = taken(schema, promises)
    times = [seconds(lambda kept=kept: kept.upto({"item": column}, ROWS)) for kept in (few, many)]
    ratio = times[1] / times[0]
    report(
        "punctuation_match",
        "everwhen-local",
        ROWS,
        times[1],
        case=kind,
        ten_ms=round(1e3 * times[0], 3),
        million_ms=round(1e3 * times[1], 3),
        ratio=round(ratio, 2),
        adding_s=round(adding, 2),
        entries=len(many),
        state_mb=round(many.nbytes / 1e6, 1),
        note=f"{kind}: {ratio:.2f} times as long with a million as with ten; {adding:.1f} s to add them",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
