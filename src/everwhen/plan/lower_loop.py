"""Lowering a recursion: one operator, with the operators of its body inside."""

from __future__ import annotations

from collections.abc import Callable

from everwhen.algebra import nodes as n
from everwhen.operators.loop.bag import BagHead
from everwhen.operators.loop.best import BestHead
from everwhen.operators.loop.body import BodyOperator, LoopBody
from everwhen.operators.loop.fixpoint import FixpointOperator
from everwhen.operators.loop.head import LoopHead
from everwhen.operators.loop.support import SetHead
from everwhen.operators.loop.turn import TurnOperator
from everwhen.plan.loop import RECURSION, LoopPlan, loop_plan, sent_schema
from everwhen.plan.physical import PhysicalPlan, Port
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner

LowerBody = Callable[[n.Node, Interner], PhysicalPlan]
"""Lowers a plan that hands its result on, under the name "step"."""


def loop_operator(node: n.Fixpoint, pool: Interner, lower_body: LowerBody) -> tuple[FixpointOperator, LoopPlan]:
    """The operator of a recursion, and what its ports read."""
    plan = loop_plan(node)
    codec = RowCodec(node.schema, pool)
    sent = RowCodec(sent_schema(node, plan.births), pool) if plan.births else codec
    body = _body(lower_body(plan.body, pool), plan, sent)
    operator = FixpointOperator(
        node.token.name, len(plan.externals), _head(node.kind, node.value, codec, sent), body, node.options
    )
    return operator, plan


def turn_operator(node: n.LoopTurn, pool: Interner) -> TurnOperator:
    """The head of a loop whose rounds cross exchanges."""
    codec = RowCodec(node.columns, pool)
    sent = codec if node.schema.names == node.columns.names else RowCodec(node.schema, pool)
    return TurnOperator(len(node.inputs), _head(node.kind, node.value, codec, sent))


def _head(kind: n.FixpointKind, value: str | None, codec: RowCodec, sent: RowCodec) -> LoopHead:
    match kind:
        case "union":
            return SetHead(codec, sent)
        case "union all":
            return BagHead(codec)
    assert value is not None
    names = [name for name in codec.schema.names if name != value]
    keys = RowCodec(codec.schema.select(names, "the recursion"), codec.pool)
    return BestHead(codec, sent, keys, value, largest=kind == "max")


def _body(lowered: PhysicalPlan, plan: LoopPlan, sent: RowCodec) -> LoopBody:
    (handed,) = lowered.handed
    inputs = {name: -1 - at for at, name in enumerate([*plan.names, RECURSION])}

    def place(port: Port) -> int:
        return port.operator if port.source is None else inputs[port.source]

    placed = [BodyOperator(each.name, each.operator, tuple(map(place, each.inputs))) for each in lowered.operators]
    return LoopBody(placed, place(handed.port), sent)
