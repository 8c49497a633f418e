"""The program that `test_recursion_faults` kills: a loop inside a stage, and one whose rounds cross exchanges.

It is run as `fault_driver` is, and fails where it is planned to; besides, between two rounds of a loop, at the point
`round_<n>` of an epoch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import everwhen as ew
from everwhen.algebra.builder import Stream
from everwhen.sinks import ChangelogSink
from everwhen.spark.api.session import session
from everwhen.spark.api.start import start
from everwhen.spark.driver import loop_rounds
from spark.fault_driver import PARTITIONS, SCHEMA, SNAPSHOT_EVERY, before, plan_faults, strike
from spark.spark_epochs import read_epochs

ROUNDS = (0, 1, 2, 3)
"""Rounds that every epoch has: one at least to retract, to insert, and to find that nothing circulates."""


def queries() -> dict[str, Stream]:
    """What can be reached from each key, and all pairs that are connected: every link lives for a while."""
    links = ew.source("S", {"k": "string", "g": "int64", "x": "int64"}).range(6)
    col = ew.col
    links = links.select("k", "x", y=(col("x") * 2 + col("g")) % 5)
    steps = links.select(a=col("x"), b=col("y"))
    reach = ew.fixpoint(
        links.select("k", "x"), lambda r: r.join(steps, on={"x": "a"}).select("k", x=col("b")), name="reach"
    )
    pairs = ew.fixpoint(
        steps,
        lambda r: r.join(r.select(c=col("a"), d=col("b")), on={"b": "c"}).select("a", b=col("d")),
        name="pairs",
        across=True,
    )
    return {"reach": reach, "pairs": pairs}


def main() -> None:
    place = Path(sys.argv[1])
    faults = plan_faults(place)

    def between(epoch: Any, *_: object) -> None:
        (under_way,) = epoch._rounds.values()
        strike(faults, epoch.told.epoch, f"round_{under_way.number}")

    before(loop_rounds._Epoch, "_done", between)
    spark = session(
        "local[2,4]", "recursion-faults", **{"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": 2}
    )
    handle = start(
        queries(),
        {"S": read_epochs(spark, place / "S", SCHEMA)},
        sink={name: ChangelogSink(place / name) for name in queries()},
        checkpoint=place / "checkpoint",
        trigger="available",
        buckets=PARTITIONS,
        snapshot_every=SNAPSHOT_EVERY,
    )
    handle.await_termination()
    spark.stop()
