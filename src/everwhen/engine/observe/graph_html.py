"""The graph of a session as a picture for notebooks: HTML with an SVG, every text escaped, no script.

>>> import everwhen as ew
>>> session = ew.SqlSession()
>>> _ = session.execute("CREATE STREAM S (x INT); SELECT MAX(x) AS m FROM S WINDOW(RANGE 10)")
>>> html = session._repr_html_()
>>> html.count("<rect"), "aggregate" in html, "<script" in html, html.count("<table")
(4, True, False, 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from everwhen.core.time import INF, NEVER, show
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.graph import GraphNode

WIDTH: Final = 188
HEIGHT: Final = 66
GAP: Final = 34
_ROUNDS: Final = 6
MOST_TABLES: Final = 6
"""So many answers of a session are shown,"""
ROWS: Final = 12
"""and so many rows of each."""
_FILL: Final = {"source": "#e3eafc", "operator": "#f0f2f6", "query": "#d9f2ee"}
Place = tuple[float, float]


def layers(nodes: Sequence[GraphNode]) -> list[list[str]]:
    """Names by layer: each node one behind the last of its inputs, queries last."""
    depth: dict[str, int] = {}
    for node in nodes:  # inputs stand before their users
        depth[node.id] = max((depth[name] + 1 for name in node.inputs if name in depth), default=0)
    last = max(depth.values(), default=0)
    found: list[list[str]] = [[] for _ in range(last + 1)]
    for node in nodes:
        found[last if node.kind == "query" else depth[node.id]].append(node.id)
    return found


def places(nodes: Sequence[GraphNode]) -> dict[str, Place]:
    """Where each node stands: within its layer, near to its neighbours."""
    columns = layers(nodes)
    inputs: dict[str, Sequence[str]] = {node.id: node.inputs for node in nodes}
    users: dict[str, list[str]] = {node.id: [] for node in nodes}
    for node in nodes:
        for name in node.inputs:
            users.get(name, []).append(node.id)
    row: dict[str, float] = {}
    for column in columns:
        row |= _rows(column)
    for turn in range(_ROUNDS):
        near: Mapping[str, Sequence[str]] = users if turn % 2 else inputs
        for column in reversed(columns) if turn % 2 else columns:
            wish = {name: _mean([row[each] for each in near[name] if each in row], row[name]) for name in column}
            column.sort(key=lambda name: (wish[name], row[name]))
            row |= _rows(column)
    tallest = max(map(len, columns), default=1)
    return {
        name: (8 + x * (WIDTH + GAP), 8 + (row[name] + (tallest - 1) / 2) * (HEIGHT + 14))
        for x, column in enumerate(columns)
        for name in column
    }


def _rows(column: Sequence[str]) -> dict[str, float]:
    return {name: at - (len(column) - 1) / 2 for at, name in enumerate(column)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def graph_html(title: str, nodes: Sequence[GraphNode]) -> str:
    """The graph with what each node has done and keeps."""
    at = places(nodes)
    right = max((x for x, _ in at.values()), default=0) + WIDTH + 8
    bottom = max((y for _, y in at.values()), default=0) + HEIGHT + 8
    lines = "".join(_edge(at[name], at[node.id]) for node in nodes for name in node.inputs if name in at)
    boxes = "".join(_box(node, at[node.id]) for node in nodes)
    return (
        f'<div><p style="margin:0 0 6px">{escape(title)}</p>'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:.0f} {bottom:.0f}" width="{right:.0f}" '
        f'role="img" aria-label="{escape(title, quote=True)}" style="max-width:100%;height:auto;background:#fff;'
        f'font-family:system-ui,sans-serif">{lines}{boxes}</svg></div>'
    )


def _edge(start: Place, end: Place) -> str:
    x, y, z, w = start[0] + WIDTH, start[1] + HEIGHT / 2, end[0], end[1] + HEIGHT / 2
    bend = GAP / 2
    path = f"M{x:.0f} {y:.0f}C{x + bend:.0f} {y:.0f} {z - bend:.0f} {w:.0f} {z:.0f} {w:.0f}"
    return f'<path d="{path}" fill="none" stroke="#9aa4b2" stroke-width="1.6"/>'


def _box(node: GraphNode, place: Place) -> str:
    x, y = place
    flow = f"{node.state_rows:,} rows kept" if node.kind == "source" else f"{node.rows_in:,} → {node.rows_out:,} rows"
    kept = f"keeps {node.state_rows:,}" if node.kind != "source" and node.state_rows else ""
    promised = "nothing final yet" if node.progress == NEVER else f"final before {show(node.progress)}"
    words = [(18, 13, "#1b2330", node.name), (34, 11, "#5a6576", f"{flow}{', ' if kept else ''}{kept}")]
    words.append((50, 11, "#5a6576", "ended" if node.progress == INF else promised))
    texts = "".join(
        f'<text x="{x + 10:.0f}" y="{y + dy:.0f}" font-size="{size}" fill="{fill}">{escape(text[:34])}</text>'
        for dy, size, fill, text in words
    )
    radius = 18 if node.kind == "source" else 6
    box = f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="{radius}" '
    return f'<g>{box}fill="{_FILL[node.kind]}" stroke="#9aa4b2"/>{texts}</g>'


def answer_html(name: str, book: AnswerBook, rows: int = ROWS) -> str:
    """The answer of a query as of now: its first rows, from when to when each holds, and whether that is final."""
    told = book.snapshot(None, rows)
    final = told["final_before"]
    heads = ["", *book.schema.names, "holds from", "until"]
    lines = [
        [_finality(each["ve"], final), *map(_cell, each["row"]), _instant(each["vs"]), _instant(each["ve"])]
        for each in told["rows"]
    ]
    sample = f", a sample of 1 in {told['sample']}" if told["sample"] > 1 else ""
    shown = "no row" if not told["total"] else f"{told['total']:,} row{'' if told['total'] == 1 else 's'}"
    words = f"{name} as of {_instant(told['at'])}: {shown}{sample}; final before {_instant(final)}"
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return (
        f'<table style="margin-top:8px"><caption style="text-align:left">{escape(words)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _finality(end: object, final: object) -> str:
    is_final = final == "inf" or (isinstance(end, int) and isinstance(final, int) and end <= final)
    return "● final" if is_final else "○ open"


def _cell(value: object) -> str:
    return "null" if value is None else str(value)


def _instant(t: object) -> str:
    return "−∞" if t is None else "∞" if t == "inf" else show(int(str(t)))
