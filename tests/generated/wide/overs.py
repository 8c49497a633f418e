"""Calls with OVER of all kinds in generated queries, Top-N by a rank, and ranks of groups.

Where ties matter we order by all other columns of FROM; DuckDB is told to, by naming them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from generated.expressions import Reach
from generated.grammar import Grammar
from generated.scopes import Scope, of_stage
from generated.tree import Expr, Join, Node, Query, Select, Stage

_BOUNDS = ("UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING")
_BOUNDS = (*_BOUNDS, "UNBOUNDED FOLLOWING")
_EXACT = "isfdty"
_UNTIED = ("RANK()", "DENSE_RANK()", "range", "peers", "whole")
"""Calls that say the same of rows that ORDER BY leaves equal."""


class Overs(Grammar):
    """Draws OVER in SELECT."""

    over_chance = 0.12
    top_chance = 0.08

    def query(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Query, bool]:
        if depth > 0 and not outer and self.chance(self.top_chance):
            return self._top(depth, types)
        return super().query(depth, outer, types)

    def select(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Select, bool]:
        found, ends = super().select(depth, outer, types)
        plain = found.grouping == "none" and types is None and not found.star and not found.distinct
        if plain and type(found) is Select and isinstance(found.source, Stage) and self.chance(self.over_chance):
            # beside another one, of other rows or in another order; which of equal rows is which two cannot agree on
            stage = found.source
            scope = of_stage(stage.alias, stage.names, stage.types, ends)
            more = tuple(self._call(scope, stage, _UNTIED) for _ in range(self.rng.choice((1, 2))))
            return replace(found, items=(*found.items, *more)), ends
        if type(found) is not Select or found.star or not found.items or not self.chance(self.over_chance):
            return found, ends
        if found.grouping == "keys" and types is None and found.keys:
            return replace(found, items=(*found.items, self._over_groups(found.keys))), ends
        return found, ends

    def _top(self, depth: int, types: Sequence[str] | None) -> tuple[Query, bool]:
        """Rows by their place: a query in FROM has it as a column."""
        source, scope = self.from_clause(depth - 1)
        reach = Reach(scope.columns, (), self._subquery, self._scalar, None, scope.qualified, depth - 1)
        where = self.condition(reach) if self.chance(0.3) else None
        wanted = types if types is not None else self._types(scope)
        items = tuple(self.expr(t, reach, self.rng.choice((0, 0, 1))) for t in wanted)
        ranked = Select((*items, self._ranked(scope, source)), source, where)
        alias, names = self._alias(), tuple(f"c{at}" for at in range(len(items) + 1))
        stage = Stage(ranked, alias, names, ranked.types)
        shown = of_stage(alias, names, ranked.types, scope.ends)
        rank = shown.columns[-1]
        op, n = self.rng.choice((("<=", 1), ("<=", 2), ("<", 3), ("=", 1), ("=", 2), (">", 1), ("<=", 0)))
        text = f"{{0}} {op} {n}" if self.chance(0.7) else f"{n} {op.translate(_TURNED)} {{0}}"
        top = Expr(text, "b", (rank,), ("top n",))
        if self.chance(0.3):
            more = self.condition(Reach(shown.columns, depth=0), 1)
            top = Expr("({0} AND {1})", "b", (top, more) if self.chance(0.5) else (more, top))
        columns = shown.columns[:-1] if types is not None or self.chance(0.4) else shown.columns
        return Select(columns, stage, top, distinct=self.chance(0.1)), scope.ends

    def _ranked(self, scope: Scope, source: Node) -> Expr:
        return self._call(scope, source, ("ROW_NUMBER()", "ROW_NUMBER()", "RANK()", "DENSE_RANK()"))

    def _over(self, scope: Scope, source: Node) -> Expr:
        return self._call(scope, source, None)

    def _over_groups(self, keys: Sequence[Expr]) -> Expr:
        """A rank of groups by an aggregate."""
        of = self.rng.choice(("COUNT(*)", "{0}", "MAX({0})"))
        call = self.rng.choice(("RANK()", "DENSE_RANK()", "SUM(COUNT(*))", "COUNT(*)"))
        by = " PARTITION BY {1}" if len(keys) > 1 and self.chance(0.4) else ""
        text = f"{call} OVER ({by} ORDER BY {of}{self.rng.choice(('', ' DESC'))} NULLS LAST)"
        return Expr(text, "i", (self.rng.choice(list(keys)), keys[-1]), ("over: groups",))

    # -- calls ----------------------------------------------------------------------------------------------------

    def _call(self, scope: Scope, source: Node, calls: Sequence[str] | None) -> Expr:
        rng = self.rng
        exact = [each for each in scope.columns if each.type in _EXACT]
        numbers = [each for each in exact if each.type == "i"]
        total = _ordered(source) and len(exact) == len(scope.columns)
        if not exact:
            return Expr("COUNT(*) OVER ()", "i", (), ("over: COUNT(*)",))
        if calls is None:
            calls = ("RANK()", "DENSE_RANK()", "frame", "frame", "range", "peers", "neighbour", "parts", "whole")
        kind = rng.choice(list(calls))
        if not total and kind in ("ROW_NUMBER()", "frame", "neighbour", "parts"):
            kind = "RANK()" if kind == "ROW_NUMBER()" else "peers"
        if not numbers and kind in ("frame", "range", "neighbour"):
            kind = "RANK()"
        keys = rng.sample(exact, min(len(exact), rng.choice((1, 1, 2))))
        if kind == "range":
            keys = [rng.choice(numbers)]
        by = rng.sample(exact, min(len(exact), rng.choice((0, 0, 1, 1, 2))))
        value = rng.choice(numbers) if numbers else Expr("1", "i")
        if numbers and self.chance(0.2):
            value = Expr("({0} * 2 - {1})", "i", (value, rng.choice(numbers)))
        keys = [Expr("(-{0})", "i", (key,)) if key.type == "i" and self.chance(0.15) else key for key in keys]
        times = [each for each in exact if each.type in "fty"]
        if kind == "range" and times and self.chance(0.5):
            keys = [rng.choice(times)]
        parts: list[Node] = [value, *by, *keys]
        partition = f"PARTITION BY {', '.join(f'{{{1 + at}}}' for at in range(len(by)))} " if by else ""
        if by and len(by) == 1 and by[0].type == "i" and self.chance(0.3):
            partition = "PARTITION BY abs({1}) % 2 "
        order = ", ".join(
            f"{{{1 + len(by) + at}}}{rng.choice(('', ' DESC'))} NULLS {rng.choice(('FIRST', 'LAST'))}"
            for at in range(len(keys))
        )
        call, frame, tied = self._framed(kind)
        if kind == "range" and keys[0].type in "ty":
            frame = re.sub(r"\b([12]) (PRE|FOL)", r"INTERVAL '\1' DAY \2", frame)
        if "{c}" in call:
            call = call.replace("{c}", f"{{{len(parts)}}}")
            parts.append(self.condition(Reach(scope.columns, depth=0), 0))
        ties = ""
        if tied:
            ties = "".join(f", {{{len(parts) + at}}} NULLS FIRST" for at in range(len(scope.columns)))
            parts += scope.columns
        shown = "" if kind == "whole" else f"ORDER BY {order}"
        ours, theirs = (f"{call} OVER ({partition}{shown}{more}{frame})" for more in ("", ties))
        name = call.split("(")[0]
        type_ = "g" if name in ("AVG", "PERCENT_RANK", "CUME_DIST") else "i"
        return Expr(ours, type_, tuple(parts), (f"over: {name}", f"over, {kind}"), theirs)

    def _framed(self, kind: str) -> tuple[str, str, bool]:
        """(call, frame, whether ties matter)."""
        rng = self.rng
        sums = ("COUNT({0})", "COUNT(*)", "MIN({0})", "MAX({0})", "SUM({0})", "SUM({0}) FILTER (WHERE {c})")
        sums = (*sums, "AVG({0})")
        match kind:
            case "frame" | "range":
                low, high = sorted(rng.sample(range(7), 2))
                if rng.random() < 0.15 and 0 < low < 6:
                    high = low
                if low == 0 and high == 0:
                    high = 3
                frame = f" {'ROWS' if kind == 'frame' else 'RANGE'} BETWEEN {_BOUNDS[low]} AND {_BOUNDS[high]}"
                firsts = ("FIRST_VALUE({0})", "LAST_VALUE({0})") if kind == "frame" else ()
                return rng.choice((*sums, *firsts)), frame, kind == "frame"
            case "peers":
                return rng.choice((*sums, "PERCENT_RANK()", "CUME_DIST()")), "", False
            case "neighbour":
                word, n = rng.choice(("LAG", "LEAD")), rng.choice(("", ", 0", ", 1", ", 2", ", 1, 7", ", 2, NULL"))
                return f"{word}({{0}}{n})", "", True
            case "parts":
                return f"NTILE({rng.choice((1, 2, 3))})", "", True
            case "whole":
                return rng.choice(sums), "", False
            case "ROW_NUMBER()":
                return kind, "", True
        return kind, "", False


_TURNED = str.maketrans("<>", "><")


def _ordered(source: Node) -> bool:
    """Whether the columns of the scope are those of FROM, in its order."""
    joins = [each for each in _joins(source)]
    return all(isinstance(each, Stage | Join) for each in joins) and not any(
        isinstance(each, Join) and (each.using or each.kind.startswith("asof")) for each in joins
    )


def _joins(source: Node) -> list[Node]:
    """What stands in FROM, without what is inside of it."""
    if isinstance(source, Join):
        return [source, *_joins(source.left), *_joins(source.right)]
    return [source]
