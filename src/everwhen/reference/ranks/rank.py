"""Ranks on one snapshot, by counting the rows before each.

What is meant is said in `algebra/ranks/rank.py`; this is the same as a formula.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from everwhen.algebra.nodes import Ordering, Rank
from everwhen.reference.logical import Snapshot
from everwhen.reference.order import Row, value_order

Named = dict[str, Any]


def partitions(names: Sequence[str], partition: Sequence[str], snapshot: Snapshot) -> list[list[Named]]:
    """The rows of each partition, as often as they are there."""
    parts: defaultdict[Row, list[Named]] = defaultdict(list)
    for row in snapshot.elements():
        named = dict(zip(names, row, strict=True))
        parts[tuple(named[name] for name in partition)].append(named)
    return list(parts.values())


def sort_rows(rows: list[Named], order: Sequence[Ordering], ties: Sequence[str]) -> None:
    """By an order; ties by the values of other columns, nulls first."""
    rows.sort(key=lambda row: [value_order(row[name]) for name in ties])
    for name, down, nulls_first in reversed(order):
        rows.sort(key=lambda row: value_order(row[name]), reverse=down)
        rows.sort(key=lambda row: (row[name] is None) != nulls_first)


def ranked(node: Rank, snapshot: Snapshot) -> Snapshot:
    """The answer at one instant."""
    found: Snapshot = Counter()
    for rows in partitions(node.input.schema.names, node.partition, snapshot):
        sort_rows(rows, node.order, node.ties)
        values = [tuple(row[each.column] for each in node.order) for row in rows]
        for place, row in enumerate(rows):
            before = values[:place]
            match node.kind:
                case "rank":
                    number = 1 + sum(value_key(value) != value_key(values[place]) for value in before)
                case "dense_rank":
                    number = len({value_key(value) for value in [*before, values[place]]})
                case _:
                    number = 1 + place
            if node.offset < number and (node.last is None or number <= node.last):
                found[(*row.values(), number) if node.name is not None else tuple(row.values())] += 1
    return found


def value_key(values: Row) -> tuple[Any, ...]:
    """Equal for values that no order tells apart."""
    return tuple(map(value_order, values))
