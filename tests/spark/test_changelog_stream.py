"""A changelog folder as a streaming DataFrame: whole epochs only, in order, once; and copies merged from folders."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import everwhen as ew
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.errors import InputError, QueryError
from everwhen.sinks import ChangelogSink
from everwhen.spark.api.start import start
from everwhen.spark.sources.changelog_stream import ChangelogSource, ChangelogStreamReader
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from spark.spark_epochs import read_epochs, write_epochs

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])


def sink(path: Path, *epochs: list[ew.Element], format: str = "parquet") -> ChangelogSink:
    found = ChangelogSink(path, format)
    found.prepare(SCHEMA)
    for at, elements in enumerate(epochs):
        found.commit(at, batch_of(elements, SCHEMA))
    return found


def reader(path: Path, epochs: int = 1000, name: str = "", words: bool = False) -> ChangelogStreamReader:
    about = json.loads((path / "_changelog.json").read_text())
    given = {"path": str(path), "epochs": str(epochs), "reader": name, "punctuation": str(int(words))}
    given |= {"start": about.get("id", ""), "first": str(about.get("first", 0)), "restarts": "error"}
    source = ChangelogSource(given)
    found = source.streamReader(source.schema())
    assert isinstance(found, ChangelogStreamReader)
    return found


def said(stream: ChangelogStreamReader, first: dict, last: dict) -> list[tuple]:
    rows: list[tuple] = []
    for part in stream.partitions(first, last):
        for batch in stream.read(part):
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    return rows


def a(k: str, vs: int, ve: int, x: int = 1) -> ew.Insert:
    return ew.Insert(vs, ve, {"k": k, "x": x})


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_offsets_are_epochs_that_are_committed(tmp_path: Path, format: str) -> None:
    out = sink(
        tmp_path, [a("p", 1, ew.INF), ew.Cti(1)], [], [ew.Adjust(1, ew.INF, 4, {"k": "p", "x": 1})], format=format
    )
    out.write_part(3, 0, batch_of([a("q", 2, 3)], SCHEMA))  # the epoch is not published
    stream = reader(tmp_path)
    begin = stream.initialOffset()
    assert begin == {"epoch": 0, "start": json.loads((tmp_path / "_changelog.json").read_text())["id"]}
    assert stream.latestOffset(begin, ReadMaxRows(2))["epoch"] == 2
    last = stream.latestOffset(begin, ReadAllAvailable())
    assert last["epoch"] == 3 and stream.latestOffset(last, ReadAllAvailable()) == last
    assert said(stream, begin, last) == [
        ("insert", 1, None, None, "p", 1), ("cti", 1, None, None, None, None), ("adjust", 1, None, 4, "p", 1),
    ]  # fmt: skip
    out.commit(3, batch_of([a("q", 2, 3), ew.Cti(ew.INF)], SCHEMA))
    assert said(stream, last, stream.latestOffset(last, ReadAllAvailable()))[-1][:2] == ("cti", None)


def test_punctuations_come_where_they_are_asked_for(tmp_path: Path) -> None:
    closed = ew.Punct(Punctuation({"k": OneOf(("p",))}, ew.INF))
    sink(tmp_path, [a("p", 1, 2), closed])
    for words in (False, True):
        stream = reader(tmp_path, words=words)
        begin = stream.initialOffset()
        rows = said(stream, begin, {**begin, "epoch": 1})
        assert [row[0] for row in rows] == ["insert", "punct"][: 1 + words]
    assert json.loads(rows[1][-1]) == {"k": "p"}


def test_a_reader_leaves_word_and_a_new_start_is_another_stream(tmp_path: Path) -> None:
    sink(tmp_path, [a("p", 1, 2)], [a("p", 2, 3)])
    stream = reader(tmp_path, name="top")
    begin = stream.initialOffset()
    stream.commit({**begin, "epoch": 1})
    (word,) = (tmp_path / "_readers").iterdir()
    assert json.loads(word.read_text())["read"] == 1
    manifest = tmp_path / "_epochs" / "1.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"start": {"id": "n2", "first": 1}, "more": 1}))
    assert stream.latestOffset(begin, ReadAllAvailable()) == {**begin, "epoch": 1}, "up to the new start"
    header = tmp_path / "_changelog.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | {"id": "n2", "first": 1}))
    with pytest.raises(InputError, match=r"begun anew with epoch 1.*attach"):
        stream.latestOffset({**begin, "epoch": 1}, ReadAllAvailable())
    anew = reader(tmp_path)
    assert anew.initialOffset() == {"epoch": 1, "start": "n2"}
    assert anew.latestOffset(anew.initialOffset(), ReadAllAvailable())["epoch"] == 2
    old, other = {**begin, "epoch": 1}, {"logOffset": 3}  # offsets of what it takes the place of
    for before in (old, other):
        assert anew.latestOffset(before, ReadAllAvailable()) == {"epoch": 2, "start": "n2"}
        assert anew.partitions(before, {"epoch": 2, "start": "n2"})[0].epoch == 1
        assert anew.partitions(before, before) == []


def test_what_is_no_changelog_is_told_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no _changelog\.json"):
        ew.spark.read_changelog_stream(spark, tmp_path)
    sink(tmp_path)
    with pytest.raises(QueryError, match="one of the folder's at least"):
        ew.spark.read_changelog_stream(spark, tmp_path, epochs=0)
    (tmp_path / "_changelog.json").write_text("{}")
    with pytest.raises(InputError, match="not a file of a changelog"):
        ew.spark.read_changelog_stream(spark, tmp_path)


@pytest.mark.slow
def test_two_queries_started_separately_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    """The same query twice, with other epochs and partitions, each into a folder; a third one reads both."""
    rng = random.Random(3)
    events = [a(rng.choice("pqr"), vs, vs + rng.choice([1, 3, 9]), rng.randrange(5)) for vs in range(30)]
    history = History.of(events, SCHEMA)
    query = ew.source("S", SCHEMA).group_by("k").agg(n=ew.count(), t=ew.sum("x"))
    folders = {}
    for name, count in (("a", 2), ("b", 3)):
        elements = reorder(history, rng, disorder=6, close=name == "b", infinite=False)
        if name == "a":
            elements = elements[: len(elements) * 2 // 3]  # it has died
        bounds = [len(elements) * at // count for at in range(count + 1)]
        write_epochs(tmp_path / f"in-{name}", [batch_of(elements[i:j], SCHEMA) for i, j in pairwise(bounds)])
        folders[name] = tmp_path / f"answers-{name}"
        handle = start(
            query, {"S": read_epochs(spark, tmp_path / f"in-{name}", SCHEMA)}, sink=folders[name],
            checkpoint=tmp_path / f"state-{name}", trigger="available", buckets=count - 1,
        )  # fmt: skip
        assert handle.await_termination(300)
    copies = {name: ew.source(name, query.schema) for name in folders}
    merged = ew.spark.MemorySink()
    handle = start(
        ew.lmerge(*copies.values()),
        {name: ew.spark.read_changelog_stream(spark, folder, epochs=1) for name, folder in folders.items()},
        sink=merged, checkpoint=tmp_path / "state", trigger="available", buckets=2,
    )  # fmt: skip
    assert handle.await_termination(300)
    assert len(handle.recent) == 3, "an epoch of each folder at a time"
    found = list(merged.elements())
    assert_valid(found)
    assert found[-1] == ew.Cti(ew.INF)
    wanted = [element for batch in local(query, events) for element in batch.elements()]
    assert_same_history(History.of(found, query.schema), History.of(wanted, query.schema))


def local(query: ew.Stream, events: list[ew.Insert]) -> list[ElementBatch]:
    runtime = ew.LocalRuntime(query)
    return [runtime.push({"S": batch_of(events, SCHEMA)})["out"], runtime.close()["out"]]
