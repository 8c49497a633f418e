"""Answers and plans for notebooks and terminals: the first rows with their lifetimes, and how final they are."""

from __future__ import annotations

from html import escape
from typing import Any, Final

import pyarrow as pa

from everwhen.core.time import INF
from everwhen.tables.events import Events
from everwhen.values.shown_values import shown_value

_ROWS: Final = 20
_LONGEST: Final = 80
_LIVES: Final = ("vs", "ve")


def answer_html(table: pa.Table, events: Events, promised: str, goes_on: bool = False) -> str:
    """The first rows as a table of HTML, everything escaped."""
    shown = table.slice(0, _ROWS)
    head = "".join(f"<th>{escape(name)}</th>" for name in shown.column_names)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in _cells(shown))
    note = escape(_note(events, promised, goes_on))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table><p>{note}</p>"


def answer_text(table: pa.Table, events: Events, promised: str, goes_on: bool = False) -> str:
    """The first rows as a table of text."""
    shown = table.slice(0, _ROWS)
    lines = [list(shown.column_names), *_cells(shown)]
    widths = [max(len(line[i]) for line in lines) for i in range(shown.num_columns)]
    drawn = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*drawn, _note(events, promised, goes_on)])


def _note(events: Events, promised: str, goes_on: bool) -> str:
    n, more = len(events), len(events) - _ROWS
    so_far = " so far" if goes_on else ""
    parts = [f"{n} row{'' if n == 1 else 's'}{so_far}" + (f", the first {_ROWS} shown" if more > 0 else "")]
    corrected = events.corrections
    parts.append(f"{corrected or 'no'} correction{'' if corrected == 1 else 's'} applied")
    if events.promised is None:
        parts.append("nothing is final yet")
    else:
        parts.append("all of it final" if events.promised == INF else f"final before {promised}")
    return "; ".join([*parts, "the answer goes on"] if goes_on else parts)


def _cells(table: pa.Table) -> list[list[str]]:
    columns = [
        [_cell(value, name) for value in texts(column)]
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return [list(line) for line in zip(*columns, strict=True)]


def texts(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; timestamps as text, because Python has the years 1 to 9999 only."""
    if pa.types.is_timestamp(column.type):
        plain = column.cast(pa.timestamp(column.type.unit)).cast(pa.string())
        return [
            None if text is None else text.rstrip("0").rstrip(".") if "." in text else text
            for text in plain.to_pylist()
        ]
    return column.to_pylist()


def _cell(value: Any, name: str) -> str:
    if value is None:
        return "∞" if name in _LIVES else "null"
    text = shown_value(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
