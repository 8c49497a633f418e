"""Twenty cutovers and a backfill during one run: no instant is missing or doubled.

Two Spark queries, started separately, write their answers into changelog folders.  A third one merges them with a
history that reaches up to an instant (`LMERGE(history, live SINCE t)`).  Meanwhile the two copies become other queries
nine times each, always at the same instant, and the query that merges them twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
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
LIVE = 20
"""The feed is right from here on; before there is history."""
RUNS = (
    pytest.param(2, (2,), marks=pytest.mark.slow, id="five cutovers"),
    pytest.param(9, (3, 7), marks=pytest.mark.slow, id="twenty cutovers"),
)
"""How many steps, and in which of them the query that merges is replaced, too."""


def versions() -> list[ew.Stream]:
    """Queries with the same columns and other meanings, which need the same columns of the source."""
    item = BIDS.group_by("item")
    return [
        item.agg(n=ew.count(), v=ew.max("price")),
        item.agg(n=ew.count(), v=ew.min("price")),
        BIDS.group_by("item", "price").agg(n=ew.count()).select("item", "n", v=ew.col("price")),
        item.agg(n=ew.sum("price"), v=ew.count()),
    ]


SCHEMA = versions()[0].schema
Read = Callable[[ew.Stream], ew.Stream]


def tops() -> list[Read]:
    """What is made of the merged copies."""
    return [
        lambda s: s,
        lambda s: s.where(ew.col("n") > 1),
        lambda s: s.group_by("item").agg(n=ew.max("n"), v=ew.count()),
    ]


def spliced(parts: Sequence[tuple[int, History]]) -> list[ew.Insert]:
    """Histories, each from an instant on, up to the next one."""
    found = []
    for (since, history), until in zip(parts, [*(t for t, _ in parts[1:]), ew.INF], strict=True):
        for row, levels in history.level_form.items():
            named = dict(zip(history.schema.names, row, strict=True))
            spans = ((max(lo, since), min(hi, until)) for _, lo, hi in levels)
            found += [ew.Insert(lo, hi, named) for lo, hi in spans if lo < hi]
    return found


@pytest.mark.parametrize(("steps", "merging"), RUNS)
def test_cutovers_and_a_backfill(spark: SparkSession, tmp_path: Path, steps: int, merging: tuple[int, ...]) -> None:
    rng = random.Random(11)
    raw = [
        ew.Insert(vs, vs + rng.choice([1, 3, 5]), {"item": rng.choice("pq"), "price": rng.randrange(9)})
        for vs in range(LIVE + 2 * steps + 4)
    ]
    files = []
    for since, until in pairwise([NEVER, *range(LIVE + 2, LIVE + 2 * steps + 4, 2), ew.INF]):
        part = [e for e in raw if since <= e.vs < until and e.vs > LIVE - 10]  # what ended long ago the feed lacks
        rng.shuffle(part)
        files.append(batch_of([*part, ew.Cti(until)], BIDS.schema))
    whole = [ew.reference.history(each.node, {"Bid": History.of(raw, BIDS.schema)}) for each in versions()]
    known = sorted(spliced([(NEVER, whole[0]), (LIVE, History.of([], SCHEMA))]), key=lambda e: e.vs)
    history = ChangelogSink(tmp_path / "history")
    history.prepare(SCHEMA)
    history.commit(0, batch_of([*known, ew.Cti(LIVE)], SCHEMA))
    write_epochs(tmp_path / "Bid", files[:1])
    feeds = [
        start(
            versions()[0], {"Bid": read_epochs(spark, tmp_path / "Bid", BIDS.schema)},
            sink=ChangelogSink(tmp_path / name), checkpoint=tmp_path / f"{name}-state", buckets=1, emit=emit,
        )
        for name, emit in (("a", "final"), ("b", "current"))
    ]  # fmt: skip
    for feed in feeds:
        feed.process_available()
    copies = [ew.source(name, SCHEMA) for name in ("history", "a", "b")]
    merged = ew.lmerge(*copies, since={1: LIVE, 2: LIVE})
    frames = {each: ew.spark.read_changelog_stream(spark, tmp_path / each) for each in ("history", "a", "b")}
    sink = MemorySink()
    top = start(tops()[0](merged), frames, sink=sink, checkpoint=tmp_path / "state", buckets=1, snapshot_every=4)
    top.process_available()
    parts, read = [(NEVER, whole[0])], [(NEVER, tops()[0])]
    for step in range(1, steps + 1):
        version = step % len(versions())
        at = feeds[0].progress.answered["out"] + 1
        assert [feed.replace(versions()[version], at=at) for feed in feeds] == [at, at]
        parts.append((at, whole[version]))
        if step in merging:
            other = tops()[len(read)]
            read.append((top.replace(other(merged)), other))
            assert read[-1][0] >= top.progress.answered["out"]
        write_epochs(tmp_path / "Bid", files[step : step + 1], first=step)
        for query in (*feeds, top):
            query.process_available()
            assert query.replaced_at is None
    write_epochs(tmp_path / "Bid", files[steps + 1 :], first=steps + 1)
    for query in (*feeds, top):
        query.process_available()
        query.stop()
    assert 2 * (len(parts) - 1) + len(read) - 1 == 2 * steps + len(merging)
    found = list(sink.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    answers = History.of(spliced(parts), SCHEMA)
    source = ew.source("M", SCHEMA)
    wanted = spliced([(t, ew.reference.history(made(source).node, {"M": answers})) for t, made in read])
    assert_same_history(History.of(found, SCHEMA), History.of(wanted, SCHEMA))
