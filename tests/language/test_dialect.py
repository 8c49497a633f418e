"""What sql.md says under "Where dialects differ", and how coming-from.md sums up sessions."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import everwhen as ew
from everwhen.testing import history_of

HERE: dict[str, Any] = {
    "DATE '2026-03-03' - DATE '2026-03-01'": datetime.timedelta(days=2),
    "EXTRACT(SECOND FROM TIMESTAMP '2026-03-01 12:30:45.678')": 45,
    "left('abc', -1)": "",
    "right('abc', -1)": "",
    "concat('a', NULL)": None,
    "CAST(CAST('inf' AS REAL) AS TEXT)": "inf",
    "CAST(CAST('nan' AS REAL) AS TEXT)": "nan",
    "regexp_matches('abc', 'b')": True,
    "-7 % 3": 2,
    "-7 // 3": -3,
    "n / 0": None,
    "n % 0": None,
}


@pytest.mark.parametrize("expression", HERE)
@pytest.mark.parametrize("optimize", [True, False])
def test_what_an_expression_is_here(expression: str, optimize: bool) -> None:
    query = ew.sql(f"CREATE STREAM S (n INT); SELECT {expression} AS v FROM S", optimize=optimize)
    said = list(ew.run(query, {"S": [ew.Insert(1, 2, {"n": 1})]}))
    assert isinstance(said[0], ew.Insert)
    assert said[0].row["v"] == HERE[expression] and type(said[0].row["v"]) is type(HERE[expression])


@pytest.mark.parametrize(("aggregate", "expected"), [("ARG_MIN(x, y)", None), ("ARG_MAX(x, y)", 3), ("MIN(x)", 2)])
def test_arg_min_takes_the_row_even_if_its_value_is_null(aggregate: str, expected: int | None) -> None:
    rows = [(None, 1), (2, 5), (3, 9), (4, None)]
    given = [ew.Insert(1, 2, {"x": x, "y": y}) for x, y in rows]
    query = ew.sql(f"CREATE STREAM S (x INT, y INT); SELECT {aggregate} AS v FROM S")
    assert history_of(list(ew.run(query, {"S": given}))).snapshot(1) == {(expected,): 1}


def test_aggregates_per_session() -> None:
    query = ew.sql("""
        CREATE STREAM Visit (item INT, price REAL, t INT, at INT) ORDERED BY at;
        CREATE STREAM Begin AS SELECT item, t AS began FROM Visit v
          WHERE NOT EXISTS (SELECT 1 FROM Visit LIFETIME(SHIFT 1 LENGTH 3) w WHERE w.item = v.item);
        CREATE STREAM Told AS SELECT v.item, v.price, b.began FROM Visit v
          JOIN (SELECT item, MAX(began) AS began FROM Begin WINDOW(UNBOUNDED) GROUP BY item) b ON b.item = v.item;
        SELECT item, began, COUNT(*) AS bids, SUM(price) AS total FROM Told WINDOW(UNBOUNDED) GROUP BY item, began
    """)
    bids = [(1, 7, 10.0), (3, 8, 20.0), (4, 7, 12.5), (6, 7, 11.0), (9, 8, 25.0)]
    given = [ew.Insert(t, t + 1, {"item": item, "price": price, "t": t}) for t, item, price in bids]
    said = history_of(list(ew.run(query, {"Visit": given})))
    assert said.snapshot(8) == {(7, 1, 3, 33.5): 1, (8, 3, 1, 20.0): 1}
    assert said.snapshot(9) == {(7, 1, 3, 33.5): 1, (8, 3, 1, 20.0): 1, (8, 9, 1, 25.0): 1}
