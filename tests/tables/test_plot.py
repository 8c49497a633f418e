"""The picture of an answer: bars, what was taken back, CTIs; as Altair's specification."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everwhen as ew

DATED = ew.sql("CREATE STREAM T (ts TIMESTAMP, x INT) ORDERED BY ts; SELECT x FROM T WINDOW(RANGE 1 DAY)")


def corrected() -> ew.Answer:
    s = ew.source("S", {"x": "int64", "s": "string"})
    rows = [
        ew.Insert(1, 5, {"x": 2, "s": "a"}),
        ew.Insert(3, 8, {"x": None, "s": "y"}),
        ew.Adjust(3, 8, 6, {"x": None, "s": "y"}),
        ew.Insert(6, ew.INF, {"x": 4, "s": None}),
        ew.Cti(7),
    ]
    return ew.run(s, {"S": rows}, batch=1)


def dated() -> ew.Answer:
    return ew.run(DATED, {"T": pa.table({"ts": ["2024-05-01 12:00", "2024-05-01 18:00:00.5"], "x": [1, 2]})})


def test_a_picture_has_bars_corrections_and_ctis() -> None:
    chart = corrected().plot().to_dict()
    bars, taken, ctis = (layer["data"]["values"] for layer in chart["layer"])
    assert [(bar["from"], bar["to"], bar["lives"]) for bar in bars] == [
        (1, 5, "[1, 5)"),
        (3, 6, "[3, 6)"),
        (6, 8, "[6, ∞)"),
    ]
    assert [(bar["from"], bar["to"], bar["row"]) for bar in taken] == [(6, 8, "x=None, s=y")]
    assert ctis == [{"from": 7}]
    assert chart["layer"][0]["encoding"]["x"]["type"] == "quantitative"
    by = dated().plot(by="x", rows=1).to_dict()
    assert [bar["row"] for bar in by["layer"][0]["data"]["values"]] == ["1"]
    assert by["layer"][0]["encoding"]["x"]["type"] == "temporal"
    assert by["layer"][0]["data"]["values"][0]["from"] == "2024-05-01 12:00:00"
    with pytest.raises(ew.QueryError, match="there is no such column"):
        corrected().plot(by="z")


def test_an_answer_without_rows_is_an_empty_picture() -> None:
    empty = ew.run(ew.source("S", {"x": "int64"}), {"S": []}).plot().to_dict()
    assert [layer["data"]["values"] for layer in empty["layer"]] == [[], [], []]
