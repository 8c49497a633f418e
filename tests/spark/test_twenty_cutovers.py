"""Twenty cutovers and a backfill during one run: no instant is missing or doubled.

Two Spark queries, started separately, write their answers into changelog folders.  A third one merges them with a
history that reaches up to an instant (`LMERGE(history, live SINCE t)`), and is replaced twenty times meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.sinks import ChangelogSink
from everwhen.sinks.memory import MemorySink
from everwhen.spark.api.start import start
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from spark.spark_epochs import read_epochs, write_epochs

BIDS = ew.source("Bid", {"item": "string", "price": "int64"})
BASE = BIDS.range(4).group_by("item").agg(n=ew.count(), v=ew.max("price"))
LIVE = 20
"""The feed is right from here on; before there is history."""
CUTOVERS = 20


def versions() -> list[Callable[[ew.Stream], ew.Stream]]:
    """Queries with the same columns and other meanings."""
    n, v = ew.col("n"), ew.col("v")
    return [
        lambda s: s,
        lambda s: s.where(n > 1),
        lambda s: s.select("item", n=n + 1, v=v),
        lambda s: s.group_by("item").agg(n=ew.max("n"), v=ew.count()),
    ]


def clipped(history: History, since: int, until: int) -> list[ew.Insert]:
    found = []
    for row, levels in history.level_form.items():
        named = dict(zip(history.schema.names, row, strict=True))
        spans = ((max(lo, since), min(hi, until)) for _, lo, hi in levels)
        found += [ew.Insert(lo, hi, named) for lo, hi in spans if lo < hi]
    return found


def test_twenty_cutovers_and_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(11)
    raw = [
        ew.Insert(vs, vs + rng.choice([1, 2, 3]), {"item": rng.choice("pq"), "price": rng.randrange(9)})
        for vs in range(LIVE + 2 * CUTOVERS)
    ]
    answers = ew.reference.history(BASE.node, {"Bid": History.of(raw, BIDS.schema)})
    history = ChangelogSink(tmp_path / "history")
    history.prepare(BASE.schema)
    known = clipped(answers, NEVER, LIVE)
    history.commit(0, batch_of([*sorted(known, key=lambda e: e.vs), ew.Cti(LIVE)], BASE.schema))
    recent = [e for e in raw if e.vs > LIVE - 10]
    ends = [NEVER, *range(LIVE + 2, LIVE + 2 * CUTOVERS + 2, 2), ew.INF]
    files = []
    for since, until in pairwise(ends):  # in any order, then a promise
        part = [e for e in recent if since <= e.vs < until]
        rng.shuffle(part)
        files.append(batch_of([*part, ew.Cti(until)], BIDS.schema))
    write_epochs(tmp_path / "Bid", files[:1])
    feeds = [
        start(
            BASE, {"Bid": read_epochs(spark, tmp_path / "Bid", BIDS.schema)}, sink=ChangelogSink(tmp_path / name),
            checkpoint=tmp_path / f"{name}-state", buckets=1, emit=emit,
        )
        for name, emit in (("a", "final"), ("b", "current"))
    ]  # fmt: skip
    for feed in feeds:
        feed.process_available()
    copies = [ew.source(name, BASE.schema) for name in ("history", "a", "b")]
    merged = ew.lmerge(*copies, since={1: LIVE, 2: LIVE})
    frames = {each: ew.spark.read_changelog_stream(spark, tmp_path / each) for each in ("history", "a", "b")}
    sink, told = MemorySink(), [(NEVER, versions()[0])]
    top = start(merged, frames, sink=sink, checkpoint=tmp_path / "state", buckets=1, snapshot_every=4)
    top.process_available()
    for at in range(1, CUTOVERS + 1):
        version = versions()[at % len(versions())]
        promised = top.progress.answered["out"]
        t = top.replace(version(merged), at=promised + 1 if at % 2 else None)
        assert t == promised + at % 2
        told.append((t, version))
        write_epochs(tmp_path / "Bid", files[at : at + 1], first=at)
        for query in (*feeds, top):
            query.process_available()
        assert top.replaced_at is None
    for query in (top, *feeds):
        query.stop()
    assert len(told) == CUTOVERS + 1
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    source = ew.source("M", BASE.schema)
    wanted = []
    for (since, version), until in zip(told, [*(t for t, _ in told[1:]), ew.INF], strict=True):
        wanted += clipped(ew.reference.history(version(source).node, {"M": answers}), since, until)
    assert_same_history(History.of(found, BASE.schema), History.of(wanted, BASE.schema))
