"""Aggregates per window of TUMBLE, in two phases: rows of one window are merged before they cross.

TUMBLE is `Map(Stamp(AlterLifetime(rows), start))`: the map makes `window_start` and `window_end` of the start.  All
rows of a window have one lifetime, so they can be merged by it; the stamp and the map come behind the exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column, Expr, col
from everwhen.plan.stages.feed_window import HopWindow
from everwhen.plan.stages.partial import Partial, decompose
from everwhen.plan.stages.wants import Hashed, Together, Want


@dataclass(frozen=True)
class HopAggregate:
    """`rows`: what lies below the window; `merged`: the partial aggregates over it; `whole`: those of the node."""

    rows: n.Node
    window: HopWindow
    merged: Partial
    whole: Partial
    start: str
    plain: dict[str, str]
    """Columns of the aggregate's input that are columns of the rows."""
    computed: dict[str, Expr]
    """Keys that follow from the start of the window."""

    def hashed_by(self, want: Want) -> tuple[str, ...] | None:
        """The columns of the rows to hash by, so that the groups lie as wanted; None if they cannot."""
        match want:
            case Hashed(columns) if columns and set(columns) <= set(self.plain) & set(self.whole.keys):
                return tuple(self.plain[c] for c in columns)
            case Together(columns):
                both = [self.plain[k] for k in self.whole.keys if k in self.plain and k in columns]
                return tuple(dict.fromkeys(both)) or None
        return None

    def finish(self, parts: n.Node) -> n.Node:
        """The aggregate, given the merged rows of all parts."""
        columns = [(k, col(self.plain[k]) if k in self.plain else self.computed[k]) for k in self.whole.keys]
        lanes = [(lane.name, col(lane.name)) for lane in self.merged.lanes]
        return self.whole.finish(n.Map(n.Stamp(parts, self.start), (*columns, *lanes)))


def hop_aggregate(node: n.Aggregate) -> HopAggregate | None:
    """The node as an aggregate per window of TUMBLE, or None."""
    match node.input:
        case n.Map(n.Stamp(n.AlterLifetime(rows, hop, shift, int() as length), start, None), columns):
            pass
        case _:
            return None
    whole = decompose(node)
    plain = {name: e.name for name, e in columns if isinstance(e, Column) and e.name != start}
    computed = {name: e for name, e in columns if name not in plain and e.columns() <= {start}}
    if whole is None or not set(node.keys) <= {*plain, *computed}:
        return None
    if not all(set(lane.columns) <= set(plain) for lane in whole.lanes):
        return None
    keys = tuple(dict.fromkeys(plain[k] for k in node.keys if k in plain))
    lanes = tuple(replace(lane, columns=tuple(plain[c] for c in lane.columns)) for lane in whole.lanes)
    if not keys or {lane.name for lane in lanes} & {*keys, start}:
        return None
    merged = Partial(keys, lanes, (), ())
    return HopAggregate(rows, HopWindow(hop, shift, length), merged, whole, start, plain, computed)
