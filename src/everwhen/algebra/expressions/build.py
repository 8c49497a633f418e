"""Scalar expressions over a row: built with Python operators, checked against a schema, evaluated by columns.

Each expression has one meaning, `value(row)`, a plain Python definition with SQL's rules (three-valued logic; any null
operand gives null unless the function says otherwise), and one fast form, `evaluate(columns, length)`, that gives the
same values.  Errors in a branch that CASE, COALESCE, AND or OR would not have reached do not count: when a kernel
fails, the batch is evaluated row by row by the definition, which also names the row that is at fault.

    >>> e = (col("price") * 2 > 5) & col("item").is_in([7, 9])
    >>> print(e)
    price * 2 > 5 AND item IN (7, 9)
    >>> e.value({"price": 2.5, "item": 8}), e.value({"price": None, "item": 7})
    (False, None)

Expressions are immutable.  `==` builds an expression, so they are compared with `equals` and hashed by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from everwhen.algebra.expressions.functions import FUNCTIONS
from everwhen.algebra.expressions.nodes import Call, Cast, Column, Expr, Literal, lit, to_expr, walk
from everwhen.algebra.expressions.udf import Udf
from everwhen.core.kinds import type_of
from everwhen.errors import QueryError

__all__ = [
    "FUNCTIONS",
    "Call",
    "Cast",
    "Column",
    "Expr",
    "Literal",
    "Then",
    "Udf",
    "When",
    "col",
    "conjunction",
    "conjuncts",
    "disjunction",
    "function",
    "lit",
    "to_expr",
    "type_of",
    "udf",
    "walk",
    "when",
]


def col(name: str) -> Expr:
    """The column of that name.

    >>> import everwhen as ew
    >>> print((ew.col("price") * 2 > 5) & ew.col("item").is_null())
    price * 2 > 5 AND item IS NULL
    """
    if not isinstance(name, str):
        raise QueryError(f"a column is named by text, not {name!r}; for a constant use lit({name!r})")
    return Column(name)


def function(name: str, *args: Any) -> Expr:
    """A scalar function of the table `FUNCTIONS`, such as `function("round", col("price"), 2)`.

    >>> import everwhen as ew
    >>> ew.function("round", ew.col("price"), 1).value({"price": 2.55})
    2.6
    """
    return Call(name, tuple(map(to_expr, args)))


def udf(function: Callable[..., Any], *args: Any, type: str | type | pa.DataType) -> Expr:
    """A deterministic Python function on values, called row by row where no argument is null: slow.

    >>> import everwhen as ew
    >>> half = ew.udf(lambda x: x // 2, ew.col("x"), type="int64")
    >>> half.value({"x": 9}), half.value({"x": None})
    (4, None)
    """
    if not args:
        raise QueryError("a udf needs at least one argument; for a constant use lit()")
    return Udf(function, tuple(map(to_expr, args)), type_of(type))


@dataclass(frozen=True, eq=False)
class When:
    """CASE so far, waiting for `.then(value)`."""

    parts: tuple[Expr, ...]

    def then(self, value: Any) -> Then:
        return Then((*self.parts, to_expr(value)))


@dataclass(frozen=True, eq=False)
class Then:
    """CASE so far: goes on with `.when(…)` or ends with `.otherwise(value)`."""

    parts: tuple[Expr, ...]

    def when(self, condition: Any) -> When:
        return When((*self.parts, to_expr(condition)))

    def otherwise(self, value: Any = None) -> Expr:
        return Call("case", (*self.parts, to_expr(value)))


def when(condition: Any) -> When:
    """`when(c).then(x).when(d).then(y).otherwise(z)`: the value after the first condition that is true.

    >>> import everwhen as ew
    >>> size = ew.when(ew.col("x") > 9).then("large").otherwise("small")
    >>> size.value({"x": 10}), size.value({"x": 3})
    ('large', 'small')
    """
    return When((to_expr(condition),))


# -- conditions as lists -----------------------------------------------------------------------------------------------


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions that AND joins, from left to right."""
    if isinstance(condition, Call) and condition.name == "and":
        return list(condition.args)
    return [condition]


def conjunction(conditions: Iterable[Expr]) -> Expr:
    """All of the conditions; of none it is true."""
    found = list(conditions)
    return _junction("and", found, lit(True))


def disjunction(conditions: Iterable[Expr]) -> Expr:
    """At least one of the conditions; of none it is false."""
    return _junction("or", list(conditions), lit(False))


def _junction(name: str, conditions: list[Expr], none: Expr) -> Expr:
    if len(conditions) < 2:
        return conditions[0] if conditions else none
    return Call(name, tuple(conditions))
