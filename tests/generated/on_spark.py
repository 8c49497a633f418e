"""Generated queries on Spark: many queries over the streams of one world are one job, over a folder of epochs."""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from everwhen.errors import SqlError
from everwhen.sinks.memory import MemorySink
from everwhen.stream.element_batch import batch_of
from generated.cases import Tally, _count, drawn
from generated.judge import Judge
from generated.streams import SOURCES
from generated.ways import Case, Outcome, plan, reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCHS = 2


def run(spark: SparkSession, case: Case, folder: Path) -> list[Outcome]:
    """All queries of the case as one job; each source is cut into two epochs."""
    from everwhen.spark.api.start import start
    from spark.spark_epochs import read_epochs, write_epochs

    found: dict[int, Outcome] = {}
    queries = {}
    for at, asked in enumerate(case.asked):
        try:
            queries[f"q{at}"] = plan(asked.query, case.optimize)
        except SqlError as error:
            found[at] = Outcome("refused", str(error).splitlines()[0].split(": ", 1)[-1])
    frames = {}
    for name in sorted(set().union(*(reads(query) for query in queries.values()))):
        elements, schema = case.world.elements(name), SOURCES[name].schema
        cuts = [len(elements) * at // EPOCHS for at in range(EPOCHS + 1)]
        write_epochs(folder / name, [batch_of(elements[a:b], schema, name) for a, b in itertools.pairwise(cuts)])
        frames[name] = read_epochs(spark, folder / name, schema)
    sinks = {name: MemorySink() for name in queries}
    handle = start(
        queries,
        frames,
        sink=sinks,
        checkpoint=folder / "checkpoint",
        trigger="available",
        emit=case.emit,
        buckets=2,
    )
    handle.await_termination(600)
    for name in queries:
        at = int(name[1:])
        ok = handle.status == "stopped"
        said = tuple(sinks[name].elements())
        found[at] = Outcome("ran", said=said) if ok else Outcome("failed", f"the job is {handle.status}")
    return [found[at] for at in range(len(case.asked))]


def judged(spark: SparkSession, seed: str, queries: int, folder: Path, tally: Tally) -> None:
    case = closed(drawn("spark", seed, queries))
    judge = Judge(case.world)
    try:
        for at, outcome in enumerate(run(spark, case, folder)):
            _count(case, at, outcome, judge, seed, tally)
    finally:
        judge.close()


def closed(case: Case) -> Case:
    """The case with the end of every stream said by a CTI, as a job over files needs it, and without promises about
    data, which the columns of these files have no place for."""
    from dataclasses import replace

    from everwhen.core.time import INF
    from everwhen.stream.element import Cti
    from generated.streams import World, without_promises

    world = without_promises(case.world)
    names = {name for epoch in world.epochs for name, _ in epoch}
    ends = tuple((name, (Cti(INF),)) for name in sorted(names) if Cti(INF) not in world.elements(name))
    return replace(case, world=World((*world.epochs, ends) if ends else world.epochs))


def explored(seed: str, count: int, until: float | None, per_job: int = 24) -> Tally:
    """So many queries, or until the time has come."""
    from everwhen.spark.api.session import session

    tally = Tally()
    running = session("local[2]", "everwhen-explore", spark_sql_shuffle_partitions=2)
    try:
        for at in range(0, count, per_job):
            if until is not None and at and time.monotonic() > until:
                break
            with tempfile.TemporaryDirectory() as folder:
                judged(running, f"{seed}/{at}", min(per_job, count - at), Path(folder), tally)
    finally:
        running.stop()
    return tally
