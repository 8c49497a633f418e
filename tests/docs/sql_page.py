"""The SQL of a document: which streams it declares, what its examples answer, what its tables claim.

A page is read from top to bottom.

* A `sql` block with no `text` block behind it declares; what it declares is there for the rest of the page.
* A `text` block whose first line is `Name:` is the history of that stream, as a table of elements.
* A `sql` block and the `text` block behind it are an example and its answer: a table of the canonical history, or the
  message of the error.  What it declares itself is forgotten afterwards.
* A table headed `example` and `value` has an expression and its value in each line, over the relation `One`, or over
  another one: `example over Num`.
* A table headed `query` and `message` has queries that are refused.

One tick is a second in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import everwhen as ew
from doc_examples import Block, blocks
from everwhen.algebra.nodes import Source, walk
from everwhen.core.schema import Schema
from everwhen.core.time import show as show_time
from everwhen.errors import QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.catalog import Catalog
from everwhen.language.parse import parse
from everwhen.language.program import declare
from everwhen.stream.history import History

TICK: Final = "1s"
_DATA: Final = re.compile(r"(\w+):\n")
_ROW: Final = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class World:
    """What a query of the page may read: the streams declared so far, and their elements."""

    catalog: Catalog
    elements: Mapping[str, Any]

    def answer(self, text: str) -> tuple[Schema, History]:
        """The query's answer as a history in canonical form."""
        query = ew.sql(text, self.catalog, tick=TICK)
        said = ew.run(query, self.read_by(query), ew.STRONG)
        return query.schema, History.of(list(said), query.schema).coalesced()

    def read_by(self, query: ew.Stream) -> dict[str, Any]:
        """The inputs of a query."""
        return {node.name: self.elements[node.name] for node in walk(query.node) if isinstance(node, Source)}


@dataclass(frozen=True)
class Example:
    """A query, what the page says comes of it, and the line of the page on which the query starts."""

    line: int
    text: str
    expected: str
    world: World

    def shown(self) -> str:
        """The answer as the page should print it."""
        try:
            return as_table(*self.world.answer(self.text))
        except QueryError as error:
            return str(error)


@dataclass(frozen=True)
class Claim:
    """A line of a table: `left` is an expression over `relation`, or a query if that is None."""

    line: int
    left: str
    right: str
    relation: str | None


@dataclass
class Page:
    """Everything in SQL that a document says."""

    world: World
    examples: list[Example] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    declarations: list[Block] = field(default_factory=list)

    @classmethod
    def read(cls, document: Path) -> Page:
        page = cls(World(Catalog(), {}))
        found = [block for block in blocks(document) if block.language in ("sql", "text")]
        for block, behind in zip(found, [*found[1:], None], strict=True):
            data = _DATA.match(block.text) if block.language == "text" else None
            answered = behind is not None and behind.language == "text" and not _DATA.match(behind.text)
            if data is not None:
                page._data(data[1], block)
            elif block.language == "sql" and behind is not None and answered:
                page.examples.append(Example(block.line, block.text, behind.text.rstrip(), page.world))
            elif block.language == "sql":
                page._declare(block)
        page.claims = list(_claims(document))
        return page

    def _declare(self, block: Block) -> None:
        catalog = self.world.catalog
        for statement in parse(block.text):
            assert not isinstance(statement, s.Ask), f"line {block.line}: a query without an answer"
            catalog = declare(statement, block.text, catalog, TICK)
        self.declarations.append(block)
        self.world = World(catalog, self.world.elements)

    def _data(self, name: str, block: Block) -> None:
        entry = self.world.catalog.stream(name)
        assert entry is not None, f"line {block.line}: {name} is not declared"
        table = block.text.partition("\n")[2].replace("NULL", "    ")
        stream = ew.testing.stream_from_table(table, entry.node.schema)
        self.world = World(self.world.catalog, {**self.world.elements, entry.name: stream})

    def texts(self) -> Iterator[str]:
        """Every text on the page that is SQL and can be parsed."""
        yield from (block.text for block in self.declarations)
        yield from (example.text for example in self.examples if not example.expected.startswith("line "))
        yield from (f"SELECT {c.left} FROM {c.relation}" for c in self.claims if c.relation is not None)

    def values(self, relation: str) -> dict[Claim, str]:
        """The value of every expression that the page has over a relation, by one query."""
        claims = [claim for claim in self.claims if claim.relation == relation]
        columns = ", ".join(f"{claim.left} AS c{i}" for i, claim in enumerate(claims))
        _, history = self.world.answer(f"SELECT {columns} FROM {relation}")
        (event,) = history.events()
        return {claim: literal(value) for claim, value in zip(claims, event[2], strict=True)}

    def message(self, claim: Claim) -> str:
        """What is said of a query that is refused."""
        try:
            ew.sql(claim.left, self.world.catalog, tick=TICK)
        except SqlError as error:
            return error.problem
        return "(not refused)"


def _claims(document: Path) -> Iterator[Claim]:
    header: list[str] = []
    fenced = False
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip().replace("\\|", "|").strip("`").strip() for cell in _ROW.split(line)[1:-1]]
        if not header:
            header = cells
        elif set(line) <= set("|-: "):
            continue
        elif header[-1] == "value" and header[-2].startswith("example"):
            yield Claim(number, cells[-2], cells[-1], header[-2].partition(" over ")[2] or "One")
        elif header[-2:] == ["query", "message"]:
            yield Claim(number, cells[-2], cells[-1], None)


def as_table(schema: Schema, history: History) -> str:
    """A history as the page prints it."""
    rows = [["vs", "ve", *schema.names]]
    rows += [[show_time(vs), show_time(ve), *map(plain, row)] for vs, ve, row in history.events()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(" | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def plain(value: Any) -> str:
    """A value in a table."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case list() | tuple():
            return "[" + ", ".join(map(plain, value)) + "]"
    return str(value)


def literal(value: Any) -> str:
    """A value as it would be written in a query."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NaN" if value != value else plain(value)
