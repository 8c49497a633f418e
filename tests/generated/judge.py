"""DuckDB's answer to a query at every instant at which anything that it reads changes.

Streams, windowed, are tables with a column for the instant.  All instants are asked at once, the query as a lateral
subquery of the instants.  That is many times quicker than one question per instant, but leans on DuckDB's handling of
correlation; so what differs from it is asked again instant by instant before it counts (`each_instant`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from generated import lifetimes
from generated.lifetimes import FIRST, FOR_EVER, INSTANTS, Row, Snapshots
from generated.streams import SOURCES, World
from generated.tables import Constants
from generated.tree import Dialect, Query, Stage

_ARROW = {
    "i": pa.int64(),
    "s": pa.string(),
    "f": pa.float64(),
    "d": pa.decimal128(38, 2),
    "g": pa.float64(),
    "b": pa.bool_(),
    "t": pa.timestamp("us"),
    "y": pa.date32(),
    "l": pa.list_(pa.int64()),
    "r": pa.struct({"a": pa.int64(), "b": pa.string()}),
}
_COUNTER = itertools.count()

Answers = dict[int, Counter[Row]]


class Unanswered(Exception):
    """DuckDB has no answer: the query is beyond it."""


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def rounded(value: Any) -> Any:
    """Values as they are compared: whole numbers whatever their type, floats to nine digits."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return tuple((name, rounded(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(rounded, value))
    if isinstance(value, Decimal):
        value = float(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    return int(value) if value == int(value) else float(f"{value:.9g}")


def comparable(row: Row) -> Row:
    return tuple(map(rounded, row))


class Judge:
    """The answers over one world; tables are kept for all queries of it.  `close` drops them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stages: dict[tuple[str, int], Snapshots] = {}
        self._tables: dict[tuple[str, int], str] = {}

    def close(self) -> None:
        for name in self._tables.values():
            _connection().execute(f"DROP TABLE {name}")
        self._tables.clear()

    def answers(self, query: Query) -> Answers:
        """By the instants at which something changes; between two of them the answer stands."""
        return self._answers(query, self._at_once)

    def each_instant(self, query: Query) -> Answers:
        """The same, asked instant by instant."""
        return self._answers(query, self._one_by_one)

    def _answers(self, query: Query, ask: Callable[[Query, list[int]], Answers]) -> Answers:
        instants = self._changes(query)
        try:
            return ask(query, instants)
        except duckdb.Error as error:
            if isinstance(error, duckdb.FatalException | duckdb.InternalException):  # it has lost its database
                _connection.cache_clear()
                self._tables.clear()
            if ask != self._one_by_one:
                return self._answers(query, self._one_by_one)
            raise Unanswered(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error

    def _at_once(self, query: Query, instants: list[int]) -> Answers:
        values = ", ".join(f"({t})" for t in instants)
        text = f"SELECT i_.t_, z_.* FROM (VALUES {values}) i_(t_), LATERAL ({self._text(query, 'i_.t_')}) z_"
        found: Answers = {t: Counter() for t in instants}
        for t, *row in _connection().execute(text).fetchall():
            found[t][comparable(tuple(row))] += 1
        return found

    def _one_by_one(self, query: Query, instants: list[int]) -> Answers:
        return {
            t: Counter(comparable(row) for row in _connection().execute(self._text(query, str(t))).fetchall())
            for t in instants
        }

    def _text(self, query: Query, instant: str) -> str:
        def table(stage: Stage) -> str:
            columns = ", ".join(f"c{at}" for at in range(len(stage.types)))
            return f"(SELECT {columns} FROM {self._table(stage)} WHERE t_ = {instant})"

        return query.sql(Dialect(table))

    def _changes(self, query: Query) -> list[int]:
        used = [self.snapshots(stage) for stage in _tabled(query)]
        found = [FIRST]
        for at, t in enumerate(INSTANTS):
            if at and any(each[at] != each[at - 1] for each in used):
                found.append(t)
        return found

    def snapshots(self, stage: Stage) -> Snapshots:
        """What a stage shows at each instant."""
        key = _known_by(stage)
        if key not in self._stages:
            events: list[lifetimes.Event] | None = None
            if isinstance(stage, Constants):
                given = lifetimes.snapshots([(0, FOR_EVER, row) for row in stage.values])
            elif isinstance(stage.of, str):
                events = self._world.events(stage.of)
                if len(stage.own) > len(SOURCES[stage.of].names):  # with the time of its rows
                    events = [(vs, ve, (*row, vs)) for vs, ve, row in events]
                given = lifetimes.snapshots(events)
            else:
                given = self._dense(stage.of)
            events, given = stage.shaped(events, given)
            self._stages[key] = stage.ended(lifetimes.changed(events, given, stage.lifetimes, stage.windowed))
        return self._stages[key]

    def _dense(self, query: Query) -> Snapshots:
        known = self.answers(query)
        found: Snapshots = []
        for t in INSTANTS:
            found.append(known[t] if t in known else found[-1])
        return found

    def _table(self, stage: Stage) -> str:
        key = _known_by(stage)
        if key not in self._tables:
            rows = [(t, row) for t, now in zip(INSTANTS, self.snapshots(stage), strict=True) for row in now.elements()]
            columns = {"t_": pa.array([t for t, _ in rows], pa.int64())}
            for at, type_ in enumerate(stage.types):
                columns[f"c{at}"] = _array([row[at] for _, row in rows], type_)
            name = f"w{next(_COUNTER)}"
            connection = _connection()
            connection.register("given_", pa.table(columns))
            connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM given_")
            connection.unregister("given_")
            self._tables[key] = name
        return self._tables[key]


def _known_by(stage: Stage) -> tuple[str, int]:
    """A stage by what it reads; with the time of its rows it has one more column."""
    return stage.key(), len(stage.types)


def _array(values: list[Any], type_: str) -> pa.Array:
    match type_:
        case "f" | "g":
            values = [None if v is None else float(v) for v in values]
        case "t":
            values = [datetime.fromisoformat(v) if isinstance(v, str) else v for v in values]
        case "y":
            values = [date.fromisoformat(v) if isinstance(v, str) else v for v in values]
        case "r":
            values = [None if v is None else dict(v) for v in values]
        case "d":
            values = [None if v is None else Decimal(str(v)).quantize(Decimal("0.01")) for v in values]
    return pa.array(values, _ARROW[type_])


def _tabled(query: Query) -> Iterator[Stage]:
    """The stages that DuckDB reads as tables; what is within them is not looked at."""
    waiting: list[Any] = [query]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Stage) and node.tabled:
            yield node
        else:
            waiting += node.parts_of()
