"""Facts about plans that rules need beside `algebra.properties`: columns with one value, or equal ones.

False is always safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa

from everwhen.algebra.expressions.build import Column, Literal
from everwhen.algebra.nodes import (
    Coalesce,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    Node,
    Punctuate,
    RelationToStream,
    RowsWindow,
    Split,
    TimeWindow,
)
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.keys import Equalities, forced
from everwhen.rewrite.facts.pairs import ownership


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
        case RelationToStream(input) | Split(input) | Coalesce(input) | Punctuate(input):
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
        case Distinct(input) | TimeWindow(input) | Punctuate(input):
            return _equal_pairs(input)
    return []


def unique_on(node: Node, columns: Iterable[str]) -> bool:
    """Whether no two rows alive at one instant agree on the columns, nulls counted as equal."""
    return properties(node).unique_on(frozenset(columns) | constant_columns(node))


def has_duplicates(node: Node) -> bool:
    """Whether two equal rows may be alive at one instant."""
    return not unique_on(node, node.schema.names)
