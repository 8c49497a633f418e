"""DuckDB as the judge of a query: at every instant the answer must be DuckDB's on the windowed snapshots."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

import everwhen as ew
from everwhen.core.time import INF
from everwhen.language.catalog import Catalog, Entry
from everwhen.language.program import program
from everwhen.reference.evaluation import evaluate
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import reorder
from language.query_shapes import SHAPES, TABLES

SOURCES = (
    ew.source("A", {"k": "int64", "v": "int64", "s": "string"}),
    ew.source("B", {"k": "int64", "w": "int64", "s": "string"}),
    ew.source("R", {"k": "int64", "label": "string"}, kind="constant"),
)
CATALOG = Catalog({stream.node.name: Entry(stream.node.name, stream.node) for stream in SOURCES})  # type: ignore[attr-defined]
LAST = 40


@cache
def written(text: str) -> ew.Stream:
    """A query as it is written, not rewritten."""
    return program(text, CATALOG).query


def ours(name: str) -> str:
    """The shape in our language."""
    return SHAPES[name].format(**TABLES)


def theirs(name: str) -> str:
    """The shape in DuckDB's."""
    text = SHAPES[name].format(**{key: f'"{key}"' for key in TABLES})
    return f"{text} HAVING COUNT(*) > 0" if name.startswith("*") else text


def histories(seed: int, chronons: bool) -> dict[str, History]:
    """Random events with nulls, ties and duplicates; R is constant."""
    rng = random.Random(seed)
    found = {}
    for stream in SOURCES:
        name = stream.node.name  # type: ignore[attr-defined]
        elements: list[Element] = []
        for i in range(4 if name == "R" else rng.randint(6, 12)):
            row = {field.name: _value(field.name, rng) for field in stream.schema}
            if name == "R":
                elements.append(Insert(0, INF, {"k": i, "label": rng.choice("xyz")}))
                continue
            vs = rng.randint(0, 14)
            length = 1 if chronons or rng.random() < 0.3 else rng.randint(1, 6)
            elements += [Insert(vs, vs + length, row)] * (2 if rng.random() < 0.2 else 1)
        found[name] = History.of([batch_of(elements, stream.schema, name)])
    return found


def _value(column: str, rng: random.Random) -> Any:
    if rng.random() < 0.2:
        return None
    return rng.choice(("a", "ab", "b", "")) if column == "s" else rng.randint(0, 3)


def physical(given: Mapping[str, History], seed: int) -> dict[str, list[Element]]:
    """The histories as streams with disorder, corrections and CTIs; the constant relation comes first, whole."""
    found: dict[str, list[Element]] = {}
    for name, history in given.items():
        elements = list(reorder(history, random.Random(seed), infinite=False))
        if name == "R":
            elements = [*(e for e in elements if not isinstance(e, Cti)), Cti(INF)]
        found[name] = elements
    return found


class Judge:
    """DuckDB's answer to a shape over given histories, at each instant; it is asked once where anything changes."""

    def __init__(self, given: Mapping[str, History]) -> None:
        self._streams = {}
        for key, text in TABLES.items():
            self._streams[key] = evaluate(written(f"SELECT * FROM {text} x").node, given)
        self._connection = duckdb.connect(config={"threads": 1})
        self._schemas = {key: written(f"SELECT * FROM {text} x").schema for key, text in TABLES.items()}
        self.instants = list(range(-1, LAST))
        self._known: dict[str, list[tuple[int, Counter]]] = {}

    def answers(self, name: str) -> list[tuple[int, Counter]]:
        if name not in self._known:
            self._known[name] = list(self._asked(name))
        return self._known[name]

    def _asked(self, name: str) -> Iterator[tuple[int, Counter]]:
        text = theirs(name)
        used = [key for key in TABLES if f'"{key}"' in text]
        before, answer = None, Counter[Any]()
        for t in self.instants:
            now = [self._streams[key].at(t) for key in used]
            if now != before:
                for key, rows in zip(used, now, strict=True):
                    self._connection.register(key, self._table(key, rows))
                answer = Counter(tuple(map(rounded, row)) for row in self._connection.execute(text).fetchall())
                before = now
            yield t, answer

    def _table(self, key: str, rows: Counter) -> pa.Table:
        schema = self._schemas[key]
        every = [row for row, count in rows.items() for _ in range(count)]
        return pa.table(
            {field.name: pa.array([row[i] for row in every], field.type) for i, field in enumerate(schema.fields)}
        )


def rounded(value: Any) -> Any:
    """Values as they are compared: floats to nine digits, whole numbers whatever their type."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return int(value) if value == int(value) else float(f"{value:.9g}")
    return value
