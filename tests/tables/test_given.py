"""Inputs as elements: no Python for each row, columns that nobody needs are not read, times of any kind."""

from __future__ import annotations

import sys
import time
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.nodes import Source
from everwhen.core.row_times import RowTimes
from everwhen.core.schema import Schema
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.stream.element_batch import ElementBatch
from everwhen.tables.given import axis_of, batches_of, source_of

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
T = Source("T", SCHEMA, chronons=True, axis=TimeAxis(dated=True), times=RowTimes("ts"))


def rows(n: int) -> pd.DataFrame:
    ts = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), unit="s")
    return pd.DataFrame({"ts": ts, "k": np.array(["a", "b", None])[np.arange(n) % 3], "x": np.arange(n)})


def calls(given: Any) -> int:
    """How many functions are called, in Python or from it, to read an input."""
    count = 0

    def count_one(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(count_one)
    try:
        found = list(batches_of(given, T, 10**6))
    finally:
        sys.setprofile(None)
    assert sum(map(len, found)) == len(given if isinstance(given, pd.DataFrame) else pa.table(given))
    return count


KINDS: dict[str, Any] = {
    "pandas": lambda frame: frame,
    "text": lambda frame: frame.assign(ts=frame["ts"].astype(str)),
    "zones": lambda frame: pa.table(frame.assign(ts=frame["ts"].astype(str) + "+02:00")),
    "categories": lambda frame: frame.assign(k=frame["k"].astype("category")),
    "nullable": lambda frame: frame.convert_dtypes(),
    "polars": lambda frame: pl.from_pandas(frame),
    "arrow": lambda frame: pa.Table.from_pandas(frame),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_cost_no_python(kind: str) -> None:
    calls(KINDS[kind](rows(100)))  # what is imported on first use
    small, large = calls(KINDS[kind](rows(100))), calls(KINDS[kind](rows(20_000)))
    assert large < small + 200


@pytest.mark.slow
def test_a_million_rows_of_pandas_take_at_most_three_times_as_long_as_elements_in_arrow() -> None:
    """Measured: 1.6 times, with times as text 2.1."""
    n = 1_000_000
    frame = rows(n).assign(ts=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n) // 20, unit="s"))
    elements = pa.table({"vs": frame["ts"].astype("int64") // 10**6, "k": frame["k"], "x": frame["x"]})
    query = ew.Stream(T).range("1 hour", slide="1 hour").group_by("k").agg(total=ew.sum("x"))

    def taken(given: Any) -> float:
        before = time.process_time()
        assert ew.run(query, {"T": given}, ew.STRONG).to_pandas()["total"].sum() > 0
        return time.process_time() - before

    for given in (frame, elements, frame, elements):
        taken(given)  # compiled, and imported
    rounds = [(taken(frame), taken(elements)) for _ in range(5)]
    assert min(each[0] for each in rounds) <= 3 * min(each[1] for each in rounds)


def test_columns_that_nobody_needs_are_not_read() -> None:
    frame = rows(5).assign(odd=[{}, 1, "x", None, object()])
    assert sum(map(len, batches_of(frame, T, 10))) == 5
    read: list[str] = []
    lazy = (
        pl.from_pandas(rows(5))
        .lazy()
        .with_columns(pl.col("x").map_batches(lambda s: read.append("more") or s, return_dtype=pl.Int64).alias("more"))
    )
    assert sum(map(len, batches_of(lazy, T, 10))) == 5 and read == []


def test_numbers_of_polars_and_arrow_are_not_copied() -> None:
    numbers = Source("T", Schema.of([("x", pa.int64())]))
    frame = pl.DataFrame({"vs": np.arange(1000), "x": np.arange(1000)})
    (batch,) = batches_of(frame, numbers, 10**6)
    assert batch.columns[0].buffers()[1].address == frame["x"].to_arrow().buffers()[1].address


def test_an_answer_and_batches_are_taken_as_they_are() -> None:
    batch = ElementBatch.of([ew.Insert(1, 2, {"k": "a", "x": 1})], SCHEMA)
    assert list(batches_of(batch, T, 10)) == [batch]
    assert list(batches_of(iter([batch, batch]), T, 10)) == [batch, batch]
    assert list(batches_of(ew.Answer([batch]), T, 10)) == [batch]
    assert list(batches_of([], T, 10)) == []


def test_lines_of_elements_go_on_from_batch_to_batch() -> None:
    elements = [ew.Insert(t, t + 1, {"k": "a", "x": t}) for t in range(5)]
    assert [batch.line(0) for batch in batches_of(elements, T, 2)] == [1, 3, 5]


def test_the_columns_of_a_table_make_a_source() -> None:
    frame = rows(3).assign(nothing=None)
    described = ew.rows(frame, time="ts")
    for table in (frame, pl.from_pandas(frame), pl.from_pandas(frame).lazy(), duckdb.connect().from_df(frame)):
        found = source_of("T", ew.rows(table, time="ts"))
        assert found.schema.names == ("k", "x", "nothing") and found.chronons and found.axis.dated
    assert source_of("T", described).schema.types[2] == pa.string()
    assert source_of("T", ew.rows(frame)).kind == "constant"
    ends = source_of("T", ew.rows(pa.table({"a": [1], "b": [2], "x": [3]}), time="a", end="b"))
    assert not ends.chronons and not ends.axis.dated and ends.schema.names == ("x",)
    with pytest.raises(ew.InputError, match=r"T: there is no column 'when' \(there is ts, k, x, nothing\)"):
        source_of("T", ew.rows(frame, time="when"))
    with pytest.raises(ew.QueryError, match="T: a list has no columns to take"):
        source_of("T", [1])


def test_the_columns_of_a_file_make_a_source(tmp_path: Any) -> None:
    rows(3).to_csv(tmp_path / "t.csv", index=False)
    rows(3).to_parquet(tmp_path / "t.parquet")
    rows(3).to_json(tmp_path / "t.jsonl", orient="records", lines=True, date_format="iso")
    (tmp_path / "e.jsonl").write_text('{"vs":1,"row":{"k":"a","x":1}}\n')
    for name in ("t.csv", "t.parquet", "t.jsonl"):
        described = ew.rows(tmp_path / name, time="ts")
        query = ew.sql("SELECT k, x FROM T WHERE x > 1", T=described)
        assert ew.run(query, {"T": described}).snapshot("2024-01-01 00:00:02").to_pylist() == [{"k": None, "x": 2}]
    assert source_of("T", tmp_path / "e.jsonl").schema.names == ("k", "x")


def test_ticks_of_inputs_agree() -> None:
    coarse = Source("U", SCHEMA, axis=TimeAxis(10**9, dated=True), times=RowTimes("ts"))
    plain = Source("V", SCHEMA)
    assert axis_of([coarse, plain], {}) == TimeAxis(10**9, dated=True)
    assert axis_of([plain], {}) == TICKS
    with pytest.raises(ew.QueryError, match="ticks of different lengths: 1ms, 1s"):
        axis_of([T, coarse], {})


@pytest.mark.parametrize(("given", "said"), [(5, "an int"), ({"x": 1}, "a dict"), (None, "None"), (b"x", "a bytes")])
def test_what_is_no_input_is_told_with_what_is_one(given: Any, said: str) -> None:
    s = ew.source("S", {"x": "int64"})
    with pytest.raises(ew.QueryError, match=f"^S: {said} is no input; an input is a table .*, a path, elements, or "):
        list(ew.run(s, {"S": given}))
    with pytest.raises(ew.QueryError, match=f"^S: {said} has no columns to take; give a table or a path"):
        ew.sql("SELECT x FROM S", S=given)
