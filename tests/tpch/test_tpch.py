"""TPC-H's 22 queries as views over tables that change, judged by DuckDB at every instant."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from functools import cache
from typing import Any

import duckdb
import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.stream.element import Element, Insert
from everwhen.stream.history import History
from tpch.data import DECLARATIONS, Tables
from tpch.queries import TEXTS

SINGLE = ("q6", "q14", "q17", "q19")  # over nothing we say nothing
LIMITED = ("q2", "q3", "q10", "q18", "q21")

Row = tuple[Any, ...]


@cache
def tables(orders: int) -> Tables:
    return Tables(3, orders)


def keys_of(name: str) -> list[str]:
    """The columns by which the answer is ordered, if it is."""
    clause = re.search(r"ORDER BY ([^)]*?)(?: LIMIT \d+)?$", TEXTS[name])
    return [key.split()[0] for key in clause[1].split(", ")] if clause else []


def answered(name: str, given: Tables, batch: int, text: str | None = None) -> tuple[list[Element], ew.Schema]:
    """The elements of the answer; one that is put in order is given when it is final."""
    query = ew.sql(DECLARATIONS + (text or TEXTS[name]))
    reads = {node.name for node in n.walk(query.node) if isinstance(node, n.Source)}
    level = ew.STRONG if isinstance(query.node, n.Sort) else ew.MIDDLE
    return list(ew.run(query, {table: given.elements(table) for table in reads}, level, batch=batch)), query.schema


class Judge:
    """DuckDB over the tables at an instant."""

    def __init__(self, given: Tables) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        for name in given.rows:
            self.connection.register(f"{name}_", given.table(name))

    def at(self, name: str, t: int, columns: tuple[str, ...]) -> list[Row]:
        """The rows in their order; rows that are equal in the keys of a LIMIT are ordered by all columns, as ours."""
        for table in ("region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"):
            self.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * EXCLUDE (vs_, ve_) FROM {table}_ "
                f"WHERE vs_ <= {t} AND {t} < ve_"
            )
        text = TEXTS[name] + (" HAVING COUNT(*) > 0" if name in SINGLE else "")
        text = re.sub(r" (LIMIT \d+)$", f", {', '.join(columns)} \\1", text)
        return [plain(row) for row in self.connection.execute(text).fetchall()]


def plain(row: Row) -> Row:
    return tuple(
        value if value is None or isinstance(value, str | date) else float(f"{float(value):.9g}") for value in row
    )


def compare(name: str, orders: int, every: int, batch: int) -> None:
    """The snapshot is DuckDB's answer; where the query has an order of its own, rows come in that order, too."""
    given, judge = tables(orders), Judge(tables(orders))
    elements, schema = answered(name, given, batch)
    history, keys = History.of(elements, schema), [schema.index(key) for key in keys_of(name)]
    found = False
    for t in given.instants()[::every]:
        got = Counter({plain(row): times for row, times in history.snapshot(t).items()})
        wanted = judge.at(name, t, schema.names)
        assert got == Counter(wanted), f"{name} at {t}"
        found = found or bool(got)
        if keys and name not in LIMITED:
            alive = [e for e in elements if isinstance(e, Insert) and e.vs <= t < e.ve]
            said = [plain(tuple(e.row.values())) for e in alive]
            assert [[row[i] for i in keys] for row in said] == [[row[i] for i in keys] for row in wanted]
    assert found, f"{name} has no answer at all"


def test_orders_and_limits_are_those_of_the_standard() -> None:
    assert list(TEXTS) == [f"q{i}" for i in range(1, 23)]
    assert {name for name in TEXTS if not keys_of(name)} == set(SINGLE)
    limits = {name: int(text.rsplit(" ", 1)[1]) for name, text in TEXTS.items() if " LIMIT " in text}
    assert limits == {"q2": 100, "q3": 10, "q10": 20, "q18": 100, "q21": 100} and set(limits) == set(LIMITED)


@pytest.mark.parametrize("name", TEXTS)
def test_a_view_is_duckdb_s_answer(name: str) -> None:
    compare(name, 90, 29, 100)


@pytest.mark.parametrize("name", ["q2", "q3", "q10", "q18"])
def test_a_limit_that_cuts_is_duckdb_s_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the standard are more than small tables have rows."""
    monkeypatch.setitem(TEXTS, name, re.sub(r"LIMIT \d+$", "LIMIT 2", TEXTS[name]))
    compare(name, 120, 29, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_view_is_duckdb_s_answer_at_every_instant(name: str) -> None:
    compare(name, 90, 1, 7)
    compare(name, 1500, 12, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_that_cuts_is_duckdb_s_over_more_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEXTS, name, re.sub(r"LIMIT \d+$", "LIMIT 3", TEXTS[name]))
    compare(name, 1500, 12, 1000)
