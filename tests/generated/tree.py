"""Queries as trees, and their texts in two dialects: ours, and DuckDB's over the snapshot of one instant.

An expression is a template with parts, so that the shrinker needs no knowledge of each kind.  `uses` names the
construct for the counts.  A `Stage` is what stands in FROM: a stream or a subquery, and what is done to its lifetimes.
Where these are changed, DuckDB reads a table with the snapshot of the instant by our own definition (`lifetimes.py`).

Types are letters: i whole numbers, s text, f floats that add up exactly, d decimals, g floats that are only shown,
b truth values, t timestamps, y dates, l lists of whole numbers, r structures of an i and an s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TYPES = {"i": "BIGINT", "s": "VARCHAR", "f": "DOUBLE", "d": "DECIMAL(9, 2)", "g": "DOUBLE", "b": "BOOLEAN"}
TYPES |= {"t": "TIMESTAMP", "y": "DATE"}
UNORDERED = "glr"
"""Types whose values have no order, or none that is exact: floats that are shown, lists, structures."""
LITERALS = {"i": "1", "s": "'a'", "f": "0.5", "d": "CAST(1 AS DECIMAL(9, 2))", "g": "CAST(1 AS DOUBLE)", "b": "TRUE"}
LITERALS |= {"t": "TIMESTAMP '2024-01-01 00:00:00'", "y": "DATE '2024-01-01'", "l": "[1]"}


@dataclass(frozen=True)
class Dialect:
    """How a query is written: `table` gives DuckDB's name for a stage; None: the text is ours."""

    table: Callable[[Stage], str] | None = None

    @property
    def ours(self) -> bool:
        return self.table is None


OURS = Dialect()


@dataclass(frozen=True)
class Node:
    def parts_of(self) -> Iterator[Node]:
        """The nodes right below."""
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Node):
                    yield part

    def walk(self) -> Iterator[Node]:
        yield self
        for part in self.parts_of():
            yield from part.walk()

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        """The text; `inside`: of a subquery in an expression, where an empty aggregate is a row."""
        raise NotImplementedError

    def constructs(self) -> Iterator[str]:
        """What the counts call it."""
        yield from ()


@dataclass(frozen=True)
class Expr(Node):
    template: str
    type: str
    parts: tuple[Node, ...] = ()
    uses: tuple[str, ...] = ()
    theirs: str | None = None
    """The template for DuckDB, where it is another."""

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        template = self.template if dialect.ours or self.theirs is None else self.theirs
        if not self.parts:
            return template
        return template.format(*(part.sql(dialect, isinstance(part, Query)) for part in self.parts))

    def constructs(self) -> Iterator[str]:
        yield from self.uses


def literal(type_: str, text: str | None = None) -> Expr:
    """A constant.  `0.5` is a float to us and a decimal to DuckDB, so DuckDB is told that it is a float.

    Otherwise it brings DECIMAL(3, 2) and DECIMAL(38, 1), the sum of such constants, together as DECIMAL(38, 1) in a
    UNION, CASE or COALESCE, and rounds 1.25.  Type d has one scale everywhere.
    """
    text = text or LITERALS[type_]
    return Expr(text, type_, theirs=f"CAST({text} AS DOUBLE)" if type_ == "f" else None)


@dataclass(frozen=True)
class Lifetimes:
    """What is done to the lifetimes of a stream, in this order: a conversion around it, then what stands behind it."""

    around: str | None = None
    """ISTREAM, DSTREAM, RSTREAM, INSERTS, DELETES, COALESCE."""
    window: tuple[str, int, int] | None = None
    """(now | range | unbounded | rows, length, slide); slide 0: none."""
    partition: tuple[str, ...] = ()
    granularity: int = 0
    lifetime: tuple[int, int, int, int] | None = None
    """(hop, align, shift, length); 0: left out."""

    @property
    def plain(self) -> bool:
        return self == Lifetimes()

    def behind(self) -> str:
        found = ""
        if self.window is not None:
            kind, length, slide = self.window
            by = f"PARTITION BY {', '.join(self.partition)} " if self.partition else ""
            size = "" if kind in ("now", "unbounded") else f" {length}"
            found += f" WINDOW({by}{kind.upper()}{size}{f' SLIDE {slide}' if slide else ''})"
        if self.granularity:
            found += f" GRANULARITY({self.granularity})"
        if self.lifetime is not None:
            words = zip(("HOP", "ALIGN", "SHIFT", "LENGTH"), self.lifetime, strict=True)
            found += f" LIFETIME({' '.join(f'{word} {n}' for word, n in words if n)})"
        return found

    def constructs(self) -> Iterator[str]:
        if self.around:
            yield f"around: {self.around}"
        if self.window is not None:
            kind, _, slide = self.window
            yield f"window: {kind}{' slide' if slide else ''}{' partition' if self.partition else ''}"
        if self.granularity:
            yield "window: granularity"
        if self.lifetime is not None:
            yield "window: lifetime"


@dataclass(frozen=True)
class Stage(Node):
    """A stream (by its name) or a subquery in FROM, under an alias; `named` lists its columns behind the alias."""

    of: str | Query
    alias: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    lifetimes: Lifetimes = Lifetimes()
    cte: bool = False
    merge: tuple[str, ...] = ()
    """Behind LMERGE: the other copies of it, then the words of WITH in one text, which may be empty."""

    def key(self) -> str:
        """What it reads, without its alias."""
        of = self.of if isinstance(self.of, str) else f"({self.of.sql(OURS)})"
        around = self.lifetimes.around
        if self.merge:
            *copies, words = self.merge
            of = f"LMERGE({', '.join((of, *copies))}{f' WITH {words}' if words else ''})"
            return (f"{around}({of})" if around else of) + self.lifetimes.behind()
        return (f"{around}({self.of if isinstance(self.of, str) else self.of.sql(OURS)})" if around else of) + (
            self.lifetimes.behind()
        )

    @property
    def own(self) -> tuple[str, ...]:
        """The types of what it reads."""
        return self.types

    @property
    def windowed(self) -> tuple[str, ...]:
        """The columns that its windows read."""
        return self.names

    def shaped(self, events: Any, given: Any) -> tuple[Any, Any]:
        """Its events, if they are known, and its snapshots, made of those of what it reads."""
        return events, given

    def ended(self, given: Any) -> Any:
        """What is made of its snapshots behind its windows."""
        return given

    @property
    def tabled(self) -> bool:
        """Whether DuckDB reads it from a table."""
        return not self.cte and (isinstance(self.of, str) or not self.lifetimes.plain)

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        columns = f"({', '.join(self.names)})"
        if dialect.table is not None and self.tabled:
            return f"{dialect.table(self)} {self.alias}{columns}"
        if isinstance(self.of, str) or (dialect.ours and (self.lifetimes.around or self.merge)):
            return f"{self.key()} {self.alias}"
        if dialect.ours:
            return f"{self.key()} {self.alias}{columns}"
        return f"({self.of.sql(dialect)}) {self.alias}{columns}"

    def constructs(self) -> Iterator[str]:
        yield from self.lifetimes.constructs()
        if self.merge:
            what = "queries" if isinstance(self.of, Query) else "streams"
            yield f"lmerge of {what}{' since' if any('SINCE' in each for each in self.merge) else ''}"
            yield from (f"lmerge: {word or 'no words'}" for word in self.merge[-1].split(", "))
        if isinstance(self.of, Query):
            yield "derived table" if self.lifetimes.plain else "derived table, windowed"
        elif self.cte:
            yield "reads WITH"
        else:
            yield f"reads {self.of}"
            if self.names[-1:] == ("ts",):
                yield "time as a column"


@dataclass(frozen=True)
class Join(Node):
    kind: str
    left: Node
    right: Node
    on: Expr | None = None
    using: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        left, right = self.left.sql(dialect), self.right.sql(dialect)
        if self.kind == "comma":
            return f"{left}, {right}"
        if isinstance(self.right, Join):
            right = f"({right})"
        word = {"inner": ""}.get(self.kind, self.kind.upper() + " ")
        if self.kind == "cross":
            return f"{left} CROSS JOIN {right}"
        behind = (
            f"USING ({', '.join(self.using)})" if self.using else f"ON {self.on.sql(dialect) if self.on else 'TRUE'}"
        )
        return f"{left} {word}JOIN {right} {behind}"

    def constructs(self) -> Iterator[str]:
        yield f"join: {self.kind}{' using' if self.using else ''}"
        yield from self.uses


@dataclass(frozen=True)
class Query(Node):
    @property
    def types(self) -> tuple[str, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class Select(Query):
    """`grouping`: none, all (aggregates without GROUP BY), keys.  `star`: our text says `*`, DuckDB's the columns."""

    items: tuple[Expr, ...]
    source: Node
    where: Expr | None = None
    keys: tuple[Expr, ...] = ()
    having: Expr | None = None
    grouping: str = "none"
    distinct: bool = False
    star: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(item.type for item in self.items)

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        shown = ", ".join(f"{item.sql(dialect)} AS c{at}" for at, item in enumerate(self.items))
        # one row is distinct; DuckDB 2.0 loses a row of nulls that SELECT DISTINCT gives inside LATERAL
        distinct = self.distinct and (dialect.ours or self.grouping != "all")
        text = f"SELECT {'DISTINCT ' if distinct else ''}{'*' if self.star and dialect.ours else shown}"
        text += f" FROM {self.source.sql(dialect)}"
        if self.where is not None:
            text += f" WHERE {self.where.sql(dialect)}"
        if self.keys:
            text += f" GROUP BY {', '.join(key.sql(dialect) for key in self.keys)}"
        having = [] if self.having is None else [self.having.sql(dialect)]
        if self.grouping == "all" and not inside and not dialect.ours:
            having.append("COUNT(*) > 0")  # over nothing we say nothing
        return text + (f" HAVING {' AND '.join(having)}" if having else "")

    def constructs(self) -> Iterator[str]:
        if self.distinct:
            yield "distinct"
        if self.star:
            yield "star"
            if any(isinstance(each, Join) and each.using for each in self.source.walk()):
                yield "star over using"
        if self.where is not None:
            yield "where"
        if self.grouping != "none":
            yield {"all": "aggregates without groups", "keys": "group by"}[self.grouping]
        if self.having is not None:
            yield "having"


@dataclass(frozen=True)
class SetOperation(Query):
    word: str
    left: Query
    right: Query

    @property
    def types(self) -> tuple[str, ...]:
        """A whole number beside a float is a float."""
        pairs = zip(self.left.types, self.right.types, strict=True)
        return tuple("f" if {a, b} == {"i", "f"} else a for a, b in pairs)

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        sides = [f"({each.sql(dialect, inside)})" for each in (self.left, self.right)]
        return f"{sides[0]} {self.word} {sides[1]}"

    def constructs(self) -> Iterator[str]:
        yield f"set: {self.word}"
        if self.left.types != self.right.types:
            yield "set of mixed types"


@dataclass(frozen=True)
class With(Query):
    """`WITH name(columns) AS (query) body`; the body reads it as a stage of that name."""

    name: str
    query: Query
    body: Query

    @property
    def types(self) -> tuple[str, ...]:
        return self.body.types

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        columns = ", ".join(f"c{at}" for at in range(len(self.query.types)))
        body = self.body.sql(dialect, inside)
        body = f"({body})" if body.startswith("WITH ") else body
        return f"WITH {self.name}({columns}) AS ({self.query.sql(dialect)}) {body}"

    def constructs(self) -> Iterator[str]:
        yield "with"


@dataclass(frozen=True)
class Recursive(Query):
    """`WITH RECURSIVE name(columns) AS (base UNION step) body`; step and body read it as a stage of that name."""

    name: str
    word: str
    base: Query
    step: Query
    body: Query

    @property
    def types(self) -> tuple[str, ...]:
        return self.body.types

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        columns = ", ".join(f"c{at}" for at in range(len(self.base.types)))
        union = f"{self.base.sql(dialect)} {self.word} {self.step.sql(dialect)}"
        return f"WITH RECURSIVE {self.name}({columns}) AS ({union}) {self.body.sql(dialect, inside)}"

    def constructs(self) -> Iterator[str]:
        yield f"recursion: {self.word}"
        source = self.step.source if isinstance(self.step, Select) else None
        yield f"recursion: {source.kind} join" if isinstance(source, Join) else "recursion: no join"


def constructs(query: Node) -> set[str]:
    """All constructs of a query, and how deep it is nested."""
    found = {name for node in query.walk() for name in node.constructs()}
    return found | {f"nested {min(depth(query), 4)}{' or more' if depth(query) >= 4 else ''}"}


def depth(node: Node) -> int:
    """Queries within queries."""
    below = max((depth(part) for part in node.parts_of()), default=0)
    return below + 1 if isinstance(node, Select) else below
