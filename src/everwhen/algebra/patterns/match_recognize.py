"""The logical node of MATCH_RECOGNIZE.

At an instant, per partition: the rows alive, in the order of ORDER BY, ties in the order of the values of the columns
that are read.  A match is a run of neighbours, at least one, that spells the pattern with all conditions true.  Of each
row that begins matches the longest is the answer, one row: the partition's columns, then the measures.  If several
mappings to variables are as long, the one counts whose first different row has the variable that the pattern names
first.

A condition is about a row as mapped to its variable: counts, sums and the like include it.  A variable without a
condition takes every row.  PREV reads the neighbour before, whether it belongs to the match or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from everwhen.algebra.expressions.build import Expr
from everwhen.algebra.node import Node
from everwhen.algebra.patterns.pattern import Pattern, variables
from everwhen.algebra.patterns.program import Program, compile_program
from everwhen.algebra.patterns.terms import Term, over_last, row_columns, terms
from everwhen.core.kinds import is_orderable
from everwhen.core.schema import Field, Schema
from everwhen.errors import QueryError


@dataclass(frozen=True, eq=False)
class MatchRecognize(Node):
    """See the module.  `order`: columns and whether they descend, nulls last."""

    input: Node
    pattern: Pattern
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    define: tuple[tuple[str, Expr], ...]
    measures: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        schema = self.input.schema
        schema.select(self.partition, "PARTITION BY")
        if not self.order:
            raise QueryError("MATCH_RECOGNIZE needs an ORDER BY: neighbours are neighbours in an order")
        for name, _ in self.order:
            field = schema.field(name, "ORDER BY")
            if not is_orderable(field.type):
                raise QueryError(f"rows cannot be ordered by {field}: its values have no order")
        object.__setattr__(self, "measures", tuple((name, over_last(e)) for name, e in self.measures))
        known = variables(self.pattern)
        for name, condition in self.define:
            if name not in known:
                raise QueryError(f"DEFINE has a variable {name!r} that PATTERN has not; there is {', '.join(known)}")
            self._check(condition, f"the condition of {name}")
            found = condition.compile(self.type_of).type
            if not pa.types.is_boolean(found):
                raise QueryError(f"the condition of {name} must be true or false; {condition} is of type {found}")
        names = [name for name, _ in self.define]
        if len(set(names)) < len(names):
            raise QueryError("DEFINE has two conditions for one variable; join them with AND")
        for name, measure in self.measures:
            self._check(measure, f"the measure {name}")
            if any(each.function == "prev" for each in terms(measure)):
                raise QueryError(
                    f"the measure {name} reads PREV, which stands in DEFINE only; map the row to a variable"
                )
        _ = self.schema
        _ = self.program

    def _check(self, expr: Expr, where: str) -> None:
        known = variables(self.pattern)
        for each in terms(expr):
            if each.variable is not None and each.variable not in known:
                raise QueryError(
                    f"{where} reads {each.name}, but PATTERN has no variable {each.variable!r}; there is "
                    f"{', '.join(known)}"
                )
            if each.argument is not None and terms(each.argument):
                raise QueryError(f"{where} reads {each.name}: one cannot stand inside the other")
            each.type(self.input.schema)
        self.input.schema.select(tuple(sorted(row_columns(expr))), where)

    def type_of(self, name: str) -> pa.DataType:
        """The type of a column or a term."""
        found = self._terms.get(name)
        return found.type(self.input.schema) if found is not None else self.input.schema.field(name).type

    @cached_property
    def _terms(self) -> dict[str, Term]:
        return {each.name: each for _, e in (*self.define, *self.measures) for each in terms(e)}

    @cached_property
    def schema(self) -> Schema:
        keys = self.input.schema.select(self.partition, "PARTITION BY")
        found = tuple(Field(name, e.compile(self.type_of).type) for name, e in self.measures)
        return Schema(keys.fields + found)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The columns that are read, in the order of the input's."""
        found = {*self.partition, *(name for name, _ in self.order)}
        for _, e in (*self.define, *self.measures):
            found |= row_columns(e)
        return tuple(name for name in self.input.schema.names if name in found)

    @cached_property
    def ties(self) -> tuple[str, ...]:
        """The columns whose values order rows that ORDER BY leaves equal."""
        ordered = {*self.partition, *(name for name, _ in self.order)}
        return tuple(name for name in self.reads if name not in ordered)

    @cached_property
    def program(self) -> Program:
        """Conditions and measures as loops run them."""
        return compile_program(self.pattern, dict(self.define), self.measures, self.input.schema.select(self.reads))

    def __str__(self) -> str:
        """One line for EXPLAIN."""
        by = f" by {', '.join(self.partition)}" if self.partition else ""
        order = ", ".join(name + " descending" * down for name, down in self.order)
        define = ", ".join(f"{name}: {e}" for name, e in self.define)
        found = ", ".join(f"{name} = {e}" for name, e in self.measures)
        return (
            f"Match ({self.pattern}){by} in the order of {order}"
            + (f" where {define}" if define else "")
            + (f": {found}" if found else "")
        )
