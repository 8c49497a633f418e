"""What the work on LMerge found: figures 2 to 10 of the paper as tables and pictures, and the targets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from pictures import Line, Plot, plots

Row = dict[str, Any]
Point = dict[str, Any]


def told_of_lmerge(rows: list[Row], directory: Path) -> Iterator[Table | str]:
    """Tables and lines for those of the rows that are about LMerge; pictures go to the directory."""
    found = {row["case"]: row["points"] for row in rows if row["work"] == "lmerge"}
    if "kernels" in found:
        yield _table("LMerge, figure 3: M elements/s in order", found["kernels"], "inputs", "kernel", "rate", 1e6)
        yield _table("LMerge, figure 2: state in kB in order", found["kernels"], "inputs", "kernel", "bytes", 1e3)
        yield _picture(directory, "2 and 3", found["kernels"], "inputs", ("rate", "bytes"))
    if "disorder" in found:
        yield _table("LMerge, figure 4: adjusts emitted", found["disorder"], "disorder", "policy", "adjusts", 1)
        yield f"  adjusts received: {found['disorder'][0]['heard']:,} of three inputs"
    if "lag" in found:
        yield _table("LMerge, figure 5: M elements/s, two of three lag", found["lag"], "lag", "kernel", "rate", 1e6)
    if "stables" in found:
        yield _table(
            "LMerge, figure 6: M elements/s by share of CTIs", found["stables"], "stables", "kernel", "rate", 1e6
        )
        yield _table("LMerge, figure 6: state in kB", found["stables"], "stables", "kernel", "bytes", 1e3)
    if "cleanse" in found:
        yield _table("LMerge, figure 7: M elements/s", found["cleanse"], "inputs", "kernel", "rate", 1e6)
        yield _table("LMerge, figure 7: state in kB", found["cleanse"], "inputs", "kernel", "bytes", 1e3)
        waits = {each["kernel"]: each["waits"] for each in found["cleanse"] if each["waits"] is not None}
        yield "  ticks until an event is emitted, 4 inputs: " + ", ".join(f"{k} {v:,.0f}" for k, v in waits.items())
        yield _picture(directory, "7", found["cleanse"], "inputs", ("rate", "bytes"))
    for case, figure in (("bursts", 8), ("congestion", 9)):
        for each in found.get(case, []):
            inputs, output = each["inputs"], each["output"]
            varies = ", ".join(f"{value:.2f}" for value in inputs)
            yield (
                f"LMerge, figure {figure} ({case}): the rate per second varies by {varies} "
                f"on the inputs, by {output:.2f} at the output ({output / min(inputs):.2f} of the steadiest input)"
            )
    if "long" in found:
        points = found["long"]
        yield "LMerge, state over elements: " + ", ".join(
            f"{each['elements'] / 1e6:.1f}M: {each['bytes'] / 1e3:,.0f} kB"
            for each in points[:: max(1, len(points) // 5)]
        )
    if "wanted" in found:
        yield _wanted(found["wanted"])


def told_of_plans(rows: list[Row], _: Path) -> Iterator[Table | str]:
    """Two plans of one query, alone and merged: figure 10."""
    mine = [row for row in rows if row["work"] == "plan_switching"]
    if not mine:
        return
    table = Table(title="LMerge, figure 10: plan switching", title_justify="left")
    table.add_column("what", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    for row in mine[:-1]:
        table.add_row(row["case"], f"{row['seconds']:.2f}")
    yield table
    yield _wanted(mine[-1]["points"])


def _table(title: str, points: list[Point], by: str, of: str, what: str, unit: float) -> Table:
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(each[of] for each in points))
    for name in (by, *names):
        table.add_column(str(name), justify="right", no_wrap=True)
    for key in dict.fromkeys(each[by] for each in points):
        cells = {each[of]: each[what] / unit for each in points if each[by] == key}
        table.add_row(f"{key:,}", *(_number(cells[name]) if name in cells else "" for name in names))
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"


def _picture(directory: Path, figure: str, points: list[Point], by: str, what: tuple[str, ...]) -> str:
    titles = {"rate": ("Throughput", "elements/s"), "bytes": ("State", "bytes")}
    drawn = []
    for each in what:
        names = dict.fromkeys(point["kernel"] for point in points)
        lines = [Line(name, [(p[by], p[each]) for p in points if p["kernel"] == name]) for name in names]
        drawn.append(Plot(titles[each][0], by, titles[each][1], lines, True))
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"lmerge_{figure.replace(' ', '_')}.svg"
    file.write_text(plots(f"LMerge: figure {figure}", drawn), encoding="utf-8")
    return f"picture: {file.parent.parent.name}/{file.parent.name}/{file.name}"


def _wanted(points: list[Point]) -> Table:
    table = Table(title="LMerge: what was wanted", title_justify="left")
    for name, justify in (("what", "left"), ("found", "right"), ("wanted", "right"), ("holds", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for each in points:
        bound = f"≥ {each['least']:.3g}" if each.get("least") is not None else f"≤ {each['most']:.3g}"
        table.add_row(each["what"], f"{each['found']:.3g}", bound, "yes" if each["holds"] else "NO")
    return table
