"""Sinks: an epoch is in whole and once, whatever is repeated; a changelog is what its manifests say."""

from __future__ import annotations

import io
import json
import multiprocessing as mp
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs
from rich.console import Console

from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import EverwhenError, InputError, QueryError, SinkError, SinkLostError
from everwhen.formats.parquet import read_elements
from everwhen.sinks import (
    CallbackSink,
    ChangelogSink,
    ConsoleSink,
    EpochSink,
    MemorySink,
    PostgresSink,
    changelog,
    read_changelog,
)
from everwhen.storage import folder
from everwhen.storage.folder import RemoteFolder
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of, empty_elements
from everwhen.stream.history import History
from stream.element_strategies import VALUES, elements, plain, schemas

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])


def epoch_of(number: int) -> list[Element]:
    row = {"item": number, "name": f"n{number}"}
    return [Insert(number, INF, row), Adjust(number, INF, number + 3, row), Cti(number)]


def batch(number: int) -> ElementBatch:
    return batch_of(epoch_of(number), SCHEMA)


def told(batches: Any) -> list[str]:
    return [str(element) for found in batches for element in found.elements()]


EXPECTED = [str(element) for number in range(3) for element in epoch_of(number)]


@pytest.fixture(params=["parquet", "jsonl", "parquet elsewhere", "jsonl elsewhere"])
def sink(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangelogSink:
    if "elsewhere" in request.param:  # the code of hdfs and s3, on files that a test can look at

        def elsewhere(place: str) -> RemoteFolder:
            return RemoteFolder(fs.LocalFileSystem(), str(place), str(place))

        monkeypatch.setattr(changelog, "open_folder", elsewhere)
    return ChangelogSink(tmp_path / "out" / "log", request.param.split()[0])


def test_epochs_go_in_once(sink: ChangelogSink) -> None:
    sink.prepare(SCHEMA)
    assert sink.committed() == -1 and told(read_changelog(sink.path)) == []
    for number in range(3):
        sink.commit(number, batch(number))
        sink.commit(number, batch(number))
        assert sink.committed() == number
    sink.commit(1, batch(7))
    again = ChangelogSink(sink.path, sink.format)
    again.prepare(SCHEMA)
    assert again.committed() == 2
    again.commit(2, batch(9))
    again.commit(0, batch(9))
    assert told(read_changelog(sink.path)) == EXPECTED


def test_parts_of_many_tasks(sink: ChangelogSink) -> None:
    sink.prepare(SCHEMA)
    worker = pickle.loads(pickle.dumps(sink))
    data = [batch_of(epoch_of(number)[:2], SCHEMA) for number in range(3)]
    parts = [worker.write_part(0, bucket, data[bucket]) for bucket in range(3)]
    assert parts[:2] == [f"epoch=0/part-{bucket:05d}.{sink.format}" for bucket in range(2)]
    assert worker.write_part(0, 1, data[1]) == parts[1]  # a task is repeated
    nothing = worker.write_part(0, 3, empty_elements(SCHEMA))
    assert nothing == "" and told(read_changelog(sink.path)) == []  # not committed
    tail = batch_of([Cti(5)], SCHEMA)
    sink.commit_parts(0, [*parts, nothing], tail)
    sink.commit_parts(0, [], tail)
    found = told(read_changelog(sink.path))
    assert found == [*told(data), "cti 5"] and sink.committed() == 0
    sink.commit_parts(1, [], empty_elements(SCHEMA))
    assert sink.committed() == 1 and told(read_changelog(sink.path)) == found


def test_an_epoch_that_was_not_finished_is_not_read(sink: ChangelogSink) -> None:
    sink.prepare(SCHEMA)
    sink.commit(0, batch(0))
    sink.write_part(1, 0, batch(8))
    sink.write_part(1, 7, batch(8))  # an attempt with other buckets, before a crash
    again = ChangelogSink(sink.path, sink.format)
    again.prepare(SCHEMA)
    assert again.committed() == 0
    again.commit(1, batch(1))
    again.commit(2, batch(2))
    assert told(read_changelog(sink.path)) == EXPECTED


def test_a_missing_part(sink: ChangelogSink) -> None:
    sink.prepare(SCHEMA)
    with pytest.raises(SinkError, match=r"epoch 0 should have the part epoch=0/part-00004.*same file system"):
        sink.commit_parts(0, [f"epoch=0/part-00004.{sink.format}"], empty_elements(SCHEMA))
    assert sink.committed() == -1
    sink.commit(0, batch(0))
    os.unlink(os.path.join(sink.path, f"epoch=0/part-00000.{sink.format}"))
    with pytest.raises(InputError, match=r"part-00000.*a part of epoch 0 is missing.*_epochs/0.json"):
        list(read_changelog(sink.path))


def test_epochs_are_read_in_the_order_of_numbers(sink: ChangelogSink) -> None:
    sink.prepare(SCHEMA)
    for number in range(12):
        sink.commit(number, batch(number))
    found = [element.t for part in read_changelog(sink.path) for element in part.elements() if isinstance(element, Cti)]
    assert found == list(range(12))


def test_another_changelog_is_in_the_way(sink: ChangelogSink) -> None:
    sink.prepare(SCHEMA)
    other = Schema.of([("item", pa.int64())])
    with pytest.raises(
        SinkError, match=r"expected .* of \(item int64\), found .* of \(item int64, name string\).*path"
    ):
        ChangelogSink(sink.path, sink.format).prepare(other)
    wrong = "jsonl" if sink.format == "parquet" else "parquet"
    with pytest.raises(SinkError, match=f"expected {wrong}"):
        ChangelogSink(sink.path, wrong).prepare(SCHEMA)
    Path(sink.path, "_changelog.json").write_text('{"version": 99}')
    with pytest.raises(SinkError, match=r"_changelog.json: not a file of a changelog of this program: version 99"):
        sink.prepare(SCHEMA)
    with pytest.raises(InputError, match="version 99"):
        list(read_changelog(sink.path))


def test_others_read_the_parquet_files(tmp_path: Path) -> None:
    sink = ChangelogSink(tmp_path)
    sink.prepare(SCHEMA)
    for number in range(3):
        sink.commit(number, batch(number))
    found = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert set(found.column_names) == {"op", "vs", "ve", "vnew", "item", "name", "epoch"}
    assert sorted(found["epoch"].to_pylist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    (part,) = (tmp_path / "epoch=1").iterdir()
    assert told(read_elements(part)) == EXPECTED[3:6]
    assert json.loads((tmp_path / "_epochs" / "1.json").read_text())["parts"] == ["epoch=1/part-00000.parquet"]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.data(), st.sampled_from(["parquet", "jsonl"]))
def test_all_payloads_and_elements_round_trip(tmp_path_factory: Any, data: st.DataObject, format_: str) -> None:
    schema = data.draw(schemas(VALUES).filter(lambda s: format_ == "jsonl" or not {"ve", "vs"} & set(s.names)))
    epochs = data.draw(st.lists(st.lists(elements(schema), max_size=6), max_size=3))
    sink = ChangelogSink(tmp_path_factory.mktemp("log"), format_)
    sink.prepare(schema)
    batches = [batch_of(found, schema) for found in epochs]
    for number, found in enumerate(batches):
        sink.commit(number, found)
    assert without_lines(read_changelog(sink.path)) == without_lines(batches)


def without_lines(batches: Any) -> list[tuple[Any, ...]]:
    return [element[:-1] for element in plain(batches)]


def write_again(path: str, bucket: int, start: Any, times: int) -> None:
    start.wait()
    for _ in range(times):
        ChangelogSink(path).write_part(0, bucket, batch(1))


def test_two_attempts_write_the_same_part_at_once(tmp_path: Path) -> None:
    sink = ChangelogSink(tmp_path)
    sink.prepare(SCHEMA)
    context = mp.get_context("spawn")
    start = context.Barrier(3)
    writers = [context.Process(target=write_again, args=(sink.path, 0, start, 40)) for _ in range(2)]
    for writer in writers:
        writer.start()
    name = sink.write_part(0, 0, batch(1))
    start.wait()
    sink.commit_parts(0, [name], empty_elements(SCHEMA))
    while any(writer.is_alive() for writer in writers):
        assert told(read_changelog(tmp_path)) == EXPECTED[3:6]
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert os.listdir(tmp_path / "epoch=0") == ["part-00000.parquet"]


def test_places_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match=r"file.*cannot prepare the changelog: a file stands.*another place"):
        ChangelogSink(tmp_path / "file").prepare(SCHEMA)
    with pytest.raises(SinkError, match=r"gopher://x/y: cannot prepare"):
        ChangelogSink("gopher://x/y").prepare(SCHEMA)
    with pytest.raises(SinkError, match="an empty path"):
        ChangelogSink("").prepare(SCHEMA)
    with pytest.raises(QueryError, match=r"no format 'csv'; there are parquet, jsonl"):
        ChangelogSink(tmp_path, "csv")
    with pytest.raises(InputError, match=r"nowhere: there is no _changelog.json"):
        list(read_changelog(tmp_path / "nowhere"))
    with pytest.raises(SinkError, match=r"a column named 'vs' has no place"):
        ChangelogSink(tmp_path / "a").prepare(Schema.of([("vs", pa.int64())]))
    with pytest.raises(SinkError, match=r"have no form in JSON lines.*'parquet'"):
        ChangelogSink(tmp_path / "a", "jsonl").prepare(Schema.of([("x", pa.map_(pa.string(), pa.int64()))]))
    assert not (tmp_path / "a").exists()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.os, "makedirs", refuse)
    with pytest.raises(SinkError, match=r"permission denied \(give this user"):
        ChangelogSink(tmp_path / "b").prepare(SCHEMA)


def test_memory() -> None:
    sink = MemorySink()
    sink.prepare(SCHEMA)
    assert sink.committed() == -1 and len(sink.history()) == 0
    for number in (0, 1, 1, 2, 0):
        sink.commit(number, batch(number))
    assert [str(element) for element in sink.elements()] == EXPECTED
    assert sink.history() == History.of([batch(number) for number in range(3)])


def test_callback() -> None:
    seen: list[tuple[int, int]] = []
    sink = CallbackSink(lambda epoch, found: seen.append((epoch, len(found))))
    sink.prepare(SCHEMA)
    for number in (0, 0, 1, 0):
        sink.commit(number, batch(number))
    assert seen == [(0, 3), (1, 3)] and sink.committed() == 1


def test_a_callback_that_fails_may_be_tried_again() -> None:
    calls: list[int] = []

    def fails_once(epoch: int, _: ElementBatch) -> None:
        calls.append(epoch)
        if len(calls) == 1:
            raise RuntimeError("not now")

    sink = CallbackSink(fails_once)
    with pytest.raises(SinkError, match=r"fails_once failed on epoch 0: RuntimeError: not now"):
        sink.commit(0, batch(0))
    assert sink.committed() == -1
    sink.commit(0, batch(0))
    assert calls == [0, 0] and sink.committed() == 0


def test_console_shows_some_rows() -> None:
    text = io.StringIO()
    sink = ConsoleSink(rows=3, console=Console(file=text, width=80, color_system=None))
    sink.prepare(SCHEMA)
    row = {"item": 1, "name": "[red]ä"}
    sink.commit(0, batch_of([Insert(1, INF, row), Adjust(1, INF, 4, row), Adjust(1, 4, 1, row), Cti(9)], SCHEMA))
    sink.commit(0, batch(5))
    sink.commit(1, empty_elements(SCHEMA))
    assert sink.committed() == 1
    shown = text.getvalue()
    assert [word in shown for word in ("epoch 0", "insert", "∞ → 4", "remove", "[red]ä", "and 1 more")] == [True] * 6
    assert "epoch 1" not in shown and "n5" not in shown and "cti" not in shown


def printer(epoch: int, found: ElementBatch) -> None:
    raise EverwhenError(f"{epoch} {len(found)}")


@pytest.mark.parametrize(
    "sink",
    [MemorySink(), CallbackSink(printer), ConsoleSink(), ChangelogSink("x"), PostgresSink("dbname=x", "t", ["a"])],
    ids=lambda sink: type(sink).__name__,
)
def test_sinks_can_be_pickled(sink: EpochSink) -> None:
    again = pickle.loads(pickle.dumps(sink))
    assert {k: v for k, v in vars(again).items() if k != "schema"}.keys() <= vars(sink).keys()
    assert type(again) is type(sink)


def test_a_changelog_means_the_history(tmp_path: Path) -> None:
    """Cut anywhere into epochs, the changelog says what the stream said."""
    rng = random.Random(7)
    told_: list[Element] = []
    for number in range(200):
        row = {"item": rng.randrange(5), "name": None}
        told_.append(Insert(number, INF, row))
        if rng.random() < 0.5:
            told_.append(Adjust(number, INF, number + rng.randrange(3), row))
    sink = ChangelogSink(tmp_path)
    sink.prepare(SCHEMA)
    epoch = 0
    while told_[epoch * 30 :]:
        sink.commit(epoch, batch_of(told_[epoch * 30 : epoch * 30 + 30], SCHEMA))
        epoch += 1
    assert History.of(read_changelog(tmp_path)) == History.of(batch_of(told_, SCHEMA))


@pytest.mark.parametrize("gone", ["all of it", "its header", "the last epoch"])
def test_a_changelog_that_vanishes_while_it_is_written_takes_no_more(sink: ChangelogSink, gone: str) -> None:
    sink.prepare(SCHEMA)
    sink.commit(0, batch(0))
    sink.commit(1, batch(1))
    place = Path(sink.path)
    whole = place.with_name("kept")
    shutil.copytree(place, whole)
    match gone:
        case "all of it":
            shutil.rmtree(place)
        case "its header":
            (place / "_changelog.json").unlink()
        case _:
            (place / "_epochs" / "1.json").unlink()
    problem = "header of the changelog, is gone" if gone == "its header" else "epoch 1 of the changelog is gone"
    for _ in range(2):
        with pytest.raises(SinkLostError, match=rf"{problem}.*put it back"):
            sink.commit(2, batch(2))
    assert not (place / "_epochs" / "2.json").exists()
    shutil.rmtree(place)
    whole.rename(place)
    sink.commit(2, batch(2))
    assert sorted(int(path.stem) for path in (place / "_epochs").iterdir()) == [0, 1, 2]
