"""Functions OVER an order on one snapshot: the frame of each row, and the function over it.

What is meant is said in `algebra/ranks/over.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.ranks.over import AGGREGATES, Frame, Over, OverFunction
from everwhen.core.scalars import from_python
from everwhen.reference.logical import Snapshot
from everwhen.reference.order import canonical
from everwhen.reference.ranks.rank import Named, partitions, sort_rows, value_key


def framed(node: Over, snapshot: Snapshot) -> Snapshot:
    """The answer at one instant."""
    found: Snapshot = Counter()
    for rows in partitions(node.input.schema.names, node.partition, snapshot):
        sort_rows(rows, node.order, node.ties)
        for place, row in enumerate(rows):
            more = (canonical(_result(node, f, rows, place)) for f in node.functions)
            found[(*row.values(), *more)] += 1
    return found


def _result(node: Over, f: OverFunction, rows: Sequence[Named], place: int) -> Any:
    first, behind = _peers(node, rows, place)
    match f.function:
        case "lag" | "lead":
            at = place + (f.places if f.function == "lead" else -f.places)
            return rows[at][f.column or ""] if 0 <= at < len(rows) else _default(node, f)
        case "ntile":
            size, larger = divmod(len(rows), f.places)
            ends = [sum(size + (i < larger) for i in range(part + 1)) for part in range(f.places)]
            return next(part + 1 for part, end in enumerate(ends) if place < end)
        case "percent_rank":
            return first / (len(rows) - 1) if len(rows) > 1 else 0.0
        case "cume_dist":
            return behind / len(rows)
    frame = f.frame or Frame("range", None, 0)
    inside = [row for at, row in enumerate(rows) if _is_inside(node, frame, rows, place, at)]
    if f.function in AGGREGATES:
        columns = () if f.column is None else (f.column,)
        values = [tuple(row[name] for name in columns) for row in inside]
        return Aggregation(f.name, f.function, columns).evaluate(values)
    if not inside:
        return None
    return inside[0 if f.function == "first_value" else -1][f.column or ""]


def _default(node: Over, f: OverFunction) -> Any:
    return from_python([f.default], node.schema.field(f.name).type).to_pylist()[0]


def _peers(node: Over, rows: Sequence[Named], place: int) -> tuple[int, int]:
    """Where the rows that the order leaves equal begin, and where they end."""
    values = [value_key(tuple(row[each.column] for each in node.order)) for row in rows]
    equal = [at for at, value in enumerate(values) if value == values[place]]
    return equal[0], equal[-1] + 1


def _is_inside(node: Over, frame: Frame, rows: Sequence[Named], place: int, at: int) -> bool:
    if frame.unit == "rows":
        return (frame.start is None or at >= place + frame.start) and (frame.end is None or at <= place + frame.end)
    first, behind = _peers(node, rows, place)
    own, other = _number(node, rows[place]), _number(node, rows[at])
    down = bool(node.order) and node.order[0].descending

    def reaches(offset: float | None, low: bool) -> bool:
        if offset is None:
            return True
        if offset == 0 or own is None:
            return at >= first if low else at < behind
        if other is None:
            # beyond all numbers, on the side where it stands
            return (at > place) if low else (at < place)
        one, two = (-own, -other) if down else (own, other)
        return bool(one + offset <= two) if low else bool(two <= one + offset)

    return reaches(frame.start, True) and reaches(frame.end, False)


def _number(node: Over, row: Named) -> Any:
    """The value of the first column of the order as a number, in the unit of its type; None: it is no such place."""
    if not node.order:
        return None
    field = node.input.schema.field(node.order[0].column)
    value = row[field.name]
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if value is None or not pa.types.is_temporal(field.type):
        return value
    return from_python([value], field.type).cast(pa.int64() if field.type.bit_width == 64 else pa.int32())[0].as_py()
