"""Random queries: joins, sets, groups, subqueries, windows, nested as deep as asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from generated.expressions import Expressions, Reach
from generated.ranks import limited, over_item
from generated.scopes import Scope, column, joined, of_stage, of_timed, reads, usable
from generated.streams import COPIES, SOURCES
from generated.tree import (
    OURS,
    UNORDERED,
    Expr,
    Join,
    Lifetimes,
    Node,
    Query,
    Recursive,
    Select,
    SetOperation,
    Stage,
    With,
)

JOINS = ("inner", "inner", "left", "right", "full", "cross", "semi", "anti", "comma")
SETS = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")


class Grammar(Expressions):
    """Draws queries.  `infinite`: the streams have rows without end, so UNBOUNDED and RSTREAM are left out.

    `recursive`: how many of the queries are recursive ones, `ranked`: how many have a LIMIT, a DISTINCT ON, or OVER in
    SELECT; of 0 nothing else changes."""

    def __init__(
        self,
        rng: random.Random,
        depth: int = 3,
        infinite: bool = False,
        recursive: float = 0.0,
        ranked: float = 0.0,
    ) -> None:
        super().__init__(rng)
        self.recursive = recursive
        self.ranked = ranked
        self.depth = depth
        self.infinite = infinite
        self._number = 0
        self._with: list[tuple[str, Query]] = []

    def draw(self) -> Query:
        """A whole query."""
        if self.chance(0.08):
            common, _ = self.query(1, ())
            self._with = [("cte", common)]
            return With("cte", common, self.query(self.depth, ())[0])
        return self.query(self.depth, ())[0]

    def _alias(self) -> str:
        self._number += 1
        return f"t{self._number}"

    @staticmethod
    def _reads_with(query: Query) -> bool:
        """Whether it reads what a WITH around it names."""
        own = {each.name for each in query.walk() if isinstance(each, Recursive)}
        return any(isinstance(each, Stage) and each.cte and each.of not in own for each in query.walk())

    # -- queries --------------------------------------------------------------------------------------------------

    def query(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Query, bool]:
        """A query, and whether all its rows end."""
        if self.recursive and depth > 0 and self.chance(self.recursive) and set(types or "i") <= {"i", "s"}:
            return self._recursion(depth - 1, types)
        if self.ranked and depth > 0 and not outer and self.chance(self.ranked):
            query, ends = self.query(depth - 1, outer, types)
            if not set(query.types) & set(UNORDERED):
                return limited(self.rng, query), ends
            return query, ends
        if depth > 0 and self.chance(0.2):
            left, ends = self.query(depth - 1, outer, types)
            right, also = self.query(depth - 1, outer, left.types)
            return SetOperation(self.rng.choice(SETS), left, right), ends and also
        return self.select(depth, outer, types)

    def _recursion(self, depth: int, types: Sequence[str] | None) -> tuple[Query, bool]:
        """A linear recursion over values that are there, or that are counted up to a bound: it ends."""
        self._number += 1
        name, wanted = f"rec{self._number}", types or self.rng.choice(("i", "is", "ii", "si"))
        base, ends = self.select(min(depth, 1), (), wanted)
        alias = self._alias()
        names = tuple(f"c{at}" for at in range(len(wanted)))
        stage, scope = Stage(name, alias, names, base.types, cte=True), of_stage(alias, names, base.types, ends)
        counted = [at for at, t in enumerate(wanted) if t == "i"]
        if counted and self.chance(0.3):
            word, step = "UNION ALL", self._counting(stage, scope, self.rng.choice(counted), depth)
        else:
            word = "UNION"
            step, ends = self._stepping(stage, scope, depth, ends)
        read = self._alias()
        shown = of_stage(read, names, base.types, ends)
        where = self.condition(Reach(shown.columns, depth=0), 1) if self.chance(0.4) else None
        body = Select(shown.columns, Stage(name, read, names, base.types, cte=True), where, distinct=self.chance(0.1))
        return Recursive(name, word, base, step, body), ends

    def _counting(self, stage: Stage, scope: Scope, at: int, depth: int) -> Select:
        """Each row again with one more, up to a bound."""
        plus = Expr("({0} + 1)", "i", (scope.columns[at],))
        items = tuple(plus if i == at else each for i, each in enumerate(scope.columns))
        bound = Expr("{0} < 3", "b", (scope.columns[at],))
        if self.chance(0.5):
            more = self.condition(Reach(scope.columns, (), self._subquery, self._scalar, depth=depth), 1)
            bound = Expr("({0} AND {1})", "b", (bound, more))
        return Select(items, stage, bound)

    def _stepping(self, stage: Stage, scope: Scope, depth: int, ends: bool) -> tuple[Select, bool]:
        """What the rows of a stream lead to."""
        other, theirs = self._source(0)
        kind = self.rng.choice(("inner", "inner", "inner", "semi", "anti", "left"))
        on, uses = self._on(scope, theirs)
        both = scope if kind in ("semi", "anti") else joined(scope, theirs, ())
        where = None
        if self.chance(0.4):
            where = self.condition(Reach(both.columns, (), self._subquery, self._scalar, depth=depth), 1)
        items = []
        for own in scope.columns:
            alike = both.of(own.type)
            item = self.rng.choice([own, *alike])
            if own.type == "i" and self.chance(0.3):
                item = Expr("CASE WHEN {0} < 3 THEN {0} + 1 ELSE {0} END", "i", (item,))
            items.append(item)
        return Select(tuple(items), Join(kind, stage, other, on, uses=uses), where), ends and theirs.ends

    def select(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Select, bool]:
        source, scope = self.from_clause(depth)
        reach = Reach(scope.columns, outer, self._subquery, self._scalar, None, scope.qualified, depth)
        where = self.condition(reach) if self.chance(0.55) else None
        grouping = self.rng.choices(("none", "keys", "all"), (6, 3, 1))[0]
        if types is not None and "b" in types:
            grouping = "none"
        if grouping == "none":
            if types is None and scope.shown is not None and self.chance(0.2):
                return Select(scope.shown, source, where, star=True, distinct=self.chance(0.2)), scope.ends
            wanted = self._types(scope) if types is None else types
            items = tuple(self.expr(t, reach, self.rng.choice((0, 0, 1, 2))) for t in wanted)
            if self.ranked and types is None and self.chance(self.ranked):
                items = (*items, self._over(scope, source))
            return Select(items, source, where, distinct=self.chance(0.2)), scope.ends
        keys: tuple[Expr, ...] = ()
        if grouping == "keys":
            plain = replace(reach, outer=(), subquery=None, scalar=None, depth=0)
            drawn = [self._key(plain) for _ in range(self.rng.choice((1, 1, 2)))]
            keys = tuple(dict.fromkeys(drawn))
        passed = tuple(key for key in keys if not key.parts and "." in key.template)
        inner = Reach(keys, (), self._subquery, self._scalar, scope.columns, passed, depth - 1)
        wanted = types or "".join(self.rng.choice("iiiisgf") for _ in range(self.rng.randint(1, 3)))
        items = tuple(self._of_group(t, inner) for t in wanted)
        if types is None and keys and self.chance(0.7):
            items = (*keys, *items)
        having = self._having(inner) if self.chance(0.3) else None
        if not self._aggregates((*items, *((having,) if having else ()))):
            if grouping == "all":
                items = (*items[:-1], self.aggregate(items[-1].type, inner) or items[-1])
            if grouping == "all" and not self._aggregates(items):
                return Select(items, source, where), scope.ends
        return Select(items, source, where, keys, having, grouping, self.chance(0.1)), scope.ends

    def _over(self, scope: Scope, source: Node) -> Expr:
        """A call with OVER."""
        return over_item(self.rng, scope.columns, isinstance(source, Stage))

    @staticmethod
    def _aggregates(items: Sequence[Expr]) -> bool:
        return any(use.startswith("aggregate") for item in items for use in _own_uses(item))

    def _key(self, reach: Reach) -> Expr:
        if self.chance(0.8) and reach.columns:
            return self.rng.choice(reach.columns)
        return Expr("({0} + 1)", "i", (self.leaf("i", replace(reach, outer=())),), ("group by an expression",))

    def _of_group(self, type_: str, inner: Reach) -> Expr:
        """A key, an aggregate, or something over them."""
        if type_ in "gb" or self.chance(0.6):
            return self.aggregate(type_, inner) or self.constant(type_)
        return self.expr(type_, inner, 1)

    def _having(self, inner: Reach) -> Expr:
        return self.condition(inner, 1)

    def _types(self, scope: Scope) -> str:
        there = [each.type for each in scope.columns] or ["i"]
        wanted = [self.rng.choice(there) for _ in range(self.rng.randint(1, 3))]
        return "".join("b" if self.chance(0.06) else t for t in wanted)

    # -- subqueries in expressions --------------------------------------------------------------------------------

    def _subquery(self, around: Reach, types: Sequence[str] | None) -> tuple[Query, bool]:
        outer = (*around.outer, *around.passed) if self.chance(0.6) else ()
        query, _ = self.query(min(around.depth - 1, 2), outer, types)
        return query, reads(query, outer)

    def _scalar(self, around: Reach, type_: str) -> tuple[Query, bool]:
        """One row at every instant: an aggregate without groups."""
        outer = (*around.outer, *around.passed) if self.chance(0.6) else ()
        source, scope = self.from_clause(around.depth - 1)
        reach = Reach(scope.columns, outer, self._subquery, self._scalar, None, scope.qualified, around.depth - 1)
        where = self.condition(reach, 1) if self.chance(0.8) else None
        item = self.aggregate(type_, Reach((), aggregated=scope.columns)) or self.constant(type_)
        if not self._aggregates([item]):
            item = Expr("MAX({0})", type_, (self.constant(type_),), ("aggregate: MAX",))
        query = Select((item,), source, where, grouping="all")
        return query, reads(query, outer)

    # -- FROM -----------------------------------------------------------------------------------------------------

    def from_clause(self, depth: int) -> tuple[Node, Scope]:
        source, scope = self._source(depth)
        joins = self.rng.choices((0, 1, 2), (5, 5, 2))[0] if depth > 0 else self.rng.choices((0, 1), (7, 2))[0]
        commas = False
        for _ in range(joins):
            source, scope, commas = self._joined(source, scope, depth, commas)
        return source, scope

    def _joined(self, left: Node, scope: Scope, depth: int, commas: bool) -> tuple[Node, Scope, bool]:
        if depth > 0 and self.chance(0.12):
            right, theirs = self._source(depth - 1)
            right, theirs, _ = self._joined(right, theirs, 0, True)
        else:
            right, theirs = self._source(depth - 1)
        kind = self.rng.choice(JOINS)
        if kind in ("cross", "comma"):
            # a comma binds looser than JOIN, so what has one is not joined any further
            kind = "cross" if commas or isinstance(right, Join) else kind
            return Join(kind, left, right), joined(scope, theirs, ()), commas
        if isinstance(left, Join) and left.kind == "comma":
            return Join("comma", left, right), joined(scope, theirs, ()), commas
        same = [name for name in scope.bare if usable(name, scope, theirs)]
        if same and self.chance(0.3):
            using = tuple(self.rng.sample(same, self.rng.randint(1, min(2, len(same)))))
            found = Join(kind, left, right, using=using)
            return found, scope if kind in ("semi", "anti") else joined(scope, theirs, using), commas
        on, uses = self._on(scope, theirs)
        found = Join(kind, left, right, on, uses=uses)
        both = joined(scope, theirs, ())
        return found, replace(scope, ends=both.ends) if kind in ("semi", "anti") else both, commas

    def _on(self, left: Scope, right: Scope) -> tuple[Expr, tuple[str, ...]]:
        """An equality, an inequality, both, or anything."""
        both = Reach((*left.qualified, *right.qualified), depth=0)
        pairs = [(a, b) for a in left.qualified for b in right.qualified if a.type == b.type and a.type in "isd"]
        if not pairs:
            return self.condition(both, 1), ("on: anything",)
        a, b = self.rng.choice(pairs)
        if a.type == "i" and self.chance(0.15):
            a = Expr("({0} + 1)", "i", (a,))
        if self.chance(0.3):
            a, b = b, a
        op = self.rng.choices(("=", "<", "<>", ">=", "IS NOT DISTINCT FROM"), (12, 3, 1, 2, 1))[0]
        found = Expr(f"{{0}} {op} {{1}}", "b", (a, b))
        kind = "on: equal" if op == "=" else "on: not distinct" if op.startswith("IS") else "on: theta"
        if self.chance(0.3):
            word = "OR" if self.chance(0.15) else "AND"
            rest = self.condition(both, 0)
            return Expr(f"({{0}} {word} {{1}})", "b", (found, rest)), (f"{kind} {word.lower()} more",)
        return found, (kind,)

    def _source(self, depth: int) -> tuple[Node, Scope]:
        alias = self._alias()
        if depth > 0 and self.chance(0.35):
            query, ends = self.query(depth - 1, ())
            names = tuple(f"{alias}c{at}" if self.chance(0.3) else f"c{at}" for at in range(len(query.types)))
            how = Lifetimes()
            if self.chance(0.35) and not self._reads_with(query):
                how = _of_snapshots(self._lifetimes(names, ends, derived=True))
            merge: tuple[str, ...] = ()
            starred = any(isinstance(each, Select) and each.star for each in query.walk())
            if not starred and self.chance(0.12) and not self._reads_with(query):
                merge = (f"({_of_copies(query).sql(OURS)})", self._merge_words(2))
                how = _of_snapshots(how)
            if how.around or merge:  # neither has names for columns behind it
                names = tuple(f"c{at}" for at in range(len(query.types)))
                how = replace(how, around=None) if starred else how
            return self._stage(query, alias, names, query.types, how, ends, merge)
        if self._with and self.chance(0.4):
            name, query = self._with[0]
            names = tuple(f"c{at}" for at in range(len(query.types)))
            stage = Stage(name, alias, names, query.types, cte=True)
            return stage, of_stage(alias, names, query.types, False)
        source = SOURCES[self.rng.choice("AAAABBBCCCPPNNKKROO")]
        ends = not self.infinite and not source.constant
        how = self._lifetimes(source.names, ends, derived=False) if self.chance(0.6) else Lifetimes()
        merge = ()
        if source.time and self.chance(0.6):
            names, types = source.timed
            stage, scope = self._stage(source.name, alias, names, types, how, ends)
            return stage, of_timed(alias, names, types, scope.ends)
        if source.name in COPIES and self.chance(0.15):
            merge, clipped = self._copies(source.name)
            how = _of_snapshots(how) if clipped else how
        return self._stage(source.name, alias, source.names, source.types, how, ends, merge)

    def _copies(self, name: str) -> tuple[tuple[str, ...], bool]:
        """Other copies of a source with the words of a merge, and whether one of them lacks the starts of events."""
        taken = self.rng.sample(COPIES[name], self.rng.randint(1, len(COPIES[name])))
        texts = [each if (t := SOURCES[each].since) is None else f"{each} SINCE {t}" for each in taken]
        return (*texts, self._merge_words(1 + len(texts))), any("SINCE" in text for text in texts)

    def _merge_words(self, copies: int) -> str:
        policy = self.rng.choice(("", "FIRST", "LEADER", f"QUORUM {self.rng.randint(1, copies)}", "FINAL"))
        haste = self.rng.choice(("", "EAGER", "LAZY")) if policy != "FINAL" else ""
        return ", ".join(word for word in (policy, haste) if word)

    def _stage(
        self,
        of: str | Query,
        alias: str,
        names: tuple[str, ...],
        types: tuple[str, ...],
        how: Lifetimes,
        ends: bool,
        merge: tuple[str, ...] = (),
    ) -> tuple[Stage, Scope]:
        if how.window is not None and how.window[0] in ("unbounded", "rows"):
            ends = False
        if how.around in ("INSERTS", "DELETES"):
            ends = False
        if how.lifetime is not None and how.lifetime[-1]:
            ends = True
        return Stage(of, alias, names, types, how, merge=merge), of_stage(alias, names, types, ends)

    def _lifetimes(self, names: Sequence[str], ends: bool, derived: bool) -> Lifetimes:
        rng = self.rng
        around = None
        if self.chance(0.15):
            around = rng.choice(("ISTREAM", "DSTREAM", "COALESCE", "RSTREAM", "INSERTS", "DELETES"))
            if not ends and around == "RSTREAM":
                around = "ISTREAM"
            if around in ("INSERTS", "DELETES"):
                return Lifetimes(around)
            ends = ends or around in ("ISTREAM", "DSTREAM")
            if self.chance(0.6):
                return Lifetimes(around)
        if self.chance(0.08):
            hops = ((4, 0, 0, 4), (4, 0, 4, 8), (4, 3, 0, 4), (3, 1, 2, 5), (3, 0, 0, 0))
            return Lifetimes(around, lifetime=rng.choice(((0, 0, 0, 3), (0, 0, 2, 2), (0, 0, 3, 0), *hops)))
        granule = rng.choice((2, 3, 4)) if self.chance(0.12) else 0
        kind = rng.choices(("now", "range", "slide", "rows", "unbounded"), (2, 8, 3, 4, 1))[0]
        if kind == "unbounded" and (not ends or derived):
            kind = "range"
        if kind == "rows":
            by = (rng.choice(names),) if self.chance(0.5) else ()
            slide = rng.choice((0, 0, 0, 2, 3)) if ends else 0
            return Lifetimes(around, ("rows", rng.randint(1, 3), slide), by, granule)
        length, slide = rng.randint(1, 7), rng.randint(1, 4) if kind == "slide" else 0
        return Lifetimes(around, ("range" if kind == "slide" else kind, length, slide), (), granule)


def _of_copies(node: Node) -> Any:
    """The same query over copies of its sources."""
    new: dict[str, Any] = {}
    for each in fields(node):
        value = getattr(node, each.name)
        if isinstance(value, Node):
            new[each.name] = _of_copies(value)
        elif isinstance(value, tuple):
            new[each.name] = tuple(_of_copies(part) if isinstance(part, Node) else part for part in value)
    if isinstance(node, Stage) and isinstance(node.of, str) and not node.merge and node.of in COPIES:
        whole = [name for name in COPIES[node.of] if SOURCES[name].since is None]
        new["of"] = whole[0]
    return replace(node, **new)


def _of_snapshots(how: Lifetimes) -> Lifetimes:
    """What looks at events, over a subquery: behind COALESCE, since a filtered or projected source keeps its own."""
    if how.around in ("INSERTS", "DELETES") or (how.lifetime is not None and how.around is None):
        return replace(how, around="COALESCE")
    return how


def _own_uses(expr: Expr) -> list[str]:
    """The constructs of an expression without its subqueries."""
    found = list(expr.uses)
    for part in expr.parts:
        if isinstance(part, Expr):
            found += _own_uses(part)
    return found


__all__ = ["Grammar", "column"]
