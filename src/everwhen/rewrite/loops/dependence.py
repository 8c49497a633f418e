"""How an expression depends on the value of a MIN or MAX loop.

    FREE     it does not
    RISES    it never falls where the value rises; of a condition: it stays true (false is below true)
    FALLS    it never rises where the value rises
    MIXED    anything else, or not known

A null is the worst value of either loop; it makes sums null and comparisons not true, so both keep their direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Cast, Column, Expr, Literal
from everwhen.core.kinds import is_number
from everwhen.core.schema import Schema


class Dependence(Enum):
    FREE = "free"
    RISES = "rises"
    FALLS = "falls"
    MIXED = "mixed"

    @property
    def turned(self) -> Dependence:
        return {Dependence.RISES: Dependence.FALLS, Dependence.FALLS: Dependence.RISES}.get(self, self)


FREE, RISES, FALLS, MIXED = Dependence
_FIRST: Final = ("floor", "ceil", "trunc", "round", "sign")
_ALL: Final = ("+", "least", "greatest", "and", "or")


def together(found: Iterable[Dependence]) -> Dependence:
    """Of something that depends on all of these in the same direction."""
    kinds = {each for each in found if each is not FREE}
    return MIXED if len(kinds) > 1 else next(iter(kinds), FREE)


def dependence(expr: Expr, columns: Mapping[str, Dependence], schema: Schema, best: Dependence) -> Dependence:
    """Of an expression over columns that depend so.  `best` is where values get better: FALLS for MIN."""

    def of(each: Expr) -> Dependence:
        return dependence(each, columns, schema, best)

    match expr:
        case Column(name):
            return columns.get(name, FREE)
        case Literal():
            return FREE
        case _ if all(columns.get(name, FREE) is FREE for name in expr.columns()):
            return FREE
        case Cast(operand, target):
            numbers = is_number(target) and is_number(operand.bind(schema))
            return of(operand) if numbers or _finer(operand.bind(schema), target) else MIXED
        case Call(name, args) if name in _ALL:
            return together(map(of, args))
        case Call("-", (a, b)):
            return together((of(a), of(b).turned))
        case Call("negate" | "not", (a,)):
            return of(a).turned
        case Call(name, (a, *rest)) if name in _FIRST:
            return of(a) if all(of(each) is FREE for each in rest) else MIXED
        case Call("*", (Literal(factor), a)) | Call("*" | "/", (a, Literal(factor))):
            return _scaled(of(a), factor)
        case Call("<" | "<=", (a, b)):
            return together((of(a).turned, of(b)))
        case Call(">" | ">=", (a, b)):
            return together((of(a), of(b).turned))
        case Call("not_null", (Column() as a,)) if of(a) is RISES:
            return best  # what was null and is so no more has become better
    return MIXED


def _scaled(found: Dependence, factor: object) -> Dependence:
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor != factor or factor == 0:
        return MIXED
    return found if factor > 0 else found.turned


def _finer(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(
        (pa.types.is_timestamp(source) and pa.types.is_timestamp(target))
        or (pa.types.is_date(source) and pa.types.is_timestamp(target))
        or (pa.types.is_duration(source) and pa.types.is_duration(target))
    )
