"""Operators that are linear in segments and leave lifetimes alone, in either form: events or segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column
from everwhen.algebra.properties.one_partner import neighbours
from everwhen.operators.net import TogetherOperator
from everwhen.operators.punctuate.punctuate import PunctuateOperator
from everwhen.operators.stateless.columns import MapOperator, UnnestOperator
from everwhen.operators.stateless.linear import FilterOperator, UnionOperator
from everwhen.operators.stateless.values import ValuesOperator
from everwhen.plan.physical import Form, Port
from everwhen.plan.properties import instants

if TYPE_CHECKING:
    from everwhen.plan.lower import Lowering

Linear = n.Values | n.Filter | n.Map | n.Unnest | n.Union | n.Punctuate


def lower_linear(lowering: Lowering, node: Linear, form: Form, top: bool) -> Port:
    """The port of such a node; `top`: nothing but the sink follows it."""
    codec = lowering.codec(node.schema)
    match node:
        case n.Values():
            if form == "segments":  # its events are its segments
                return lowering.lower(node, "events")
            return lowering.place("values", ValuesOperator(node, codec, lowering.first or not node.alone))
        case n.Filter(input, predicate):
            return lowering.place("filter", FilterOperator(predicate, codec), lowering.lower(input, form, top))
        case n.Punctuate(input, schemes):
            return lowering.place("punctuate", PunctuateOperator(schemes, codec), lowering.lower(input, form, top))
        case n.Map(input, columns):
            operator = MapOperator(columns, lowering.codec(input.schema), codec)
            copied = [expr.name for _, expr in columns if isinstance(expr, Column)]
            below = lowering.lower(input, form, top, copied if form == "segments" else None)
            port = lowering.place("map", operator, below)
            if not _forgets_nearer(node):
                return port
            return lowering.place("put together", TogetherOperator(codec, instants(node)), port)
        case n.Unnest(input):
            unnest = UnnestOperator(node, lowering.codec(input.schema), codec)
            return lowering.place("unnest", unnest, lowering.lower(input, form, top))
        case n.Union(left, right):
            top = top and form == "segments"
            ports = lowering.lower(left, form, top), lowering.lower(right, form, top)
            return lowering.place("union", UnionOperator(codec, second=right.schema), *ports)


def _forgets_nearer(node: n.Map) -> bool:
    """Whether it leaves out what a join compares with its partners' neighbours, which change without them."""
    join = node.input
    found = neighbours(join.residual) if isinstance(join, n.Join) else None
    return found is not None and not any(found.nearer in expr.columns() for _, expr in node.columns)
