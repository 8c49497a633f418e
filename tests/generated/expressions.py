"""Random expressions and conditions, with subqueries of all kinds in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from generated.tree import TYPES, Expr, Query, literal

COMPARISONS = ("=", "=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Reach:
    """What an expression may read: columns of its query, columns of the queries around, and aggregates.

    `subquery` writes a subquery over given outer columns, for given types; None: no subqueries here.
    """

    columns: tuple[Expr, ...]
    outer: tuple[Expr, ...] = ()
    subquery: Callable[[Reach, Sequence[str] | None], tuple[Query, bool]] | None = None
    scalar: Callable[[Reach, str], tuple[Query, bool]] | None = None
    aggregated: tuple[Expr, ...] | None = None
    """In a grouped query: the columns inside aggregates; `columns` are then the keys."""
    passed: tuple[Expr, ...] = field(default=())
    """What subqueries may read of this query."""
    depth: int = 1


UNFOLDED = "reverse(reverse({0}))"
"""A text of which DuckDB 2.0 does not guess: WHERE NULLIF('a', s) LIKE 'a%' lets s = 'a' through there."""


class Expressions:
    """Draws expressions."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    # -- values ---------------------------------------------------------------------------------------------------

    def expr(self, type_: str, reach: Reach, size: int = 2) -> Expr:
        """Any expression of a type."""
        if reach.aggregated is not None and (not reach.columns or self.chance(0.6)):
            found = self.aggregate(type_, reach)
            if found is not None:
                return found
        if size <= 0 or self.chance(0.5):
            return self.leaf(type_, reach)
        return self._built(type_, reach, size - 1)

    def leaf(self, type_: str, reach: Reach) -> Expr:
        mine = [each for each in reach.columns if each.type == type_]
        theirs = [each for each in reach.outer if each.type == type_]
        if theirs and self.chance(0.35):
            return replace(self.rng.choice(theirs), uses=("correlated",))
        if mine and self.chance(0.85):
            return self.rng.choice(mine)
        return self.constant(type_)

    def constant(self, type_: str) -> Expr:
        match type_:
            case "i":
                return Expr(self.rng.choice(("0", "1", "2", "3")), "i")
            case "s":
                return Expr(self.rng.choice(("'a'", "'b'", "''", "'ab'")), "s")
            case "f":
                return literal("f", self.rng.choice(("0.5", "1.25", "2.0")))
            case "b":
                return Expr(self.rng.choice(("TRUE", "FALSE")), "b")
        if self.chance(0.3):
            return Expr(f"CAST(NULL AS {TYPES[type_]})", type_, (), ("null",))
        return literal(type_)

    def _built(self, type_: str, reach: Reach, size: int) -> Expr:
        rng = self.rng

        def one(t: str = type_) -> Expr:
            return self.expr(t, reach, size)

        if type_ == "b":
            return self.condition(reach, size)
        if type_ == "g":
            return Expr("CAST({0} AS DOUBLE)", "g", (one("i"),), ("cast",))
        general = [
            lambda: Expr("COALESCE({0}, {1})", type_, (one(), one()), ("coalesce",)),
            lambda: Expr("NULLIF({0}, {1})", type_, (one(), one()), ("nullif",)),
            lambda: Expr(
                "CASE WHEN {0} THEN {1} ELSE {2} END", type_, (self.condition(reach, size), one(), one()), ("case",)
            ),
            lambda: Expr("CASE WHEN {0} THEN {1} END", type_, (self.condition(reach, size), one()), ("case",)),
        ]
        if reach.scalar is not None and reach.depth > 0 and self.chance(0.35):
            query, tied = reach.scalar(reach, type_)
            return Expr("({0})", type_, (query,), (f"subquery: scalar{' correlated' if tied else ''}",))
        own = {
            "i": [
                lambda: Expr("({0} + {1})", "i", (one(), one()), ("arithmetic",)),
                lambda: Expr("({0} - {1})", "i", (one(), one()), ("arithmetic",)),
                lambda: Expr("({0} * 2)", "i", (one(),), ("arithmetic",)),
                lambda: Expr("(-{0})", "i", (one(),), ("arithmetic",)),
                lambda: Expr("abs({0})", "i", (one(),), ("function",)),
                lambda: Expr("length({0})", "i", (one("s"),), ("function",)),
                lambda: Expr("(abs({0}) % 3)", "i", (one(),), ("arithmetic",)),
            ],
            "s": [
                lambda: Expr("({0} || {1})", "s", (one(), one()), ("concatenation",)),
                lambda: Expr("upper({0})", "s", (one(),), ("function",)),
                lambda: Expr("CAST({0} AS VARCHAR)", "s", (one("i"),), ("cast",)),
            ],
            "f": [
                lambda: Expr("({0} + {1})", "f", (one(), one()), ("arithmetic",)),
                lambda: Expr("({0} / 2)", "f", (one("i"),), ("arithmetic",)),
                lambda: Expr("CAST({0} AS DOUBLE)", "f", (one("i"),), ("cast",)),
            ],
            "d": [lambda: Expr("({0} + {1})", "d", (one(), one()), ("arithmetic",))],
        }[type_]
        return rng.choice([*own, *own, *general])()

    # -- aggregates -----------------------------------------------------------------------------------------------

    def aggregate(self, type_: str, reach: Reach) -> Expr | None:
        """An aggregate call of a type, or None."""
        assert reach.aggregated is not None
        inner = Reach(reach.aggregated, depth=0)

        def arg(t: str) -> Expr:
            return self.expr(t, inner, self.rng.choice((0, 0, 1)))

        any_ = self.rng.choice("iiisf")
        distinct = "DISTINCT " if self.chance(0.25) else ""
        calls: dict[str, list[tuple[str, str | None, str]]] = {
            "i": [
                ("COUNT(*)", None, "COUNT(*)"), (f"COUNT({distinct}{{0}})", any_, f"COUNT({distinct}x)"),
                (f"SUM({distinct}{{0}})", "i", f"SUM({distinct}x)"), ("MIN({0})", "i", "MIN"), ("MAX({0})", "i", "MAX"),
            ],
            "s": [("MIN({0})", "s", "MIN"), ("MAX({0})", "s", "MAX")],
            "f": [
                (f"SUM({distinct}{{0}})", "f", f"SUM({distinct}x)"), ("MIN({0})", "f", "MIN"),
                ("MAX({0})", "f", "MAX"),
            ],
            "d": [
                (f"SUM({distinct}{{0}})", "d", f"SUM({distinct}x)"), ("MIN({0})", "d", "MIN"),
                ("MAX({0})", "d", "MAX"),
            ],
            "g": [
                (f"AVG({distinct}{{0}})", self.rng.choice("if"), f"AVG({distinct}x)"), ("MEDIAN({0})", "i", "MEDIAN"),
                ("QUANTILE({0}, 0.25)", "i", "QUANTILE"), ("MAX({0})", "g", "MAX"),
            ],
        }  # fmt: skip
        if type_ not in calls:
            return None
        template, of, name = self.rng.choice(calls[type_])
        parts: tuple[Expr, ...] = () if of is None else (arg(of),)
        theirs = template.replace("QUANTILE", "quantile_cont") if "QUANTILE" in template else None
        uses: tuple[str, ...] = (f"aggregate: {name}",)
        if self.chance(0.2):
            behind = f" FILTER (WHERE {{{len(parts)}}})"
            template, theirs = template + behind, None if theirs is None else theirs + behind
            parts, uses = (*parts, self.condition(inner, 1)), (*uses, "aggregate: FILTER")
        return Expr(template, type_, parts, uses, theirs)

    # -- conditions -----------------------------------------------------------------------------------------------

    def condition(self, reach: Reach, size: int = 2) -> Expr:
        if size > 0 and self.chance(0.3):
            word = self.rng.choice(("AND", "AND", "OR", "NOT"))
            if word == "NOT":
                return Expr("NOT ({0})", "b", (self.condition(reach, size - 1),), ("not",))
            parts = (self.condition(reach, size - 1), self.condition(reach, size - 1))
            return Expr(f"({{0}} {word} {{1}})", "b", parts, (word.lower(),))
        if reach.subquery is not None and reach.depth > 0 and self.chance(0.3):
            return self.membership(reach)
        return self.predicate(reach, size)

    def predicate(self, reach: Reach, size: int) -> Expr:
        type_ = self.rng.choices("isfd", (12, 5, 2, 1))[0]
        known = {each.type for each in (*reach.columns, *(reach.aggregated or ()))}
        if type_ not in known:
            type_ = "i"
        a = self.expr(type_, reach, min(size, 1))
        match self.rng.randrange(12):
            case 0:
                word = self.rng.choice(("NULL", "NOT NULL"))
                return Expr(f"{{0}} IS {word}", "b", (a,), ("is null",))
            case 1:
                word = self.rng.choice(("DISTINCT FROM", "NOT DISTINCT FROM"))
                return Expr(f"{{0}} IS {word} {{1}}", "b", (a, self.expr(type_, reach, 1)), ("is distinct from",))
            case 2:
                some = (a, self.constant(type_), self.expr(type_, reach, 0))
                word = self.rng.choice(("IN", "NOT IN"))
                return Expr(f"{{0}} {word} ({{1}}, {{2}})", "b", some, ("in list",))
            case 3:
                some = (a, self.constant(type_), self.expr(type_, reach, 0))
                return Expr("{0} BETWEEN {1} AND {2}", "b", some, ("between",))
            case 4 if type_ == "s":
                pattern = self.rng.choice(("'a%'", "'%b'", "'_'", "'%a%'"))
                like = f"{self.rng.choice(('LIKE', 'NOT LIKE'))} {pattern}"
                return Expr(f"{{0}} {like}", "b", (a,), ("like",), f"{UNFOLDED} {like}")
            case 5:
                word = self.rng.choice(("IS TRUE", "IS NOT TRUE", "IS NOT FALSE"))
                compared = Expr("({0} < {1})", "b", (a, self.expr(type_, reach, 0)))
                return Expr(f"{{0}} {word}", "b", (compared,), ("is true",))
        op = self.rng.choice(COMPARISONS)
        return Expr(f"{{0}} {op} {{1}}", "b", (a, self.expr(type_, reach, min(size, 1))), ("comparison",))

    def membership(self, reach: Reach) -> Expr:
        """A condition with a subquery."""
        assert reach.subquery is not None
        negated = self.chance(0.4)
        word = "NOT " if negated else ""
        kind = self.rng.choice(("exists", "exists", "in", "in", "quantified", "row in", "compared"))
        if kind == "exists":
            query, tied = reach.subquery(reach, None)
            return Expr(f"{word}EXISTS ({{0}})", "b", (query,), (_named(f"{word}EXISTS", tied),))
        if kind == "row in":
            query, tied = reach.subquery(reach, "ii")
            parts = (self.expr("i", reach, 0), self.expr("i", reach, 0), query)
            return Expr("({0}, {1}) IN ({2})", "b", parts, (_named("row IN", tied),))
        type_ = self.rng.choice("iiiis")
        if type_ not in {each.type for each in reach.columns}:
            type_ = "i"
        a = self.expr(type_, reach, 1)
        if kind == "compared" and reach.scalar is not None:
            query, tied = reach.scalar(reach, type_)
            op = self.rng.choice(COMPARISONS)
            return Expr(f"{{0}} {op} ({{1}})", "b", (a, query), (_named("scalar", tied),))
        query, tied = reach.subquery(reach, type_)
        if kind == "quantified":
            op, some = self.rng.choice(COMPARISONS), self.rng.choice(("ANY", "ALL"))
            return Expr(f"{{0}} {op} {some} ({{1}})", "b", (a, query), (_named(some, tied),))
        return Expr(f"{{0}} {word}IN ({{1}})", "b", (a, query), (_named(f"{word}IN", tied),))


def _named(kind: str, tied: bool) -> str:
    return f"subquery: {kind}{' correlated' if tied else ''}"
