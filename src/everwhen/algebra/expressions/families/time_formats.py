"""Formats of times as other systems write them, and reading times by a format.

`date_format`, `to_date` and `to_timestamp` take Java's letters (`yyyy-MM-dd HH:mm`), `to_char` PostgreSQL's words
(`YYYY-MM-DD HH24:MI`).  Both become formats of `strftime`; what has no exact counterpart there is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, Datum, Kernel, apply, value_by_value
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require
from everwhen.errors import EvaluationError, QueryError

_JAVA: Final = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "DDD": "%j", "HH": "%H", "hh": "%I",
    "mm": "%M", "ss": "%S", "a": "%p", "E": "%a", "EEE": "%a", "EEEE": "%A",
}  # fmt: skip
_POSTGRES: Final = {
    "YYYY": "%Y", "YY": "%y", "MM": "%m", "Mon": "%b", "Month": "%B", "DDD": "%j", "DD": "%d", "HH24": "%H",
    "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "AM": "%p", "PM": "%p", "Dy": "%a", "Day": "%A", "IW": "%V",
    "IYYY": "%G", "ID": "%u",
}  # fmt: skip
_READ: Final = frozenset("YmdHMSjyIp")


def java_format(pattern: str) -> str:
    """A pattern in Java's letters as a format of strftime.

    >>> java_format("yyyy-MM-dd'T'HH:mm")
    '%Y-%m-%dT%H:%M'
    """
    found: list[str] = []
    for part in re.finditer(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|[^A-Za-z']+", pattern):
        quoted, letters = part[1], part[2]
        if letters is None:
            plain = part[0] if quoted is None else quoted.replace("''", "'") if quoted else "'"
            found.append(plain.replace("%", "%%"))
        elif letters in _JAVA:
            found.append(_JAVA[letters])
        else:
            raise QueryError(f"{letters} in the format {pattern!r} is not known; there is {', '.join(_JAVA)}")
    return "".join(found)


def postgres_format(pattern: str) -> str:
    """A pattern in PostgreSQL's words as a format of strftime.

    >>> postgres_format("YYYY-MM-DD HH24:MI")
    '%Y-%m-%d %H:%M'
    """
    found: list[str] = []
    at = 0
    words = sorted(_POSTGRES, key=len, reverse=True)
    while at < len(pattern):
        word = next((w for w in words if pattern.startswith(w, at) or pattern[at : at + len(w)] == w.lower()), None)
        if word is not None and not (word.isalpha() and not word.isupper() and not pattern.startswith(word, at)):
            found.append(_POSTGRES[word])
            at += len(word)
        elif pattern[at] == '"' and '"' in pattern[at + 1 :]:
            end = pattern.index('"', at + 1)
            found.append(pattern[at + 1 : end].replace("%", "%%"))
            at = end + 1
        elif pattern[at].isalpha():
            raise QueryError(
                f"{pattern[at:]!r} in the format {pattern!r} is not known; there is {', '.join(_POSTGRES)}, and text "
                "in double quotation marks"
            )
        else:
            found.append(pattern[at].replace("%", "%%"))
            at += 1
    return "".join(found)


def read_time(text: str, pattern: str) -> datetime:
    """The moment that a text says in a format."""
    try:
        return datetime.strptime(text, pattern)
    except ValueError:
        raise EvaluationError(f"{text!r} is no time in the format {pattern!r}") from None


def _read_time(args: Sequence[Compiled], where: str) -> Compiled:
    require(args[:1], where, "a text", "string")
    require(args[1:], where, "a format such as '%Y-%m-%d'", "string")
    pattern = constant_value(args[1], where, "a format such as '%Y-%m-%d'", _readable)
    type_: Any = pa.timestamp("us")
    text = args[0]
    slowly = value_by_value(lambda value: read_time(value, pattern), type_)
    return apply(type_, _columnar(pattern, slowly) if _plain(pattern) else slowly, [text], where)


def _columnar(pattern: str, slowly: Kernel) -> Kernel:
    """Arrow reads what it writes in the same way; the rest is read value by value."""

    def kernel(texts: Datum) -> Datum:
        found = pc.strptime(texts, format=pattern, unit="us", error_is_null=True)
        same = pc.equal(pc.strftime(pc.cast(found, pa.timestamp("s")), format=pattern), texts)
        odd = pc.and_(pc.invert(pc.fill_null(same, False)), pc.is_valid(texts))
        if not pc.any(odd).as_py():
            return found
        return pc.replace_with_mask(found, odd, slowly(texts.filter(odd)))

    return kernel


def _plain(pattern: str) -> bool:
    """Whether the format says all of a date, in numbers, and of the time what Arrow reads as we do."""
    parts = re.findall(r"%(.)", pattern)
    return set(parts) <= set("YmdHMS") and len(set(parts)) == len(parts) and {"Y", "m", "d"} <= set(parts)


def _readable(pattern: str) -> bool:
    return set(re.findall(r"%(.)", pattern.replace("%%", ""))) <= _READ


FORMAT_FUNCTIONS: Final = (ScalarFunction("_read_time(text, format)", _read_time, read_time, 2, 2),)
