"""What the works on consistency found, in tables, sentences and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from complexity import bound, explained
from pictures import Line, Panel, Plot, plots, triangle
from triangle import AXES, OWN, SUITS, duration

Row = dict[str, Any]
Point = dict[str, Any]


def told(rows: list[Row], directory: Path) -> Iterator[Table | str]:
    """Tables and lines for those of the rows that are about consistency; pictures go to the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if row["work"] == "triangle":
            yield _points(row)
            yield _reading(row)
            yield _written(directory / f"triangle_{row['case']}.svg", _picture(row))
    complexity = [row for row in rows if row["work"] == "complexity"]
    if complexity:
        yield from map(_growth, complexity)
        yield _written(directory / "complexity.svg", _growth_picture(complexity))
    yield from _costs([row for row in rows if row["work"] == "consistency"])


def _written(file: Path, picture: str) -> str:
    file.write_text(picture, encoding="utf-8")
    return f"picture: {file.parent.parent.name}/{file.parent.name}/{file.name} ({len(picture) / 1000:.0f} kB)"


# -- the triangle ------------------------------------------------------------------------------------------------------


def _count(value: float) -> str:
    return f"{value / 1e6:.1f}M" if value >= 999_500 else f"{value / 1e3:.3g}k" if value >= 9_995 else f"{value:,.0f}"


def _share(value: float) -> str:
    return "0" if value <= 0 else f"{100 * value:.2g} %" if value < 0.095 else f"{100 * value:.0f} %"


def _points(row: Row) -> Table:
    table = Table(title=f"triangle: {row['note'].split(';')[0]}", title_justify="left")
    names = ("B", "M", "first said", "p95", "last changed", "p95", "state rows", "said")
    for name in (*names, "corrections", "given up", "right", "off", "k events/s"):
        table.add_column(name, justify="right", no_wrap=True)
    last = None
    for point in row["points"]:
        if last is not None and point["remember"] != last:
            table.add_section()
        last = point["remember"]
        waits = (point[name] for name in ("latency", "latency_p95", "changed", "changed_p95"))
        table.add_row(
            point["block"], point["remember"], *map(duration, waits),
            f"{point['state_rows']:,}", f"{point['said']:,}", f"{point['corrections']:,}",
            f"{point['dropped']:,}", f"{point['right']:.1%}", _share(point["off"]),
            f"{point['events_per_s'] / 1e3:,.0f}",
        )  # fmt: skip
    return table


def _reading(row: Row) -> str:
    """The three sides of the triangle in one line."""
    points: list[Point] = row["points"]
    last = len(AXES[row["case"]]) - 1
    legs = {
        "bottom": [p for p in points if p["at"][0] == 0],
        "diagonal": [p for p in points if p["at"][0] == p["at"][1] != 0],
        "right": [p for p in points if p["at"][1] == last],
    }
    corner = next(p for p in points if tuple(p["at"]) == SUITS[row["case"]])
    soonest = duration(_worst(legs["bottom"], "latency"))
    return (
        f"{row['case']}: nobody blocks on the bottom leg: first said after {soonest} "
        f"at most; nobody speculates on the diagonal: {_worst(legs['diagonal'], 'corrections'):,.0f} corrections at "
        f"most; all is right on the right leg: {min(p['right'] for p in legs['right']):.1%} at least.  "
        f"Its own corner, {OWN[row['case']]}: first said after {duration(corner['latency'])}, "
        f"{corner['corrections']:,} corrections, {corner['state_rows']:,} rows of state, {corner['right']:.1%} right"
    )


def _worst(points: list[Point], name: str) -> float:
    return float(max(point[name] for point in points))


def _picture(row: Row) -> str:
    points = {(p["at"][0], p["at"][1]): p for p in row["points"]}

    def panel(title: str, values: dict[tuple[int, int], float], shown: Any) -> Panel:
        return Panel(title, values, {at: shown(value) for at, value in values.items()})

    panels = [
        panel("latency: until first said", {at: p["latency"] for at, p in points.items()}, duration),
        panel("memory: rows of state at the peak", {at: p["state_rows"] for at, p in points.items()}, _count),
        panel("corrections of what was said", {at: p["corrections"] for at, p in points.items()}, _count),
        panel("wrong in the end", {at: round(1 - p["right"], 4) for at, p in points.items()}, _share),
    ]
    axis = [duration(ticks) for ticks in AXES[row["case"]]]
    title = row["note"].split(";")[0]
    return triangle(f"{title[0].upper()}{title[1:]}", axis, panels, SUITS[row["case"]])


# -- complexity --------------------------------------------------------------------------------------------------------


def _growth(row: Row) -> str:
    fit = row["fit"]
    work = f"{fit['a_ns']:.1f} ns · n log n + {fit['b_ns']:.0f} ns · m, never above {fit['worst']:.2f} of it"
    if row.get("counted"):
        looked_at = row["points"][-1]["touched"] / row["points"][-1]["n"]
        as_power = f" ~ n^{row['counted']['exponent']:.2f}" if row["counted"]["exponent"] is not None else ""
        work += (
            f"; entries looked at{as_power}, in the last run {looked_at:.1f} per element, "
            f"at most {row['counted']['most']:.2f} of n log n + m"
        )
    if row["exponent"] is not None:
        return f"complexity, {row['case']}: time ~ n^{row['exponent']:.2f}; {work}"
    first, last = row["points"][0], row["points"][-1]
    times = last["seconds"] / first["seconds"]
    return f"complexity, {row['case']}: m {first['m']:,} to {last['m']:,}, time × {times:.1f}; {work}"


def _growth_picture(rows: list[Row]) -> str:
    size, disorder = list[Line](), list[Line]()
    for i, row in enumerate(row for row in rows if row["exponent"] is not None):
        name = row["case"].partition(": ")[2]
        points = [(p["n"], p["seconds"]) for p in row["points"]]
        size.append(Line(f"{name}: n^{row['exponent']:.2f}", points, colour=i))
    for i, row in enumerate(row for row in rows if row["exponent"] is None):
        name = row["case"].partition(": ")[2]
        a, b, _ = explained(row["points"])
        disorder.append(Line(f"{name}, measured", [(p["m"], p["seconds"]) for p in row["points"]], colour=i))
        modelled = [(p["m"], (a * p["n"] * math.log2(p["n"]) + b * p["m"]) / 1e9) for p in row["points"]]
        disorder.append(Line(f"{name}, a·n·log n + b·m", modelled, dashed=True, colour=i))
    looked_at = list[Line]()
    for i, row in enumerate(row for row in rows if row["exponent"] is None and row.get("counted")):
        name = row["case"].partition(": ")[2]
        looked_at.append(Line(name, [(p["lateness"], p["touched"]) for p in row["points"]], colour=i))
        most = [(p["lateness"], bound(p)) for p in row["points"]]
        looked_at.append(Line("n·log n + m", most, dashed=True, colour=i))
    every = []
    if size:
        every.append(Plot("growing n, fixed disorder", "n: elements in", "CPU seconds", size))
    if disorder:
        every.append(Plot("growing disorder, fixed n", "m: elements out", "CPU seconds", disorder))
    if looked_at:
        every.append(Plot("growing disorder, fixed n", "disorder in ticks", "entries looked at", looked_at))
    return plots("Total work against n log n + m", every)


# -- the cost of a level -----------------------------------------------------------------------------------------------


def _costs(rows: list[Row]) -> Iterator[str]:
    for name in dict.fromkeys(row["case"] for row in rows):
        cost = {row["level"]: row["cost"] for row in rows if row["case"] == name}
        late, both = cost["20 % late, middle"], cost["in order, Align and Finalize"]
        yield (
            f"consistency, {name}: middle with 20 % late is {1 / late:.2f} times as fast as in order "
            f"({'as' if late <= 2 else 'NOT as'} wanted: 0.5); Align and Finalize cost {both - 1:+.0%} in order "
            f"({'as' if both <= 1.25 else 'NOT as'} wanted: +25 %)"
        )
