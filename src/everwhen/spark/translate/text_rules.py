"""Text as Spark columns: positions and lengths count code points on both sides; patterns are constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from everwhen.spark.translate.terms import Rule, Term, as_type, by_spark, strict

_MOST_CHARACTERS: Final = 2**31 - 1  # Spark counts characters in 32 bits


def _length(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    return strict(type_, as_type(F.length(args[0].column), type_), args, bounds=(0, _MOST_CHARACTERS))


def _change_case(name: str, on_ascii: Callable[[Column], Column]) -> Rule:
    """Letter by letter with the algebra's own table: Java knows other letters and lets a text change its length."""

    def rule(args: Sequence[Term], type_: pa.DataType) -> Term | None:
        column = args[0].column
        ascii_only = F.octet_length(column) == F.length(column)
        changed = F.when(ascii_only, on_ascii(column)).otherwise(F.translate(column, *_case_table(name)))
        return strict(type_, changed, args, copies=4)

    return rule


@cache
def _case_table(name: str) -> tuple[str, str]:
    """The letters that the kernel changes, and what it changes them to."""
    points = (n for n in range(0x110000) if not 0xD800 <= n < 0xE000)
    letters = pa.array(map(chr, points), pa.string())
    changed = pc.call_function(name, [letters])
    differ = pc.not_equal(letters, changed)
    return "".join(letters.filter(differ).to_pylist()), "".join(changed.filter(differ).to_pylist())


def _substr(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    text, start, length = args[0], args[1].value, args[2].value if len(args) == 3 else _MOST_CHARACTERS
    if start is None or length is None or length < 0 or not -_MOST_CHARACTERS <= start <= _MOST_CHARACTERS:
        return None
    if start == 0:  # the place before the first character counts as one
        start, length = 1, max(length - 1, 0) if len(args) == 3 else length
    return _part(text, start, min(length, _MOST_CHARACTERS), type_)


def _left(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    n = args[1].value
    return None if n is None else _part(args[0], 1, min(max(n, 0), _MOST_CHARACTERS), type_)


def _right(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    n = args[1].value
    if n is None or n > _MOST_CHARACTERS:
        return None
    return _part(args[0], -n, _MOST_CHARACTERS, type_) if n > 0 else _part(args[0], 1, 0, type_)


def _part(text: Term, start: int, length: int, type_: pa.DataType) -> Term:
    return strict(type_, F.substring(text.column, start, length), [text])


def _split_part(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    n = args[2].value
    if n is None or n == 0 or abs(n) > _MOST_CHARACTERS:
        return None
    return strict(type_, F.split_part(args[0].column, args[1].column, F.lit(n).cast("int")), args[:2])


def _like(args: Sequence[Term], type_: pa.DataType) -> Term | None:
    """Constant patterns in which a backslash only takes a % or _ literally: there everybody agrees."""
    pattern = args[1].value
    if pattern is None or not re.fullmatch(r"(?:[^\\]|\\[%_])*", pattern, re.DOTALL):
        return None
    return strict(type_, F.like(args[0].column, args[1].column), args)


TEXT_RULES: Final[dict[str, Rule]] = {
    "length": _length,
    "lower": _change_case("utf8_lower", F.lower),
    "upper": _change_case("utf8_upper", F.upper),
    "reverse": by_spark(F.reverse),
    "concat": by_spark(F.concat),
    "trim": by_spark(F.trim),
    "ltrim": by_spark(F.ltrim),
    "rtrim": by_spark(F.rtrim),
    "substr": _substr,
    "left": _left,
    "right": _right,
    "replace": by_spark(F.replace),
    "split_part": _split_part,
    "position": by_spark(lambda text, part: F.call_function("instr", text, part)),
    "starts_with": by_spark(F.startswith),
    "ends_with": by_spark(F.endswith),
    "contains": by_spark(F.contains),
    "like": _like,
}
