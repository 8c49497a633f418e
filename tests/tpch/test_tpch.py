"""TPC-H's 22 queries as views over tables that change, judged by DuckDB at every instant."""

from __future__ import annotations

from collections import Counter
from datetime import date
from functools import cache
from typing import Any

import duckdb
import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.stream.history import History
from tpch.data import DECLARATIONS, Tables
from tpch.queries import TEXTS

SINGLE = ("q6", "q14", "q17", "q19")  # over nothing we say nothing


@cache
def tables(orders: int) -> Tables:
    return Tables(3, orders)


def answered(name: str, given: Tables, batch: int) -> History:
    query = ew.sql(DECLARATIONS + TEXTS[name])
    reads = {node.name for node in n.walk(query.node) if isinstance(node, n.Source)}
    return History.of(list(ew.run(query, {table: given.elements(table) for table in reads}, batch=batch)), query.schema)


class Judge:
    """DuckDB over the tables at an instant."""

    def __init__(self, given: Tables) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        for name in given.rows:
            self.connection.register(f"{name}_", given.table(name))

    def at(self, name: str, t: int) -> Counter[tuple[Any, ...]]:
        for table in ("region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"):
            self.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * EXCLUDE (vs_, ve_) FROM {table}_ "
                f"WHERE vs_ <= {t} AND {t} < ve_"
            )
        text = TEXTS[name] + (" HAVING COUNT(*) > 0" if name in SINGLE else "")
        return Counter(map(plain, self.connection.execute(text).fetchall()))


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value if value is None or isinstance(value, str | date) else float(f"{float(value):.9g}") for value in row
    )


def compare(name: str, orders: int, every: int, batch: int) -> None:
    given, judge = tables(orders), Judge(tables(orders))
    history = answered(name, given, batch)
    found = False
    for t in given.instants()[::every]:
        got = Counter({plain(row): times for row, times in history.snapshot(t).items()})
        assert got == judge.at(name, t), f"{name} at {t}"
        found = found or bool(got)
    assert found, f"{name} has no answer at all"


@pytest.mark.parametrize("name", TEXTS)
def test_a_view_is_duckdb_s_answer(name: str) -> None:
    compare(name, 60, 29, 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_view_is_duckdb_s_answer_at_every_instant(name: str) -> None:
    compare(name, 60, 1, 7)
    compare(name, 1500, 12, 1000)
