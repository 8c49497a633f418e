"""Iceberg as a sink: a commit per epoch, once.  Left out where pyiceberg is not installed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from everwhen.connectors.registry import SinkPlace, sink_connector, sink_options
from everwhen.core.schema import Schema
from everwhen.errors import QueryError, SinkError
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges

pytest.importorskip("pyiceberg.catalog.sql", reason="left out: pyiceberg is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])


def sink(place: Path, form: str, key: tuple[str, ...] = (), schema: Schema = SCHEMA, table: str = "shop.best") -> Any:
    connector = sink_connector("iceberg")
    assert connector.rows is not None
    named = {"warehouse": f"file://{place}/warehouse"}
    options = sink_options(connector, (table, f"sqlite:///{place}/catalog.db"), named)
    return connector.rows(options, SinkPlace("best", schema, form, key))


def changes(form: str, *listed: tuple[int, Any, Any]) -> RowChanges:
    rows = pa.record_batch(
        [pa.array([i for _, i, _ in listed], pa.int64()), pa.array([n for _, _, n in listed], pa.string())],
        names=["item", "name"],
    )
    return RowChanges(form, np.array([op for op, _, _ in listed], np.uint8), rows, 0)


def rows(out: Any) -> list[tuple[Any, ...]]:
    found = out._table().scan().to_arrow().to_pylist()
    return sorted(((row["item"], row["name"]) for row in found), key=str)


def test_appended_rows_are_in_once(tmp_path: Path) -> None:
    first = pickle.loads(pickle.dumps(sink(tmp_path, "append")))
    first.prepare(SCHEMA)
    assert first.committed() == -1
    for epoch in (0, 0, 2, 1):
        first.commit(epoch, changes("append", (PUT, epoch, "a"), (PUT, epoch, "a")))
    first.commit(3, changes("append"))
    again = sink(tmp_path, "append")
    again.prepare(SCHEMA)
    assert again.committed() == 2
    assert rows(again) == [(0, "a"), (0, "a"), (2, "a"), (2, "a")]


@pytest.mark.parametrize("key", [("item",), ("item", "name")])
def test_upserts_are_one_row_per_key(tmp_path: Path, key: tuple[str, ...]) -> None:
    out = sink(tmp_path, "upsert", key)
    out.prepare(SCHEMA)
    out.commit(0, changes("upsert", (PUT, 1, "a"), (PUT, 2, "b"), (PUT, None, "n")))
    out.commit(1, changes("upsert", (DELETE, 1, "a"), (PUT, 2, "b"), (DELETE, 7, None), (PUT, None, "n")))
    out.commit(1, changes("upsert", (PUT, 5, "twice")))
    assert rows(out) == [(2, "b"), (None, "n")]


def test_changes_are_appended_in_their_order(tmp_path: Path) -> None:
    out = sink(tmp_path, "retract", ("item",))
    out.prepare(SCHEMA)
    out.commit(0, changes("retract", (PUT, 1, "a"), (PUT, 2, "b")))
    out.commit(3, changes("retract", (BEFORE, 1, "a"), (AFTER, 1, "c"), (DELETE, 2, "b")))
    out.commit(3, changes("retract", (PUT, 9, "twice")))
    found = out._table().scan().to_arrow().sort_by([("_epoch", "ascending"), ("_sequence", "ascending")]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (0, 0, "insert", 1, "a"), (0, 1, "insert", 2, "b"), (3, 0, "update_preimage", 1, "a"),
        (3, 1, "update_postimage", 1, "c"), (3, 2, "delete", 2, "b"),
    ]  # fmt: skip
    assert out.committed() == 3
    odd = Schema.of([("op", pa.string())])
    with pytest.raises(SinkError, match=r"form retract adds a column 'op'.*rename it"):
        sink(tmp_path, "retract", schema=odd).prepare(odd)


def test_other_columns_types_and_places_are_refused(tmp_path: Path) -> None:
    sink(tmp_path, "append").prepare(SCHEMA)
    other = Schema.of([("item", pa.string())])
    with pytest.raises(SinkError, match=r"other columns: expected \(item string\), found \(item long, name string\)"):
        sink(tmp_path, "append", schema=other).prepare(other)
    odd = Schema.of([("x", pa.uint32())])
    with pytest.raises(SinkError, match="'x' is uint32"):
        sink(tmp_path, "append", schema=odd).prepare(odd)
    with pytest.raises(SinkError, match=r"Iceberg table shop.best: cannot prepare it"):
        sink(tmp_path / "no" / "folder", "append").prepare(SCHEMA)
    with pytest.raises(QueryError, match="a table has a namespace"):
        sink(tmp_path, "append", table="best")
