"""What the work on recursion found: figures 6 to 11 of the Flying Fixed-Point paper, and how fast loops are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from pictures import Line, Plot, plots

Row = dict[str, Any]
Point = dict[str, Any]
STRATEGIES = ("high water mark", "probing", "hybrid")
X = {
    "disorder": "promises by which every 100th toss is early",
    "idle": "rounds without input",
    "lulls": "share of lulls",
}
SHOWN = {
    "disorder": (("kept", "events in the joins", 6), ("promises", "output punctuations", 8), ("lag", "lag", 10)),
    "idle": (("tokens", "speculative punctuations", 7), ("kept", "events in the joins", None)),
    "lulls": (
        ("tokens", "speculative punctuations", 9), ("silence", "longest silence in rounds", 11), ("lag", "lag", None),
    ),
}  # fmt: skip


def told_of_ffp(rows: list[Row], directory: Path) -> Iterator[Table | str]:
    """Tables and lines for those of the rows that are about recursion; pictures go to the directory."""
    found = {row["case"]: row for row in rows if row["work"] == "ffp"}
    for case in (case for case in SHOWN if case in found):
        points = found[case]["points"]
        yield _table(case, points)
        yield _picture(directory, case, points)
        yield from _claims(case, points)
    if "w" in found:
        row = found["w"]
        yield f"recursion, W on the loop: {row['events_per_s']:,} events/s of CPU time (target 300,000); {row['note']}"
    if "flying staged" in found:
        staged, flying = (found[f"flying {name}"]["events_per_s"] for name in ("staged", "flying, one round per push"))
        yield f"recursion, 100 events per push: flying is {flying / staged:.2f} times as fast as staged (target 3)"
    if "reach" in found:
        yield from _reach(found["reach"]["points"])
    peaks = {int(case.split()[1]): row["peak_rss_mb"] for case, row in found.items() if case.startswith("memory")}
    if len(peaks) == 2:
        small, large = sorted(peaks)
        ratio = peaks[large] / peaks[small]
        yield f"recursion, memory: peak at {large:,} links / at {small:,}: {ratio:.2f} (target 1.3 at most)"


def _of(points: list[Point], strategy: str, key: str) -> list[float]:
    return [each[key] for each in points if each["strategy"] == strategy]


def _table(case: str, points: list[Point]) -> Table:
    table = Table(title=f"recursion, {case}: {X[case]}", title_justify="left")
    table.add_column("strategy", no_wrap=True)
    at = list(dict.fromkeys(each["at"] for each in points))
    for name in ("lag", "tokens", "promises", "kept", "silence"):
        table.add_column(f"{name} at {', '.join(f'{each:g}' for each in at)}", justify="right")
    for strategy in STRATEGIES:
        cells = [
            " / ".join(f"{value:,g}" for value in _of(points, strategy, name))
            for name in ("lag", "tokens", "promises", "kept", "silence")
        ]
        table.add_row(strategy, *cells)
    return table


def _picture(directory: Path, case: str, points: list[Point]) -> str:
    at = list(dict.fromkeys(each["at"] for each in points))
    every = [
        Plot(
            f"Figure {figure}: {words}" if figure else words, X[case], words,
            [Line(name, list(zip(at, _of(points, name, key), strict=True))) for name in STRATEGIES], linear=True,
        )
        for key, words, figure in SHOWN[case]
    ]  # fmt: skip
    file = directory / f"ffp_{case}.svg"
    file.write_text(plots(f"Flying Fixed-Point, {case}: system time in rounds", every), encoding="utf-8")
    return f"  picture: {file.name}"


def _claims(case: str, points: list[Point]) -> Iterator[str]:
    def first_last(strategy: str, key: str) -> tuple[float, float]:
        values = _of(points, strategy, key)
        return values[0], values[-1]

    if case == "disorder":
        lags = {name: _of(points, name, "lag") for name in STRATEGIES}
        apart = max(abs(one - other) for one, other in zip(lags["hybrid"], lags["probing"], strict=True))
        moved = max(lags["hybrid"]) - min(lags["hybrid"])
        at = list(dict.fromkeys(each["at"] for each in points))
        slopes = [lag / x for x, lag in zip(at, lags["high water mark"], strict=True) if x]
        yield f"  hybrid's lag and probing's differ by {apart:.2f} at most; hybrid's moves by {moved:.2f} with disorder"
        yield "  high water mark's lag per promise of disorder: " + ", ".join(f"{each:.1f}" for each in slopes)
    if case == "idle":
        for name in STRATEGIES:
            before, after = first_last(name, "tokens")
            yield f"  {name}: {after / before:.2f} times the tokens with {1 + points[-1]['at'] / 40:.0f} times the time"
    if case == "lulls":
        before, after = first_last("high water mark", "silence")
        other = first_last("hybrid", "silence")[1]
        yield (
            f"  high water mark is silent for {after:,.0f} rounds, {after / before:.1f} times as long as without, "
            f"{after / other:.1f} times as long as hybrid"
        )


def _reach(points: list[Point]) -> Iterator[str]:
    for each in points:
        if "networkx_ms" not in each:
            yield f"recursion, one link replaced: {each['ms']:.2f} ms p50, {each['p99_ms']:.2f} ms p99 (target 20 p50)"
            continue
        yield (
            f"recursion, {each['replaced']} of 40,000 links replaced: {each['ms']:.1f} ms; NetworkX anew "
            f"{each['networkx_ms']:,.0f} ms ({each['networkx_ms'] / each['ms']:.1f} times), DuckDB anew "
            f"{each['duckdb_ms']:,.0f} ms ({each['duckdb_ms'] / each['ms']:.1f} times); "
            f"{100 * each['looked']:.2f} % of the derivations looked at"
        )
