"""Where a join reads groups at single instants, each group once: then groups need not be computed anywhere else.

    read_once(join) -> GroupsRead | None

A grouping below a join says how each of its groups changes all the time.  If the partners are instants (chronons), and
no two of them in all of time have the same key, then each group is asked for one instant only.  `GroupJoinOperator`
keeps the rows as a join would, and goes through a group when it is read.  The join of the ungrouped rows does as much:
it puts a row where a probe finds it as well, and gives a pair for every row that is read here.  (Only if the extreme of
a group is taken back after the group was read, it is gone through again.)

Not where groups are read again and again: there an aggregate that is kept up to date is the better one.  Not where rows
never end and the aggregate would fold them: here they would pile up.  None is always safe.

Rewriting asks it whether grouping below a join pays, lowering which operator to take.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.properties.derive import properties
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.rows.interner import is_pooled


@dataclass(frozen=True, slots=True)
class GroupsRead:
    """The grouping, the instants that read it, the columns that are equal (those of the grouping, of the instants), and
    whether the grouping is the join's left side."""

    groups: n.Aggregate
    reads: n.Node
    keys: tuple[str, ...]
    read_keys: tuple[str, ...]
    groups_first: bool


def read_once(join: n.Join) -> GroupsRead | None:
    """The sides of an inner join (or a semi-join of groups) that reads each group once, at one instant."""
    if join.residual is not None or not join.left_keys:
        return None
    if isinstance(join.left, n.Aggregate) and join.kind in ("inner", "semi"):
        found = GroupsRead(join.left, join.right, join.left_keys, join.right_keys, True)
        if _pays(found):
            return found
    if isinstance(join.right, n.Aggregate) and join.kind == "inner":
        found = GroupsRead(join.right, join.left, join.right_keys, join.left_keys, False)
        if _pays(found):
            return found
    return None


def _pays(found: GroupsRead) -> bool:
    groups, reads = found.groups, properties(found.reads)
    if sorted(found.keys) != sorted(groups.keys) or len(set(found.read_keys)) < len(found.read_keys):
        return False  # an instant reads several groups, or part of them
    if not reads.chronon or not any(key <= set(found.read_keys) for key in reads.history_keys):
        return False
    length = properties(groups.input).lifetime
    ends = length is not None and length != INF
    extremes = all(each.function in ("min", "max") for each in groups.aggregations)  # these keep their rows anyway
    return (ends or extremes) and all(_exact(each, groups.input.schema) for each in groups.aggregations)


def _exact(aggregation: Aggregation, schema: Schema) -> bool:
    """Whether the aggregate is the same in whatever order rows come, bit by bit, and found from 64-bit codes."""
    types = [schema.field(name).type for name in aggregation.columns]
    match aggregation.function:
        case "count":
            return True
        case "sum" | "avg":
            return bool(pa.types.is_integer(types[0]))
        case "min" | "max":
            return not is_pooled(types[0]) and not pa.types.is_null(types[0])
    return False
