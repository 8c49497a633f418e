"""The answer of a query: read once, kept, as tables of any kind, at an instant."""

from __future__ import annotations

import sys
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.tables import answer as module
from everwhen.tables.optional import MissingPackageError

S = ew.source("S", {"x": "int64", "s": "string"})
ROWS = [
    ew.Insert(1, 5, {"x": 2, "s": "<b>&"}),
    ew.Insert(3, 8, {"x": None, "s": "y"}),
    ew.Adjust(3, 8, 6, {"x": None, "s": "y"}),
    ew.Insert(6, ew.INF, {"x": 4, "s": None}),
    ew.Cti(7),
]
DATED = ew.sql("CREATE STREAM T (ts TIMESTAMP, x INT) ORDERED BY ts; SELECT x FROM T WINDOW(RANGE 1 DAY)")


def answer(**how: Any) -> ew.Answer:
    return ew.run(S, {"S": ROWS}, **{"batch": 1, **how})


def dated() -> ew.Answer:
    return ew.run(DATED, {"T": pa.table({"ts": ["2024-05-01 12:00", "2024-05-01 18:00:00.5"], "x": [1, 2]})})


def test_corrections_are_applied() -> None:
    expected = [
        {"vs": 1, "ve": 5, "x": 2, "s": "<b>&"},
        {"vs": 3, "ve": 6, "x": None, "s": "y"},
        {"vs": 6, "ve": None, "x": 4, "s": None},
    ]
    found = answer()
    assert found.to_arrow().to_pylist() == expected == found.history().to_pylist()
    changes = found.to_arrow(changes=True).to_pylist()
    assert [row["op"] for row in changes] == ["insert", "insert", "adjust", "insert", "cti", "cti"]
    assert changes[2] == {"op": "adjust", "vs": 3, "ve": 8, "vnew": 6, "x": None, "s": "y"}


def test_whole_numbers_stay_whole_in_pandas() -> None:
    found = answer().to_pandas()
    assert [str(type_) for type_ in found.dtypes] == ["int64", "Int64", "Int64", "object"]
    assert found["x"].tolist() == [2, pd.NA, 4]
    assert str(answer(open=True).to_pandas(changes=True)["x"].dtype) == "Int64"
    flags = ew.run(
        ew.source("F", {"b": "bool", "u": "uint8"}), {"F": pa.table({"vs": [1, 2], "b": [True, None], "u": [1, None]})}
    )
    assert [str(type_) for type_ in flags.to_pandas().dtypes[2:]] == ["boolean", "UInt8"]


def test_other_packages_read_it_by_arrow() -> None:
    found = answer()
    assert (
        pl.DataFrame(found).rows()
        == found.to_polars().rows()
        == [tuple(r.values()) for r in found.to_arrow().to_pylist()]
    )
    assert pa.table(found) == found.to_arrow()


@pytest.mark.parametrize(
    ("t", "rows"),
    [
        (1714564800000, [1]),
        ("2024-05-01 12:00", [1]),
        ("2024-05-01T14:00:00+02:00", [1]),
        (datetime(2024, 5, 1, 18, 0, 0, 500_000), [1, 2]),
        (pd.Timestamp("2024-05-01 20:00"), [1, 2]),
        (np.datetime64("2024-05-02T12:00"), [2]),
        (date(2024, 5, 2), [1, 2]),
        (date(2024, 5, 3), []),
        ("1714564799999", []),
    ],
)
def test_a_snapshot_at_any_kind_of_instant(t: Any, rows: list[int]) -> None:
    assert dated().snapshot(t).column("x").to_pylist() == rows


@pytest.mark.parametrize("t", [True, None, 1.5, "noon", 2**70])
def test_what_is_no_instant(t: Any) -> None:
    with pytest.raises(ew.QueryError):
        dated().snapshot(t)


def test_numbers_of_ticks_are_no_timestamps() -> None:
    assert answer().snapshot(3).num_rows == 2 and answer().snapshot("3").num_rows == 2
    with pytest.raises(ew.QueryError, match="is a timestamp, and the times of this answer are numbers"):
        answer().snapshot("2024-05-01")
    assert dated().to_arrow(times="ticks").column("vs").to_pylist() == [1714564800000, 1714586400500]
    with pytest.raises(ew.QueryError, match="there are 'auto' and 'ticks'"):
        dated().to_arrow(times="iso")  # type: ignore[arg-type]


def test_what_was_iterated_over_is_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer(batch=1)
    assert len(list(found)) == 6 and found.to_arrow().num_rows == 3
    monkeypatch.setattr(module, "KEPT", 2)
    found = answer(batch=1)
    begun = found.elements()
    assert len(list(found)) == 6
    for late in (found.to_arrow, found.elements, found.batches, lambda: list(begun)):
        with pytest.raises(ew.QueryError, match="not kept; ask for the table first"):
            late()
    assert answer(batch=1).to_arrow().num_rows == 3  # a table keeps all


def test_a_failure_is_not_the_end_of_the_answer() -> None:
    found = ew.run(S, {"S": [*ROWS, ew.Insert(2, 3, {"x": 1, "s": "late"})]}, batch=1)
    for _ in range(2):
        with pytest.raises(ew.InputError, match="S:6: an insert that starts at 2"):
            found.to_arrow()
    wrong = ew.run(S, {"S": ROWS[:1]})
    assert wrong.to_arrow().num_rows == 1
    with pytest.raises(ew.QueryError, match="no input for S"):
        ew.run(S, {})


def test_an_order_of_rows_is_kept() -> None:
    query = ew.sql("SELECT x FROM S ORDER BY x DESC", ew.source("S", {"x": "int64"}))
    rows = [ew.Insert(t, t + 1, {"x": x}) for t, x in ((1, 2), (2, 9), (3, 5))]
    found = ew.run(query, {"S": rows}, ew.STRONG)
    assert found.to_arrow().column("x").to_pylist() == [
        e.row["x"] for e in found.elements() if isinstance(e, ew.Insert)
    ]


def test_how_it_looks() -> None:
    found = answer()
    assert repr(found) == "<Answer (x int64, s string), not read yet>"
    shown = found._repr_html_()
    assert "<td>&lt;b&gt;&amp;</td>" in shown and "<b>" not in shown
    assert "<td>6</td><td>∞</td><td>4</td><td>null</td>" in shown
    assert "3 rows; 1 correction applied; all of it final" in shown
    assert repr(found) == "<Answer (x int64, s string), 6 elements>"
    assert str(answer(open=True)).endswith("3 rows; 1 correction applied; final before 7")
    many = ew.run(ew.source("S", {"x": "int64"}), {"S": [ew.Insert(i, i + 1, {"x": i}) for i in range(30)]}, open=True)
    assert many._repr_html_().count("<tr>") == 21
    assert "30 rows, the first 20 shown; no corrections applied; nothing is final yet" in many._repr_html_()
    assert "final before 2024-05-01 12:00" not in dated()._repr_html_()


def test_columns_that_have_the_names_of_times() -> None:
    taken = ew.run(S.select(vs=ew.col("x")), {"S": ROWS})
    assert taken.snapshot(3).num_rows == 2
    with pytest.raises(ew.QueryError, match="a column named 'vs' has no place"):
        taken.to_arrow()


def test_batches_of_a_session_are_an_answer() -> None:
    session = ew.SqlSession()
    session.execute("CREATE STREAM S (x INT)")
    session.start("q", "SELECT SUM(x) AS total FROM S")
    schema = session.schema_of("S")
    said = [session.push({"S": ew.ElementBatch.of([ew.Insert(t, t + 5, {"x": t})], schema)})["q"] for t in (1, 3)]
    said.append(session.close()["q"])
    assert ew.Answer(said).snapshot(4).to_pylist() == [{"total": 4}]
    assert ew.Answer(said, tick="1s", dated=True).snapshot("1970-01-01 00:00:04").to_pylist() == [{"total": 4}]
    assert ew.Answer([]).to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("method", "name", "remedy"),
    [("to_polars", "polars", "polars"), ("to_duckdb", "duckdb", "duckdb"), ("plot", "altair", r"everwhen\[plot\]")],
)
def test_a_package_that_is_not_there(method: str, name: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=rf"{method}\(\) needs {name}.*pip install '{remedy}'"):
        getattr(answer(), method)()
