"""Parquet files of elements: which columns may be absent, what nulls mean, and errors that name the row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME
from everwhen.errors import InputError, QueryError
from everwhen.formats.parquet import contents_of, read_elements, read_parquet, write_elements, write_parquet
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of

X = Schema.of([("x", pa.int64())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stream.parquet"


def read(path: Path, columns: dict[str, Any], batch: int = 10_000, schema: Schema | None = None) -> list[Element]:
    pq.write_table(pa.table(columns), path)
    return [e for found in read_parquet(path, batch, schema) for e in found.elements()]


def test_only_vs_is_needed(path: Path) -> None:
    assert read(path, {"vs": [1, 5]}) == [Insert(1, 2, {}), Insert(5, 6, {})]
    assert read(path, {"vs": [1], "x": ["a"]}) == [Insert(1, 2, {"x": "a"})]


def test_a_null_end_is_infinity(path: Path) -> None:
    assert read(path, {"x": [1, 2], "vs": [1, 5], "ve": [None, 9]}) == [
        Insert(1, INF, {"x": 1}),
        Insert(5, 9, {"x": 2}),
    ]


def test_all_kinds_of_elements(path: Path) -> None:
    columns = {
        "op": ["insert", None, "adjust", "adjust", "cti", "cti", "punct", "punct", "external_cti"],
        "vs": [1, 2, 1, 2, 7, None, None, 5, 0],
        "ve": [3, None, 3, None, None, 4, None, 9, 8],
        "vnew": [None, 5, 1, None, None, None, None, None, None],
        "_match": [None] * 6 + ['{"x":{"in":[1,2]}}', "{}", None],
        "_count": [None] * 8 + [5],
        "x": [1, 2, 1, 2, None, None, None, None, None],
    }
    assert read(path, columns) == [
        Insert(1, 3, {"x": 1}),
        Insert(2, INF, {"x": 2}),
        Adjust(1, 3, 1, {"x": 1}),
        Adjust(2, INF, INF, {"x": 2}),
        Cti(7),
        Cti(INF),
        Punct(Punctuation({"x": OneOf((1, 2))})),
        Punct(Punctuation({}, 5)),
        ExternalCti(0, 8, 5),
    ]


def test_a_cti_at_infinity_without_an_end_column(path: Path) -> None:
    assert read(path, {"op": ["cti", "insert"], "vs": [None, 3]}) == [Cti(INF), Insert(3, 4, {})]


def test_small_integers_dictionaries_and_large_text(path: Path) -> None:
    columns = {
        "op": pa.array(["insert", "cti"]).dictionary_encode(),
        "vs": pa.array([1, 2], pa.int16()),
        "ve": pa.array([4, None], pa.uint32()),
        "x": pa.array(["a", None], pa.large_string()),
        "y": pa.array(["b", None]).dictionary_encode(),
    }
    assert read(path, columns) == [Insert(1, 4, {"x": "a", "y": "b"}), Cti(2)]
    assert contents_of(path).schema == Schema.of([("x", pa.string()), ("y", pa.string())])


def test_an_attribute_may_be_called_count_match_at_or_t(path: Path) -> None:
    row = {"count": 1, "match": "m", "at": 3, "t": 4}
    assert read(path, {"vs": [1], **{name: [value] for name, value in row.items()}}) == [Insert(1, 2, row)]


def test_a_schema_casts_and_adds_nulls(path: Path) -> None:
    schema = Schema.of([("y", pa.string()), ("x", pa.float64())])
    assert read(path, {"vs": [1], "x": [3]}, schema=schema) == [Insert(1, 2, {"y": None, "x": 3.0})]
    with pytest.raises(InputError, match="the column 'x' is not in the schema"):
        read(path, {"vs": [1], "x": [3]}, schema=Schema.of([("y", pa.string())]))


@pytest.mark.parametrize(
    ("columns", "row", "problem"),
    [
        ({"vs": [1, 2, None]}, 3, '"vs" is null'),
        ({"vs": [1, 2, 5], "ve": [9, 9, 5]}, 3, "[5, 5) is empty"),
        ({"vs": [1, 2, MAX_TIME + 1]}, 3, "out of range"),
        ({"vs": [1, 2, MAX_TIME]}, 3, "out of range"),
        ({"vs": [1, 2, 3], "ve": [4, 4, INF]}, 3, "out of range"),
        ({"vs": [1, 2, 3], "op": ["cti", "cti", "stop"]}, 3, "unknown op 'stop'"),
        ({"vs": [1, 2, 3], "op": ["cti", "cti", "adjust"]}, 3, "vnew"),
        (
            {"vs": [1, 2, 3], "ve": [4, 4, 4], "vnew": [0, 0, 2], "op": ["insert", None, "adjust"]},
            3,
            "before the start",
        ),
        ({"vs": [1, 2, 3], "op": ["cti", "cti", "external_cti"], "_count": [0, 0, 1]}, 3, "ve"),
        ({"vs": [1, 2, 3], "ve": [4, 4, 4], "op": ["cti", "cti", "external_cti"]}, 3, "count"),
        ({"vs": [1, 2, 3], "op": ["cti", "cti", "punct"]}, 3, '"match" must be an object'),
        ({"vs": [1, 2, 3], "op": ["cti", "cti", "punct"], "_match": [None, None, "{"]}, 3, "holds no JSON"),
        ({"vs": [1, 2, 3], "op": ["cti", "cti", "punct"], "_match": [None, None, '{"x":1}']}, 3, "which no row has"),
        ({"vs": [1, 2, 3], "_at": [1, 2, None]}, 3, '"_at" is null'),
        ({"vs": pa.array([1, 2, 2**63], pa.uint64())}, 3, "not of type INT"),
        ({"vs": [1, 2, None], "ve": [1, 3, 3]}, 1, "[1, 1) is empty"),
    ],
)
@pytest.mark.parametrize("batch", [2, 10_000])
def test_a_bad_row(path: Path, columns: dict[str, Any], row: int, problem: str, batch: int) -> None:
    with pytest.raises(InputError) as caught:
        read(path, columns, batch)
    assert caught.value.line == row
    assert problem in caught.value.problem
    assert str(caught.value).startswith(f"{path}:{row}: ")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"x": [1]}, 'no column "vs"'),
        ({"vs": [1.5]}, "'vs' is of type double"),
        ({"vs": [True]}, "'vs' is of type bool"),
        ({"vs": [1], "op": [1]}, "'op' is of type int64"),
        ({"vs": [1], "ve": pa.array([1], pa.time64("us"))}, "'ve' is of type time64"),
    ],
)
def test_a_bad_column(path: Path, columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(path, columns)


def test_a_file_that_is_no_parquet(path: Path) -> None:
    path.write_text('{"vs":1,"row":{}}\n')
    for reading in (lambda: list(read_parquet(path)), lambda: contents_of(path).schema):
        with pytest.raises(InputError, match="not a Parquet file"):
            reading()
    with pytest.raises(FileNotFoundError):
        list(read_parquet(path.with_name("no.parquet")))


def test_extra_columns_are_written_only_where_they_are_needed(path: Path) -> None:
    batch = batch_of([Insert(1, 2, {"x": 1})], X)
    write_parquet([batch, batch], path)
    assert pq.read_schema(path).names == ["op", "vs", "ve", "vnew", "x"]
    late = batch_of([ExternalCti(0, 3, 1)], X), batch_of([Punct(Punctuation({"x": OneOf((1,))}, 4))], X)
    assert write_parquet([batch, *late, batch], path) == 4
    assert pq.read_schema(path).names == ["op", "vs", "ve", "vnew", "_match", "_count", "x"]
    again = [e for found in read_parquet(path) for e in found.elements()]
    assert again == [e for found in (batch, *late, batch) for e in found.elements()]


def test_an_empty_stream_keeps_its_schema(path: Path) -> None:
    assert write_elements([], path, X) == 0
    assert contents_of(path).schema == X
    assert list(read_elements(path)) == []


def test_names_of_ours_are_refused_as_attributes(path: Path) -> None:
    with pytest.raises(QueryError, match="'ve'"):
        write_parquet([batch_of([Insert(1, 2, {"ve": 1})], Schema.of([("ve", pa.int64())]))], path)
    assert not path.exists()


def test_a_parquet_file_appears_whole_or_not_at_all(path: Path) -> None:
    def broken() -> Iterator[ElementBatch]:
        yield batch_of([Insert(1, 2, {"x": 1})], X)
        raise InputError("no more")

    path.write_text("old")
    with pytest.raises(InputError):
        write_parquet(broken(), path)
    assert path.read_text() == "old"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_ending_of_the_name_decides(tmp_path: Path) -> None:
    batch = batch_of([Insert(1, 2, {"x": 1}), Cti(INF)], X)
    for name in ("a.parquet", "a.PARQUET", "a.jsonl", "a"):
        write_elements([batch], tmp_path / name)
        assert [e for found in read_elements(tmp_path / name) for e in found.elements()] == list(batch.elements())
        assert contents_of(tmp_path / name).schema == X
    assert (tmp_path / "a.PARQUET").read_bytes()[:4] == b"PAR1"
    assert (tmp_path / "a").read_bytes()[:1] == b"{"
