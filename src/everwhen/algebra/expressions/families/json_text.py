"""JSON in texts: a part of it by a path, as text.

`json_extract` gives a part as JSON, `json_value` a scalar as text, without quotation marks; both are null where there
is no such part, and `json_value` where it is an object, an array or null.  A text that is no JSON has no parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.expressions.compute import Compiled, Rule, apply, value_by_value
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require

_STEP: Final = re.compile(r"""\.(\w+)|\."([^"]*)"|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")
_NOTHING: Final = object()


@lru_cache(maxsize=1024)
def steps(path: str) -> tuple[str | int, ...] | None:
    """A path such as `$.a.b[0]` as keys and places; None if it is none.

    >>> steps("$.a[0].b"), steps("a..b")
    (('a', 0, 'b'), None)
    """
    if not path.startswith("$"):
        return None
    found: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return None
        found.append(int(match[3]) if match[3] is not None else next(m for m in match.groups() if m is not None))
        at = match.end()
    return tuple(found)


@lru_cache(maxsize=1 << 15)
def _loaded(text: str) -> Any:
    """What a text says; kept for a while, since several paths of one text are asked for in a row.  Do not modify it."""
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return _NOTHING


def _part(text: str, path: str) -> Any:
    value = _loaded(text)
    for step in steps(path) or ():
        match value:
            case dict() if isinstance(step, str) and step in value:
                value = value[step]
            case list() if isinstance(step, int) and step < len(value):
                value = value[step]
            case _:
                return _NOTHING
    return value


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_number)


def _number(value: Decimal) -> Any:
    return int(value) if value == value.to_integral_value() and "E" not in str(value) else float(value)


def json_extract(text: str, path: str) -> str | None:
    """A part of a JSON text, as JSON."""
    found = _part(text, path)
    return None if found is _NOTHING else _written(found)


def json_value(text: str, path: str) -> str | None:
    """A scalar in a JSON text, as text."""
    found = _part(text, path)
    if found is _NOTHING or found is None or isinstance(found, dict | list):
        return None
    return found if isinstance(found, str) else str(found) if isinstance(found, Decimal) else _written(found)


def json_text(text: str, path: str) -> str | None:
    """A part of a JSON text: a scalar as text, an object or an array as JSON, null as null."""
    found = _part(text, path)
    if found is _NOTHING or found is None:
        return None
    return _written(found) if isinstance(found, dict | list) else json_value(text, path)


def _rule(meaning: Callable[[str, str], str | None]) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        require(args[:1], where, "a text with JSON in it", "string")
        require(args[1:], where, "a path such as '$.a.b[0]'", "string")
        path = constant_value(args[1], where, "a path such as '$.a.b[0]'", lambda given: steps(given) is not None)
        return apply(pa.string(), value_by_value(lambda text: meaning(text, path), pa.string()), [args[0]], where)

    return rule


JSON_FUNCTIONS: Final = (
    ScalarFunction("json_extract(text, path)", _rule(json_extract), json_extract, 2, 2),
    ScalarFunction("json_value(text, path)", _rule(json_value), json_value, 2, 2),
    ScalarFunction("json_text(text, path)", _rule(json_text), json_text, 2, 2),
)
