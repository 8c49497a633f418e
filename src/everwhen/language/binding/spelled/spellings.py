"""Functions in the spellings of other systems, as expressions of the functions that are there.

`to_char(t, 'YYYY-MM-DD')` is `strftime(t, '%Y-%m-%d')`; `date_sub(d, 3)` is `date_add(d, -3)`; and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Expr, Literal, function, lit
from everwhen.algebra.expressions.families.time_formats import java_format, postgres_format
from everwhen.core.kinds import kind
from everwhen.core.schema import Schema
from everwhen.errors import QueryError

Spelling = Callable[[Sequence[Expr], Schema], Expr]


def _constant(arg: Expr, what: str) -> Any:
    if not isinstance(arg, Literal) or not isinstance(arg.constant, str):
        raise QueryError(f"{what} is a constant text")
    return arg.constant


def _formatted(convert: Callable[[str], str]) -> Spelling:
    def spelled(args: Sequence[Expr], schema: Schema) -> Expr:
        return function("strftime", args[0], lit(convert(_constant(args[1], "the format of a time"))))

    return spelled


def _read(type_: pa.DataType) -> Spelling:
    """A text as a time: by a format, or as a cast reads it.  A number is seconds since 1970."""

    def spelled(args: Sequence[Expr], schema: Schema) -> Expr:
        given = args[0]
        if len(args) == 2:
            text = _constant(args[1], "the format of a time")
            pattern = text if "%" in text else java_format(text)
            return function("_read_time", given, lit(pattern)).cast(type_)
        found = given.bind(schema)
        if kind(found) in ("integer", "float") and kind(type_) == "timestamp":
            micros = function("round", given.cast(pa.float64()) * 1_000_000.0).cast(pa.int64())
            return (given.cast(pa.int64()) * 1_000_000 if kind(found) == "integer" else micros).cast(type_)
        return given.cast(type_)

    return spelled


def _shifted(function_name: str, sign: int) -> Spelling:
    def spelled(args: Sequence[Expr], schema: Schema) -> Expr:
        amount = args[1]
        if isinstance(amount, Literal) and isinstance(amount.constant, int):
            amount = lit(sign * amount.constant)
        elif sign < 0:
            amount = -amount
        day = args[0]
        given = kind(day.bind(schema))
        if given == "string" or (given == "timestamp" and function_name == "date_add"):
            day = day.cast(pa.date32())
        return function(function_name, day, amount)

    return spelled


def _renamed(name: str) -> Spelling:
    return lambda args, schema: function(name, *args)


def _swapped(name: str) -> Spelling:
    return lambda args, schema: function(name, *args[::-1])


def _member(name: str) -> Spelling:
    """`x -> 'key'`, `x -> 2`: a step of a path."""

    def spelled(args: Sequence[Expr], schema: Schema) -> Expr:
        step = args[1]
        if not isinstance(step, Literal) or not isinstance(step.constant, str | int) or isinstance(step.constant, bool):
            raise QueryError("behind -> and ->> stands a constant: a key in quotation marks, or a place from 0 on")
        if isinstance(step.constant, int):
            if step.constant < 0:
                raise QueryError("places in a JSON array are counted from 0 on")
            return function(name, args[0], lit(f"$[{step.constant}]"))
        if '"' in step.constant:
            raise QueryError("a key with a quotation mark in it cannot be read")
        if step.constant.startswith("$"):
            return function(name, args[0], lit(step.constant))
        return function(name, args[0], lit(f'$["{step.constant}"]'))

    return spelled


def _unix(args: Sequence[Expr], schema: Schema) -> Expr:
    moment = args[0] if kind(args[0].bind(schema)) != "string" else args[0].cast(pa.timestamp("us"))
    return function("floor", function("epoch", moment)).cast(pa.int64())


def _concat_ws(args: Sequence[Expr], schema: Schema) -> Expr:
    """Texts with a separator between them; nulls are passed over."""
    separator, *texts = args
    if not texts:
        raise QueryError("concat_ws takes a separator and texts")
    parts = [Call("case", (text.not_null(), function("concat", separator, text.cast(pa.string())), lit("")))
             for text in texts]  # fmt: skip
    joined = parts[0] if len(parts) == 1 else function("concat", *parts)
    return function("substr", joined, function("length", separator) + 1)


def _split_index(args: Sequence[Expr], schema: Schema) -> Expr:
    """Flink's: the part at a place that is counted from 0 on; null where there is none."""
    part = function("element_at", function("string_split", args[0], args[1]), args[2] + 1)
    return Call("case", (args[2] >= 0, part, lit(None)))


def _nvl2(args: Sequence[Expr], schema: Schema) -> Expr:
    return Call("case", (args[0].not_null(), args[1], args[2]))


SPELLINGS: Final[dict[str, tuple[int, int, Spelling]]] = {
    "to_char": (2, 2, _formatted(postgres_format)),
    "date_format": (2, 2, _formatted(java_format)),
    "to_date": (1, 2, _read(pa.date32())),
    "to_timestamp": (1, 2, _read(pa.timestamp("us"))),
    "date_add": (2, 2, _shifted("date_add", 1)),
    "dateadd": (2, 2, _shifted("date_add", 1)),
    "date_sub": (2, 2, _shifted("date_add", -1)),
    "add_months": (2, 2, _shifted("add_months", 1)),
    "date_diff": (2, 2, _renamed("datediff")),
    "isoyear": (1, 1, _renamed("iso_year")),
    "unix_timestamp": (1, 1, _unix),
    "get_json_object": (2, 2, _renamed("json_text")),
    "json_extract_string": (2, 2, _member("json_text")),
    "json_extract_path_text": (2, 2, _member("json_text")),
    "->": (2, 2, _member("json_extract")),
    "->>": (2, 2, _member("json_text")),
    "locate": (2, 2, _swapped("position")),
    "concat_ws": (2, 100, _concat_ws),
    "nvl2": (3, 3, _nvl2),
    "split_index": (3, 3, _split_index),
}
"""How many arguments each takes, and what it stands for."""


def spelled(name: str, args: Sequence[Expr], schema: Schema) -> Expr | None:
    """The expression that a call stands for; None if the name is no spelling."""
    entry = SPELLINGS.get(name)
    if entry is None:
        return None
    least, most, build = entry
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise QueryError(f"{name} takes {wanted} arguments, not {len(args)}")
    return build(args, schema)
