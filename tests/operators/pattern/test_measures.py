"""What a match says, for every type and function."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

import everwhen as ew

p, col = ew.patterns, ew.col
S = ew.source(
    "S",
    {
        "k": "string",
        "x": "int32",
        "y": "float64",
        "d": "decimal(9, 2)",
        "t": "timestamp[ms]",
        "b": "bool",
        "u": "uint64",
    },
)
ROWS = [
    {"k": "b", "x": 3, "y": 1.5, "d": Decimal("2.50"), "t": datetime(2024, 1, 1), "b": True, "u": 2**63},
    {"k": None, "x": None, "y": None, "d": None, "t": datetime(2024, 1, 2), "b": None, "u": None},
    {"k": "a", "x": 4, "y": -2.0, "d": Decimal("1.25"), "t": datetime(2024, 1, 5), "b": False, "u": 1},
]


def said(**measures: object) -> dict[str, object]:
    """Of the match of all rows."""
    query = S.match_recognize("A B C", "t", measures=measures)
    (found,) = [e for e in ew.run(query, {"S": [ew.Insert(0, 9, row) for row in ROWS]}) if isinstance(e, ew.Insert)]
    return dict(found.row)


@pytest.mark.parametrize("name", ROWS[0])
def test_first_last_min_max_of_every_type(name: str) -> None:
    values = [row[name] for row in ROWS]
    there = [value for value in values if value is not None]
    found = said(
        f=p.first(name), m=p.last(f"B.{name}"), l=col(name), lo=p.min(name), hi=p.max(name), n=p.count(f"A.{name}")
    )
    assert found == {"f": values[0], "m": values[1], "l": values[2], "lo": min(there), "hi": max(there), "n": 1}  # type: ignore[type-var]


def test_sums_and_means_leave_nulls_out() -> None:
    found = said(
        s=p.sum("x"), y=p.sum("y"), none=p.sum("B.x"), a=p.avg("x"), m=p.avg("B.y"), n=p.count(col("x")), all=p.count()
    )
    assert found == {"s": 7, "y": -0.5, "none": None, "a": 3.5, "m": None, "n": 2, "all": 3}


def test_measures_may_be_computed() -> None:
    found = said(
        gap=p.last("t") - p.first("t"),
        text=ew.function("concat", p.first("k"), "-", col("k")),
        part=p.sum(col("x") * 2) / 4,
    )
    assert found == {"gap": timedelta(days=4), "text": "b-a", "part": 3.5}


def test_a_variable_without_rows_has_no_values() -> None:
    query = S.match_recognize(
        "A B?", "t", define={"B": ew.lit(False)}, measures={"n": p.count("B"), "k": p.first("B.k")}
    )
    rows = [e.row for e in ew.run(query, {"S": [ew.Insert(0, 9, ROWS[0])]}) if isinstance(e, ew.Insert)]
    assert rows == [{"n": 0, "k": None}]


def test_pieces_of_a_match_that_say_the_same_are_one() -> None:
    """A row that comes behind the match and goes again cuts its lifetime, not what is said."""
    query = S.match_recognize("A B*", "x", define={"B": col("b")}, measures={"k": p.first("k")})
    behind = {**ROWS[2], "x": 9}
    stream = [ew.Insert(0, 9, ROWS[0]), ew.Insert(3, 5, behind)]
    found = [str(e) for e in ew.run(query, {"S": stream}, emit="final")]
    assert found == ["insert [0, 9) k='b'", "insert [3, 5) k='a'", "cti ∞"]
