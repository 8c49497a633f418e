"""Rows in files: an epoch is in or not, again changes nothing, half an epoch is cut off; foreign and lost files."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everwhen.connectors.file_sinks import FileRows, FolderRows
from everwhen.connectors.json_rows import change_lines
from everwhen.connectors.options import OptionError
from everwhen.connectors.registry import SinkPlace, sink_connector, sink_options
from everwhen.core.schema import Schema
from everwhen.errors import SinkError, SinkLostError
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges

SCHEMA = Schema.of([("k", pa.string()), ("n", pa.int64())])


def changes(form, *rows):
    """Rows as (op, k, n)."""
    batch = pa.RecordBatch.from_pydict(
        {"k": [r[1] for r in rows], "n": [r[2] for r in rows]}, pa.schema([("k", pa.string()), ("n", pa.int64())])
    )
    return RowChanges(form, np.array([r[0] for r in rows], np.uint8), batch, 0)


ONE, TWO = changes("append", (PUT, "a", 1)), changes("append", (PUT, "b", None), (PUT, 'q"', 3))


def test_lines_of_each_form():
    assert change_lines(TWO) == ['{"k":"b","n":null}', '{"k":"q\\"","n":3}']
    upsert = changes("upsert", (DELETE, "a", None), (PUT, "b", 2))
    assert change_lines(upsert, ("k",)) == ['{"op":"delete","row":{"k":"a"}}', '{"op":"put","row":{"k":"b","n":2}}']
    retract = changes("retract", (DELETE, "a", 1), (BEFORE, "b", 1), (AFTER, "b", 2), (PUT, "c", 3))
    assert [json.loads(text) for text in change_lines(retract)] == [
        {"op": "d", "before": {"k": "a", "n": 1}, "after": None},
        {"op": "u", "before": {"k": "b", "n": 1}, "after": {"k": "b", "n": 2}},
        {"op": "c", "before": None, "after": {"k": "c", "n": 3}},
    ]
    assert change_lines(changes("retract")) == change_lines(changes("upsert"), ("k",)) == []


def test_a_file_takes_an_epoch_once_and_cuts_off_half_of_one(tmp_path):
    path = tmp_path / "x" / "rows.jsonl"
    sink = FileRows(str(path), "append", (), "me")
    sink.prepare(SCHEMA)
    assert sink.committed() == -1
    sink.commit(0, ONE)
    sink.commit(3, TWO)
    sink.commit(3, TWO)
    sink.commit(1, ONE)
    whole = path.read_text()
    assert whole.count("\n") == 3
    with open(path, "a") as file:
        file.write('{"k":"half')
    again = FileRows(str(path), "append", (), "me")
    again.resume(3)
    again.prepare(SCHEMA)
    assert again.committed() == 3 and path.read_text() == whole
    again.commit(4, ONE)
    assert path.read_text() == whole + '{"k":"a","n":1}\n'


def test_a_file_that_is_foreign_or_lost(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("mine\n")
    with pytest.raises(SinkError, match="no job has signed"):
        FileRows(str(path), "append", (), "me").prepare(SCHEMA)
    path.unlink()
    sink = FileRows(str(path), "append", (), "me")
    sink.prepare(SCHEMA)
    sink.commit(0, ONE)
    with pytest.raises(
        SinkError, match=r"another job writes there.*anew, remove it and \.rows\.jsonl\.epochs beside it"
    ):
        FileRows(str(path), "append", (), "you").prepare(SCHEMA)
    with pytest.raises(SinkError, match="form is append there, here retract"):
        FileRows(str(path), "retract", (), "me").prepare(SCHEMA)
    path.write_text("")
    with pytest.raises(SinkLostError, match="is shorter than what was written"):
        FileRows(str(path), "append", (), "me").prepare(SCHEMA)
    path.unlink()
    with pytest.raises(SinkLostError, match="is gone"):
        sink.commit(1, ONE)
    (tmp_path / ".rows.jsonl.epochs").unlink()
    with pytest.raises(SinkLostError, match="is gone"):
        FileRows(str(path), "append", (), "me").resume(0)


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_a_folder_has_a_file_per_epoch(tmp_path, format_):
    path = tmp_path / "rows"
    sink = FolderRows(str(path), "retract", format_, (), "me")
    sink.prepare(SCHEMA)
    sink.commit(0, changes("retract", (BEFORE, "a", 1), (AFTER, "a", 2)))
    sink.commit(1, changes("retract"))
    sink.commit(5, changes("retract", (PUT, "b", 1)))
    sink.commit(5, changes("retract", (PUT, "c", 1)))
    files = sorted(each.name for each in path.glob("epoch*"))
    assert files == [f"epoch-00000000{n}.{format_}" for n in (0, 5)]
    if format_ == "parquet":
        assert pq.read_table(path / files[0])["op"].to_pylist() == ["before", "after"]
    again = FolderRows(str(path), "retract", format_, (), "me")
    again.resume(5)
    again.prepare(SCHEMA)
    assert again.committed() == 5
    with pytest.raises(SinkError, match="another job writes there"):
        FolderRows(str(path), "retract", format_, (), "you").prepare(SCHEMA)


def test_a_folder_that_is_lost_or_has_epochs_of_nobody(tmp_path):
    with pytest.raises(SinkLostError, match="is gone, or was emptied"):
        FolderRows(str(tmp_path / "no"), "append", "jsonl", (), "me").resume(0)
    (tmp_path / "epoch-000000000.jsonl").write_text("")
    with pytest.raises(SinkError, match="no job has signed"):
        FolderRows(str(tmp_path), "append", "jsonl", (), "me").prepare(SCHEMA)


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="file"):
        FolderRows(str(tmp_path / "file"), "append", "jsonl", (), "me").prepare(SCHEMA)


def test_a_file_that_cannot_be_appended_to_is_refused_by_name():
    connector = sink_connector("file")
    options = sink_options(connector, ("best.parquet",), {})
    with pytest.raises(OptionError, match=r"write folder\('…'\) for Parquet"):
        connector.rows(options, SinkPlace("s", SCHEMA, "append"))
