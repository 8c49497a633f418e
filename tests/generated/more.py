"""A grammar with more aggregates and with sets of groups; the plain one draws as it did without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from generated.expressions import Reach
from generated.grammar import Grammar
from generated.tree import Dialect, Expr, Select

SETS = ("ROLLUP", "CUBE", "GROUPING SETS")


@dataclass(frozen=True)
class Grouped(Select):
    """Groups by several sets of the keys."""

    word: str = "ROLLUP"

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        keys = [key.sql(dialect) for key in self.keys]
        if self.word == "GROUPING SETS":
            listed = ", ".join((*(f"({key})" for key in keys), "()", f"({', '.join(keys)})"))
        else:
            listed = ", ".join(keys)
        text = super().sql(dialect, inside)
        plain = f" GROUP BY {', '.join(keys)}"
        head, _, tail = text.rpartition(plain)
        if not dialect.ours:  # over nothing we say nothing, also of all groups together
            tail = f"{tail} AND COUNT(*) > 0" if tail else " HAVING COUNT(*) > 0"
        return f"{head} GROUP BY {self.word} ({listed}){tail}"

    def constructs(self):  # type: ignore[no-untyped-def]
        yield from super().constructs()
        yield f"group by {self.word}"


def ordered(given: Expr) -> Expr:
    """The same as something to order by, which a constant is not to DuckDB."""
    if given.parts or "." in given.template:
        return given
    return Expr("COALESCE(NULL, {0})", given.type, (given,))


class MoreGrammar(Grammar):
    """Draws more kinds of aggregates and groups."""

    def aggregate(self, type_: str, reach: Reach) -> Expr | None:
        if self.chance(0.5):
            return super().aggregate(type_, reach)
        assert reach.aggregated is not None
        inner = Reach(reach.aggregated, depth=0)

        def arg(t: str) -> Expr:
            return ordered(self.expr(t, inner, self.rng.choice((0, 0, 1))))

        i, f, s, b = arg("i"), arg("f"), arg("s"), self.condition(inner, 1)
        calls: dict[str, list[tuple[str, tuple[Expr, ...], str, str | None]]] = {
            "i": [
                ("BIT_AND({0})", (i,), "BIT_AND", None),
                ("BIT_OR({0})", (i,), "BIT_OR", None),
                ("BIT_XOR({0})", (i,), "BIT_XOR", None),
                ("CAST(BOOL_AND({0}) AS INT)", (b,), "BOOL_AND", None),
                ("CAST(BOOL_OR({0}) AS INT)", (b,), "BOOL_OR", None),
                ("COUNT_IF({0})", (b,), "COUNT_IF", "COUNT(*) FILTER (WHERE {0})"),
                (
                    "COUNT(DISTINCT {0}, {1})", (i, s), "COUNT(DISTINCT x, y)",
                    "COUNT(DISTINCT ({0}, {1})) FILTER ({0} IS NOT NULL AND {1} IS NOT NULL)",
                ),
                ("PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY {0})", (i,), "PERCENTILE_DISC", None),
                (
                    "CARDINALITY(ARRAY_AGG({0}))", (i,), "ARRAY_AGG",
                    "CASE WHEN COUNT(*) > 0 THEN COUNT({0}) END",  # of nothing there is no list
                ),
            ],
            "s": [
                ("STRING_AGG({0}, '-' ORDER BY {0})", (s,), "STRING_AGG", None),
                ("STRING_AGG({0}, '-' ORDER BY {0} DESC)", (s,), "STRING_AGG DESC", None),
                (
                    "STRING_AGG(DISTINCT {0}, '')", (s,), "STRING_AGG DISTINCT",
                    "STRING_AGG(DISTINCT {0}, '' ORDER BY {0})",
                ),
            ],
            "f": [("QUANTILE_DISC({0}, 0.5)", (f,), "QUANTILE_DISC", None)],
            "g": [("PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY {0})", (i,), "PERCENTILE_CONT", None)],
        }  # fmt: skip
        if type_ not in calls:
            return super().aggregate(type_, reach)
        template, parts, name, theirs = self.rng.choice(calls[type_])
        uses: tuple[str, ...] = (f"aggregate: {name}",)
        if self.chance(0.15) and template.endswith(")") and "CAST" not in template and theirs is None:
            template = f"{template} FILTER (WHERE {{{len(parts)}}})"
            parts, uses = (*parts, self.condition(inner, 1)), (*uses, "aggregate: FILTER")
        return Expr(template, type_, parts, uses, theirs)

    def select(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Select, bool]:
        found, ends = super().select(depth, outer, types)
        if found.grouping != "keys" or not found.keys or self.chance(0.4):
            return found, ends
        if len({key.template.rpartition(".")[2] for key in found.keys}) < len(found.keys):
            return found, ends  # of ROLLUP (t.s, s), DuckDB 2.0 says GROUPING(s) = 1 where s is grouped by
        given = {each.name: getattr(found, each.name) for each in fields(Select)}
        return Grouped(**given, word=self.rng.choice(SETS)), ends
