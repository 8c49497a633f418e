"""What the two examples of punctuation share: a query fed epoch by epoch, watched, and told in a table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

import everwhen as ew


@dataclass
class Watched:
    """What a run said, when, and what it kept: rows of state after every epoch, by rows taken in."""

    answers: dict[Any, Any] = field(default_factory=dict)
    before_the_end: int = 0
    rows: int = 0
    state: list[tuple[int, int]] = field(default_factory=list)
    of_operator: dict[str, list[int]] = field(default_factory=dict)
    seconds: float = 0.0
    first_answer: float | None = None

    @property
    def peak(self) -> int:
        return max((kept for _, kept in self.state), default=0)

    @property
    def left(self) -> int:
        return self.state[-1][1] if self.state else 0


def watch(query: ew.Stream, epochs: Iterable[Mapping[str, ew.ElementBatch]]) -> Watched:
    """Run a query that says pairs of a key and a value.  The clock is this process's, and stands while we look on."""
    runtime = ew.LocalRuntime(query, consistency=ew.STRONG)
    found = Watched()
    for epoch in epochs:
        began = time.process_time()
        said = runtime.push(epoch)["out"]
        found.seconds += time.process_time() - began
        _take(found, said)
        found.rows += sum(int((batch.op == ew.ElementBatch.INSERT).sum()) for batch in epoch.values())
        found.state.append((found.rows, runtime.state_size().rows))
        for operator in runtime.metadata():
            name = operator.name.partition(" ")[2]
            found.of_operator.setdefault(name, []).append(operator.state_rows)
    found.before_the_end = len(found.answers)
    began = time.process_time()
    said = runtime.close()["out"]
    found.seconds += time.process_time() - began
    _take(found, said)
    return found


def _take(found: Watched, said: ew.ElementBatch) -> None:
    rows = said.op == ew.ElementBatch.INSERT
    if not rows.any():
        return
    if found.first_answer is None:
        found.first_answer = found.seconds
    key, value = (column.to_pylist() for column in said.columns)
    found.answers.update((key[i], value[i]) for i in rows.nonzero()[0])


def asked_for(words: Sequence[str] | None, name: str, default: int, what: str) -> int:
    """`--name N`, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: {default:,})")
    return int(getattr(parser.parse_args(words), name))


def show(title: str, text: str, found: Mapping[str, Watched], remark: str) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"[bold]{title}[/bold]\n")
    console.print(text, highlight=False, markup=False)
    table = Table()
    table.add_column("punctuation", no_wrap=True)
    for name in ("rows", "answers", "before the end", "first answer after", "in all", "most state rows", "left over"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, run in found.items():
        first = "-" if run.first_answer is None else f"{1e3 * run.first_answer:,.0f} ms"
        table.add_row(
            name, f"{run.rows:,}", f"{len(run.answers):,}", f"{run.before_the_end:,}", first,
            f"{1e3 * run.seconds:,.0f} ms", f"{run.peak:,}", f"{run.left:,}",
        )  # fmt: skip
    console.print(table)
    console.print(remark, style="dim", highlight=False)
