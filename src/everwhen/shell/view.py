"""What the shell shows, as text: aligned tables, and the live picture of a running query.

Pure functions.  Text from outside (names, values) is made harmless: what cannot be printed is shown as an escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.text import Text

from everwhen.core.time import INF, NEVER, show
from everwhen.demo.view import count, size
from everwhen.engine.observe.metadata import OperatorMetadata
from everwhen.engine.session.sql_session import SqlQuery, StreamInfo
from everwhen.stream.history import RowTuple
from everwhen.values.shown_values import shown_value

_GAP: Final = "  "
_NARROWEST: Final = 8


def plain(value: object) -> str:
    """A value for people.

    >>> plain(None), plain(2.5), plain("two" + chr(10) + "lines"), plain((1, None))
    ('null', '2.5', 'two\\\\nlines', '(1, null)')
    """
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"({', '.join(map(plain, value))})"
    text = shown_value(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None = None) -> list[str]:
    """Aligned lines: a header, a rule, the rows; numbers to the right.  The widest columns give way to a width.

    >>> for line in table(("item", "best"), [(7, "a"), (1200, None)]): print(line)
    item  best
    ────  ────
       7  a
    1200  null
    """
    listed = [list(row) for row in rows]
    texts = [[plain(value) for value in row] for row in listed]
    heads = [plain(name) for name in columns]
    widths = [max(map(cell_len, column), default=0) for column in zip(heads, *texts, strict=True)]
    right = [all(_is_number(row[at]) for row in listed) and bool(listed) for at in range(len(heads))]
    if width is not None:
        widths = fitted(widths, width - len(_GAP) * max(len(widths) - 1, 0))
    lines = [_line(heads, widths, right), _GAP.join("─" * each for each in widths)]
    return [*lines, *(_line(row, widths, right) for row in texts)]


def fitted(widths: list[int], room: int) -> list[int]:
    """Widths that fit, the widest cut first.

    >>> fitted([4, 50, 20], 40)
    [4, 18, 18]
    """
    widths = list(widths)
    while sum(widths) > room and max(widths, default=0) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        if cell_len(cell) > width:
            cell = set_cell_size(cell, width - 1) + "…"
        room = " " * (width - cell_len(cell))
        parts.append(room + cell if to_right else cell + room)
    return _GAP.join(parts).rstrip()


def one_line(text: str) -> str:
    """A statement in a line."""
    return plain(" ".join(text.split()))


def number(count_: int, one: str) -> str:
    """A number of things.

    >>> number(1, "row"), number(2000, "row"), number(3, "query")
    ('1 row', '2,000 rows', '3 queries')
    """
    many = f"{one[:-1]}ies" if one.endswith("y") else f"{one}s"
    return f"{count_:,} {one if count_ == 1 else many}"


# -- tables of the session ---------------------------------------------------------------------------------------------


def stream_table(streams: Sequence[tuple[StreamInfo, str]], width: int | None) -> list[str]:
    """The catalogue; beside every stream where it comes from."""
    rows = []
    for stream, place in streams:
        columns = ", ".join(f"{field.name} {field.type}" for field in stream.schema)
        keys = " ".join(f"key({', '.join(key)})" for key in stream.keys)
        times = f"by {', '.join(stream.times)}" if stream.times else ""
        origin = f"made from {', '.join(stream.made_from)}" if stream.kind == "derived" else place or "nowhere yet"
        details = "; ".join(part for part in (columns, keys, times) if part)
        rows.append((stream.name, stream.kind, details, origin, ", ".join(stream.read_by) or "nobody"))
    return table(("stream", "kind", "columns", "comes from", "read by"), rows, width)


def query_table(queries: Sequence[SqlQuery], width: int | None) -> list[str]:
    """The queries; a failed one with its error."""
    rows = [
        (
            query.name,
            query.state,
            query.since,
            show(query.valid_from),
            ", ".join(query.reads),
            query.error or one_line(query.text),
        )
        for query in queries
    ]
    return table(("query", "state", "since epoch", "right from", "reads", "text"), rows, width)


def state_table(parts: Sequence[OperatorMetadata], width: int | None) -> list[str]:
    """What every operator has done and keeps."""
    rows = [
        (
            part.name,
            part.rows_in,
            part.rows_out,
            count(part.input_rate),
            part.state_rows,
            size(part.state_bytes),
            show(part.progress),
            ", ".join(part.waits_for) or "nothing",
            ", ".join(part.queries),
        )
        for part in parts
    ]
    heads = ("operator", "in", "out", "in/s", "kept", "bytes", "promise", "waits for", "used by")
    return table(heads, rows, width)


def rows_shown(columns: Sequence[str], rows: Sequence[RowTuple], width: int | None, most: int | None) -> list[str]:
    """An answer, at most so many rows of it."""
    shown = rows if most is None else rows[:most]
    lines = table(columns, shown, width) if columns else []
    left = len(rows) - len(shown)
    return [*lines, *([f"… and {number(left, 'more row')}"] if left else [])]


# -- the live picture --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputView:
    """An input: elements read, its promise, whether it has ended."""

    name: str
    read: int
    cti: int
    has_ended: bool


@dataclass(frozen=True, slots=True)
class LiveView:
    """One moment of a run."""

    query: str
    text: str
    columns: Sequence[str]
    rows: Sequence[RowTuple]
    changes: Sequence[str]
    now: int
    final: int
    inputs: Sequence[InputView]
    epochs: int
    elements: int
    rate: float
    seconds: float
    others: int = 0


def instant(view_now: int, final: int) -> str:
    """Of which instant an answer is, and how far it is final.

    >>> instant(7, 5), instant(NEVER, NEVER), instant(9, INF)
    ('at 7, final before 5', 'nothing has come yet', 'at 9, final')
    """
    if view_now == NEVER:
        return "nothing has come yet"
    known = "" if final == NEVER else ", final" if final == INF else f", final before {show(final)}"
    return f"at {show(view_now)}{known}"


def picture(view: LiveView, width: int, height: int) -> RenderableType:
    """The run in at most so many lines: the answer first, then its last changes, then the inputs."""
    inputs = _inputs(view)
    # 9: heading, status, two empty lines, two lines of header, what was left out, the foot, the cursor
    room = max(height - 9 - len(inputs), 2)
    changes = list(view.changes)[-max(min(room // 3, 8), 1) :]
    answer = rows_shown(view.columns, view.rows, width, max(room - len(changes), 1))
    head = Text.assemble((view.query, "bold cyan"), "  ", one_line(view.text))
    rate = f"{count(view.rate)} elements/s  {view.elements:,} elements  {number(view.epochs, 'epoch')}"
    status = f"{number(len(view.rows), 'row')} {instant(view.now, view.final)}"
    lines: list[Text] = [head, Text(f"{status}  ·  {rate}  {view.seconds:.0f} s", style="green"), Text("")]
    lines += [Text(line, style="bold" if at == 0 else "") for at, line in enumerate(answer)]
    lines += [Text(""), *(Text(plain(change), style=_style(change)) for change in changes)]
    lines += [Text(line, style="dim") for line in inputs]
    others = f"; {number(view.others, 'other query')} beside it" if view.others else ""
    lines.append(Text(f"Ctrl-C goes back to the prompt{others}", style="dim"))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _style(change: str) -> str:
    return "yellow" if change.startswith("adjust") else ""


def _inputs(view: LiveView) -> list[str]:
    parts = [
        f"{each.name} {each.read:,}{' ended' if each.has_ended else f' CTI {show(each.cti)}'}" for each in view.inputs
    ]
    return ["read: " + ", ".join(parts)] if parts else []
