"""Constants computed once: `price > 2 * 5` is `price > 10`, `TRUE AND p` is `p`, NOT (x IS NULL) is x IS NOT NULL.

Only what reads no column and calls no Python function of the user's is computed.  What fails when computed stays as it
is, and fails at run time if a row reaches it.  A column that is known to hold no nulls passes a test for nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Cast, Column, Expr, Literal, lit
from everwhen.algebra.nodes import Filter, Join, Map, Node
from everwhen.algebra.properties.nullability import never_null
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError, QueryError
from everwhen.rewrite.rule import Rule

_NOTHING = Schema(())
Known = Callable[[str], bool]


def folded(expr: Expr, known: Known = lambda _: False) -> Expr:
    """The expression with its constant parts computed; `known` says which columns hold no nulls."""
    if not expr.operands:
        return expr
    operands = [folded(operand, known) for operand in expr.operands]
    if any(new is not old for new, old in zip(operands, expr.operands, strict=True)):
        expr = expr.rebuild(operands)
    return _simpler(expr, known)


def _simpler(expr: Expr, known: Known) -> Expr:
    match expr:
        case Call("and" | "or" as name, args):
            return _decided(expr, args, neutral=name == "and")
        case Call("not", (Call("not", (a,)),)):
            return a
        case Call("not", (Call("is_null", args),)):
            return _simpler(Call("not_null", args), known)
        case Call("not", (Call("not_null", args),)):
            return _simpler(Call("is_null", args), known)
        case Call("is_null" | "not_null" as name, (Column(column),)) if known(column):
            return lit(name == "not_null")
        case Call() | Cast() if all(isinstance(operand, Literal) for operand in expr.operands):
            return _computed(expr)
    return expr


def _decided(expr: Call, args: Sequence[Expr], neutral: bool) -> Expr:
    """AND and OR with constants among their conditions: one decides, or it does not matter."""
    known = [arg for arg in args if isinstance(arg, Literal) and arg.constant is not None]
    if not known:
        return _computed(expr) if all(isinstance(arg, Literal) for arg in args) else expr
    for each in known:
        if each.constant is not neutral:
            return each
    rest = [arg for arg in args if not (isinstance(arg, Literal) and arg.constant is not None)]
    if len(rest) < 2:
        return rest[0] if rest else known[0]
    return _decided(Call(expr.name, tuple(rest)), rest, neutral)


def _computed(expr: Expr) -> Expr:
    try:
        type_ = expr.bind(_NOTHING)
        value = expr.value({})
        pa.scalar(value, type_)
    except (EvaluationError, QueryError, pa.ArrowException, ArithmeticError, ValueError, TypeError):
        return expr
    return Literal(value, type_)


def _apply(node: Node) -> Node | None:
    match node:
        case Filter(input, predicate):
            new = folded(predicate, lambda name: never_null(input, name))
            return None if new is predicate else Filter(input, _condition(new))
        case Map(input, columns):
            found = tuple((name, folded(expr, lambda name: never_null(input, name))) for name, expr in columns)
            if all(new is old for (_, new), (_, old) in zip(found, columns, strict=True)):
                return None
            mapped = Map(input, found)
            return mapped if mapped.schema == node.schema else None
        case Join(residual=Expr() as residual):
            new = folded(residual)
            return None if new is residual else replace(node, residual=_condition(new))
    return None


def _condition(expr: Expr) -> Expr:
    """A condition that came out as a bare NULL is one of type boolean."""
    return lit(None, pa.bool_()) if isinstance(expr, Literal) and expr.constant is None else expr


FOLD_CONSTANTS = Rule("fold_constants", "constant parts of expressions are computed once", _apply)
