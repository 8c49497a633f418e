"""What the examples share: one scenario at several levels of consistency, side by side in a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

import everwhen as ew
from scenarios import Account, Comparison, Scenario, compare, follow

Levels = Mapping[str, ew.Consistency]
Found = dict[str, tuple[Account, Comparison]]


def events_asked_for(words: Sequence[str] | None, default: int) -> int:
    """`--events N`, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=default, help=f"about so many events (default: {default:,})")
    return int(parser.parse_args(words).events)


def side_by_side(scenario: Scenario, levels: Levels, events: int) -> Found:
    """The same stream and query at each level, beside the exact answer: that of `middle`, which forgets nothing."""
    query = ew.sql(scenario.text, tick=scenario.tick)
    epochs = list(scenario.epochs(events))
    exact = follow(scenario, ew.LocalRuntime(query, consistency=ew.MIDDLE), epochs)
    found: Found = {}
    for name, level in levels.items():
        account = follow(scenario, ew.LocalRuntime(query, consistency=level), epochs)
        found[name] = account, compare(account, exact)
    return found


def show(scenario: Scenario, found: Found, suits: str) -> None:
    """A table with a line per level; the one that suits the story is marked."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"[bold]{scenario.story}[/bold]\n")
    console.print(scenario.text, highlight=False, markup=False)
    table = Table()
    table.add_column("level", no_wrap=True)
    for name in ("answers", "corrections", "given up", "first said after", "last changed after", "state rows", "right"):
        table.add_column(name, justify="right", no_wrap=name == "corrections" or name.endswith("after"))
    for name, (account, beside) in found.items():
        table.add_row(
            name, f"{account.said:,}", f"{account.corrections:,}", f"{account.dropped:,}",
            _waits(beside.first), _waits(beside.last), f"{account.peak_rows:,}", f"{beside.right:.1%}",
            style="bold green" if name == suits else "",
        )  # fmt: skip
    console.print(table)
    console.print(
        "after: from an answer's instant, median / 95 % of the answers; state rows: the most that was kept at a time;\n"
        "right: of all answers that stand or should stand in the end, at all instants, the share that does both",
        style="dim",
        highlight=False,
    )


def _waits(waits: Sequence[int]) -> str:
    if not len(waits):
        return "-"
    ordered = sorted(waits)
    return " / ".join(_duration(ordered[int(share * (len(ordered) - 1))]) for share in (0.5, 0.95))


def _duration(seconds: int) -> str:
    for size, unit in ((3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.{1 if seconds < 10 * size else 0}f} {unit}"
    return f"{seconds} s"
