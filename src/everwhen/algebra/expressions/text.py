"""Expressions as SQL-like text, with no more parentheses than needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, Final

_BINDS: Final = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "is_null", "not_null", "in"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "//", "%"), 6),
    "negate": 7,
}
_STRONGEST: Final = 8


def quoted(value: Any) -> str:
    """A constant as SQL writes it.

    >>> quoted("it's"), quoted(None), quoted(True), quoted(2.5)
    ("'it''s'", 'NULL', 'TRUE', '2.5')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, date):
        return f"DATE '{value}'"
    if isinstance(value, time):
        return f"TIME '{value}'"
    if isinstance(value, timedelta):
        return f"INTERVAL '{value}'"
    return str(value)


def show_call(name: str, args: Sequence[tuple[str, str]]) -> str:
    """A call as text; each argument is (name of the operator it consists of, its text)."""
    binds = _BINDS.get(name, 0)

    def operand(at: int, *, least: int) -> str:
        operator, text = args[at]
        return text if _BINDS.get(operator, _STRONGEST) >= least else f"({text})"

    match name:
        case "not":
            return f"NOT {operand(0, least=binds)}"
        case "negate":
            text = operand(0, least=_STRONGEST)
            return f"-({text})" if text.startswith("-") else f"-{text}"  # two hyphens would begin a comment
        case "is_null" | "not_null":
            return f"{operand(0, least=binds + 1)} IS {'NOT ' if name == 'not_null' else ''}NULL"
        case "in":
            return f"{operand(0, least=binds + 1)} IN ({', '.join(text for _, text in args[1:])})"
        case "and" | "or":
            return f" {name.upper()} ".join(operand(at, least=binds) for at in range(len(args)))
        case "case":
            pairs = zip(args[:-1:2], args[1:-1:2], strict=True)
            branches = " ".join(f"WHEN {condition} THEN {value}" for (_, condition), (_, value) in pairs)
            return f"CASE {branches} ELSE {args[-1][1]} END"
        case _ if binds:  # comparisons do not chain; the others associate to the left
            return f"{operand(0, least=binds + (binds == 4))} {name} {operand(1, least=binds + 1)}"
        case _:
            return f"{name}({', '.join(text for _, text in args)})"
