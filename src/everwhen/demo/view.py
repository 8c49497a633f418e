"""What the demo shows, as a picture: pure functions from counts and rows to `rich` renderables.

The picture fits the space it is given, from 80 columns by 24 lines on.  First the story of single results is told; then
stand the queries, with as many rows of their results as there is room for, then the inputs, and beside them the parts
that keep most: operators, or stages on Spark.  It is no wider than can be read: numbers stand near what they are of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from everwhen.core.time import INF, NEVER

WIDEST: Final = 132
MOST_PARTS: Final = 8
_TOLD: Final = 3
_TALL: Final = 30
"""From so many lines on there is room for more than one story."""


@dataclass(frozen=True, slots=True)
class QueryView:
    """One query: how many rows are alive now, what it has said, its latest results, and until when it is final."""

    name: str
    title: str
    alive: int = 0
    inserts: int = 0
    ended: int = 0
    corrected: int = 0
    latest: Sequence[str] = ()
    is_current: bool = True
    final: int = NEVER


@dataclass(frozen=True, slots=True)
class InputView:
    """One input: elements read, how far it has promised to be complete, and whether others wait for it."""

    name: str
    elements: int = 0
    progress: int = NEVER
    lag: int | None = None
    holds: bool = False


@dataclass(frozen=True, slots=True)
class PartView:
    """One operator, or one stage on Spark, and what it keeps."""

    name: str
    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DemoView:
    """One moment of the demo."""

    elapsed: float = 0.0
    limit: str = ""
    events: int = 0
    before: int = 0  # so many of them came before the clock was started
    rate: float = 0.0
    now: int | None = None
    queries: Sequence[QueryView] = ()
    inputs: Sequence[InputView] = ()
    parts: Sequence[PartView] = ()
    part: str = "operator"
    depth: int = 1  # at most so many rows of each result
    engine: str = "NEXMark"
    epochs: str = ""  # how the epochs are doing
    waiting: str = ""  # what is waited for
    kept_after: int | None = None  # rows still kept after all inputs were closed
    stories: Sequence[tuple[str, str, str]] = ()  # what was said, how it was corrected, whether it is final


def count(number: float) -> str:
    """A number in at most six characters.

    >>> count(7), count(12_345), count(4_560_000), count(99_999)
    ('7', '12.3k', '4.56M', '100k')
    """
    for limit, divisor, unit in ((1e4, 1.0, ""), (999_500.0, 1e3, "k"), (999_500_000.0, 1e6, "M"), (1e15, 1e9, "G")):
        if abs(number) < limit:
            value = number / divisor
            return f"{number:.0f}" if not unit else f"{value:.3g}{unit}" if value < 999.5 else f"{value:.0f}{unit}"
    return f"{number:.2g}"


def size(number: int) -> str:
    """Bytes for people.

    >>> size(512), size(20_480), size(3_500_000)
    ('512 B', '20.0 KiB', '3.3 MiB')
    """
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def moment(time: int | None) -> str:
    """An application time in milliseconds as hours, minutes and seconds.

    >>> moment(3_723_400), moment(INF), moment(None)
    ('1:02:03', '∞', '-')
    """
    if time is None or time == NEVER:
        return "-"
    if time == INF:
        return "∞"
    seconds = time // 1000
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def duration(length: int | None) -> str:
    """A length of time in milliseconds.

    >>> duration(2_500), duration(90_000), duration(None)
    ('2.5 s', '90.0 s', '-')
    """
    return "-" if length is None else f"{length / 1000:.1f} s"


def show_row(row: Iterable[tuple[str, object]]) -> str:
    """A row for people.

    >>> show_row([("itemID", 1007), ("price", 12.5), ("name", "Ada Gray"), ("city", None)])
    'itemID 1007  price 12.50  name Ada Gray  city -'
    """
    return "  ".join(f"{name} {_value(value)}" for name, value in row)


def _value(value: object) -> str:
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def render(view: DemoView, width: int = 100, height: int = 30) -> RenderableType:
    """The whole picture, `height` lines at most."""
    foot = _foot(view)
    told = story_lines(view.stories, _TOLD if height >= _TALL else 1)
    left = height - 8 - len(foot) - len(told) - len(view.inputs)  # 8: the heading, two headers, rules, empty lines
    depth = min(max(left // max(len(view.queries), 1), 1), view.depth)
    lines = min(max(left - depth * len(view.queries), 0) + len(view.inputs), MOST_PARTS)
    bottom = Table.grid(expand=True, padding=(0, 2, 0, 0), pad_edge=False)
    bottom.add_column()
    bottom.add_column(ratio=1)
    bottom.add_row(input_table(view.inputs), part_table(view, lines))
    picture = Group(heading(view), *told, "", query_table(view.queries, width, depth), "", bottom, *foot)
    return Constrain(picture, min(width, WIDEST))


def story_lines(stories: Sequence[tuple[str, str, str]], most: int, wraps: bool = False) -> list[RenderableType]:
    """A line for each story, the newest first, below an empty one; before the first story, what is waited for."""
    lines: list[RenderableType] = [""]
    for said, corrected, final in stories[:most]:
        style = "green" if final.startswith("final") else "dim"
        parts = (" ", said, "; ", (corrected, "yellow"), "; ", (final, style))
        lines.append(Text.assemble(*parts, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis"))
    if not stories:
        lines.append(Text(" No answer has been corrected yet.", style="dim"))
    return [*lines, *[""] * (most + 1 - len(lines))]  # what stands below does not jump when a story comes


def _foot(view: DemoView) -> list[Text]:
    holding = sum(one.state_bytes > 0 for one in view.parts)
    of = "" if holding == len(view.parts) else f" of {len(view.parts)}"
    kept = f"{holding}{of} {view.part}s keep {size(sum(one.state_bytes for one in view.parts))}."
    lines = [view.waiting, " ".join((view.epochs, kept, "Ctrl-C ends the demo.")).strip()]
    return [Text(f" {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in lines if line]


def heading(view: DemoView) -> RenderableType:
    """One line: what runs, how long, how fast."""
    line = Table.grid(expand=True, padding=0)
    line.add_column(no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    right = Text.assemble(
        (f"{count(view.rate)}", "bold green"),
        " events/s  ",
        (count(view.events), "bold"),
        " events  ",
        (f"{view.elapsed:.0f} s", "bold"),
        f"{view.limit} ",
    )
    line.add_row(Text.assemble((" Everwhen", "bold cyan"), f"  {view.engine}  ", (moment(view.now), "bold")), right)
    return line


def query_table(queries: Sequence[QueryView], width: int, depth: int = 1) -> Table:
    """So many lines per query; a narrow table leaves out all that was said and what ended in the ordinary way."""
    wide = width >= 90
    table = _table()
    table.add_column("query", no_wrap=True, overflow="ellipsis")
    table.add_column("result now", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("alive", *(("said", "ended") if wide else ()), "corrected", "final to"):
        table.add_column(name, justify="right", no_wrap=True)
    for query in queries:
        numbers = [
            count(query.alive) if query.alive else "-",
            *([count(query.inserts), count(query.ended)] if wide else []),
        ]
        corrected = Text(count(query.corrected), style="yellow" if query.corrected else "dim")
        first, *more = [one if query.is_current else f"last: {one}" for one in query.latest] or ["nothing yet"]
        style = "" if query.is_current and query.latest else "dim"
        title = Text.assemble((query.name, "bold"), " ", query.title)
        table.add_row(title, Text(first, style=style), *numbers, corrected, moment(query.final))
        for text in [*more, *[""] * depth][: depth - 1]:
            table.add_row("", Text(text, style=style))
    return table


def input_table(inputs: Sequence[InputView]) -> Table:
    """A line per input; the lag of the one that is waited for stands out."""
    table = _table(expand=False)
    table.add_column("input", no_wrap=True)
    for name in ("read", "CTI", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in inputs:
        lag = Text(duration(one.lag), style="yellow" if one.holds else "")
        table.add_row(one.name, count(one.elements), moment(one.progress), lag)
    return table


def part_table(view: DemoView, lines: int) -> Table:
    """The parts that keep most, `lines` of them at most; who keeps nothing is left out."""
    table = _table()
    table.add_column(view.part, ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("in", "kept", "state"):
        table.add_column(name, justify="right", no_wrap=True)
    holding = [one for one in view.parts if one.state_bytes]
    for one in sorted(holding, key=lambda one: (-one.state_bytes, -one.rows_in, one.name))[:lines]:
        table.add_row(one.name, count(one.rows_in), count(one.state_rows), size(one.state_bytes))
    return table


def summary(view: DemoView, reason: str, width: int = 100) -> RenderableType:
    """What remains on the screen when the demo is over."""
    kept = sum(one.state_bytes for one in view.parts)
    rows = sum(one.state_rows for one in view.parts)
    speed: list[str | tuple[str, str]] = [" events"]
    if view.elapsed >= 0.05:  # who ends it with the first picture has seen no speed
        rate = (view.events - view.before) / view.elapsed
        speed += [f" in {view.elapsed:.1f} s, ", (f"{rate:,.0f}", "bold green"), " events/s"]
    after = "" if view.kept_after is None else f", {view.kept_after:,} once the inputs were closed"
    line = Text.assemble(
        f"{reason}: ",
        (f"{view.events:,}", "bold"),
        *speed,
        f" through {len(view.queries)} queries; {len(view.parts)} {view.part}s kept {rows:,} rows "
        f"({size(kept)}){after}. {view.epochs}".rstrip(),
    )
    told = story_lines(view.stories, len(view.stories), wraps=True) if view.stories else []
    return Constrain(
        Group("", query_table(view.queries, width), "", input_table(view.inputs), *told, "", line), min(width, WIDEST)
    )


def progress_line(view: DemoView) -> str:
    """One line for a log."""
    behind = max((one.lag for one in view.inputs if one.lag is not None), default=None)
    kept = sum(one.state_bytes for one in view.parts)
    said = sum(query.inserts for query in view.queries)
    corrected = sum(query.corrected for query in view.queries)
    return (
        f"{view.elapsed:5.1f} s  {view.events:>10,} events  {view.rate:>9,.0f}/s  time {moment(view.now)}  "
        f"lag {duration(behind)}  results {count(said)}  corrected {count(corrected)}  state {size(kept)}"
        f"  {view.epochs}"
    ).rstrip()


def _table(expand: bool = True) -> Table:
    return Table(box=box.SIMPLE_HEAD, expand=expand, padding=(0, 1, 0, 0), show_edge=False, header_style="cyan")
