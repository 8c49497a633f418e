"""Columns of lists (l) and structures (r) in generated queries: made, grouped by, in sets, taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from generated.expressions import Reach
from generated.scopes import Scope
from generated.tables import Made, TablesGrammar
from generated.tree import Expr, Node, Select

NESTED = "lr"


class Nested(TablesGrammar):
    """Draws lists and structures."""

    def select(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Select, bool]:
        found, ends = super().select(depth, outer, types)
        if type(found) is not Select or found.star or types is not None or not self.chance(0.15):
            return found, ends
        made = [item for item in found.items if item.type in "is" and not _aggregated(item)]
        if not made:
            return found, ends
        a, b = self.rng.choice(made), self.rng.choice(made)
        new = self._list(a, b) if a.type == b.type == "i" and self.chance(0.6) else self._struct(a, b)
        return replace(found, items=(*found.items, new)), ends

    def _list(self, a: Expr, b: Expr) -> Expr:
        match self.rng.randint(0, 3):
            case 0:
                return Expr("[{0}]", "l", (a,), ("a list",))
            case 1:
                return Expr("CASE WHEN {0} > 0 THEN [{0}, {1}] END", "l", (a, b), ("a list or null",))
        return Expr("[{0}, {1}]", "l", (a, b), ("a list",))

    def _struct(self, a: Expr, b: Expr) -> Expr:
        if a.type != "i" or b.type != "s":
            a, b = Expr("7", "i"), b if b.type == "s" else Expr("CAST({0} AS VARCHAR)", "s", (b,))
        plain = Expr("STRUCT({0} AS a, {1} AS b)", "r", (a, b), ("a structure",), "{{'a': {0}, 'b': {1}}}")
        if self.chance(0.3):
            return Expr("CASE WHEN {0} <> 'a' THEN {1} END", "r", (b, plain), ("a structure or null",))
        return plain

    def expr(self, type_: str, reach: Reach, size: int = 2) -> Expr:
        if type_ not in NESTED:
            return super().expr(type_, reach, size)
        if reach.aggregated is not None and type_ == "l" and self.chance(0.7):
            of = super().expr("i", Reach(reach.aggregated, depth=0), 0)
            theirs = "CASE WHEN COUNT(*) > 0 THEN COALESCE(list({0} ORDER BY {0}) FILTER ({0} IS NOT NULL), []) END"
            if of.parts or "." in of.template:
                return Expr("ARRAY_AGG({0})", "l", (of,), ("aggregate: ARRAY_AGG as a column",), theirs)
        mine = [each for each in reach.columns if each.type == type_]
        if mine and self.chance(0.8):
            return self.rng.choice(mine)
        return self.constant(type_)

    def constant(self, type_: str) -> Expr:
        if type_ == "l":
            return Expr(self.rng.choice(("[1]", "[1, 2]", "[2, CAST(NULL AS BIGINT)]")), "l")
        if type_ == "r":
            return Expr("STRUCT(1 AS a, 'a' AS b)", "r", (), (), "{'a': 1::BIGINT, 'b': 'a'}")
        return super().constant(type_)

    def aggregate(self, type_: str, reach: Reach) -> Expr | None:
        if type_ in NESTED:
            return self.expr(type_, replace(reach, columns=())) if type_ == "l" else None
        return super().aggregate(type_, reach)

    def _built(self, type_: str, reach: Reach, size: int) -> Expr:
        lists = [each for each in (*reach.columns, *reach.outer) if each.type == "l"]
        structs = [each for each in (*reach.columns, *reach.outer) if each.type == "r"]
        if type_ == "i" and lists and self.chance(0.4):
            of = self.rng.choice(lists)
            form, theirs = self.rng.choice((("cardinality({0})", "len({0})"), ("element_at({0}, 1)", "({0})[1]")))
            return Expr(form, "i", (of,), ("of a list",), theirs)
        if type_ in "is" and structs and self.chance(0.4):
            of, name = self.rng.choice(structs), "a" if type_ == "i" else "b"
            return Expr(f"struct_extract({{0}}, '{name}')", type_, (of,), ("of a structure",), f"({{0}}).{name}")
        return super()._built(type_, reach, size)

    def predicate(self, reach: Reach, size: int) -> Expr:
        nested = [each for each in reach.columns if each.type in NESTED]
        if nested and self.chance(0.2):
            of = self.rng.choice(nested)
            if of.type == "l" and self.chance(0.6):
                parts = (of, self.expr("i", reach, 0))
                return Expr("array_contains({0}, {1})", "b", parts, ("of a list",), "list_contains({0}, {1})")
            return Expr(f"{{0}} IS {self.rng.choice(('', 'NOT '))}NULL", "b", (of,), ("is null",))
        return super().predicate(reach, size)

    def _made(self, source: Node, scope: Scope, depth: int) -> tuple[Node, Scope]:
        lists = [each for each in scope.qualified if each.type == "l"]
        if not lists or not self.chance(0.5):
            return super()._made(source, scope, depth)
        alias, placed = self._alias(), self.chance(0.4)
        text = f"UNNEST({{0}}){' WITH ORDINALITY AS' if placed else ''}"
        made = Expr(text, "i", (self.rng.choice(lists),), ("unnest of a column",))
        types = ("i", "i") if placed else ("i",)
        return self._with_made(source, scope, Made(source, made, alias, ("x", "o")[: len(types)], False), types)


def _aggregated(item: Expr) -> bool:
    return any(use.startswith(("aggregate", "over")) for part in item.walk() for use in part.constructs())
