"""Lowering joins: semi-, anti- and outer joins are composed of inner joins, as in the thesis (8.1.9)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, Protocol

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.expressions.build import Call, Column, Expr, col, lit
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.groups_read import GroupsRead, read_once
from everwhen.core.schema import Schema
from everwhen.operators.contract import EVERYTHING, Operator, Policy
from everwhen.operators.join.group_join import GroupJoinOperator
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.stateless.columns import MapOperator
from everwhen.operators.stateless.linear import UnionOperator
from everwhen.operators.sweep.aggregate import AggregateOperator
from everwhen.operators.sweep.multiplicity import CountsOperator
from everwhen.plan.physical import Form, Port
from everwhen.rows.codec import RowCodec


class Lowering(Protocol):
    """What is asked of who lowers the rest of the plan."""

    def codec(self, schema: Schema) -> RowCodec: ...
    def place(self, name: str, operator: Operator, *inputs: Port) -> Port: ...
    def lower(self, node: n.Node, form: Form, top: bool = False, about: Collection[str] | None = None) -> Port: ...
    def instants(self, name: str, node: n.Node, codec: RowCodec) -> Port: ...
    def clipped(self, port: Port, codec: RowCodec, policy: Policy) -> Port: ...


def lower_join(lowering: Lowering, node: n.Join, policy: Policy) -> Port:
    """The operators of a join of any kind."""
    found = read_once(node)
    if found is not None:
        return _group_join(lowering, node, found)
    left, right = lowering.lower(node.left, "segments"), lowering.lower(node.right, "segments")
    if node.kind == "semi":
        return _semi(lowering, node, left, right)
    if node.kind == "anti":
        return _anti(lowering, node, left, right, policy)
    inner = _inner(lowering, node, left, right)
    if node.kind == "inner":
        return inner
    codec = lowering.codec(node.schema)
    lonely = _anti(lowering, node, left, right, policy)
    port = lowering.place("union", UnionOperator(codec), inner, _padded(lowering, node, lonely, 0))
    if node.kind == "left":
        return port
    lonely = _anti(lowering, _mirrored(node), right, left, policy)
    return lowering.place("union", UnionOperator(codec), port, _padded(lowering, node, lonely, 1))


def _inner(lowering: Lowering, node: n.Join, left: Port, right: Port) -> Port:
    codecs = (lowering.codec(node.left.schema), lowering.codec(node.right.schema), lowering.codec(node.pair_schema))
    operator = JoinOperator(*codecs, node.left_keys, node.right_keys, node.residual, node.null_safe)
    return lowering.place(f"join ({operator.area})", operator, left, right)


def _group_join(lowering: Lowering, node: n.Join, found: GroupsRead) -> Port:
    """Groups that are read at single instants, each once."""
    groups, reads = found.groups, found.reads
    rows, asked = lowering.codec(groups.input.schema), lowering.codec(reads.schema)
    said, pairs = lowering.codec(groups.schema), lowering.codec(node.pair_schema)
    operator = GroupJoinOperator(
        rows, asked, said, pairs, groups.aggregations, groups.keys, found.keys, found.read_keys,
        null_safe=node.null_safe, groups_first=found.groups_first,
    )  # fmt: skip
    ports = lowering.lower(groups.input, "segments"), lowering.instants("chronons", reads, asked)
    port = lowering.place(f"group join ({operator.area})", operator, *ports)
    return port if node.kind == "inner" else _project(lowering, pairs, said, groups.schema.names, port)


def _semi(lowering: Lowering, node: n.Join, left: Port, right: Port) -> Port:
    """Left rows with a partner: S1 ⋈ δ(π(S2)) on the keys, or on whole rows S1 ⋈ δ(π1(S1 ⋈ S2)).

    Where the condition is one inequality, S1 is compared with the largest (or smallest) partner alone.  Where
    neither keys nor condition look at the partner, all that counts is whether there is one: a single row says so.
    """
    mine = lowering.codec(node.left.schema)
    comparison = _comparison_of(node)
    if comparison is not None:
        return _semi_extreme(lowering, node, comparison, left, right)
    if node.residual is None or node.residual.columns() <= set(node.left.schema.names):
        looked_at: list[tuple[str, Expr]] = [(key, col(key)) for key in dict.fromkeys(node.right_keys)]
        looked_at = looked_at or [("there", lit(True))]
        keys = lowering.codec(n.Map(node.right, tuple(looked_at)).schema)
        port = lowering.place("project", MapOperator(looked_at, lowering.codec(node.right.schema), keys), right)
        partners = port
        if not properties(node.right).unique_on(node.right_keys):
            partners = lowering.place("distinct", CountsOperator("distinct", keys, EVERYTHING), port)
        pairs = lowering.codec(n.Join.pair_names(mine.schema, keys.schema))
        both = node.left_keys, node.right_keys
        operator = JoinOperator(mine, keys, pairs, *both, node.residual, node.null_safe)
    else:
        found = _inner(lowering, node, left, right)
        port = _project(lowering, lowering.codec(node.pair_schema), mine, node.left.schema.names, found)
        partners = lowering.place("distinct", CountsOperator("distinct", mine, EVERYTHING), port)
        pairs = lowering.codec(n.Join.pair_names(mine.schema, mine.schema))
        names = node.left.schema.names
        operator = JoinOperator(mine, mine, pairs, names, names, null_safe=True)
    port = lowering.place("semi-join", operator, left, partners)
    return _project(lowering, pairs, mine, mine.schema.names, port)


def _semi_extreme(lowering: Lowering, node: n.Join, comparison: tuple[str, str, str], left: Port, right: Port) -> Port:
    """`a < b` holds for some b exactly if it holds for the largest one, which is one row per key and instant."""
    mine, theirs = lowering.codec(node.left.schema), lowering.codec(node.right.schema)
    column, operator, other = comparison
    name = "extreme"
    while name in node.right_keys:
        name += "_"
    extreme = Aggregation(name, "max" if operator in ("<", "<=") else "min", (other,))
    schema = n.Aggregate(node.right, node.right_keys, (extreme,)).schema
    best = lowering.codec(schema)
    groups = AggregateOperator(node.right_keys, (extreme,), theirs, best, EVERYTHING)
    partners = lowering.place(extreme.function, groups, right)
    pairs = lowering.codec(n.Join.pair_names(mine.schema, schema))
    condition = Call(operator, (col(column), col(pairs.schema.names[-1])))
    join = JoinOperator(mine, best, pairs, node.left_keys, node.right_keys, condition, node.null_safe)
    port = lowering.place(f"semi-join ({join.area})", join, left, partners)
    return _project(lowering, pairs, mine, mine.schema.names, port)


def _anti(lowering: Lowering, node: n.Join, left: Port, right: Port, policy: Policy) -> Port:
    codec = lowering.codec(node.left.schema)
    partnered = _semi(lowering, node, left, right)
    rest = lowering.place("minus", UnionOperator(codec, sign=-1), left, partnered)
    return lowering.clipped(rest, codec, replace(policy, open_end=False))


def _project(lowering: Lowering, source: RowCodec, target: RowCodec, names: tuple[str, ...], port: Port) -> Port:
    columns = [(name, col(name)) for name in names]
    return lowering.place("project", MapOperator(columns, source, target), port)


def _padded(lowering: Lowering, node: n.Join, port: Port, side: int) -> Port:
    """Rows of one side beside nulls for the other."""
    columns: list[tuple[str, Expr]] = []
    own = node.left.schema if side == 0 else node.right.schema
    first = 0 if side == 0 else len(node.left.schema)
    for j, target in enumerate(node.pair_schema.fields):
        mine = first <= j < first + len(own)
        columns.append((target.name, col(own.names[j - first]) if mine else lit(None, target.type)))
    return lowering.place("pad", MapOperator(columns, lowering.codec(own), lowering.codec(node.pair_schema)), port)


# -- conditions --------------------------------------------------------------------------------------------------------

_MIRROR: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _comparison_of(node: n.Join) -> tuple[str, str, str] | None:
    """The condition as `left column < right column` (or > <= >=), if it is just that; the right one by its own name."""
    condition = node.residual
    if not (isinstance(condition, Call) and condition.name in _MIRROR):
        return None
    first, second = condition.operands
    if not (isinstance(first, Column) and isinstance(second, Column)):
        return None
    names = node.pair_schema.names
    n_left = len(node.left.schema)
    a, b, operator = names.index(first.name), names.index(second.name), condition.name
    if b < n_left <= a:
        a, b, operator = b, a, _MIRROR[operator]
    if not a < n_left <= b:
        return None
    return names[a], operator, node.right.schema.names[b - n_left]


def _mirrored(node: n.Join) -> n.Join:
    """The same join seen from the right, for its rows without a partner."""
    residual = node.residual
    if residual is not None:
        pair = node.pair_schema.names
        n_left = len(node.left.schema)
        swapped = n.Join(node.right, node.left).pair_schema.names
        n_right = len(node.right.schema)
        names = {pair[j]: swapped[j + n_right] for j in range(n_left)}
        names |= {pair[n_left + j]: swapped[j] for j in range(n_right)}
        residual = residual.substitute({old: col(new) for old, new in names.items()})
    return n.Join(node.right, node.left, node.right_keys, node.left_keys, residual, "anti", node.null_safe)
