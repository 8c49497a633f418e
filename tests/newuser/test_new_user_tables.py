"""P5 and P6 of the new user's report: tables and paths in Python, and columns that are missing or not declared."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import everwhen as ew

DECLARED = "CREATE STREAM T (ts TIMESTAMP, symbol TEXT, value INT) ORDERED BY ts;"
QUERY = f"{DECLARED} SELECT symbol, COUNT(*) AS n, SUM(value) AS total FROM T WINDOW(RANGE 1 HOUR) GROUP BY symbol"
STAMPS = ["2015-02-26 21:42:53", "2015-02-26 21:47:53", "2015-02-26 22:30:00", "2015-02-26 23:59:59"]
COLUMNS: dict[str, list[Any]] = {"ts": STAMPS, "symbol": ["A", "B", "A", "B"], "value": [10, 20, 30, 40]}


def frame(**more: Any) -> pd.DataFrame:
    columns = {**COLUMNS, "ts": pd.to_datetime(STAMPS), **more}
    return pd.DataFrame(columns, index=[7, 7, 8, 9])


def answer(given: Any) -> list[dict[str, Any]]:
    return ew.run(ew.sql(QUERY), {"T": given}).to_arrow().to_pylist()


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    rows = [
        ew.Insert(int(pd.Timestamp(ts).value // 10**6), int(pd.Timestamp(ts).value // 10**6) + 1, dict(row))
        for ts, *values in zip(STAMPS, COLUMNS["symbol"], COLUMNS["value"], strict=True)
        for row in [zip(("symbol", "value"), values, strict=True)]
    ]
    found = answer(rows)
    assert [row["total"] for row in found] == [10, 20, 40, 30, 40]
    return found


# -- P5: "A pandas DataFrame, and a CSV path, in Python" ---------------------------------------------------------------


def relation() -> Any:
    there = frame()
    return duckdb.connect().from_df(there)


TABLES: dict[str, Any] = {
    "pandas": frame,
    "pandas, text": lambda: frame(ts=STAMPS),
    "pandas, nullable": lambda: frame().convert_dtypes(),
    "pandas, categories": lambda: frame(symbol=pd.Categorical(COLUMNS["symbol"])),
    "pandas, arrow": lambda: frame().convert_dtypes(dtype_backend="pyarrow"),
    "pandas, a zone": lambda: frame(ts=pd.to_datetime(STAMPS).tz_localize("UTC").tz_convert("Asia/Tokyo")),
    "polars": lambda: pl.from_pandas(frame()),
    "polars, lazy": lambda: pl.from_pandas(frame()).lazy(),
    "polars, categories": lambda: pl.from_pandas(frame()).with_columns(pl.col("symbol").cast(pl.Categorical)),
    "polars, small": lambda: pl.from_pandas(frame()).with_columns(pl.col("value").cast(pl.UInt8)),
    "polars, text": lambda: pl.DataFrame(COLUMNS),
    "duckdb": relation,
    "arrow": lambda: pa.table(COLUMNS),
    "arrow, large text": lambda: pa.table({**COLUMNS, "symbol": pa.array(COLUMNS["symbol"], pa.large_string())}),
    "arrow, a dictionary": lambda: pa.table({**COLUMNS, "symbol": pa.array(COLUMNS["symbol"]).dictionary_encode()}),
    "arrow, unsigned": lambda: pa.table({**COLUMNS, "value": pa.array(COLUMNS["value"], pa.uint64())}),
    "arrow, chunks": lambda: pa.concat_tables([pa.table(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)]),
    "a batch": lambda: pa.record_batch(COLUMNS),
    "a reader": lambda: pa.table(COLUMNS).to_reader(max_chunksize=3),
    "batches": lambda: pa.table(COLUMNS).to_batches(max_chunksize=3),
    "rows()": lambda: ew.rows(frame(), time="ts"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_any_kind(kind: str, expected: list[dict[str, Any]]) -> None:
    assert answer(TABLES[kind]()) == expected


def test_a_path_of_any_kind(tmp_path: Path, expected: list[dict[str, Any]]) -> None:
    frame().to_csv(tmp_path / "tweets.csv", index=False)
    frame().to_parquet(tmp_path / "tweets.parquet")
    frame(ts=STAMPS).to_json(tmp_path / "tweets.jsonl", orient="records", lines=True)
    for name in ("tweets.csv", "tweets.parquet", "tweets.jsonl"):
        assert answer(str(tmp_path / name)) == expected
        assert answer(tmp_path / name) == expected


def test_a_changelog_folder(tmp_path: Path) -> None:
    s = ew.source("S", {"x": "int64"})
    (tmp_path / "s.jsonl").write_text('{"vs":1,"ve":5,"row":{"x":2}}\n{"op":"cti","t":null}\n')
    ew.follow(s, {"S": tmp_path / "s.jsonl"}, tmp_path / "log", checkpoint=tmp_path / "point")
    assert ew.run(s, {"S": tmp_path / "log"}).to_arrow().to_pylist() == [{"vs": 1, "ve": 5, "x": 2}]


def test_columns_vs_and_ve_are_lifetimes(expected: list[dict[str, Any]]) -> None:
    """`InputError: the lifetime [0, 0) is empty`, with `vs`/`ve` columns present as well."""
    s = ew.source("T", {"x": "int64"})
    table = pd.DataFrame({"op": ["insert", "adjust", "cti"], "vs": [1, 1, 9], "ve": [5, 5, None], "vnew": [0, 3, None]})
    table["x"] = pd.array([7, 7, None], dtype="Int64")
    assert [str(e) for e in ew.run(s, {"T": table})][-1] == "cti ∞"
    assert ew.run(s, {"T": table}).to_arrow().to_pylist() == [{"vs": 1, "ve": 3, "x": 7}]
    again = ew.run(ew.sql(QUERY), {"T": frame()})
    kept = ew.source("U", {"symbol": "string", "n": "int64", "total": "int64"})
    for given in (again, again.to_arrow(), again.to_pandas(), again.to_polars(), again.to_arrow(changes=True)):
        found = ew.run(kept, {"U": given})
        assert found.to_arrow(times="ticks") == again.to_arrow(times="ticks")
        assert found.to_arrow() == again.to_arrow()


def test_missing_values_are_null() -> None:
    s = ew.source("T", {"i": "int64", "f": "float64", "s": "string", "b": "bool"})
    table = pd.DataFrame({"vs": [1, 2], "i": [1, np.nan], "f": [0.5, np.nan], "s": ["x", None], "b": [True, None]})
    (_, row) = ew.run(s, {"T": table}).to_arrow().to_pylist()
    assert row == {"vs": 2, "ve": 3, "i": None, "f": None, "s": None, "b": None}
    other = table.convert_dtypes()
    assert str(other["i"].dtype) == "Int64"
    assert ew.run(s, {"T": other}).to_arrow().to_pylist()[1] == row


def test_the_answer_is_no_bare_generator(expected: list[dict[str, Any]]) -> None:
    """No `to_pandas`, no `to_arrow`, no `_repr_html_` on queries or results."""
    query = ew.sql(QUERY)
    found = ew.run(query, {"T": frame()})
    assert "Aggregate by symbol" in query._repr_html_() and "<pre>" in query._repr_html_()
    assert found.to_arrow().to_pylist() == expected
    as_pandas = found.to_pandas()
    assert str(as_pandas["total"].dtype) == "int64" and str(as_pandas["vs"].dtype) == "datetime64[ms, UTC]"
    assert found.to_polars().rows(named=True) == expected
    assert found.to_duckdb().fetchall() == [tuple(row.values()) for row in expected]
    assert "<td>2015-02-26 21:42:53</td>" in found._repr_html_()
    assert found.snapshot("2015-02-26 22:35:00").sort_by("symbol").to_pylist() == [
        {"symbol": "A", "n": 2, "total": 40},
        {"symbol": "B", "n": 1, "total": 20},
    ]


@pytest.mark.parametrize("least", [0, 10**9])
def test_an_answer_without_an_end_is_shown_as_far_as_it_has_come(least: int) -> None:
    taken = [0]

    def endless() -> Any:
        for t in itertools.count():
            taken[0] = t
            yield ew.Insert(t, t + 1, {"x": t})

    query = ew.sql(f"SELECT x FROM S WHERE x >= {least}", ew.source("S", {"x": "int64"}))
    found = ew.run(query, {"S": endless()}, batch=1_000)
    began = time.monotonic()
    shown = found._repr_html_()
    assert time.monotonic() - began < 30 and taken[0] < 10**7
    assert " so far" in shown and shown.endswith("the answer goes on</p>")
    assert shown.count("<tr>") == (21 if least == 0 else 1)
    assert "the answer goes on" in str(found)
    if least == 0:
        assert next(found) == ew.Insert(0, 1, {"x": 0}), "what was shown is still to be read"


def test_elements_are_still_computed_one_by_one() -> None:
    read: list[int] = []

    def source() -> Any:
        for t in range(5):
            read.append(t)
            yield ew.Insert(t, t + 1, {"x": t})

    found = ew.run(ew.source("S", {"x": "int64"}), {"S": source()}, batch=1)
    assert repr(found) == "<Answer (x int64), not read yet>"
    assert str(next(found)) == "insert [0, 1) x=0"
    assert len(read) < 5
    assert [str(element) for element in found][-2:] == ["insert [4, 5) x=4", "cti ∞"]
    assert len(list(found.elements())) == 6 and list(found) == []


def test_declared_relations_are_tables_too() -> None:
    query = ew.sql(f"""{DECLARED}
        CREATE CONSTANT RELATION Names (symbol TEXT, name TEXT);
        CREATE TEMPORAL RELATION Weight
            (symbol TEXT, weight INT, since TIMESTAMP, until TIMESTAMP, PERIOD (since, until));
        SELECT n.name, t.value * w.weight AS value FROM T t
        JOIN Names n ON n.symbol = t.symbol JOIN Weight w ON w.symbol = t.symbol""")
    names = pl.DataFrame({"symbol": ["A", "B"], "name": ["Apple", "Boeing"], "more": [1, 2]})
    since = pd.to_datetime(["2015-01-01 00:00", "2015-02-26 22:00", "2015-01-01 00:00"])
    weights = pd.DataFrame({"symbol": ["A", "A", "B"], "weight": [1, 5, 2], "since": since})
    weights["until"] = pd.to_datetime(["2015-02-26 22:00", None, None])
    found = ew.run(query, {"T": frame(), "Names": names, "Weight": weights}).to_arrow()
    assert found.column("value").to_pylist() == [10, 40, 150, 80]
    assert found.column("name").to_pylist() == ["Apple", "Boeing", "Apple", "Boeing"]


# -- columns without a declaration -------------------------------------------------------------------------------------


def test_a_query_over_a_table_without_a_declaration_takes_its_columns() -> None:
    seen = ew.rows(frame(), time="ts")
    names = pd.DataFrame({"symbol": ["A", "B"], "name": ["Apple", "Boeing"]})
    query = ew.sql(
        """SELECT name, SUM(value) AS total FROM T WINDOW(RANGE 1 HOUR), Names
           WHERE T.symbol = Names.symbol GROUP BY name""",
        T=seen,
        Names=ew.rows(names),
    )
    found = ew.run(query, {"T": seen, "Names": ew.rows(names)})
    assert found.snapshot("2015-02-26 22:35:00").sort_by("name").to_pylist() == [
        {"name": "Apple", "total": 40},
        {"name": "Boeing", "total": 20},
    ]
    with pytest.raises(ew.InputError, match=r"T: there is no column \"vs\".*T=ew\.rows\(…, time='ts'\)"):
        ew.sql("SELECT symbol FROM T", T=frame())


def test_the_fluent_form_takes_a_table_and_the_name_of_its_time() -> None:
    s = ew.source("T", {"symbol": "string"})
    found = ew.run(s, {"T": ew.rows(pl.from_pandas(frame()), time="ts")})
    assert found.to_pandas()["vs"].iloc[0] == pd.Timestamp("2015-02-26 21:42:53", tz="UTC")
    lives = pd.DataFrame({"a": [1, 2], "b": [5, None], "symbol": ["x", "y"]})
    kept = ew.run(s, {"T": ew.rows(lives, time="a", end="b")})
    assert kept.to_arrow().to_pylist() == [{"vs": 1, "ve": 5, "symbol": "x"}, {"vs": 2, "ve": None, "symbol": "y"}]


# -- P6: "A declared column that the CSV does not have is null, silently" ----------------------------------------------


def written(tmp_path: Path, table: pd.DataFrame) -> dict[str, Any]:
    """The same rows in each form that there is."""
    table = table.assign(ts=STAMPS[: len(table)])
    table.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), tmp_path / "t.parquet")
    table.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"row":{line}}}\n' for line in lines))
    files = {path.name: path for path in tmp_path.iterdir()}
    return {**files, "pandas": table, "polars": pl.from_pandas(table), "duckdb": duckdb.connect().from_df(table)}


def test_a_declared_column_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    for name, given in written(tmp_path, frame().drop(columns="value")).items():
        with pytest.raises(
            ew.InputError, match=r"the declared column 'value' is (not in the (file|table)|in no row)"
        ) as caught:
            answer(given)
        assert ("T: " if not isinstance(given, Path) else name) in str(caught.value)


def test_a_column_that_is_not_declared_is_left_alone(tmp_path: Path, expected: list[dict[str, Any]]) -> None:
    for given in written(tmp_path, frame(extra=[1.5, 2.5, None, 4], other=list("wxyz"))).values():
        assert answer(given) == expected
    odd = frame(extra=[{}, "x", 1, None])  # no column that Arrow could have
    assert answer(odd) == expected


def test_what_is_no_input() -> None:
    s = ew.source("T", {"x": "int64"})
    for wrong, name in ((5, "an int"), ({"x": [1]}, "a dict"), ([5], "an int")):
        with pytest.raises(ew.QueryError, match=f"T: {name} is no (input|element); an input is a table"):
            list(ew.run(s, {"T": wrong}))
    with pytest.raises(ew.InputError, match=r"T: the frame cannot be read: .*convert it with astype"):
        list(ew.run(s, {"T": pd.DataFrame({"vs": [1, 2], "x": [1, "a"]})}))
    with pytest.raises(ew.QueryError, match="needs time="):
        ew.rows(frame(), end="ts")
