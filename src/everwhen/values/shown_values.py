"""Values of rows as people read them: in tables, in the shell."""

from __future__ import annotations

from datetime import datetime


def shown_value(value: object) -> str:
    """A value as text; structures and lists with their parts, as SQL would show them.

    >>> shown_value(None), shown_value("a"), shown_value([1, None])
    ('null', 'a', '[1, null]')
    >>> shown_value({"start": datetime(2024, 3, 31, 0, 30), "n": 2})
    '{start: 2024-03-31 00:30:00, n: 2}'
    """
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown_value(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown_value, value)) + "]"
    if isinstance(value, datetime):
        text = str(value.replace(tzinfo=None))
        return text.rstrip("0") if "." in text else text
    return str(value)
