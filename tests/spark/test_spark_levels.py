"""Levels of consistency on Spark: oracle = local = Spark at points of the triangle, through restarts and moves."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.engine.files.run import run_files
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError, QueryError
from everwhen.formats.parquet import read_elements
from everwhen.reference import history as oracle
from everwhen.reference.admission import finalized
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.run_files import run_files_on_spark
from everwhen.spark.api.start import start
from everwhen.spark.driver import ingress_stage as stage_module
from everwhen.spark.sources.source import SparkSource
from everwhen.spark.worker.epoch_context import EpochContext
from everwhen.spark.worker.ingress_program import IngressPartition, IngressProgram
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from spark.spark_epochs import read_epochs, write_epochs

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
S, T = ew.source("S", SCHEMA), ew.source("T", SCHEMA)
SUMS = S.range(3).group_by("k").agg(n=ew.count(), m=ew.max("x"))
PAIRS = S.join(T, on="k").group_by("k").agg(n=ew.count())
EPOCHS = 5


def epochs_of(seed: int) -> list[list[Element]]:
    """Late rows, rows that are corrected in a later epoch, a promise now and then; each epoch in sync order."""
    rng, cti = random.Random(seed), -9
    found: list[list[Element]] = []
    open_: list[Insert] = []
    for at in range(EPOCHS):
        epoch: list[Insert | Adjust] = []
        for event in [e for e in open_ if rng.random() < 0.3]:
            vnew = rng.choice([event.vs, event.vs + 1, event.ve + 4])
            if vnew != event.ve and min(event.ve, vnew) >= cti:
                open_.remove(event)
                epoch.append(Adjust(event.vs, event.ve, vnew, event.row))
        for _ in range(6):
            vs = max(4 * at + rng.randrange(-7, 4), cti)
            event = Insert(vs, vs + rng.randrange(1, 6), {"k": rng.choice("ab"), "x": rng.randrange(4)})
            open_.append(event)
            epoch.append(event)
        epoch.sort(key=lambda e: (e.sync, isinstance(e, Adjust)))
        if at == 2:
            cti = 2
        found.append([*epoch, *([Cti(cti)] if at == 2 else [])])
    return found


def written(folder: Path, epochs: Sequence[Sequence[Element]], first: int = 0) -> None:
    rng = random.Random(first)
    shuffled = [rng.sample(list(epoch), len(epoch)) for epoch in epochs]  # within an epoch Spark has no order
    write_epochs(folder, [batch_of(epoch, SCHEMA) for epoch in shuffled], first)


class EpochJob:
    """A query on Spark over folders of epochs, stopped and started at will."""

    def __init__(self, spark: SparkSession, place: Path, query: ew.Stream, level: Consistency, buckets: int) -> None:
        self.spark, self.place, self.query, self.level, self.buckets = spark, place, query, level, buckets
        self.names = [name for name in "ST" if name in str(query)]
        self.sink = MemorySink()

    def run(self, *, sources: Mapping[str, SparkSource] | None = None, **change: object) -> Handle:
        frames = {name: read_epochs(self.spark, self.place / name, SCHEMA) for name in self.names}
        handle = start(
            self.query, frames, sink=self.sink, checkpoint=self.place / "checkpoint", trigger=None,
            consistency=self.level, buckets=self.buckets, snapshot_every=2, sources=sources,
        )  # fmt: skip
        try:
            if change:
                handle.change(**change)  # type: ignore[arg-type]
            handle.process_available()
        finally:
            handle.stop()
        return handle


def local(
    query: ew.Stream, level: Consistency, epochs: Sequence[dict[str, ElementBatch]]
) -> tuple[list[Element], dict]:
    runtime = LocalRuntime(query, consistency=level)
    out = [element for epoch in epochs for element in runtime.push(epoch)["out"].elements()]
    return out, runtime.dropped


@pytest.mark.parametrize(
    ("block", "remember", "buckets", "joins"),
    [
        pytest.param(0, 3, 2, False, marks=pytest.mark.slow),
        (2, 3, 1, True),
        pytest.param(3, INF, 2, True, marks=pytest.mark.slow),
    ],
)
def test_spark_answers_as_the_local_runtime_does(
    spark: SparkSession, tmp_path: Path, block: int, remember: int, buckets: int, joins: bool
) -> None:
    query, level = (PAIRS if joins else SUMS), ew.consistency(block, remember)
    job = EpochJob(spark, tmp_path, query, level, buckets)
    streams = {name: epochs_of(ord(name)) for name in job.names}
    for name, epochs in streams.items():
        written(tmp_path / name, epochs[:3])
    job.run()
    for name, epochs in streams.items():
        written(tmp_path / name, epochs[3:], first=3)
    handle = job.run()
    said = [e for batch in job.sink.epochs.values() for e in batch.elements()]
    pushes = [{name: batch_of(streams[name][at], SCHEMA) for name in job.names} for at in range(EPOCHS)]
    expected, dropped = local(query, level, pushes)
    assert_valid(said)
    assert_same_history(said, expected)
    assert max((e.t for e in said if isinstance(e, Cti)), default=None) == max(
        (e.t for e in expected if isinstance(e, Cti)), default=None
    )
    counts = {name: {reason.value: n for reason, n in each.items()} for name, each in dropped.items()}
    assert handle.dropped == counts
    if remember < INF:
        assert counts
        name = next(iter(counts))
        rows = pq.read_table(handle.dropped_rows(name)).to_pylist()
        assert len(rows) == sum(counts[name].values()) and {row["reason"] for row in rows} == set(counts[name])
        elements = [e for epoch in streams[name] for e in epoch]
        at, reason = finalized(elements, remember).dropped[0]
        first = elements[at]
        assert isinstance(first, Insert | Adjust)
        assert any((row["vs"], row["ve"], row["reason"]) == (first.vs, first.ve, reason) for row in rows)


def test_a_running_query_is_moved(spark: SparkSession, tmp_path: Path) -> None:
    """B, M and what is said when change between epochs; started again, it goes on where it was moved to."""
    epochs = epochs_of(7)
    job = EpochJob(spark, tmp_path, SUMS, ew.consistency(remember="inf"), 2)
    turns = [{}, {"emit": "final"}, {"block": 2, "remember": 4, "emit": "all"}, {"remember": 9, "emit": "current"}, {}]
    for at, turn in enumerate(turns):
        written(tmp_path / "S", [epochs[at]], first=at)
        handle = job.run(**turn)
    assert handle.consistency.remember == 9 and handle.consistency.emit.value == "current"
    written(tmp_path / "S", [[Cti(INF)]], first=EPOCHS)
    job.run()
    said = [e for batch in job.sink.epochs.values() for e in batch.elements()]
    assert_valid(said)
    elements = [e for epoch in epochs for e in epoch]
    changes = {sum(map(len, epochs[:2])): 4, sum(map(len, epochs[:3])): 9}
    kept = [e for e in finalized(elements, INF, changes).elements if not isinstance(e, Cti)]
    assert_same_history(said, oracle(SUMS.node, {"S": History.of(kept, SCHEMA)}))


def test_a_plain_query_says_other_things_when_it_is_asked_to(spark: SparkSession, tmp_path: Path) -> None:
    epochs = epochs_of(8)
    job = EpochJob(spark, tmp_path, SUMS, ew.MIDDLE, 2)
    written(tmp_path / "S", epochs[:2])
    job.run()
    written(tmp_path / "S", [*epochs[2:], [Cti(INF)]], first=2)
    job.run(emit="final")
    said = [e for batch in job.sink.epochs.values() for e in batch.elements()]
    assert_valid(said)
    kept = [e for epoch in epochs for e in epoch if not isinstance(e, Cti)]
    assert_same_history(said, oracle(SUMS.node, {"S": History.of(kept, SCHEMA)}))
    with pytest.raises(QueryError, match="neither waits nor forgets"):
        job.run(remember=5)


@pytest.mark.parametrize("level", [pytest.param(ew.WEAK, marks=pytest.mark.slow), ew.consistency(2, 5)], ids=str)
def test_files_at_any_level(spark: SparkSession, tmp_path: Path, level: Consistency) -> None:
    """The intake of files is the driver's: the same elements are given up, in the order of arrival."""
    rng = random.Random(3)
    lines = []
    for i in range(60):
        vs = max(0, i + rng.randrange(-9, 3))
        lines.append({"vs": vs, "ve": vs + 4, "row": {"k": rng.choice("ab"), "x": i % 5}})
    file = tmp_path / "s.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found: dict[str, object] = {}
    for name, engine in (("local", run_files), ("spark", run_files_on_spark)):
        out = tmp_path / f"{name}.jsonl"
        lost: list[object] = []
        engine(SUMS, {"S": str(file)}, str(out), consistency=level, batch=25, losses=lost.append)
        elements = [e for batch in read_elements(str(out)) for e in batch.elements()]
        assert_valid(elements)
        found[name] = elements, lost
    assert_same_history(found["local"][0], found["spark"][0])  # type: ignore[index]
    assert found["local"][1] == found["spark"][1] != [{}]  # type: ignore[index]


def test_wrong_rows_are_told(spark: SparkSession, tmp_path: Path) -> None:
    job = EpochJob(spark, tmp_path, SUMS, ew.consistency(2, 5), 2)
    written(tmp_path / "S", [[Insert(1, 3, {"k": "a", "x": 1}), Cti(3)], [Insert(2, 4, {"k": "a", "x": 1})]])
    with pytest.raises(InputError, match="behind the CTI 3"):
        job.run()


@pytest.mark.parametrize("idle", [pytest.param(None, marks=pytest.mark.slow), 0.05])
def test_who_waits_does_not_wait_for_ever_for_a_source_that_rests(
    spark: SparkSession, tmp_path: Path, idle: float | None
) -> None:
    """To block for long is to wait for promises; one that says nothing any more holds them up, unless it may rest."""
    row = {"k": "a", "x": 1}
    job = EpochJob(
        spark, tmp_path, S.union(T).group_by("k").agg(n=ew.count()), ew.consistency(100, "inf", emit="ended"), 2
    )
    sources = {"T": SparkSource("vs", end="ve", op="op", vnew="vnew", idle=idle)}
    written(tmp_path / "S", [[Insert(1, 4, row), Cti(1)]])
    written(tmp_path / "T", [[Insert(0, 3, row), Cti(1)]])
    job.run(sources=sources)
    time.sleep(0.1)
    written(tmp_path / "S", [[Insert(10, 12, row), Cti(8)], [Insert(21, 22, row), Cti(20)]], first=1)
    handle = job.run(sources=sources)
    said = [e for batch in job.sink.epochs.values() for e in batch.elements()]
    answer = History.of(said, job.query.schema)
    assert answer.snapshot(0) == {("a", 1): 1}
    assert answer.snapshot(2) == ({("a", 2): 1} if idle else {})
    assert answer.snapshot(11) == ({("a", 1): 1} if idle else {})
    assert not answer.snapshot(21)  # nobody has promised that yet
    assert handle.progress is not None and handle.progress.idle == ({"T"} if idle else set())


FAULTS = ("1.before step", "2.after step", "2.handing on", "4.handing on")


@pytest.mark.parametrize(
    ("act", "plans"),
    [
        pytest.param("raise", FAULTS[1:2], marks=pytest.mark.slow),
        ("kill", FAULTS[2:3]),
        pytest.param("kill", FAULTS, marks=pytest.mark.slow),
    ],
    ids=["error", "kill", "kills"],
)
def test_an_intake_that_fails_in_the_middle_is_begun_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, plans: tuple[str, ...]
) -> None:
    """Before what is let in is computed, before it is published, and when half of it has been handed on; by an error
    that nobody expects, and by SIGKILL for the worker.  Elements wait, are forgotten and given up in between."""
    faults = tmp_path / "faults"
    faults.mkdir()
    for plan in plans:
        (faults / plan).touch()

    class Faulty(IngressProgram):  # in here, so that workers get it by value
        def strike(self, epoch: int, point: str) -> None:
            plan = faults / f"{epoch}.{point}"
            if plan.exists():
                plan.unlink()
                if act == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError(f"planned: {plan.name}")

        def step(self, partition: IngressPartition, rows: pa.Table, context: EpochContext) -> dict[str, ElementBatch]:
            self.strike(context.epoch, "before step")
            found = IngressProgram.step(self, partition, rows, context)
            self.strike(context.epoch, "after step")
            return found

        def output(self, at: int, context: EpochContext, done: Any) -> Iterator[pa.RecordBatch]:
            for batch in IngressProgram.output(self, at, context, done):
                yield batch
                self.strike(context.epoch, "handing on")

    monkeypatch.setattr(stage_module, "IngressProgram", Faulty)
    job = EpochJob(spark, tmp_path, PAIRS, ew.consistency(2, 3), 2)
    streams = {name: epochs_of(ord(name)) for name in job.names}
    for name, epochs in streams.items():
        written(tmp_path / name, epochs)
    failed = 0
    while failed < 9:
        try:
            handle = job.run()
            break
        except Exception:  # whatever Spark makes of it
            failed += 1
    assert failed <= len(plans)  # if it is the home that fails, the worker that got the task goes on
    assert not list(faults.iterdir())
    said = [e for batch in job.sink.epochs.values() for e in batch.elements()]
    pushes = [{name: batch_of(streams[name][at], SCHEMA) for name in job.names} for at in range(EPOCHS)]
    expected, dropped = local(PAIRS, job.level, pushes)
    assert_valid(said)
    assert_same_history(said, expected)
    assert handle.dropped == {name: {why.value: n for why, n in each.items()} for name, each in dropped.items()}
    name = next(iter(dropped))
    assert len(pq.read_table(handle.dropped_rows(name))) == sum(dropped[name].values())
