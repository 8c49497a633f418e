"""The nodes of scalar expressions: a column, a constant, a call, a cast, a Python function.

`value` is the meaning, written against `definition`; `compile` gives the columnar form.  Users build these nodes with
the constructors of `everwhen.algebra.expressions.build`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import chain
from typing import Any

import pyarrow as pa

from everwhen.algebra.expressions import compute, definition
from everwhen.algebra.expressions.casts import compile_cast
from everwhen.algebra.expressions.compute import Compiled
from everwhen.algebra.expressions.functions import FUNCTIONS, scalar_function
from everwhen.algebra.expressions.text import quoted, show_call
from everwhen.core.kinds import type_of
from everwhen.core.schema import Schema
from everwhen.errors import EvaluationError, QueryError

Row = Mapping[str, Any]
Types = Callable[[str], pa.DataType]


@dataclass(frozen=True, eq=False)
class Expr(ABC):
    """A scalar expression.  Not built directly: use `col`, `lit`, `function`, `when`, `udf` and operators."""

    @abstractmethod
    def value(self, row: Row) -> Any:
        """The definition: the value for one row of Python scalars."""

    @abstractmethod
    def compile(self, types: Types) -> Compiled:
        """The columnar form for columns of the given types; QueryError where they do not fit."""

    @property
    @abstractmethod
    def operands(self) -> tuple[Expr, ...]:
        """The expressions directly below."""

    @abstractmethod
    def rebuild(self, operands: Sequence[Expr]) -> Expr:
        """The same expression over other operands."""

    def bind(self, schema: Schema) -> pa.DataType:
        """The type of the result over rows of `schema`; QueryError says which column or type is wrong."""
        where = str(self)
        return self.compile(lambda name: schema.field(name, where).type).type

    def evaluate(self, columns: Mapping[str, pa.Array], length: int) -> pa.Array:
        """The values for a batch of `length` rows, in exactly the type that `bind` gives."""
        compiled = self._compiled([columns[name].type for name in self._names])
        try:
            result = compiled.run(columns, length)
        except compute.FAILURES:
            return self._by_definition(columns, length, compiled.type)
        return pa.repeat(result, length) if isinstance(result, pa.Scalar) else result

    def _by_definition(self, columns: Mapping[str, pa.Array], length: int, type_: pa.DataType) -> pa.Array:
        lists = {name: columns[name].to_pylist() for name in self._names}
        values = []
        for i in range(length):
            row = {name: column[i] for name, column in lists.items()}
            try:
                values.append(self.value(row))
            except EvaluationError as error:
                shown = ", ".join(f"{name} = {value!r}" for name, value in row.items()) or "any values"
                raise EvaluationError(f"{self}: {error} (in the row with {shown})") from None
        try:
            return pa.array(values, type_)
        except (pa.ArrowInvalid, OverflowError):
            raise EvaluationError(f"{self}: a result does not fit into {type_}; cast the operands to float64") from None

    def _compiled(self, types: list[pa.DataType]) -> Compiled:
        """Compiled for these column types; the last ones are remembered, since batches of a stream look alike."""
        last = self.__dict__.get("_last")
        if last is not None and last[0] == types:
            return last[1]
        compiled = self.compile(dict(zip(self._names, types, strict=True)).__getitem__)
        self.__dict__["_last"] = (types, compiled)
        return compiled

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # compiled kernels stay at home

    # -- the tree --------------------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(sorted({each.name for each in walk(self) if isinstance(each, Column)}))

    def columns(self) -> frozenset[str]:
        """The names of all columns that are read."""
        return frozenset(self._names)

    def substitute(self, replacements: Mapping[str, Expr]) -> Expr:
        """The expression with columns replaced by expressions, all at once."""
        if not self.operands:
            return self
        return self.rebuild([operand.substitute(replacements) for operand in self.operands])

    def equals(self, other: Expr) -> bool:
        """Whether both are written the same way (`==` builds a comparison)."""
        return (
            type(self) is type(other)
            and self._same_node(other)
            and len(self.operands) == len(other.operands)
            and all(a.equals(b) for a, b in zip(self.operands, other.operands, strict=True))
        )

    def _same_node(self, other: Any) -> bool:
        return True

    # -- operators -------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expr:
        return Call("+", (self, to_expr(other)))

    def __radd__(self, other: Any) -> Expr:
        return Call("+", (to_expr(other), self))

    def __sub__(self, other: Any) -> Expr:
        return Call("-", (self, to_expr(other)))

    def __rsub__(self, other: Any) -> Expr:
        return Call("-", (to_expr(other), self))

    def __mul__(self, other: Any) -> Expr:
        return Call("*", (self, to_expr(other)))

    def __rmul__(self, other: Any) -> Expr:
        return Call("*", (to_expr(other), self))

    def __truediv__(self, other: Any) -> Expr:
        return Call("/", (self, to_expr(other)))

    def __rtruediv__(self, other: Any) -> Expr:
        return Call("/", (to_expr(other), self))

    def __floordiv__(self, other: Any) -> Expr:
        return Call("//", (self, to_expr(other)))

    def __rfloordiv__(self, other: Any) -> Expr:
        return Call("//", (to_expr(other), self))

    def __mod__(self, other: Any) -> Expr:
        return Call("%", (self, to_expr(other)))

    def __rmod__(self, other: Any) -> Expr:
        return Call("%", (to_expr(other), self))

    def __neg__(self) -> Expr:
        return Call("negate", (self,))

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return Call("=", (self, to_expr(other)))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return Call("<>", (self, to_expr(other)))

    def __lt__(self, other: Any) -> Expr:
        return Call("<", (self, to_expr(other)))

    def __le__(self, other: Any) -> Expr:
        return Call("<=", (self, to_expr(other)))

    def __gt__(self, other: Any) -> Expr:
        return Call(">", (self, to_expr(other)))

    def __ge__(self, other: Any) -> Expr:
        return Call(">=", (self, to_expr(other)))

    def __and__(self, other: Any) -> Expr:
        return Call("and", (self, to_expr(other)))

    def __rand__(self, other: Any) -> Expr:
        return Call("and", (to_expr(other), self))

    def __or__(self, other: Any) -> Expr:
        return Call("or", (self, to_expr(other)))

    def __ror__(self, other: Any) -> Expr:
        return Call("or", (to_expr(other), self))

    def __invert__(self) -> Expr:
        return Call("not", (self,))

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise QueryError(
            f"{self} is no truth value but an expression; combine conditions with &, | and ~ (not and, or, not, "
            "a < b < c), each in parentheses"
        )

    def is_null(self) -> Expr:
        return Call("is_null", (self,))

    def not_null(self) -> Expr:
        return Call("not_null", (self,))

    def is_in(self, values: Iterable[Any]) -> Expr:
        """Whether the value is one of these constants."""
        return Call("in", (self, *map(to_expr, values)))

    def between(self, low: Any, high: Any) -> Expr:
        """Whether `low <= self <= high`."""
        return Call("and", (self >= low, self <= high))

    def cast(self, to: str | type | pa.DataType) -> Expr:
        """The value in another type, given as an Arrow type or its name."""
        return Cast(self, type_of(to))

    @abstractmethod
    def __str__(self) -> str:
        """The expression in SQL-like text."""

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True, eq=False, repr=False)
class Column(Expr):
    """The value of a column."""

    name: str

    operands = ()

    def value(self, row: Row) -> Any:
        return row[self.name]

    def compile(self, types: Types) -> Compiled:
        return compute.column(self.name, types(self.name))

    def rebuild(self, operands: Sequence[Expr]) -> Expr:
        return self

    def substitute(self, replacements: Mapping[str, Expr]) -> Expr:
        return replacements.get(self.name, self)

    def _same_node(self, other: Column) -> bool:
        return self.name == other.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expr):
    """A constant.  `untyped` integers take any integer type that holds them."""

    constant: Any
    type: pa.DataType
    untyped: bool = False

    operands = ()

    def value(self, row: Row) -> Any:
        return self.constant

    def compile(self, types: Types) -> Compiled:
        return compute.constant(pa.scalar(self.constant, self.type), str(self), untyped=self.untyped)

    def rebuild(self, operands: Sequence[Expr]) -> Expr:
        return self

    def _same_node(self, other: Literal) -> bool:
        if self.type != other.type or (self.constant is None) != (other.constant is None):
            return False
        return self.constant is None or bool(self.constant == other.constant)

    def __str__(self) -> str:
        return quoted(self.constant)


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """An operator or a function of the table applied to arguments.

    A chain of ANDs, or of ORs, is one call, however it was put together: both associate, also in what they evaluate.
    So the depth of a condition does not grow with its length, and whatever recurses over it stays shallow.
    """

    name: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        scalar_function(self.name).check_count(len(self.args))
        if self.name in ("and", "or") and any(isinstance(arg, Call) and arg.name == self.name for arg in self.args):
            parts = (arg.args if isinstance(arg, Call) and arg.name == self.name else (arg,) for arg in self.args)
            object.__setattr__(self, "args", tuple(chain.from_iterable(parts)))

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args

    def value(self, row: Row) -> Any:
        entry = FUNCTIONS[self.name]
        if not entry.strict:
            return entry.definition(*[partial(arg.value, row) for arg in self.args])
        values = [arg.value(row) for arg in self.args]
        return None if any(value is None for value in values) else entry.definition(*values)

    def compile(self, types: Types) -> Compiled:
        return FUNCTIONS[self.name].rule([arg.compile(types) for arg in self.args], str(self))

    def rebuild(self, operands: Sequence[Expr]) -> Expr:
        return Call(self.name, tuple(operands))

    def _same_node(self, other: Call) -> bool:
        return self.name == other.name

    def __str__(self) -> str:
        return show_call(self.name, [(arg.name if isinstance(arg, Call) else "", str(arg)) for arg in self.args])


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expr):
    """A value in another type; one that does not fit is an error."""

    operand: Expr
    type: pa.DataType

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def value(self, row: Row) -> Any:
        value = self.operand.value(row)
        return None if value is None else definition.cast(value, self.type)

    def compile(self, types: Types) -> Compiled:
        return compile_cast(self.operand.compile(types), self.type, str(self))

    def rebuild(self, operands: Sequence[Expr]) -> Expr:
        return Cast(operands[0], self.type)

    def _same_node(self, other: Cast) -> bool:
        return bool(self.type == other.type)

    def __str__(self) -> str:
        return f"CAST({self.operand} AS {self.type})"


def lit(value: Any, type: str | type | pa.DataType | None = None) -> Expr:
    """A constant, of the type given or of the value's own (integers are int64, Python's datetime timestamp[us]).

    >>> import everwhen as ew
    >>> print(ew.col("x") + ew.lit(1))
    x + 1
    """
    if isinstance(value, Expr):
        raise QueryError(f"lit() takes a constant, not the expression {value}")
    untyped = type is None and isinstance(value, int) and not isinstance(value, bool)
    wanted = type_of(type) if type is not None else pa.uint64() if untyped and value >= 2**63 else None
    try:
        scalar = pa.scalar(value, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        raise QueryError(
            f"{value!r} is not a constant {'of type ' + str(wanted) if wanted else 'of any type'}"
        ) from None
    return Literal(scalar.as_py(), scalar.type, untyped)


def to_expr(value: Any) -> Expr:
    """An expression as it is, anything else as a constant (also text: a column is `col(name)`)."""
    return value if isinstance(value, Expr) else lit(value)


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it."""
    yield expr
    for operand in expr.operands:
        yield from walk(operand)
