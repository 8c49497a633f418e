"""Names that use each other as one loop over tagged rows.

Each row has the number of its variable first, then the columns of all variables, null where they are another one's.
In a loop of MIN or MAX one column more is the value; a variable that is a set has a constant there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col, lit
from everwhen.core.kinds import is_number
from everwhen.core.schema import Field, Schema

_NUMBER: Final = pa.int8()


@dataclass(frozen=True)
class Variable:
    """A variable of a loop: its columns, and which of them is the value."""

    name: str
    columns: Schema
    value: str | None = None


@dataclass(frozen=True)
class Tagged:
    """The rows of several variables in one schema."""

    variables: tuple[Variable, ...]

    @cached_property
    def number(self) -> str:
        return self._own("variable")

    @cached_property
    def value(self) -> str | None:
        return self._own("value") if any(each.value is not None for each in self.variables) else None

    @cached_property
    def schema(self) -> Schema:
        fields = [Field(self.number, _NUMBER if len(self.variables) < 127 else pa.int64())]
        for variable in self.variables:
            for field in variable.columns:
                if field.name != variable.value:
                    fields.append(Field(self._names[variable.name][field.name], field.type))
        if self.value is not None:
            fields.append(Field(self.value, self._value_type))
        return Schema(tuple(fields))

    @property
    def _value_type(self) -> pa.DataType:
        return next(each.columns.field(each.value).type for each in self.variables if each.value is not None)

    @cached_property
    def _names(self) -> dict[str, dict[str, str]]:
        """For each variable, its columns' names in tagged rows."""
        found: dict[str, dict[str, str]] = {}
        taken: set[str] = set()
        for variable in self.variables:
            own = found[variable.name] = {}
            for name in variable.columns.names:
                if name == variable.value:
                    continue
                called = f"{variable.name}.{name}"
                while called in taken:
                    called += "_"
                taken.add(called)
                own[name] = called
        return found

    def _own(self, wished: str) -> str:
        taken = {called for own in self._names.values() for called in own.values()}
        while wished in taken:
            wished += "_"
        return wished

    def tag(self, at: int, node: n.Node) -> n.Node:
        """Rows of the variable with this number, whose columns the node has, as tagged rows."""
        variable = self.variables[at]
        own = {called: name for name, called in self._names[variable.name].items()}
        columns: list[tuple[str, Expr]] = []
        for field in self.schema:
            if field.name == self.number:
                expr = lit(at, field.type)
            elif field.name in own:
                expr = col(own[field.name])
            elif field.name == self.value:
                expr = _constant(field.type) if variable.value is None else col(variable.value)
            else:
                expr = lit(None, field.type)
            columns.append((field.name, expr))
        return n.Map(node, tuple(columns))

    def untag(self, at: int, node: n.Node) -> n.Node:
        """The rows of one variable among tagged rows, in its own columns."""
        variable = self.variables[at]
        names = self._names[variable.name]
        number = self.schema.field(self.number)
        chosen = n.Filter(node, col(self.number) == lit(at, number.type))
        called = [self.value if name == variable.value else names[name] for name in variable.columns.names]
        return n.Map(
            chosen, tuple((name, col(str(other))) for name, other in zip(variable.columns.names, called, strict=True))
        )


def _constant(type_: pa.DataType) -> Expr:
    """The value of rows that have none: the same for all."""
    return lit(0).cast(type_) if is_number(type_) else lit(None, type_)


def united(nodes: Sequence[n.Node]) -> n.Node:
    """All rows of several plans of the same columns."""
    found = nodes[0]
    for each in nodes[1:]:
        found = n.Union(found, each)
    return found
