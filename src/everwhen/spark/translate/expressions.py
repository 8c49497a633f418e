"""Scalar expressions as Spark SQL, so that stateless prefixes of a plan stay in the JVM.

**Guarantee.**  `translate` gives a Spark column that computes, row by row, exactly what `Expr.evaluate` does: the same
value in the same type, and an error where that raises `EvaluationError`; or None, and then the expression is evaluated
in Python.  It holds with Spark's ANSI mode on and off, in every session time zone, and whatever the optimiser does: an
operand that may fail stands in a branch of CASE wherever AND, OR, CASE or COALESCE might not reach it, since Spark
computes common parts of plain conditions beforehand.  How a failure is found: `terms`.

Translated: columns, constants (folded by the algebra itself), comparisons, AND, OR, NOT, null tests, IN, CASE,
COALESCE, NULLIF, LEAST, GREATEST; `+ - * / // %` and the minus sign; abs, sign, floor, ceil, trunc, round, sqrt; lower,
upper, reverse, length, concat, trim, ltrim, rtrim, substr, left, right, replace, split_part, position, starts_with,
ends_with, contains, like; year to second, date_trunc, epoch_ms, a timestamp plus or minus a constant duration; and
the casts of `cast_rules`.

Not translated:

* `exp`, `ln`, `log10`, `power`: Java's last bits differ from C's;
* `regexp_matches`, `regexp_extract`, `regexp_replace`: Java's regular expressions are another language; `strftime`: so
  are its formats;
* `like` with a computed pattern or a backslash before anything but % and _; `substr`, `left`, `right`, `split_part`
  with computed positions: Spark counts in 32 bits and takes other values for errors;
* decimals whose result may have more than 38 digits (Spark then cuts the scale), `//` and `%` of decimals (Spark
  divides them into 64 bits), `//` of floats (too long in IEEE's operations), `round` of integers to tens and hundreds
  and of floats to more than ten digits;
* types that Spark does not carry unchanged, also in between: unsigned integers, durations that are not constant,
  timestamps in other units than microseconds, large strings, lists and structs;
* Python functions; null tests of an operand that may fail, and other places where Spark would drop a failing operand
  because the result does not depend on it; expressions that would become very large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from everwhen.algebra.expressions import nodes as algebra
from everwhen.algebra.expressions.compute import unify
from everwhen.algebra.expressions.functions import FUNCTIONS
from everwhen.algebra.expressions.nodes import Call, Cast, Expr
from everwhen.core.schema import Schema
from everwhen.spark.translate.cast_rules import cast
from everwhen.spark.translate.number_rules import NUMBER_RULES, compared
from everwhen.spark.translate.terms import (
    Rule,
    Term,
    arrow_type,
    as_type,
    coerce,
    coerced,
    columns_of,
    constant_term,
    literal,
    spark_type,
    strict,
)
from everwhen.spark.translate.text_rules import TEXT_RULES
from everwhen.spark.translate.time_rules import TIME_RULES, shifted

__all__ = ["arrow_type", "literal", "spark_type", "translate"]

_RULES: Final[dict[str, Rule]] = {**NUMBER_RULES, **TEXT_RULES, **TIME_RULES}
_LARGEST: Final = 500  # nodes: Spark compiles no function of more than 64 KB, so beyond that it would be slow
_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


def translate(expr: Expr, schema: Schema, columns: Mapping[str, Column]) -> Column | None:
    """The Spark column that computes `expr` over rows of `schema`, None if none is known to agree.

    `columns` are the schema's columns in Spark, by name, in the types that `spark_type` gives; a column that is not
    there cannot be read.  QueryError if the expression does not fit the schema.
    """
    type_ = expr.bind(schema)
    if spark_type(type_) is None or not expr.columns() <= columns.keys():
        return None
    translation = _Translation(expr, schema, columns)
    found = translation.term(expr)
    if found is None:
        return None
    settled = translation.settled(found)
    return None if settled is None else settled.column


@dataclass(frozen=True)
class _Translation:
    """One expression on its way; `whole` is named in errors."""

    whole: Expr
    schema: Schema
    columns: Mapping[str, Column]

    def term(self, expr: Expr) -> Term | None:
        """The term of a part of the expression; null-typed for an untyped null."""
        compiled = expr.compile(self._type)
        if compiled.constant is not None:
            return constant_term(compiled.constant)
        if not expr.columns():
            return None  # constants that have no value: the algebra says so, for each batch that has rows
        match expr:
            case algebra.Column(name):
                return None if spark_type(compiled.type) is None else Term(self.columns[name], compiled.type)
            case Cast(operand, target):
                found = self.term(operand)
                return None if found is None else self._bounded(cast(found, target))
            case Call(name, args):
                return self._bounded(self._call(name, args, compiled.type))
            case _:
                return None

    def settled(self, term: Term) -> Term | None:
        """The term with its failures turned into errors; None if it gets too large."""
        if not term.failures:
            return term
        failed = reduce(lambda a, b: a | b, term.failures)
        error = as_type(F.when(failed, F.raise_error(self._message())), term.type)
        size = term.size + term.checks
        return None if size > _LARGEST else Term(F.coalesce(term.column, error), term.type, size=size, raises=True)

    def _type(self, name: str) -> pa.DataType:
        return self.schema.field(name).type  # the whole was bound before, so it is there

    def _message(self) -> Column:
        shown = [self._shown(name) for name in sorted(self.whole.columns())]
        problem = f"{self.whole}: it has no value, a number is too large or a text cannot be cast (in the row with "
        return F.concat(F.lit(problem), F.concat_ws(", ", *shown), F.lit("); cast or guard the operands"))

    def _shown(self, name: str) -> Column:
        return F.concat(F.lit(f"{name} = "), F.coalesce(self.columns[name].cast("string"), F.lit("None")))

    @staticmethod
    def _bounded(term: Term | None) -> Term | None:
        return None if term is None or term.size > _LARGEST else term

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, name: str, args: Sequence[Expr], type_: pa.DataType) -> Term | None:
        if name in ("and", "or"):
            return self._logical(name, args)
        if name in ("+", "-") and pa.types.is_timestamp(type_):
            return self._shift(name, args)
        if name == "in":
            return self._member(args)
        terms = [self.term(arg) for arg in args]
        found = [term for term in terms if term is not None]
        if len(found) < len(terms):
            return None
        if FUNCTIONS[name].strict:
            if any(term.is_null for term in found):
                return _null(type_, found)
            if any(term.raises for term in found) and sum(term.constant is None for term in found) > 1:
                return None  # Spark does not look at an operand once another is null
            rule = _RULES.get(name)
            return None if rule is None else rule(found, type_)
        lazily = _NOT_STRICT.get(name)
        settled = [each for term in found if (each := self.settled(term)) is not None]
        return None if lazily is None or len(settled) < len(found) else lazily(settled, type_)

    def _logical(self, name: str, args: Sequence[Expr]) -> Term | None:
        """AND, OR: chains are flattened, since what may fail stands there twice."""
        if len(args) > _LARGEST:
            return None
        parts = list(args)
        terms = [self.term(part) for part in parts]
        found = [each for term in terms if term is not None and (each := self._condition(term)) is not None]
        if len(found) < len(parts):
            return None
        columns, either = columns_of(found), name == "or"
        plain = reduce(lambda a, b: a | b if either else a & b, columns)
        if not any(term.raises for term in found):
            return strict(pa.bool_(), plain, found)
        if any(term.constant is not None for term in found):
            return None  # Spark simplifies `x AND false` without a look at x
        decided = [column if either else ~column for column in columns]
        chosen = F.when(decided[0], F.lit(either))
        for column in decided[1:]:
            chosen = chosen.when(column, F.lit(either))
        return strict(pa.bool_(), chosen.otherwise(plain), found, copies=2)

    def _condition(self, term: Term) -> Term | None:
        found = coerce(term, pa.bool_())
        return None if found is None else self.settled(found)

    def _shift(self, name: str, args: Sequence[Expr]) -> Term | None:
        """A timestamp and a constant duration, in either order."""
        moment, by = args
        if pa.types.is_duration(moment.compile(self._type).type):
            moment, by = by, moment
        duration, found = by.compile(self._type), self.term(moment)
        unit = _MICROS.get(getattr(duration.type, "unit", ""))
        if found is None or unit is None or duration.constant is None or spark_type(found.type) is None:
            return None
        if not duration.constant.is_valid:
            return _null(found.type, [found])
        return shifted(name, found, duration.constant.cast(pa.int64()).as_py() * unit)

    def _member(self, args: Sequence[Expr]) -> Term | None:
        """`x IN (…)` in the common type of all."""
        operand = self.term(args[0])
        if operand is None or (len(args) == 1 and (operand.failures or operand.raises)):
            return None
        if len(args) == 1:
            return Term(F.lit(False), pa.bool_())
        target, constants = unify([arg.compile(self._type) for arg in args], "IN", wide=True)
        found = coerce(operand, target)
        if found is None or spark_type(target) is None:
            return None
        listed = [each.constant.as_py() for each in constants[1:] if each.constant is not None]
        if 0.0 in listed and pa.types.is_floating(target):
            listed += [0.0, -0.0]  # equal, but Spark looks long lists up by bits
        return strict(pa.bool_(), found.column.isin(*(literal(each, target) for each in listed)), [found])


def _null(type_: pa.DataType, args: Sequence[Term]) -> Term | None:
    """A strict function of a constant null is null, unless another argument has an error to report."""
    return None if any(arg.failures or arg.raises for arg in args) else constant_term(pa.scalar(None, type_))


# -- functions that decide themselves which operands count; their arguments are settled --------------------------------


def _null_test(test: Callable[[Column], Column]) -> Rule:
    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        return None if args[0].raises else strict(type_, test(args[0].column), args)

    return rule


def _case(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    conditions = coerced(args[:-1:2], pa.bool_())
    values = coerced([*args[1:-1:2], args[-1]], type_)
    if conditions is None or values is None:
        return None
    if any(each.raises for each in conditions) and len({str(each.column) for each in values}) == 1:
        return None  # Spark takes the value without a look at the conditions
    chosen: Any = F
    for condition, value in zip(conditions, values[:-1], strict=True):
        chosen = chosen.when(condition.column, value.column)
    return strict(type_, chosen.otherwise(values[-1].column), [*conditions, *values])


def _of_common_type(build: Callable[..., Column]) -> Rule:
    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        found = coerced(args, type_)
        if found is None or len(found) == 1:
            return found[0] if found else None
        return strict(type_, build(*columns_of(found)), found)

    return rule


def _nullif(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    kept, other = args
    same = None if other.raises else compared("=", kept, other)
    if same is None or other.is_null or kept.is_null:
        return None
    return strict(type_, F.when(same.column, F.lit(None)).otherwise(kept.column), args, copies=2)


_NOT_STRICT: Final[dict[str, Rule]] = {
    "is_null": _null_test(Column.isNull),
    "not_null": _null_test(Column.isNotNull),
    "case": _case,
    "coalesce": _of_common_type(F.coalesce),
    "least": _of_common_type(F.least),
    "greatest": _of_common_type(F.greatest),
    "nullif": _nullif,
}
