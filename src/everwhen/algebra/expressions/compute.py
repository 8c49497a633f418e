"""Columnar evaluation: an expression bound to column types becomes a `Compiled` chain of pyarrow kernels.

Guarantee: the result has exactly the bound type and equals, row by row, what `definition` says; the tests check it on
random rows.  Kernels are called directly with constants made once, so that a batch of one row costs microseconds; no
expression engine stands in between.  A kernel always gets at least one array: constant expressions are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.kinds import common, kind
from everwhen.errors import EvaluationError, QueryError

Columns = Mapping[str, pa.Array]
Datum = Any  # pa.Array, or pa.Scalar for a constant
Run = Callable[[Columns, int], Datum]
Kernel = Callable[..., Datum]

FAILURES: Final = (pa.ArrowInvalid, EvaluationError, OverflowError)


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression with its type: `run` gives its values for a batch; `text` is how the user wrote it."""

    type: pa.DataType
    run: Run
    text: str
    constant: pa.Scalar | None = None
    untyped: bool = False  # an integer constant that may take any integer type that holds it

    @property
    def kind(self) -> str:
        return kind(self.type)


Rule = Callable[[Sequence[Compiled], str], Compiled]


def column(name: str, type_: pa.DataType) -> Compiled:
    return Compiled(type_, lambda columns, _: columns[name], name)


def constant(scalar: pa.Scalar, text: str, *, untyped: bool = False) -> Compiled:
    return Compiled(scalar.type, lambda _columns, _length: scalar, text, scalar, untyped)


def apply(type_: pa.DataType, kernel: Kernel, args: Sequence[Compiled], text: str) -> Compiled:
    """`kernel` over the arguments' values; folded to a constant when all of them are constants."""
    runs = [arg.run for arg in args]
    if all(arg.constant is not None for arg in args):
        return _fold(type_, kernel, args, text)
    match runs:
        case [one]:
            return Compiled(type_, lambda columns, n: kernel(one(columns, n)), text)
        case [left, right]:
            return Compiled(type_, lambda columns, n: kernel(left(columns, n), right(columns, n)), text)
        case _:
            return Compiled(type_, lambda columns, n: kernel(*[run(columns, n) for run in runs]), text)


def _fold(type_: pa.DataType, kernel: Kernel, args: Sequence[Compiled], text: str) -> Compiled:
    def run(_: Columns, length: int) -> pa.Array:
        return kernel(*[pa.repeat(arg.constant, length) for arg in args])

    try:
        return constant(run({}, 1)[0], text)
    except FAILURES:
        return Compiled(type_, run, text)  # fails again for each batch that has rows, with their values in the message


def row_by_row(function: Callable[..., Any], type_: pa.DataType) -> Kernel:
    """A kernel from a Python function of values without nulls: slow, for what no pyarrow kernel does."""

    def kernel(*data: Datum) -> pa.Array:
        length = next(len(each) for each in data if isinstance(each, pa.Array))
        lists = [each.to_pylist() if isinstance(each, pa.Array) else [each.as_py()] * length for each in data]
        rows = zip(*lists, strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], type_)

    return kernel


def value_by_value(function: Callable[[Any], Any], type_: pa.DataType) -> Kernel:
    """A kernel from a Python function of one value: called once for each different value of a batch."""

    def kernel(datum: Datum) -> pa.Array:
        coded = datum.dictionary_encode()
        known = pa.array([None if each is None else function(each) for each in coded.dictionary.to_pylist()], type_)
        return known.take(coded.indices)

    return kernel


# -- conversions between types -----------------------------------------------------------------------------------------


def coerce(arg: Compiled, target: pa.DataType) -> Compiled:
    """The argument in a type of which its own is a part; constants are converted once."""
    if arg.type == target:
        return arg
    if arg.kind == "null":
        return constant(pa.scalar(None, target), arg.text)
    if arg.kind == "decimal" and target == pa.float64():
        return apply(target, decimal_to_float(arg.type), [arg], arg.text)
    options = pc.CastOptions(
        target_type=target, allow_float_truncate=True, allow_int_overflow=False, allow_decimal_truncate=False
    )
    return apply(target, lambda datum: pc.cast(datum, options=options), [arg], arg.text)


def decimal_to_float(source: Any) -> Kernel:
    """Decimals as the nearest floats; pyarrow's own cast is off by one bit for about every eighth value."""
    double = pc.CastOptions.unsafe(pa.float64())
    if source.precision <= 15 and source.bit_width == 128:  # both parts of the quotient are exact
        whole, divisor = pa.decimal128(source.precision, 0), pa.scalar(10.0**source.scale)
        return lambda datum: pc.divide(pc.cast(datum.view(whole), options=double), divisor)
    text = pc.CastOptions(target_type=pa.string())
    return lambda datum: pc.cast(pc.cast(datum, options=text), options=double)


def unify(args: Sequence[Compiled], where: str, *, wide: bool = False) -> tuple[pa.DataType, list[Compiled]]:
    """All arguments in their common type."""
    if any(arg.type == pa.uint64() for arg in args):
        args = [_unsigned(arg) for arg in args]
    target = pa.null()
    for arg in args:
        target = common(target, arg.type, where, wide=wide)
    return target, [coerce(arg, target) for arg in args]


def _unsigned(arg: Compiled) -> Compiled:
    if arg.untyped and arg.constant is not None and arg.constant.as_py() >= 0:
        return constant(arg.constant.cast(pa.uint64()), arg.text)
    return arg


def wrong(where: str, args: Sequence[Compiled], wanted: str) -> QueryError:
    got = " and ".join(f"{arg.text} is of type {arg.type}" for arg in args)
    return QueryError(f"{where} needs {wanted}; {got}")
