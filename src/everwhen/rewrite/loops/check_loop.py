"""What may stand on a loop: between the place where a step reads its recursion and the fixed point.

    filter, map, union, inner join (also of the recursion with itself)           always
    semi-join, duplicate elimination, INTERSECT                                  where the loop is a set, not UNION ALL
    semi-, anti- and left join, the recursion on the kept side only              always
    reading the value of a MIN (MAX) loop as x, x + e, x - e, LEAST, GREATEST,   e does not depend on the value
    and in conditions as x < e, x <= e (x > e, x >= e)

Then the step is monotone at every instant, so that there is a least fixed point, and rounds find it.  Checked on plans
after rewriting: a subquery such as `x IN (SELECT n FROM r)` is an outer join until then, and a semi-join afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, conjuncts
from everwhen.core.schema import Schema
from everwhen.errors import LoopError
from everwhen.rewrite.facts.pairs import ownership
from everwhen.rewrite.loops.dependence import FALLS, FREE, RISES, Dependence, dependence, together

Columns = Mapping[str, Dependence]

_FORM: Final = "SELECT keys, MIN(x) FROM (base UNION ALL step) u GROUP BY keys (or MAX)"
_OTHER_INSTANTS: Final = {
    n.TimeWindow: "a window",
    n.RowsWindow: "a window of rows",
    n.Granularity: "GRANULARITY",
    n.AlterLifetime: "LIFETIME or INSERTS",
    n.Deletes: "DELETES",
    n.Stamp: "a window with its start",
    n.Span: "a session window",
    n.Split: "a split",
    n.Coalesce: "COALESCE",
}


def check_loop(loop: n.Fixpoint) -> None:
    """LoopError, with the place where the text names the recursion, if its step may not read it so."""
    _Check(loop).step()


class _Check:
    def __init__(self, loop: n.Fixpoint) -> None:
        self.loop = loop
        self.r = loop.token.name
        self.is_set = loop.kind != "union all"
        self.better = FALLS if loop.kind == "min" else RISES
        self._done: dict[int, Columns] = {}

    def step(self) -> None:
        found = self._visit(self.loop.step)
        for column, own in zip(self.loop.schema.names, self.loop.step.schema.names, strict=True):
            if column == self.loop.value:
                if found[own] not in (FREE, RISES):
                    self._fail_value(self.loop.step, "its next value")
            elif found[own] is not FREE:
                self._fail(
                    self.loop.step,
                    f"the step of {self.r} makes the column {column} of the value that {self._extreme} takes; a "
                    f"better value would leave a row of the old one behind: let {column} be a key or a constant",
                )

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _reads(self, node: n.Node) -> bool:
        return n.reads_recursion(node, self.loop.token)

    def _visit(self, node: n.Node) -> Columns:
        """How each column depends on the value."""
        known = self._done.get(id(node))
        if known is None:
            free = not self._reads(node)
            known = dict.fromkeys(node.schema.names, FREE) if free else self._columns(node)
            self._done[id(node)] = known
        return known

    def _columns(self, node: n.Node) -> Columns:
        match node:
            case n.Recursion():
                return {name: RISES if name == self.loop.value else FREE for name in node.schema.names}
            case n.Filter(input, predicate):
                found = self._visit(input)
                self._require_condition(predicate, found, node, input.schema)
                return found
            case n.Map(input, columns):
                found = self._visit(input)
                return {name: dependence(expr, found, input.schema, self.better) for name, expr in columns}
            case n.Union(left, right):
                one, two = self._visit(left), self._visit(right)
                places = zip(left.schema.names, right.schema.names, strict=True)
                return {mine: together((one[mine], two[other])) for mine, other in places}
            case n.Join():
                return self._join(node)
            case n.Distinct(input):
                if not self.is_set:
                    self._fail(
                        node,
                        f"duplicates of {self.r} are removed inside its own recursion, which counts them (UNION ALL); "
                        "write UNION instead, or remove them behind the recursion",
                    )
                return self._visit(input)
            case n.SetOperation():
                return self._set(node)
        self._fail_node(node)

    def _join(self, join: n.Join) -> Columns:
        own = ownership(join)
        reads_right = self._reads(join.right)
        if join.kind == "full" or (join.kind == "left" and reads_right):
            self._fail(
                join.right if reads_right else join,
                f"{self.r} stands on a side of an outer join that is padded with nulls, or in a subquery of which "
                f"more is asked than whether there is a row: what was said without a partner in {self.r} would have "
                f"to be taken back in a later round; read {self.r} by an inner join, IN or EXISTS",
            )
        if join.kind == "anti" and reads_right:
            self._fail(
                join.right,
                f"NOT IN, NOT EXISTS or an anti-join over {self.r} inside its own recursion: what is not there yet may "
                f"come in a later round; ask for it behind the recursion",
            )
        if join.kind == "semi" and reads_right and not self.is_set:
            self._fail(
                join.right,
                f"IN or EXISTS over {self.r} takes it as a set, and its recursion counts copies (UNION ALL); write "
                "UNION, or a join",
            )
        left, right = self._visit(join.left), self._visit(join.right)
        for a, b in zip(join.left_keys, join.right_keys, strict=True):
            if left[a] is not FREE or right[b] is not FREE:
                self._fail_value(join.left if left[a] is not FREE else join.right, "a join by equality")
        pairs = {pair: left[name] for pair, name in own.left.items()}
        pairs |= {pair: right[name] for pair, name in own.right.items()}
        if join.residual is not None:
            if join.kind in ("anti", "left"):
                if any(pairs[name] is not FREE for name in join.residual.columns()):
                    self._fail_value(join, "the condition of an outer or anti-join")
            else:
                self._require_condition(join.residual, pairs, join, join.pair_schema)
        return {name: pairs[name] for name in join.schema.names}

    def _set(self, node: n.SetOperation) -> Columns:
        if node.kind == "intersect" and self.is_set:
            one, two = self._visit(node.left), self._visit(node.right)
            for each, found in ((node.left, one), (node.right, two)):
                if any(found[name] is not FREE for name in found):
                    self._fail_value(each, "INTERSECT, which compares whole rows")
            return one
        if node.kind == "intersect":
            self._fail(
                node,
                f"INTERSECT takes {self.r} as a set, and its recursion counts copies (UNION ALL); write UNION there, "
                "or a join",
            )
        if node.kind == "max_union":
            self._fail(node, f"max_union cannot stand inside the recursion {self.r}; write a union")
        if self._reads(node.right):
            self._fail(
                node.right,
                f"EXCEPT over {self.r} inside its own recursion: what is not there yet may come in a later round; take "
                "rows away behind the recursion",
            )
        self._fail(
            node,
            f"EXCEPT cannot stand inside the recursion {self.r}; write WHERE NOT EXISTS (SELECT … FROM …) with what is "
            "taken away, if that is not recursive itself",
        )

    def _fail_node(self, node: n.Node) -> NoReturn:
        match node:
            case n.Aggregate(_, _, aggregations):
                what = f"{aggregations[0]}" if aggregations else "GROUP BY"
                problem = (
                    f"{what} over {self.r} inside its own recursion would depend on the round; aggregate behind the "
                    f"recursion, or write {_FORM}"
                )
            case n.Fixpoint(token=token):
                problem = (
                    f"{token.name} is a recursion of its own and reads {self.r} inside the recursion of {self.r}; "
                    "name both in one WITH RECURSIVE, so that they are one loop"
                )
            case n.RelationToStream(_, kind):
                problem = self._other_instants(kind.upper())
            case n.LMerge():
                problem = (
                    f"LMERGE cannot stand over {self.r} inside its own recursion; merge what the recursion reads, or "
                    "behind it"
                )
            case n.Punctuate():
                problem = (
                    f"no promise can be made of {self.r} inside its own recursion; PUNCTUATE what the recursion reads, "
                    "or behind it"
                )
            case n.MatchRecognize():
                problem = (
                    f"MATCH_RECOGNIZE over {self.r} inside its own recursion: a row that comes in a later round may "
                    "take a match back; look for patterns in what the recursion reads, or behind it"
                )
            case n.Rank() | n.Over():
                problem = (
                    f"rows of {self.r} cannot be ranked or limited inside its own recursion: a row that comes in a "
                    "later round may take another one's place; rank what the recursion reads, or behind it"
                )
            case n.Sort():
                problem = "rows have an order only where they leave the plan; sort behind the recursion"
            case _:
                problem = self._other_instants(_OTHER_INSTANTS.get(type(node), type(node).__name__))
        self._fail(node, problem)

    def _other_instants(self, what: str) -> str:
        return (
            f"{what} over {self.r} inside its own recursion would read other instants than this one, and a recursion "
            "is about one instant; put it on what the recursion reads, or behind it"
        )

    # -- the value of MIN and MAX ------------------------------------------------------------------------------------

    @property
    def _extreme(self) -> str:
        return self.loop.kind.upper()

    def _require_condition(self, condition: Expr, columns: Columns, node: n.Node, schema: Schema) -> None:
        for each in conjuncts(condition):
            if dependence(each, columns, schema, self.better) not in (FREE, self.better):
                self._fail_value(node, f"the condition {each}")

    def _fail_value(self, node: n.Node, where: str) -> NoReturn:
        signs = "x < e and x <= e" if self.loop.kind == "min" else "x > e and x >= e"
        self._fail(
            node,
            f"the value {self.loop.value} of {self.r} is read by {where} in a way that a better value may undo: a "
            f"{self._extreme} may be read as x, x + e, x - e, LEAST(x, e), GREATEST(x, e), and in conditions as {signs}"
            " where e does not depend on it; test it behind the recursion",
        )

    def _fail(self, node: n.Node, problem: str) -> NoReturn:
        leaves = [each for each in n.walk(node) if isinstance(each, n.Recursion) and each.token is self.loop.token]
        place = next((leaf.place for leaf in leaves if leaf.place is not None), None)
        raise LoopError(problem, place)
