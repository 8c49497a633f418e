"""Functions of the user's in expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from everwhen.algebra.expressions import compute
from everwhen.algebra.expressions.compute import Compiled
from everwhen.algebra.expressions.nodes import Expr, Row, Types


@dataclass(frozen=True, eq=False, repr=False)
class Udf(Expr):
    """A Python function of values, called row by row: slow.  It is not called where an argument is null."""

    function: Callable[..., Any]
    args: tuple[Expr, ...]
    type: pa.DataType

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args

    def value(self, row: Row) -> Any:
        values = [arg.value(row) for arg in self.args]
        return None if any(value is None for value in values) else self.function(*values)

    def compile(self, types: Types) -> Compiled:
        args = [arg.compile(types) for arg in self.args]
        return compute.apply(self.type, compute.row_by_row(self.function, self.type), args, str(self))

    def rebuild(self, operands: Sequence[Expr]) -> Expr:
        return Udf(self.function, tuple(operands), self.type)

    def _same_node(self, other: Udf) -> bool:
        return self.function is other.function and bool(self.type == other.type)

    def __str__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{name}({', '.join(map(str, self.args))})"
