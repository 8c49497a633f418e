"""More aggregates in generated queries: spread, mode, first and last, lists in an order, truth values, GROUPING."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from generated.expressions import Reach
from generated.more import Grouped, MoreGrammar, ordered
from generated.tree import Expr, Select

Call = tuple[str, tuple[Expr, ...], str, str | None]
_CALLS = re.compile(r"((ARRAY_AGG|TOP_K|COLLECT_SET|FIRST|ARG_MIN|MAX_BY|STRING_AGG)\(.*?\))")
_LIST = "list({0} ORDER BY {1} NULLS FIRST, {0}) FILTER ({0} IS NOT NULL)"
_FALLING = "list({0} ORDER BY {1} DESC NULLS LAST, {0} DESC) FILTER ({0} IS NOT NULL)"


def _of_rows(text: str, empty: str) -> str:
    """Of no row at all there is no value; of rows without values there is an empty list."""
    return f"CASE WHEN COUNT(*) > 0 THEN COALESCE({text}, {empty}) END"


def _filtered(template: str, type_: str, parts: tuple[Expr, ...], name: str, theirs: str) -> Expr:
    """The same with FILTER behind the aggregate, which may stand inside of a function."""
    of = f"{{{len(parts) - 1}}}"
    ours = _CALLS.sub(rf"\1 FILTER (WHERE {of})", template, count=1)
    if "LISTAGG" in template:
        ours = f"{template} FILTER (WHERE {of})"
    uses = (f"aggregate: {name}", "aggregate: FILTER of a list")
    return Expr(ours, type_, parts, uses, theirs.replace("FILTER (", f"FILTER ({of} AND "))


def _texts(x: Expr, by: Expr) -> list[Call]:
    """Lists in an order, as texts."""
    different = "array_to_string(list(DISTINCT {0} ORDER BY {0}) FILTER ({0} IS NOT NULL), ',')"
    up, down = (_of_rows(f"array_to_string({each}, '-')", "''") for each in (_LIST, _FALLING))
    return [
        ("array_join(ARRAY_AGG({0} ORDER BY {1}), '-')", (x, by), "ARRAY_AGG ORDER", up),
        ("array_join(ARRAY_AGG({0} ORDER BY {1} DESC), '-')", (x, by), "ARRAY_AGG DESC", down),
        ("STRING_AGG({0}, '/' ORDER BY {1})", (x, by), "STRING_AGG by another", f"array_to_string({_LIST}, '/')"),
        ("LISTAGG({0}, '+') WITHIN GROUP (ORDER BY {1} DESC)", (x, by), "LISTAGG", f"array_to_string({_FALLING}, '+')"),
        ("STRING_AGG(DISTINCT {0}, '-' ORDER BY {0} DESC)", (x,), "STRING_AGG DISTINCT DESC", None),
        ("array_join(COLLECT_SET({0}), ',')", (x,), "COLLECT_SET", _of_rows(different, "''")),
    ]


class Aggregates(MoreGrammar):
    """Draws aggregates that the others do not."""

    def aggregate(self, type_: str, reach: Reach) -> Expr | None:
        if self.chance(0.6):
            return super().aggregate(type_, reach)
        assert reach.aggregated is not None
        inner = Reach(reach.aggregated, depth=0)
        types = {each.type for each in reach.aggregated}

        def arg(t: str) -> Expr:
            return ordered(self.expr(t, inner, self.rng.choice((0, 0, 1))))

        calls = self._calls(type_, arg, self.condition(inner, 1), [t for t in "isdtyf" if t in types] or ["i"])
        if not calls:
            return super().aggregate(type_, reach)
        template, parts, name, theirs = self.rng.choice(calls)
        if theirs is not None and theirs.count("FILTER (") == 1 and "COUNT(*)" not in theirs and self.chance(0.3):
            return _filtered(template, type_, (*parts, self.condition(inner, 1)), name, theirs)
        uses: tuple[str, ...] = (f"aggregate: {name}",)
        plain = template.endswith(")") and "(" in template and theirs is None and template.count("(") == 1
        if plain and self.chance(0.2):
            template = f"{template} FILTER (WHERE {{{len(parts)}}})"
            parts, uses = (*parts, self.condition(inner, 1)), (*uses, "aggregate: FILTER")
        return Expr(template, type_, parts, uses, theirs)

    def predicate(self, reach: Reach, size: int) -> Expr:
        if reach.aggregated is not None and self.chance(0.2):
            inner = Reach(reach.aggregated, depth=0)
            template, parts, name, theirs = self.rng.choice(self._calls("b", None, self.condition(inner, 1), ["i"]))
            return Expr(template, "b", parts, (f"aggregate: {name}",), theirs)
        return super().predicate(reach, size)

    def _calls(self, type_: str, arg, b: Expr, known: list[str]) -> list[Call]:  # type: ignore[no-untyped-def]
        rng = self.rng
        if type_ == "b":
            words = [(word, "BOOL_AND" if word == "EVERY" else "BOOL_OR") for word in ("EVERY", "SOME", "ANY")]
            found: list[Call] = [(f"{word}({{0}})", (b,), word, f"{theirs}({{0}})") for word, theirs in words]
            return [*found, ("BOOL_AND({0})", (b,), "BOOL_AND", None), ("MAX({0})", (b,), "MAX of truth", None)]
        by = arg(rng.choice(known))
        if type_ == "g":
            of = arg("i")  # of NaN, DuckDB says that its variance is 0
            words = ["STDDEV", "STDDEV_SAMP", "STDDEV_POP", "VARIANCE", "VAR_SAMP", "VAR_POP"]
            spread: list[Call] = [(f"{word}({{0}})", (of,), word, None) for word in words]
            return [*spread, ("MEDIAN({0})", (arg("d"),), "MEDIAN of decimals", None)]
        if type_ not in "isfdty":
            return []
        x = arg(type_)
        # of rows that are equally first or last the smallest value counts, nulls first
        first = "list_extract(list({0} ORDER BY {1}, {0} NULLS FIRST) FILTER ({1} IS NOT NULL), 1)"
        last = "list_extract(list({0} ORDER BY {1} DESC, {0} NULLS FIRST) FILTER ({1} IS NOT NULL), 1)"
        top = "list_extract(list({0} ORDER BY {0} DESC) FILTER ({0} IS NOT NULL), 2)"
        found = [
            ("MODE({0})", (x,), "MODE", "MODE({0} ORDER BY {0})"),
            ("FIRST({0}, {1})", (x, by), "FIRST", first),
            ("ARG_MIN({0}, {1})", (x, by), "ARG_MIN", first),
            ("MAX_BY({0}, {1})", (x, by), "MAX_BY", last),
            ("element_at(ARRAY_AGG({0} ORDER BY {1}), 1)", (x, by), "ARRAY_AGG ORDER", f"list_extract({_LIST}, 1)"),
            ("element_at(TOP_K({0}, 2), 2)", (x,), "TOP_K", top),
        ]
        if type_ == "s":
            found += _texts(x, by)
        if type_ == "i":
            found += [
                ("COUNT(DISTINCT {0})", (by,), "COUNT(DISTINCT any)", None),
                ("cardinality(COLLECT_SET({0}))", (by,), "COLLECT_SET", _of_rows("COUNT(DISTINCT {0})", "0")),
                (
                    "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY {0} DESC)",
                    (x,),
                    "PERCENTILE_DISC DESC",
                    "-quantile_disc(-({0}), 0.5)",
                ),
            ]
        return found

    def select(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Select, bool]:
        found, ends = super().select(depth, outer, types)
        if isinstance(found, Grouped) and types is None and self.chance(0.5):
            of = self.rng.choice(found.keys)
            found = replace(found, items=(*found.items, Expr("GROUPING({0})", "i", (of,), ("grouping",))))
        return found, ends
