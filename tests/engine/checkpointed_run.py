"""A run over files that is killed: `python checkpointed_run.py INPUT… OUT CHECKPOINT PAUSE`."""

from __future__ import annotations

import sys
import time

import everwhen as ew
from everwhen.engine.files.run import Progress, run_files


def query() -> ew.Stream:
    """A join, a grouping and a union, so that guards, sides, sweeps and chains all have state."""
    a = ew.source("A", {"k": "string", "x": "int64"})
    b = ew.source("B", {"k": "string", "y": "int64"})
    sums = a.range(20).group_by("k").agg(n=ew.count(), s=ew.sum("x"))
    return sums.join(b.range(15).group_by("k").agg(m=ew.max("y")), on="k")


def main(a: str, b: str, out: str, checkpoint: str, pause: str) -> None:
    def slowly(_: Progress) -> None:
        time.sleep(float(pause))

    inputs = {"A": a, "B": b}
    run_files(query(), inputs, out, batch=20, checkpoint=checkpoint or None, progress=slowly, every=0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
