"""A grammar with tables that are made in the text, and with dates and timestamps; the plain one draws as it did.

VALUES, UNNEST and series, LATERAL, ASOF JOIN, subqueries in ON; columns of the types t (timestamp) and y (date)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from generated.expressions import Reach
from generated.grammar import Grammar
from generated.scopes import Scope, column, joined, of_stage
from generated.streams import SOURCES
from generated.tree import Dialect, Expr, Join, Node, Query, Select, Stage

_TEXTS = {"i": ("0", "1", "2", "3", "-2", "NULL"), "s": ("'a'", "'b'", "''", "NULL")}


@dataclass(frozen=True)
class Constants(Stage):
    """VALUES in FROM.  To DuckDB it is a table: constant rows begin at 0."""

    rows: tuple[tuple[str, ...], ...] = ()

    def key(self) -> str:
        rows = [", ".join(row) for row in self.rows]
        return f"(VALUES {', '.join(f'({row})' for row in rows)})"

    @property
    def values(self) -> list[tuple[object, ...]]:
        found = [[None if text == "NULL" else text.strip("'") for text in row] for row in self.rows]
        kinds = [int if type_ == "i" else str for type_ in self.types]
        return [tuple(None if v is None else kind(v) for v, kind in zip(row, kinds, strict=True)) for row in found]

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        columns = f"({', '.join(self.names)})"
        of = self.key() if dialect.table is None else dialect.table(self)
        return f"{of} {self.alias}{columns}"

    def constructs(self) -> Iterator[str]:
        yield "values"


@dataclass(frozen=True)
class Made(Node):
    """A table behind others that may read them: UNNEST, a series, LATERAL."""

    source: Node
    made: Expr
    alias: str
    names: tuple[str, ...]
    outer: bool = False

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        made = f"{self.made.sql(dialect)} {self.alias}({', '.join(self.names)})"
        left = self.source.sql(dialect)
        if any(isinstance(each, Join) and each.kind == "comma" for each in self.source.walk()):
            return f"{left}, {made}"
        return f"{left} LEFT JOIN {made} ON TRUE" if self.outer else f"{left} CROSS JOIN {made}"


class TablesGrammar(Grammar):
    """Draws tables of the text, dates and timestamps."""

    # -- FROM -----------------------------------------------------------------------------------------------------

    def from_clause(self, depth: int) -> tuple[Node, Scope]:
        source, scope = super().from_clause(depth)
        for _ in range(self.rng.choices((0, 1, 2), (6, 4, 1))[0]):
            source, scope = self._made(source, scope, depth)
        return source, scope

    def _made(self, source: Node, scope: Scope, depth: int) -> tuple[Node, Scope]:
        alias = self._alias()
        commas = any(isinstance(each, Join) and each.kind == "comma" for each in source.walk())
        outer = not commas and self.chance(0.3)
        reach = Reach(scope.qualified, depth=0)
        kind = self.rng.choice(("unnest", "unnest", "series", "range", "lateral"))
        if kind == "lateral" and depth > 0:
            query, _ = self.query(min(depth - 1, 1), scope.qualified)
            made = Expr("LATERAL ({0})", "i", (query,), ("lateral",))
            names = tuple(f"c{at}" for at in range(len(query.types)))
            return self._with_made(source, scope, Made(source, made, alias, names, outer), query.types)
        if kind in ("series", "range"):
            word = "generate_series" if kind == "series" else "range"
            ends = (self.expr("i", reach, 0), self.expr("i", reach, 0))
            made = Expr(f"{word}({{0}}, {{1}}, 2)" if self.chance(0.4) else f"{word}({{0}}, {{1}})", "i", ends, (word,))
            return self._with_made(source, scope, Made(source, made, alias, ("x",), outer), ("i",))
        type_ = self.rng.choice([t for t in "iisty" if t in {each.type for each in scope.columns}] or ["i"])
        parts: tuple[Node, ...] = tuple(self.expr(type_, reach, 0) for _ in range(self.rng.randint(1, 3)))
        template = f"[{', '.join(f'{{{at}}}' for at in range(len(parts)))}]"
        if self.chance(0.3):
            template = f"CASE WHEN {{{len(parts)}}} THEN {template} END"
            parts = (*parts, self.condition(reach, 0))
        placed = self.chance(0.3)
        made = Expr(
            f"UNNEST({template}){' WITH ORDINALITY AS' if placed else ''}",
            type_,
            parts,
            ("unnest", *(("unnest with ordinality",) if placed else ()), *(("unnest, outer",) if outer else ())),
        )
        types = (type_, "i") if placed else (type_,)
        return self._with_made(source, scope, Made(source, made, alias, ("x", "o")[: len(types)], outer), types)

    def _with_made(self, source: Node, scope: Scope, made: Made, types: tuple[str, ...]) -> tuple[Node, Scope]:
        new = of_stage(made.alias, made.names, types, scope.ends)
        return made, replace(joined(scope, new, ()), ends=scope.ends)

    def _source(self, depth: int) -> tuple[Node, Scope]:
        if self.chance(0.12):
            types = self.rng.choice(("i", "is", "ii", "s"))
            rows = tuple(tuple(self.rng.choice(_TEXTS[t]) for t in types) for _ in range(self.rng.randint(1, 4)))
            rows = (tuple(_TEXTS[t][0] for t in types), *rows)  # so that each column has a type
            alias, names = self._alias(), tuple(f"c{at}" for at in range(len(types)))
            stage = Constants("VALUES", alias, names, tuple(types), rows=rows)
            return stage, of_stage(alias, names, tuple(types), False)
        if self.chance(0.2):
            alias, source = self._alias(), SOURCES["D"]
            ends = not self.infinite
            how = self._lifetimes(source.names, ends, derived=False)
            return self._stage("D", alias, source.names, source.types, how, ends)
        return super()._source(depth)

    def _joined(self, left: Node, scope: Scope, depth: int, commas: bool) -> tuple[Node, Scope, bool]:
        plain = not any(isinstance(each, Join) and each.kind == "comma" for each in left.walk())
        if plain and self.chance(0.18) and (found := self._asof(left, scope)) is not None:
            return (*found, commas)
        return super()._joined(left, scope, depth, commas)

    def _asof(self, left: Node, scope: Scope) -> tuple[Node, Scope] | None:
        """The nearest of rows that differ in key and time, so that DuckDB has none to choose from."""
        stage, theirs = self._source(0)
        numbers = [each for each in theirs.qualified if each.type == "i"]
        mine = [each for each in scope.qualified if each.type == "i"]
        if not numbers or not mine:
            return None
        keys = tuple(dict.fromkeys(self.rng.choice(numbers) for _ in range(self.rng.choice((1, 2, 2)))))
        shown = self.rng.choice(theirs.columns)
        least = Expr("MIN({0})", shown.type, (shown,), ("aggregate: MIN",))
        items = (*keys, least) if shown.type in "isty" else keys
        query = Select(items, stage, keys=keys, grouping="keys")
        alias, names = self._alias(), tuple(f"c{at}" for at in range(len(items)))
        right, there = self._stage(query, alias, names, query.types, _PLAIN, theirs.ends)
        op = self.rng.choice((">=", ">", "<=", "<"))
        on = Expr(f"{{0}} {op} {{1}}", "b", (self.rng.choice(mine), column(f"{alias}.c0", "i")))
        if len(keys) == 2:
            equal = Expr("{0} = {1}", "b", (self.rng.choice(mine), column(f"{alias}.c1", "i")))
            on = Expr("({0} AND {1})", "b", (equal, on))
        kind = self.rng.choice(("asof", "asof left"))
        return Join(kind, left, right, on), joined(scope, there, ())

    def _on(self, left: Scope, right: Scope) -> tuple[Expr, tuple[str, ...]]:
        on, uses = super()._on(left, right)
        if not self.chance(0.12):
            return on, uses
        both = (*left.qualified, *right.qualified)
        more = self.membership(Reach(both, (), self._subquery, self._scalar, passed=both, depth=1))
        return Expr("({0} AND {1})", "b", (on, more)), (*uses, "on: subquery")

    # -- dates and timestamps -------------------------------------------------------------------------------------

    def _built(self, type_: str, reach: Reach, size: int) -> Expr:
        has = {each.type for each in (*reach.columns, *reach.outer)}

        def one(t: str) -> Expr:
            return self.expr(t, reach, size - 1)

        if type_ == "t":
            return self.rng.choice(
                (
                    lambda: Expr("({0} + INTERVAL '1' DAY)", "t", (one("t"),), ("time: plus a day",)),
                    lambda: Expr("({0} - INTERVAL '1' MONTH)", "t", (one("t"),), ("time: minus a month",)),
                    lambda: Expr("date_trunc('month', {0})", "t", (one("t"),), ("time: date_trunc",)),
                    lambda: Expr("COALESCE({0}, {1})", "t", (one("t"), one("t")), ("coalesce",)),
                )
            )()
        if type_ == "y":
            return self.rng.choice(
                (
                    lambda: Expr("CAST({0} AS DATE)", "y", (one("t"),), ("time: cast to a date",)),
                    lambda: Expr("NULLIF({0}, {1})", "y", (one("y"), one("y")), ("nullif",)),
                )
            )()
        if type_ == "i" and "t" in has and self.chance(0.3):
            part = self.rng.choice(("YEAR", "MONTH", "DAY", "HOUR"))
            return Expr(f"EXTRACT({part} FROM {{0}})", "i", (one("t"),), ("time: extract",))
        if type_ == "s" and "t" in has and self.chance(0.3):
            return Expr("strftime({0}, '%Y-%m-%d %H')", "s", (one("t"),), ("time: strftime",))
        return super()._built(type_, reach, size)

    def constant(self, type_: str) -> Expr:
        if type_ == "t":
            day = self.rng.choice(("2024-02-29 12:30:00", "2023-12-31 00:00:00"))
            return Expr(f"TIMESTAMP '{day}'", "t")
        if type_ == "y":
            return Expr(f"DATE '{self.rng.choice(('2024-02-29', '2023-12-31'))}'", "y")
        return super().constant(type_)

    def aggregate(self, type_: str, reach: Reach) -> Expr | None:
        if type_ not in "ty":
            return super().aggregate(type_, reach)
        assert reach.aggregated is not None
        word = self.rng.choice(("MIN", "MAX"))
        arg = self.expr(type_, Reach(reach.aggregated, depth=0), 0)
        return Expr(f"{word}({{0}})", type_, (arg,), (f"aggregate: {word}",))

    def predicate(self, reach: Reach, size: int) -> Expr:
        known = {each.type for each in (*reach.columns, *(reach.aggregated or ()))}
        some = [t for t in "ty" if t in known]
        if some and self.chance(0.3):
            type_ = self.rng.choice(some)
            op = self.rng.choice(("=", "<", ">=", "<>", "IS DISTINCT FROM"))
            parts = (self.expr(type_, reach, 1), self.expr(type_, reach, 0))
            return Expr(f"{{0}} {op} {{1}}", "b", parts, ("time: comparison",))
        return super().predicate(reach, size)


_PLAIN = Stage("A", "a", (), ()).lifetimes

__all__ = ["Constants", "Made", "Query", "TablesGrammar"]
