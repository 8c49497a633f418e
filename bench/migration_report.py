"""Chapter 30 of the thesis in a table and a picture: figures 30.1 to 30.3."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from rich.table import Table

from pictures import Line, Plot, plots

Row = dict[str, Any]


def told_of_migration(rows: list[Row], directory: Path) -> Iterator[Table | str]:
    """How long each strategy takes, what it keeps, and the figures."""
    mine = [row for row in rows if row["work"] == "migration"]
    drawn = [row for row in mine if "rate" in row]
    if drawn:
        table = Table(title="Migration at 20 s, chapter 30", title_justify="left")
        for name in ("strategy", "done at", "most rows kept", "seconds"):
            table.add_column(name, justify="left" if name == "strategy" else "right", no_wrap=True)
        for row in drawn:
            done = "" if row["done"] is None else f"{row['done']:.2f} s"
            most = max(*row["state"], row.get("both", 0))
            table.add_row(row["case"], done, f"{most:,}", f"{row['seconds']:.2f}")
        yield table
        path = directory / "migration.svg"
        path.write_text(_figures(drawn), encoding="utf-8")
        yield f"Figures 30.1 to 30.3: {path.name}"
    for row in mine:
        if "rate" not in row:
            yield f"Migration, {row['note']}"


def _figures(rows: list[Row]) -> str:
    moved = [row for row in rows if row["done"] is not None]
    colours = {row["case"]: at for at, row in enumerate(rows)}

    def lines(of: list[Row], key: str) -> list[Line]:
        return [
            Line(row["case"], [(at + 1, value) for at, value in enumerate(row[key])], colour=colours[row["case"]])
            for row in of
        ]

    work = [
        Line(
            row["case"],
            [(done / 1e6, said) for done, said in zip(row["work_done"], accumulate(row["rate"]), strict=True)],
            colour=colours[row["case"]],
        )
        for row in moved
        if "work_done" in row
    ]
    seconds = [
        Line(
            row["case"],
            [(row["cumulated"][10 * at + 9], said) for at, said in enumerate(accumulate(row["rate"]))],
            colour=colours[row["case"]],
        )
        for row in rows
        if "cumulated" in row
    ]
    return plots(
        "A join of four goes over at 20 s (Krämer, figures 30.1 to 30.3)",
        [
            Plot("30.1 output rate", "second", "rows/s", lines(moved, "rate"), linear=True),
            Plot("30.2 state", "second", "rows kept", lines(moved, "state"), linear=True),
            Plot("30.3 the models, by work", "million comparisons", "rows said", work, linear=True),
            Plot("30.3 ours, by time", "seconds of processor", "rows said", seconds, linear=True),
        ],
    )
