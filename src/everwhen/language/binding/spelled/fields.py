"""Names with points: `stream.column`, or fields of a structure, as in `s.x`, `stream.s.x` and `s.x.y`.

Where a name may mean both, it is the stream's column.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from everwhen.algebra.expressions.build import Expr, function, lit
from everwhen.errors import QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Rows
from everwhen.language.binding.scope import NameProblem

Bind = Callable[[s.Expression, Rows], Expr]


def named_column(e: s.Name, rows: Rows, bind: Bind) -> Expr:
    """The column that a name with points means, or the field of one."""
    if len(e.parts) == 2:
        try:
            return rows.column(e)
        except SqlError:
            found = _field(e, rows, bind)
            if found is None:
                raise
            return found
    found = _field(e, rows, bind)
    if found is None:
        raise rows.binding.error(rows.known().unknown(e.parts[:2]), e.span)
    return found


def is_field(e: s.Name, rows: Rows) -> bool:
    """Whether the name means a field of a structure among these rows."""
    if len(e.parts) == 1:
        return False
    try:
        return len(e.parts) > 2 or rows.scope.column(e.parts) is None
    except NameProblem:
        return False


def _field(e: s.Name, rows: Rows, bind: Bind) -> Expr | None:
    """The longest beginning of the name that is a column, and the fields behind it."""
    for width in (2, 1):
        if len(e.parts) <= width:
            continue
        span = s.Span(e.span.start, e.parts[width - 1].span.end)
        try:
            found = rows.column(s.Name(e.parts[:width], span))
            if not pa.types.is_struct(found.bind(rows.node.schema)):
                continue
        except (SqlError, QueryError):
            continue
        for part in e.parts[width:]:
            found = function("struct_extract", found, lit(part.text))
        return found
    return None
