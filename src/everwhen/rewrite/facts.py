"""Facts about plans that rules need beside `algebra.properties`: columns without nulls, with one value, or equal.

False is always safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa

from everwhen.algebra.expr import Call, Column, Expr, Literal
from everwhen.algebra.keys import Equalities, forced
from everwhen.algebra.nodes import (
    Aggregate,
    AlterLifetime,
    Coalesce,
    Deletes,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    Node,
    RelationToStream,
    RowsWindow,
    SetOperation,
    Split,
    TimeWindow,
    Union,
)
from everwhen.algebra.properties import properties
from everwhen.rewrite.conditions import never_true
from everwhen.rewrite.pairs import ownership


def never_null(node: Node, column: str) -> bool:
    """Whether the column is known to hold no nulls."""
    match node:
        case Filter(input, predicate):
            return never_true(predicate, {column}) or never_null(input, column)
        case Map(input, columns):
            return _without_nulls(dict(columns)[column], input)
        case Aggregate(input, keys, aggregations):
            if column in keys:
                return never_null(input, column)
            found = next(each for each in aggregations if each.name == column)
            if found.function in ("min", "max", "sum", "avg", "median", "quantile"):
                return all(never_null(input, each) for each in found.columns)  # a group has a row
            return found.function in ("count", "count_distinct")
        case Join():
            return _never_null_in_join(node, column)
        case Union(left, right) | SetOperation(left, right, "max_union"):
            other = right.schema.names[left.schema.index(column)]
            return never_null(left, column) and never_null(right, other)
        case SetOperation(left):
            return never_null(left, column)
        case (
            Distinct(input)
            | TimeWindow(input)
            | RowsWindow(input)
            | Granularity(input)
            | RelationToStream(input)
            | Split(input)
            | Coalesce(input)
            | AlterLifetime(input)
            | Deletes(input)
        ):
            return never_null(input, column)
    return False


def _without_nulls(expr: Expr, input: Node) -> bool:
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


def _never_null_in_join(join: Join, column: str) -> bool:
    if join.kind == "full":
        return False
    own = ownership(join)
    if column in own.left:
        name, side, keys, padded = own.left[column], join.left, join.left_keys, False
    else:
        name, side, keys, padded = own.right[column], join.right, join.right_keys, join.kind == "left"
    if padded:
        return False
    matched = join.kind in ("inner", "semi") and name in keys and not join.null_safe  # nulls never match
    return matched or never_null(side, name)


def constant_columns(node: Node) -> frozenset[str]:
    """Columns that have the same value in every row."""
    match node:
        case Map(input, columns):
            below = constant_columns(input)
            return frozenset(
                name
                for name, expr in columns
                if isinstance(expr, Literal) or (isinstance(expr, Column) and expr.name in below)
            )
        case Filter(input) | Distinct(input) | TimeWindow(input) | RowsWindow(input) | Granularity(input):
            return constant_columns(input)
        case RelationToStream(input) | Split(input) | Coalesce(input):
            return constant_columns(input)
        case Join(left, kind="semi" | "anti"):
            return constant_columns(left)
    return frozenset()


def equal_columns(node: Node, column: str) -> frozenset[str]:
    """The columns that have the same value as this one in every row, itself included."""
    return frozenset(Equalities.of_pairs(_equal_pairs(node)).like(column))


def _equal_pairs(node: Node) -> list[tuple[str, str]]:
    match node:
        case Filter(input, predicate):
            classes = forced(predicate, input.schema).classes
            return [*_equal_pairs(input), *((a, b) for each in classes for a, b in pairwise(sorted(each)))]
        case Map(input, columns):
            names: dict[str, list[str]] = {}
            for name, expr in columns:
                if isinstance(expr, Column):
                    names.setdefault(expr.name, []).append(name)
            below = Equalities.of_pairs(_equal_pairs(input)).classes
            same = [[name for column in each for name in names.get(column, [])] for each in below]
            return [pair for group in (*same, *names.values()) for pair in pairwise(group)]
        case Join(left, kind="semi" | "anti"):
            return _equal_pairs(left)
        case Join(left, right, kind="inner"):
            own = ownership(node)
            by_right = {name: pair for pair, name in own.right.items()}
            keys = zip(node.left_keys, node.right_keys, strict=True)
            found = [(a, by_right[b]) for a, b in keys if not pa.types.is_floating(left.schema.field(a).type)]
            return [*_equal_pairs(left), *((by_right[a], by_right[b]) for a, b in _equal_pairs(right)), *found]
        case Distinct(input) | TimeWindow(input):
            return _equal_pairs(input)
    return []


def unique_on(node: Node, columns: Iterable[str]) -> bool:
    """Whether no two rows alive at one instant agree on the columns, nulls counted as equal."""
    return properties(node).unique_on(frozenset(columns) | constant_columns(node))


def has_duplicates(node: Node) -> bool:
    """Whether two equal rows may be alive at one instant."""
    return not unique_on(node, node.schema.names)
