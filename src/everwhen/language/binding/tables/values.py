"""VALUES: constant rows, evaluated where they are bound; each column has the common type of its constants."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr
from everwhen.core.kinds import common
from everwhen.core.schema import Field, Schema
from everwhen.errors import EvaluationError, QueryError
from everwhen.language import syntax as s
from everwhen.language.binding import expressions
from everwhen.language.binding.context import Binding, Bound, OutColumn, Rows
from everwhen.language.binding.scope import Scope

_ONE_ROW: Final = Schema((Field("_row", pa.int64()),))


def one_row(binding: Binding) -> Rows:
    """What a SELECT without FROM reads: one row, always there, that has no columns with names."""
    return Rows(binding, n.Values(_ONE_ROW, ((0,),)), Scope(()))


def constant_rows(query: s.Values, binding: Binding) -> Bound:
    """The plan of VALUES."""
    rows = one_row(binding)
    rows.place = "VALUES"
    written = [[_constant(e, rows) for e in row] for row in query.rows]
    fields, columns = [], []
    for at in range(len(query.rows[0])):
        name = f"column{at + 1}"
        type_ = pa.null()
        for row, exprs in zip(query.rows, written, strict=True):
            try:
                type_ = common(type_, exprs[at].bind(rows.node.schema), f"column {at + 1} of VALUES")
            except QueryError as error:
                raise binding.error(str(error), row[at].span) from None
        pairs = zip(query.rows, written, strict=True)
        columns.append([_value(exprs[at], type_, row[at], binding) for row, exprs in pairs])
        fields.append(Field(name, type_))
    node = n.Values(Schema(tuple(fields)), tuple(zip(*columns, strict=True)))
    return Bound(node, tuple(OutColumn(field.name) for field in fields))


def _constant(e: s.Expression, rows: Rows) -> Expr:
    before = rows.node
    expr = expressions.value(e, rows)
    if rows.node is not before or expr.columns():
        raise rows.binding.error(
            "VALUES has constants; a subquery stands in FROM, or in SELECT beside other columns", e.span
        )
    return expr


def _value(expr: Expr, type_: pa.DataType, e: s.Expression, binding: Binding) -> Any:
    try:
        value = (expr if expr.bind(Schema(())) == type_ else expr.cast(type_)).value({})
    except (EvaluationError, QueryError) as error:
        raise binding.error(str(error), e.span) from None
    return tuple(value) if isinstance(value, list) else value
