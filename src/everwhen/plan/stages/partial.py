"""Aggregates in two phases: partial results of parts of a group, then the result of those.

Wherever the rows alive at an instant are parted (by task, or by equal lifetimes), the aggregate of the whole is a
combination of the parts' aggregates: counts and sums add up, the least of the least is the least.  `decompose` says
how; where a function has no such form (median, count distinct, the user's own), there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.expressions.build import Call, Expr, col
from everwhen.core.kinds import kind


@dataclass(frozen=True)
class Partial:
    """`lanes` over the rows of a part; `finals` over the lanes; `columns` make the result of the finals."""

    keys: tuple[str, ...]
    lanes: tuple[Aggregation, ...]
    finals: tuple[Aggregation, ...]
    columns: tuple[tuple[str, Expr], ...]

    def finish(self, parts: n.Node) -> n.Node:
        """The aggregate, given a node that carries the keys and the lanes of all parts."""
        return n.Map(n.Aggregate(parts, self.keys, self.finals), self.columns)


def decompose(node: n.Aggregate) -> Partial | None:
    """The two phases of an aggregate, or None."""
    if not node.aggregations:
        return None
    lanes: dict[tuple[str, tuple[str, ...]], str] = {}
    taken = set(node.input.schema.names) | set(node.schema.names)

    def lane(function: str, columns: tuple[str, ...]) -> Expr:
        if (function, columns) not in lanes:
            name = f"{function}_{'_'.join(columns)}" if columns else function
            while name in taken:
                name += "_"
            taken.add(name)
            lanes[function, columns] = name
        return col(lanes[function, columns])

    columns: list[tuple[str, Expr]] = [(key, col(key)) for key in node.keys]
    for aggregation in node.aggregations:
        match aggregation:
            case Aggregation(name, "count" | "sum" | "min" | "max" as function, arguments):
                columns.append((name, lane(function, arguments)))
            case Aggregation(name, "avg", arguments) if _plain(node.input.schema.field(arguments[0]).type):
                total, count = lane("sum", arguments), lane("count", arguments)
                columns.append((name, Call("/", (total.cast(pa.float64()), count.cast(pa.float64())))))
            case _:
                return None
    parts = tuple(Aggregation(name, function, arguments) for (function, arguments), name in lanes.items())
    finals = tuple(
        Aggregation(part.name, "sum" if part.function in ("count", "sum") else part.function, (part.name,))
        for part in parts
    )
    return Partial(node.keys, parts, finals, tuple(columns))


def _plain(type_: pa.DataType) -> bool:
    return kind(type_) in ("integer", "float")
