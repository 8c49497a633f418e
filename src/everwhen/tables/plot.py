"""Lifetimes as a picture: a bar for each row, what was taken back in another colour, CTIs as lines.  Needs Altair."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.tables.html import texts
from everwhen.tables.optional import package

_TAKEN_BACK: Final = "#d62728"


def lifetimes_chart(rows: pa.Table, changes: pa.Table, schema: Schema, by: str | None, most: int) -> Any:
    """An Altair chart of rows with lifetimes and of the elements they came from, at most so many of each.

    A row that never ends is drawn up to the last time that there is, and its bar says so.
    """
    alt = package("altair", "plot()", "everwhen[plot]")
    if by is not None and by not in schema:
        raise QueryError(f"plot(by={by!r}): there is no such column; there is {schema}")
    dated = pa.types.is_timestamp(rows.schema.field("vs").type)
    last = _last_time(changes)
    bars = _bars(rows.slice(0, most), schema, by, last)
    adjusts = changes.filter(pc.equal(changes.column("op"), "adjust")).slice(0, most)
    taken = [bar for bar in _taken_back(adjusts, schema, by, last) if bar["from"] != bar["to"]]
    ctis = changes.filter(pc.equal(changes.column("op"), "cti")).column("vs").drop_null().slice(0, most)
    kind = "T" if dated else "Q"
    order = list(dict.fromkeys(bar["row"] for bar in [*bars, *taken]))
    x = alt.X(f"from:{kind}", title="time")
    y = alt.Y("row:N", sort=order, title=by or "row")
    tips = [alt.Tooltip(f"{name}:N") for name in ("row", "values", "lives")]
    colour = alt.Color(f"{'row' if by is not None else 'values'}:N", legend=None)
    layers = [
        alt.Chart(alt.Data(values=bars)).mark_bar(stroke="white").encode(x=x, x2="to", y=y, color=colour, tooltip=tips),
        alt.Chart(alt.Data(values=taken))
        .mark_bar(size=3, color=_TAKEN_BACK, yOffset=8)
        .encode(x=x, x2="to", y=y, tooltip=tips),
        alt.Chart(alt.Data(values=[{"from": t} for t in texts(ctis)])).mark_rule(strokeDash=[4, 3]).encode(x=x),
    ]
    return alt.layer(*layers).properties(width=640)


def _bars(table: pa.Table, schema: Schema, by: str | None, last: Any) -> list[dict[str, Any]]:
    starts, ends = texts(table.column("vs")), texts(table.column("ve"))
    return _named(table, schema, by, starts, [last if end is None else end for end in ends], ends)


def _taken_back(adjusts: pa.Table, schema: Schema, by: str | None, last: Any) -> list[dict[str, Any]]:
    """Of each correction the time by which a lifetime became shorter, or longer."""
    old, new = (texts(adjusts.column(name)) for name in ("ve", "vnew"))
    starts = [last if each is None else each for each in new]
    ends = [last if each is None else each for each in old]
    return _named(adjusts, schema, by, starts, ends, ends, "taken back: ")


def _named(
    table: pa.Table, schema: Schema, by: str | None, starts: list[Any], ends: list[Any], told: list[Any], what: str = ""
) -> list[dict[str, Any]]:
    columns = {name: texts(table.column(name)) for name in schema.names}
    found = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        values = ", ".join(f"{name}={columns[name][i]}" for name in columns)
        named = values if by is None else str(columns[by][i])
        lives = f"{what}[{start}, {'∞' if told[i] is None else told[i]})"
        found.append({"from": start, "to": end, "row": named, "values": values, "lives": lives})
    return found


def _last_time(changes: pa.Table) -> Any:
    """The largest finite time."""
    found = [pc.max(changes.column(name)) for name in ("vs", "ve", "vnew")]
    known = [each for each in found if each.is_valid]
    if not known:
        return 0
    latest = max(known, key=lambda each: each.cast(pa.int64()).as_py())
    return texts(pa.chunked_array([pa.array([latest.as_py()], latest.type)]))[0]
