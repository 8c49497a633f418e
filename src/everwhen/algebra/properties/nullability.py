"""Nulls: which columns can hold none, and which conditions no null gets through.

    never_null(node, column)          no row of the node's stream, at any instant, has a null in the column
    never_true(condition, columns)    the condition is false or null wherever all these columns are null

Derived from the plan and its expressions alone.  False is always safe.
"""

from __future__ import annotations

from collections.abc import Collection

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import FUNCTIONS, Call, Cast, Column, Expr, Literal, Udf


def never_null(node: n.Node, column: str) -> bool:
    """Whether the column is known to hold no nulls."""
    match node:
        case n.Filter(input, predicate):
            return never_true(predicate, {column}) or never_null(input, column)
        case n.Map(input, columns):
            return _without_nulls(dict(columns)[column], input)
        case n.Aggregate(input, keys, aggregations):
            if column in keys:
                return never_null(input, column)
            found = next(each for each in aggregations if each.name == column)
            if found.function in ("min", "max", "sum", "avg", "median", "quantile"):
                return all(never_null(input, each) for each in found.columns)  # a group has a row
            return found.function in ("count", "count_distinct")
        case n.Join():
            return _never_null_in_join(node, column)
        case n.Union(left, right) | n.SetOperation(left, right, "max_union"):
            other = right.schema.names[left.schema.index(column)]
            return never_null(left, column) and never_null(right, other)
        case n.SetOperation(left):
            return never_null(left, column)
        case (
            n.Distinct(input)
            | n.TimeWindow(input)
            | n.RowsWindow(input)
            | n.Granularity(input)
            | n.RelationToStream(input)
            | n.Split(input)
            | n.Coalesce(input)
            | n.AlterLifetime(input)
            | n.Deletes(input)
            | n.Punctuate(input)
            | n.Span(input)
        ):
            return never_null(input, column)
        case n.Stamp(input, start, end):
            return column == start or (column != end and never_null(input, column))
        case n.Values(columns, rows):
            at = columns.index(column)
            return all(row[at] is not None for row in rows)
        case n.Unnest(input, kind=kind, outer=outer):
            if column in input.schema:
                return never_null(input, column)
            return not outer and (kind != "list" or column == node.place)
    return False


def _without_nulls(expr: Expr, input: n.Node) -> bool:
    match expr:
        case Literal(constant):
            return constant is not None
        case Column(name):
            return never_null(input, name)
        case Call("is_null" | "not_null"):
            return True
        case Call("coalesce", args):
            return any(_without_nulls(arg, input) for arg in args)
    return False


def _never_null_in_join(join: n.Join, column: str) -> bool:
    if join.kind == "full":
        return False
    at, width = join.pair_schema.names.index(column), len(join.left.schema)
    if at >= width and join.kind == "left":  # padded where there is no partner
        return False
    side, keys = (join.left, join.left_keys) if at < width else (join.right, join.right_keys)
    name = side.schema.names[at if at < width else at - width]
    matched = join.kind in ("inner", "semi") and name in keys and not join.null_safe  # nulls never match
    return matched or never_null(side, name)


def never_true(condition: Expr, nulls: Collection[str]) -> bool:
    """Whether the condition cannot be true for rows in which all the columns `nulls` are null."""
    if always_null(condition, nulls):
        return True
    match condition:
        case Literal(constant):
            return constant is not True
        case Call("and", args):
            return any(never_true(arg, nulls) for arg in args)
        case Call("or", args):
            return all(never_true(arg, nulls) for arg in args)
        case Call("not_null", (arg,)):
            return always_null(arg, nulls)
        case Call("not", (Call("is_null", (arg,)),)):
            return always_null(arg, nulls)
    return False


def always_null(expr: Expr, nulls: Collection[str]) -> bool:
    """Whether the value is null for all rows in which the columns `nulls` are."""
    match expr:
        case Column(name):
            return name in nulls
        case Literal(constant):
            return constant is None
        case Cast(operand):
            return always_null(operand, nulls)
        case Udf(_, args):
            return any(always_null(arg, nulls) for arg in args)
        case Call("in", (arg, *listed)):
            return bool(listed) and always_null(arg, nulls)
        case Call("and" | "or" | "coalesce" | "least" | "greatest", args):
            return all(always_null(arg, nulls) for arg in args)
        case Call("nullif", (arg, _)):
            return always_null(arg, nulls)
        case Call(name, args) if FUNCTIONS[name].strict:
            return any(always_null(arg, nulls) for arg in args)
    return False
