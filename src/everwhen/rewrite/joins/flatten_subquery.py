"""Subqueries become semi-joins and anti-joins, and joins that add nothing go.

The binder writes a subquery as a left outer join with something unique on the join's columns, and a condition above
that reads a *mark* of it.  Here, over any plan of that shape:

* a mark that is null exactly where there is no partner, and a condition that it is null: an anti-join; what is read of
  the right side above is null;
* `p OR mark IS NULL`, with at most one partner: an anti-join with the condition that p is not true (NOT IN and
  comparisons with ALL have this form);
* an inner join of which one side's columns are not read, and that has at most one partner for each row of the other
  side: a semi-join.  (A mark that is not null has made the left join an inner one: `outer_to_inner`.)  Under
  duplicate elimination there may be many partners;
* a left join whose right columns are not read, likewise: no join at all.

Joins with a condition beside the keys stay inner joins: a semi-join would have to look at the left rows twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Column, Expr, conjunction, conjuncts, disjunction, lit
from everwhen.algebra.nodes import Aggregate, Distinct, Filter, Join, Map, Node
from everwhen.algebra.properties.nullability import never_null
from everwhen.rewrite.facts.conditions import may_fail, renamed, replaced
from everwhen.rewrite.facts.pairs import mirrored, ownership
from everwhen.rewrite.facts.plans import unique_on
from everwhen.rewrite.rule import Rule

_OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _apply(node: Node) -> Node | None:
    match node:
        case Filter(Join(kind="left") as join, predicate):
            return _anti(join, conjuncts(predicate))
        case Map(Join() as join):
            return _mapped(node, join, unique=False)
        case Distinct(Map(Join() as join) as mapped):
            once = _mapped(mapped, join, unique=True)
            return None if once is None else Distinct(once)
        case Aggregate(Join() as join, keys, aggregations):
            read = frozenset(keys) | {column for each in aggregations for column in each.columns}
            found = _without_side(join, read, unique=False)
            if found is None:
                return None
            result, names = found
            if any(names[name] != name for name in read):
                result = Map(result, tuple((name, Column(names[name])) for name in join.schema.names if name in read))
            return Aggregate(result, keys, aggregations)
    return None


# -- anti-joins --------------------------------------------------------------------------------------------------------


def _anti(join: Join, conditions: list[Expr]) -> Node | None:
    """A left join of which only the rows without a partner pass."""
    marks = {name for name, own in ownership(join).right.items() if _marks(join, own)}
    for i, each in enumerate(conditions):
        rest = [*conditions[:i], *conditions[i + 1 :]]
        match each:
            case Call("is_null", (Column(name),)) if name in marks:
                return _lonely(join, rest)
            case Call("or", args):
                for k, other in enumerate(args):
                    match other:
                        case Call("is_null", (Column(name),)) if name in marks:
                            found = _guarded(join, disjunction((*args[:k], *args[k + 1 :])), rest)
                            if found is not None:
                                return found
    return None


def _marks(join: Join, column: str) -> bool:
    """Whether the right column is null for padded rows only."""
    return never_null(join.right, column) or (column in join.right_keys and not join.null_safe)


def _lonely(join: Join, rest: list[Expr]) -> Node:
    own = ownership(join)
    nothing: dict[str, Expr] = {name: lit(None, join.pair_schema.field(name).type) for name in own.right}
    anti: Node = replace(join, kind="anti")
    if rest:
        anti = Filter(anti, conjunction(replaced(each, nothing) for each in rest))
    kept = {name: Column(name) for name in own.left}
    return Map(anti, tuple((name, (kept | nothing)[name]) for name in join.schema.names))


def _guarded(join: Join, p: Expr, rest: list[Expr]) -> Node | None:
    """`p OR no partner`: what must not be is a partner for which p is not true.

    Rows that pass keep their partner's columns, so these stay readable: by a left join again, which goes if not read.
    """
    own = ownership(join)
    if join.residual is not None or any(own.readers(each)[1] for each in rest):
        return None
    if may_fail(p, join.schema) or not unique_on(join.right, join.right_keys):
        return None
    anti = replace(join, kind="anti", residual=_not_true(p, lambda name: _known(join, name)))
    again = Join(anti, join.right, join.left_keys, join.right_keys, None, "left", join.null_safe)
    return Filter(again, conjunction(rest)) if rest else again


def _known(join: Join, name: str) -> bool:
    """Whether the column holds no nulls in pairs."""
    own = ownership(join)
    return _marks(join, own.right[name]) if name in own.right else never_null(join.left, own.left[name])


def _not_true(p: Expr, known: Callable[[str], bool]) -> Expr:
    """A condition that is true where p is false or null."""
    match p:
        case Call("not_null", args):
            return Call("is_null", args)
        case Call("is_null", args):
            return Call("not_null", args)
        case Call(name, (Column(a), Column(b))) if name in _OPPOSITE and known(a) and known(b):
            return Call(_OPPOSITE[name], (Column(a), Column(b)))
    return Call("not", (Call("coalesce", (p, lit(False))),))


# -- semi-joins --------------------------------------------------------------------------------------------------------


def _mapped(node: Map, join: Join, unique: bool) -> Node | None:
    read = frozenset(name for _, expr in node.columns for name in expr.columns())
    found = _without_side(join, read, unique)
    if found is None:
        return None
    result, names = found
    return Map(result, tuple((name, renamed(expr, names)) for name, expr in node.columns))


def _without_side(join: Join, read: frozenset[str], unique: bool) -> tuple[Node, dict[str, str]] | None:
    """A plan with the rows of one side that have a partner, and the names of its columns.

    `unique`: whoever reads it takes equal rows as one.
    """
    own = ownership(join)
    if join.kind == "left" and read <= own.left.keys() and (unique or unique_on(join.right, join.right_keys)):
        return join.left, own.left
    if join.kind != "inner" or join.residual is not None or not join.left_keys:
        return None
    left, right = _with_partners_keys(join)
    if read <= left.keys() and (unique or unique_on(join.right, join.right_keys)):
        return replace(join, kind="semi"), left
    if read <= right.keys() and (unique or unique_on(join.left, join.left_keys)):
        return replace(mirrored(join)[0], kind="semi"), right
    return None


def _with_partners_keys(join: Join) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of pairs that each side has, or has the like of: keys are equal (0.0 and -0.0 too, so no floats)."""
    own = ownership(join)
    left, right = dict(own.left), dict(own.right)
    by_left, by_right = ({name: pair for pair, name in side.items()} for side in (own.left, own.right))
    for a, b in zip(join.left_keys, join.right_keys, strict=True):
        if not pa.types.is_floating(join.left.schema.field(a).type):
            left[by_right[b]] = a
            right[by_left[a]] = b
    return left, right


FLATTEN_SUBQUERY = Rule("flatten_subquery", "only whether there is a partner counts", _apply)
