"""Other forms of generated queries: NATURAL JOIN, keys of mixed types, more subqueries as values, LIMIT by what is not
shown and inside of subqueries, conversions around a whole query, VALUES as a query, groups by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from generated.expressions import Reach
from generated.grammar import SETS, Grammar
from generated.ranks import limited
from generated.scopes import Scope, joined, of_stage, reads, usable
from generated.streams import SOURCES
from generated.tables import Constants
from generated.tree import UNORDERED, Dialect, Expr, Join, Lifetimes, Node, Query, Select, SetOperation, Stage

_ROWS = {"i": ("0", "1", "2", "NULL"), "s": ("'a'", "'b'", "NULL")}


@dataclass(frozen=True)
class Natural(Join):
    """NATURAL JOIN; DuckDB is told the columns."""

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        if not dialect.ours:
            return super().sql(dialect, inside)
        word = {"inner": ""}.get(self.kind, self.kind.upper() + " ")
        return f"{self.left.sql(dialect)} NATURAL {word}JOIN {self.right.sql(dialect)}"

    def constructs(self) -> Iterator[str]:
        yield f"natural join: {self.kind}"


@dataclass(frozen=True)
class Shown(Query):
    """All of a stage: `ISTREAM(query)` or `VALUES (…)` as a query."""

    stage: Stage

    @property
    def types(self) -> tuple[str, ...]:
        return self.stage.types

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        if dialect.ours:
            text = self.stage.key()
            return text[1:-1] if isinstance(self.stage, Constants) else text
        columns = ", ".join(f"{name} AS c{at}" for at, name in enumerate(self.stage.names))
        return f"SELECT {columns} FROM {self.stage.sql(dialect)}"

    def constructs(self) -> Iterator[str]:
        yield "values as a query" if isinstance(self.stage, Constants) else "conversion around a query"


@dataclass(frozen=True)
class First(Query):
    """`SELECT … ORDER BY expressions LIMIT n`; what it is ordered by need not be shown."""

    query: Select
    keys: tuple[Expr, ...]
    ways: tuple[str, ...]
    limit: int
    on: bool = False
    """DISTINCT ON the first key."""

    @property
    def types(self) -> tuple[str, ...]:
        return self.query.types

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        text = self.query.sql(dialect)
        keys = [f"{key.sql(dialect)} {way}" for key, way in zip(self.keys, self.ways, strict=True)]
        if not dialect.ours:
            keys += [f"c{at} NULLS FIRST" for at in range(len(self.types))]
        if self.on:
            text = text.replace("SELECT", f"SELECT DISTINCT ON ({self.keys[0].sql(dialect)})", 1)
        return f"{text} ORDER BY {', '.join(keys)} LIMIT {self.limit}"

    def constructs(self) -> Iterator[str]:
        yield "distinct on an expression" if self.on else "limit by an expression"


@dataclass(frozen=True)
class ByPlace(Select):
    """Groups by the positions of its first columns."""

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        text = super().sql(dialect, inside)
        if not dialect.ours or self.items[: len(self.keys)] != self.keys:
            return text
        head, _, tail = text.rpartition(f" GROUP BY {', '.join(key.sql(dialect) for key in self.keys)}")
        places = ", ".join(str(1 + at) for at in range(len(self.keys)))
        return f"{head} GROUP BY {places}{tail}"

    def constructs(self) -> Iterator[str]:
        yield from super().constructs()
        yield "group by a position"


class Forms(Grammar):
    """Draws these forms."""

    def query(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Query, bool]:
        if depth > 0 and self.chance(0.05):
            left, ends = self.query(depth - 1, outer, types)
            if set(left.types) <= set(_ROWS):
                word = self.rng.choice(("UNION", "UNION ALL", "EXCEPT ALL", "INTERSECT"))
                return SetOperation(word, left, self._values(left.types)), False
            return left, ends
        if depth > 0 and types is None and self.chance(0.05):
            left, ends = self.query(depth - 1, outer)
            turned = "".join({"i": "f", "f": "i"}[t] if t in "if" and self.chance(0.6) else t for t in left.types)
            right, also = self.query(depth - 1, outer, turned)
            sides = (left, right) if self.chance(0.5) else (right, left)
            return SetOperation(self.rng.choice(SETS), *sides), ends and also
        if depth > 0 and not outer and self.chance(0.05):
            query, ends = self.query(depth - 1, outer, types)
            starred = any(getattr(each, "star", False) for each in query.walk())
            if not starred and not self._reads_with(query):
                word = self.rng.choice(("ISTREAM", "DSTREAM", "RSTREAM") if ends else ("ISTREAM", "DSTREAM"))
                names = tuple(f"c{at}" for at in range(len(query.types)))
                return Shown(Stage(query, self._alias(), names, query.types, Lifetimes(word))), True
            return query, ends
        if depth >= 0 and self.chance(0.12 if outer else 0.05) and (types is None or "b" not in types):
            query, ends = super().query(0, outer, types)
            if type(query) is Select and query.grouping == "none" and not query.star and not query.distinct:
                return self._first(query), ends
            return query, ends
        return super().query(depth, outer, types)

    def _first(self, query: Select) -> Query:
        """The first rows of a plain SELECT by columns of FROM."""
        stages = [query.source] if isinstance(query.source, Stage) else []
        columns = [
            Expr(f"{each.alias}.{name}", type_)
            for each in stages
            for name, type_ in zip(each.names, each.types, strict=True)
            if type_ in "isfdty"
        ]
        if not columns or set(query.types) & set(UNORDERED):
            return query
        if any(use.startswith("over") for item in query.items for part in item.walk() for use in part.constructs()):
            return query
        keys = tuple(self.rng.sample(columns, min(len(columns), self.rng.choice((1, 1, 2)))))
        ways = tuple(self.rng.choice(("", "DESC ")) + f"NULLS {self.rng.choice(('FIRST', 'LAST'))}" for _ in keys)
        return First(query, keys, ways, self.rng.randint(1, 3), self.chance(0.3))

    def _values(self, types: Sequence[str]) -> Query:
        rows = tuple(tuple(self.rng.choice(_ROWS[t]) for t in types) for _ in range(self.rng.randint(0, 2)))
        rows = (tuple(_ROWS[t][1] for t in types), *rows)
        names = tuple(f"c{at}" for at in range(len(types)))
        return Shown(Constants("VALUES", self._alias(), names, tuple(types), rows=rows))

    def select(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Select, bool]:
        found, ends = super().select(depth, outer, types)
        keyed = type(found) is Select and found.keys and found.items[: len(found.keys)] == found.keys
        if keyed and self.chance(0.3):
            return ByPlace(**{each.name: getattr(found, each.name) for each in fields(Select)}), ends
        return found, ends

    # -- joins ----------------------------------------------------------------------------------------------------

    def _joined(self, left: Node, scope: Scope, depth: int, commas: bool) -> tuple[Node, Scope, bool]:
        plain = isinstance(left, Stage) and scope.shown is not None
        if plain and self.chance(0.08):
            right, theirs = self._source(depth - 1)
            both = tuple(name for name in scope.bare if name in theirs.bare)
            fits = both and all(usable(name, scope, theirs) for name in both)
            if fits and isinstance(right, Stage) and theirs.shown is not None:
                kind = self.rng.choice(("inner", "left", "right", "full"))
                return Natural(kind, left, right, using=both), joined(scope, theirs, both), commas
        return super()._joined(left, scope, depth, commas)

    def _on(self, left: Scope, right: Scope) -> tuple[Expr, tuple[str, ...]]:
        pairs = [
            (a, b) for a in left.qualified for b in right.qualified if {a.type, b.type} in ({"i", "f"}, {"i", "d"})
        ]
        if not pairs or not self.chance(0.3):
            return super()._on(left, right)
        a, b = self.rng.choice(pairs)
        return Expr(f"{{0}} {self.rng.choice(('=', '=', '<', 'IS NOT DISTINCT FROM'))} {{1}}", "b", (a, b)), (
            "on: mixed types",
        )

    # -- subqueries as values -------------------------------------------------------------------------------------

    def _scalar(self, around: Reach, type_: str) -> tuple[Query, bool]:
        outer = (*around.outer, *around.passed) if self.chance(0.7) else ()
        if not self.chance(0.35):
            return super()._scalar(around, type_)
        kind = self.rng.choice(("last row", "key", "limit"))
        if kind == "limit":
            query, _ = self.select(0, outer, type_)
            first = self._first(query) if query.grouping == "none" and not query.distinct else query
            if isinstance(first, First):
                return replace(first, limit=1, on=False), reads(query, outer)
            if not outer:
                return replace(limited(self.rng, query), limit=1, ties=False, on=None), False
            return super()._scalar(around, type_)
        alias = self._alias()
        names = [name for name in ("AKR" if kind == "last row" else "KKR") if type_ in SOURCES[name].types]
        if not names:
            return super()._scalar(around, type_)
        source = SOURCES[self.rng.choice(names)]
        how = Lifetimes(window=("rows", 1, 0)) if kind == "last row" else Lifetimes()
        stage = Stage(source.name, alias, source.names, source.types, how)
        scope = of_stage(alias, source.names, source.types, False)
        item = self.rng.choice(scope.of(type_))
        where = None
        if kind == "key":
            asked = self.leaf("i", Reach(outer)) if outer else self.constant("i")
            where = Expr("{0} = {1}", "b", (scope.columns[0], asked))
        if (where is None and self.chance(0.4)) or (where is not None and self.chance(0.3)):
            more = self.condition(Reach(scope.columns, outer, depth=0), 0)
            where = more if where is None else Expr("({0} AND {1})", "b", (where, more))
        query = Select((replace(item, uses=(f"value: {kind}",)),), stage, where)
        return query, reads(query, outer)
