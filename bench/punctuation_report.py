"""What the works on punctuation found, in lines and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pictures import Line, Plot, plots

Row = dict[str, Any]


def told_of_punctuation(rows: list[Row], directory: Path) -> Iterator[str]:
    """Lines for those of the rows that are about punctuation; pictures go to the directory."""
    found = {row["case"]: row for row in rows if row["work"] == "punctuation"}
    for case, row in found.items():
        yield f"punctuation, {case}: {row['note']}"
    if {"state, 0 an hour", "state, 1 an hour", "rates"} <= found.keys():
        yield _written(directory / "punctuation.svg", _figure_2(found))
    if "auction" in found:
        yield _written(directory / "auction.svg", _auction(found["auction"]))


def _figure_2(found: dict[str, Row]) -> str:
    kept = [
        Line("without punctuation", found["state, 0 an hour"]["points"]),
        Line("with one an hour", found["state, 1 an hour"]["points"]),
    ]
    times = found["rates"]["points"]
    spent = [
        Line("in all", [(rate, total) for rate, _, total in times]),
        Line("until the first answer", [(rate, first) for rate, first, _ in times]),
    ]
    return plots(
        "The warehouse: Tucker's Figure 2",
        [
            Plot("Rows that the union keeps", "reports so far", "rows", kept, linear=True),
            Plot("Time of the query", "punctuations an hour", "ms of processor time", spent, linear=True),
        ],
    )


def _auction(row: Row) -> str:
    points = row["points"]
    return plots(
        "Closing prices: what is kept",
        [
            Plot("Rows of state", "rows so far", "rows", [Line("rows of state", [(p[0], p[1]) for p in points])], True),
            Plot("Memory", "rows so far", "MB", [
                Line("the process", [(p[0], p[3]) for p in points]),
                Line("state, allocated", [(p[0], p[2]) for p in points]),
            ], True),
        ],
    )  # fmt: skip


def _written(file: Path, picture: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(picture, encoding="utf-8")
    return f"picture: {file.parent.parent.name}/{file.parent.name}/{file.name} ({len(picture) / 1000:.0f} kB)"
