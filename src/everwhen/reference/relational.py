"""The standard operators on one snapshot: relational algebra over multisets (thesis, 8.1).

They are snapshot-reducible: the operator on streams is this function at every instant (definition 10.2).  Numbers in
brackets are the thesis's formulas.  A snapshot is a `Counter` of row tuples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.expressions.build import Expr
from everwhen.algebra.nodes import Join, SetKind, Unnest
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError
from everwhen.reference.logical import Snapshot
from everwhen.reference.order import Row, canonical, canonical_row, row_order


def holds(condition: Expr, schema: Schema, row: Row) -> bool:
    """Whether a condition is true for a row: neither false nor null."""
    return bool(condition.value(dict(zip(schema.names, row, strict=True))))


def filtered(rows: Snapshot, schema: Schema, predicate: Expr) -> Snapshot:
    """(8.1)"""
    return Counter({e: n for e, n in rows.items() if holds(predicate, schema, e)})


def mapped_row(row: Row, schema: Schema, columns: Sequence[tuple[str, Expr]]) -> Row:
    named = dict(zip(schema.names, row, strict=True))
    return canonical_row(expr.value(named) for _, expr in columns)


def mapped(rows: Snapshot, schema: Schema, columns: Sequence[tuple[str, Expr]]) -> Snapshot:
    """(8.2): rows that become equal add up."""
    result: Snapshot = Counter()
    for e, n in rows.items():
        result[mapped_row(e, schema, columns)] += n
    return result


def unnested(snapshot: Snapshot, node: Unnest) -> Snapshot:
    """Each row as often as it has elements, each of them once."""
    found: Snapshot = Counter()
    for row, count in snapshot.items():
        for made in unnested_row(row, node):
            found[made] += count
    return found


def unnested_row(row: Row, node: Unnest) -> list[Row]:
    named = dict(zip(node.input.schema.names, row, strict=True))
    values = [arg.value(named) for arg in node.args]
    elements = [] if any(value is None for value in values) else _elements(node, values)
    places: list[tuple[Any, ...]] = [(each, at) for at, each in enumerate(elements, 1)]
    if node.outer and not places:
        places = [(None, None)]
    return [canonical_row((*row, *(each if node.place is not None else each[:1]))) for each in places]


def _elements(node: Unnest, values: list[Any]) -> list[Any]:
    if node.kind == "list":
        return list(values[0])
    at, end, step = values
    found = []
    nothing = step - step
    if step == nothing:
        raise EvaluationError("a step of nothing")
    while (at < end if step > nothing else at > end) or (at == end and node.kind == "series"):
        found.append(at)
        at += step
    return found


def union(left: Snapshot, right: Snapshot) -> Snapshot:
    """(8.3)"""
    return left + right


def distinct(rows: Snapshot) -> Snapshot:
    """(8.5)"""
    return Counter(rows.keys())


def set_operation(kind: SetKind, left: Snapshot, right: Snapshot) -> Snapshot:
    match kind:
        case "difference":  # (8.6)
            return left - right
        case "strict_difference":  # (8.14): a row that is matched at all goes with all its copies
            return Counter({e: n for e, n in left.items() if e not in right})
        case "intersect":  # (8.12): S1 - (S1 - S2), the smaller multiplicity
            return left & right
        case "max_union":  # (8.13): (S1 - S2) + (S2 - S1) + (S1 ∩ S2), the larger multiplicity
            return left | right


def joins(join: Join, a: Row, b: Row) -> bool:
    """θ: equal keys, where a null equals nothing (or, if null-safe, another null), and the residual condition."""
    for left, right in zip(join.left_keys, join.right_keys, strict=True):
        x, y = a[join.left.schema.index(left)], b[join.right.schema.index(right)]
        if (x is None or y is None) and not (join.null_safe and x is y):
            return False
        if not (x is y or x == y):
            return False
    return join.residual is None or holds(join.residual, join.pair_schema, a + b)


def joined(join: Join, left: Snapshot, right: Snapshot) -> Snapshot:
    """(8.4), (8.10), (8.11), (8.16) and the outer joins."""
    pairs: Snapshot = Counter({a + b: m * n for a, m in left.items() for b, n in right.items() if joins(join, a, b)})
    with_partner = {a for a in left if any(joins(join, a, b) for b in right)}
    alone = Counter({a: m for a, m in left.items() if a not in with_partner})
    match join.kind:
        case "inner":  # (8.4) without a condition, (8.10) with one
            return pairs
        case "semi":  # (8.11), with S1's multiplicity: what SQL's IN means
            return left - alone
        case "anti":  # (8.16)
            return alone
        case "left":
            return pairs + _padded(alone, right_of=len(join.right.schema))
        case "full":
            matched = {b for b in right if any(joins(join, a, b) for a in left)}
            others = Counter({b: n for b, n in right.items() if b not in matched})
            return (
                pairs + _padded(alone, right_of=len(join.right.schema)) + _padded(others, left_of=len(join.left.schema))
            )


def _padded(rows: Snapshot, left_of: int = 0, right_of: int = 0) -> Snapshot:
    return Counter({(None,) * left_of + e + (None,) * right_of: n for e, n in rows.items()})


def aggregated(rows: Snapshot, schema: Schema, keys: Sequence[str], aggregations: Sequence[Aggregation]) -> Snapshot:
    """(8.9) and (8.15): one row per group that is alive; nulls in a key form a group; no rows, no group."""
    groups: defaultdict[Row, list[Row]] = defaultdict(list)
    for e in sorted(rows.elements(), key=row_order):  # sorted: equal snapshots give equal float sums
        groups[tuple(e[schema.index(key)] for key in keys)].append(e)
    return Counter(key + tuple(_aggregate(a, schema, group) for a in aggregations) for key, group in groups.items())


def _aggregate(aggregation: Aggregation, schema: Schema, group: Sequence[Row]) -> Any:
    places = [schema.index(column) for column in aggregation.columns]
    return canonical(aggregation.evaluate([tuple(e[i] for i in places) for e in group]))
