"""What conditions and measures of a pattern read beside the row itself: the row before, and the match so far.

A `Term` is a column of an expression that stands for such a value.  So conditions are ordinary expressions, checked,
shown and evaluated as all others.

    >>> from everwhen.algebra.expressions.build import col
    >>> print(prev("price") > col("price"), "|", count("A") >= 2, "|", avg("A.price"))
    PREV(price) > price | COUNT(A.*) >= 2 | AVG(A.price)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from everwhen.algebra.expressions.build import Column, Expr, col
from everwhen.algebra.expressions.nodes import walk
from everwhen.core.kinds import is_orderable, kind
from everwhen.core.schema import Schema
from everwhen.errors import QueryError

Function = Literal["prev", "first", "last", "count", "sum", "min", "max", "avg"]


@dataclass(frozen=True, eq=False, repr=False)
class Term(Column):
    """A function of the rows that a match has mapped to a variable (None: to any), or of the row before.

    `argument` is an expression over the columns of one row; None counts rows.
    """

    function: Function = "last"
    variable: str | None = None
    argument: Expr | None = None

    def type(self, schema: Schema) -> pa.DataType:
        """The type of the value, over rows of the schema."""
        if self.argument is None:
            return pa.int64()
        found = self.argument.bind(schema)
        match self.function:
            case "count":
                return pa.int64()
            case "sum" | "avg":
                if kind(found) not in ("integer", "float") or found == pa.uint64():
                    raise QueryError(
                        f"{self.name}: a pattern adds integers of up to 64 bits and floats, not {found}; cast it"
                    )
                return pa.int64() if self.function == "sum" and kind(found) == "integer" else pa.float64()
            case "min" | "max" if not is_orderable(found):
                raise QueryError(f"{self.name}: values of type {found} have no order")
        return found


def term(function: Function, variable: str | None, argument: Expr | None) -> Term:
    """The term, named as SQL writes it."""
    if function not in get_args(Function):
        raise QueryError(f"{function} is none of {', '.join(get_args(Function))}")
    if argument is None:
        inside = "*" if variable is None else f"{variable}.*"
    elif variable is None:
        inside = str(argument)
    else:
        inside = str(argument.substitute({name: col(f"{variable}.{name}") for name in argument.columns()}))
    return Term(f"{function.upper()}({inside})", function, variable, argument)


def terms(expr: Expr) -> list[Term]:
    """Every term that an expression reads, each once."""
    return list({each.name: each for each in walk(expr) if isinstance(each, Term)}.values())


def row_columns(expr: Expr) -> set[str]:
    """The columns of rows that an expression reads, also inside terms."""
    return set(_row_columns(expr))


def _row_columns(expr: Expr) -> Iterator[str]:
    for each in walk(expr):
        if not isinstance(each, Term):
            if isinstance(each, Column):
                yield each.name
        elif each.argument is not None:
            yield from each.argument.columns()


def over_last(expr: Expr) -> Expr:
    """The expression with plain columns read from the last row of the match, as measures have it."""
    plain = {each.name for each in walk(expr) if isinstance(each, Column) and not isinstance(each, Term)}
    return expr.substitute({name: term("last", None, col(name)) for name in plain})


# -- how Python writes them --------------------------------------------------------------------------------------------


def _split(what: Any, function: str) -> tuple[str | None, Expr]:
    if isinstance(what, Expr):
        return None, what
    if not isinstance(what, str) or not what:
        raise QueryError(f"{function}() takes a column, 'price', or a column of a variable, 'A.price', not {what!r}")
    variable, point, column = what.rpartition(".")
    return (variable if point else None), col(column)


def prev(column: str | Expr) -> Expr:
    """The value of a column in the row before, null if there is none.

    >>> import everwhen as ew
    >>> print(ew.patterns.prev("price") > ew.col("price"))
    PREV(price) > price
    """
    return term("prev", None, _split(column, "prev")[1])


def first(column: str | Expr) -> Expr:
    """The value in the first row of the match, `first("t")`, or in the first of a variable, `first("A.t")`.

    >>> import everwhen as ew
    >>> print(ew.patterns.first("A.t"))
    FIRST(A.t)
    """
    return term("first", *_split(column, "first"))


def last(column: str | Expr) -> Expr:
    """The value in the last row of the match so far, or of a variable.

    >>> import everwhen as ew
    >>> print(ew.patterns.last("A.t") - ew.patterns.first("t"))
    LAST(A.t) - FIRST(t)
    """
    return term("last", *_split(column, "last"))


def count(variable: str | Expr | None = None) -> Expr:
    """How many rows the match has so far, or how many of them are mapped to a variable: `count("A")`.

    `count("A.x")` and `count(ew.col("x"))` count those in which the column is not null.

    >>> import everwhen as ew
    >>> print(ew.patterns.count("A") > ew.patterns.count())
    COUNT(A.*) > COUNT(*)
    """
    if variable is None or (isinstance(variable, str) and "." not in variable):
        return term("count", variable, None)
    return term("count", *_split(variable, "count"))


def sum(column: str | Expr) -> Expr:
    """The sum over the rows of the match so far, or over those of a variable.

    >>> import everwhen as ew
    >>> print(ew.patterns.sum("A.price") > 100)
    SUM(A.price) > 100
    """
    return term("sum", *_split(column, "sum"))


def min(column: str | Expr) -> Expr:
    """The least value of the match so far, or of a variable.

    >>> import everwhen as ew
    >>> print(ew.patterns.min("A.price"))
    MIN(A.price)
    """
    return term("min", *_split(column, "min"))


def max(column: str | Expr) -> Expr:
    """The largest value of the match so far, or of a variable.

    >>> import everwhen as ew
    >>> print(ew.patterns.max("price"))
    MAX(price)
    """
    return term("max", *_split(column, "max"))


def avg(column: str | Expr) -> Expr:
    """The mean over the rows of the match so far, or over those of a variable.

    >>> import everwhen as ew
    >>> print(ew.patterns.avg("A.price"))
    AVG(A.price)
    """
    return term("avg", *_split(column, "avg"))
