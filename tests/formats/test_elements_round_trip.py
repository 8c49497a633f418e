"""Elements survive both file formats to the last bit, whatever their types."""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.formats.json.lines import jsonlines, read_jsonlines, write_jsonlines
from everwhen.formats.parquet import read_elements, read_parquet, write_elements, write_parquet
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch, batch_of
from stream.element_strategies import PLAIN, VALUES, plain, streams


def with_at(batch: ElementBatch) -> ElementBatch:
    at = np.arange(len(batch), dtype=np.int64) * 3 - 4
    return ElementBatch(
        batch.schema, batch.op, batch.vs, batch.ve, batch.vnew, batch.columns, batch.promises, None, 1, None, at
    )


@given(stream=streams(), size=st.integers(1, 4), numbered=st.booleans())
def test_elements_survive_json_lines(stream: tuple[Schema, list[Element]], size: int, numbered: bool) -> None:
    schema, elements = stream
    batch = batch_of(elements, schema)
    batch = with_at(batch) if numbered else batch
    file = io.BytesIO()
    assert write_jsonlines([batch.slice(i, size) for i in range(0, len(batch), size)], file) == len(elements)
    file.seek(0)
    assert plain(read_jsonlines(file, schema, size)) == plain([batch])


@given(stream=streams(), size=st.integers(1, 4), numbered=st.booleans())
def test_elements_survive_parquet(stream: tuple[Schema, list[Element]], size: int, numbered: bool) -> None:
    schema, elements = stream
    assume("ve" not in schema)  # a column of ours
    batch = batch_of(elements, schema)
    batch = with_at(batch) if numbered else batch
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stream.parquet"
        pieces = [batch.slice(i, size) for i in range(0, len(batch), size)]
        assert write_parquet(pieces, path, schema) == len(elements)
        assert plain(read_parquet(path, size)) == plain([batch])
        assert plain(read_parquet(path, size, schema)) == plain([batch])
        assert [entry.name for entry in Path(folder).iterdir()] == ["stream.parquet"]


@given(stream=streams(PLAIN))
def test_the_written_file_tells_its_types_where_every_attribute_has_a_telling_value(
    stream: tuple[Schema, list[Element]],
) -> None:
    schema, elements = stream
    batch = batch_of(elements, schema)
    file = io.BytesIO("\n".join(jsonlines(batch)).encode())
    found = list(read_jsonlines(file))
    if found and all(_tells(column) for column in batch.columns):
        assert found[0].schema == schema
        assert plain(found) == plain([batch])


def _tells(column: pa.Array) -> bool:
    values = column.drop_null()
    if not len(values):
        return False
    if column.type == pa.float64():
        return bool(np.isfinite(values.to_numpy()).any())
    return column.type != pa.string() or any(v not in ("NaN", "Infinity", "-Infinity") for v in values.to_pylist())


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_a_column_of_nulls_survives(type_: pa.DataType, tmp_path: Path) -> None:
    schema = Schema.of([("x", type_)])
    batch = ElementBatch(
        schema, np.zeros(2, np.uint8), np.arange(2), np.arange(2) + 1, np.zeros(2, np.int64), (pa.nulls(2, type_),)
    )
    for name in ("x.jsonl", "x.parquet"):
        write_elements([batch], tmp_path / name)
        assert plain(read_elements(tmp_path / name, schema)) == plain([batch])


@pytest.mark.parametrize(
    "type_", [pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns"), pa.timestamp("ns", "Asia/Tokyo")]
)
def test_nanoseconds_survive_though_python_has_none(type_: pa.DataType, tmp_path: Path) -> None:
    column = pa.array([1, 999_999_999, None], pa.int64()).cast(type_)
    schema = Schema.of([("x", type_)])
    batch = ElementBatch(
        schema, np.zeros(3, np.uint8), np.arange(3), np.arange(3) + 1, np.zeros(3, np.int64), (column,)
    )
    for name in ("x.jsonl", "x.parquet"):
        write_elements([batch], tmp_path / name)
        (found,) = read_elements(tmp_path / name, schema)
        assert found.columns[0].equals(column)


def test_a_zone_survives_as_the_same_instant(tmp_path: Path) -> None:
    type_ = pa.timestamp("ms", "Europe/Berlin")
    column = pa.array([1_700_000_000_123], pa.int64()).cast(type_)
    batch = ElementBatch(
        Schema.of([("x", type_)]),
        np.zeros(1, np.uint8),
        np.arange(1),
        np.arange(1) + 1,
        np.zeros(1, np.int64),
        (column,),
    )
    (line,) = jsonlines(batch)
    assert '"x":"2023-11-14T22:13:20.123Z"' in line
    (found,) = read_jsonlines(io.StringIO(line), batch.schema)
    assert found.columns[0].equals(column)
