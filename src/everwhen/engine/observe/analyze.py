"""EXPLAIN ANALYZE: what the operators of a plan that ran have done, measured.

    rows in, out     changes, of which corrections take something back
    selectivity      rows out per row in
    lifetime         the mean length of what was said, where it ends
    kept             rows and bytes of state, now
    CPU              the time its steps took, and its share of that of all operators
    lag              how far its promise is behind the largest start it has seen

A `Meter` sees every step; without one nothing of this is computed but rows, state and time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from everwhen.core.time import INF, NEVER
from everwhen.engine.node import OperatorNode, Step
from everwhen.operators.contract import Operator
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes

_HEAD: Final = ("", "operator", "rows in", "rows out", "corrections", "lifetime", "kept", "CPU", "%", "lag")


@dataclass
class _Count:
    corrections_in: int = 0
    corrections_out: int = 0
    finite: int = 0
    length: float = 0.0


class Meter:
    """Counts what operators get and say, step by step (`StepCheck`)."""

    def __init__(self) -> None:
        self.counts: dict[int, _Count] = {}

    def begin(self, number: int, operator: Operator) -> None:
        self.counts[number] = _Count()

    def after(self, step: Step) -> None:
        count = self.counts.setdefault(step.at, _Count())
        count.corrections_in += sum(_corrections(each) for each in step.inputs)
        said = step.output.changes
        if len(said):
            count.corrections_out += _corrections(said)
            ends = (said.hi != INF) & (said.lo != NEVER)
            count.finite += int(ends.sum())
            count.length += float((said.hi[ends] - said.lo[ends]).sum(dtype=np.float64))


def _corrections(changes: Changes) -> int:
    return int((changes.weight < 0).sum()) if len(changes) else 0


@dataclass(frozen=True, slots=True)
class OperatorAnalysis:
    """What an operator has done.  `lifetime`, `lag` are None where there is none, `share` is of all operators' time."""

    number: int
    name: str
    reads: tuple[str, ...]
    rows_in: int
    rows_out: int
    corrections_in: int
    corrections_out: int
    lifetime: float | None
    state_rows: int
    state_bytes: int
    seconds: float
    share: float
    lag: int | None
    keeps: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """A plan that ran.  `elements`: how many were read, `said` how many its answer has."""

    elements: int
    said: int
    seconds: float
    operators: tuple[OperatorAnalysis, ...]

    def lines(self) -> list[str]:
        """A table of operators, inputs first, then what is worth looking at."""
        rate = f" ({self.elements / self.seconds:,.0f} a second)" if self.seconds else ""
        found = [f"{self.elements:,} elements read, {self.said:,} said, in {self.seconds:.2f} s{rate}", ""]
        rows = [_row(each) for each in self.operators]
        widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
        for row in [_HEAD, *rows]:
            cells = [
                text.ljust(w) if i == 1 else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))
            ]
            found.append("  ".join(cells).rstrip())
        return [*found, "", *self._remarks()]

    def _remarks(self) -> list[str]:
        if not self.operators:
            return ["The answer is the source itself: nothing is computed."]
        costly = max(self.operators, key=lambda each: each.seconds)
        large = max(self.operators, key=lambda each: each.state_bytes)
        came = sum(each.rows_in for each in self.operators if not any(name.isdecimal() for name in each.reads))
        taken = sum(each.corrections_in for each in self.operators if not any(name.isdecimal() for name in each.reads))
        remarks = [
            f"Costliest: {costly.number} {costly.name}, {costly.share:.0%} of the operators' {self._spent:.3f} s."
        ]
        if large.state_rows:
            remarks.append(
                f"Largest state: {large.number} {large.name}, {large.state_rows:,} rows, {_bytes(large.state_bytes)}; "
                f"it keeps {large.keeps}."
            )
        else:
            remarks.append("No operator keeps anything now.")
        if came:
            remarks.append(f"Corrections: {taken / came:.1%} of the changes that came in.")
        behind = [each for each in self.operators if each.lag]
        if behind:
            last = max(behind, key=lambda each: each.lag or 0)
            remarks.append(f"Furthest behind: {last.number} {last.name}, {last.lag} ticks after the largest start.")
        return remarks

    @property
    def _spent(self) -> float:
        return sum(each.seconds for each in self.operators)

    def to_plain(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


def analyzed(nodes: Sequence[OperatorNode], counts: Mapping[int, _Count]) -> tuple[OperatorAnalysis, ...]:
    """What operators have done, numbered from 1 as EXPLAIN does."""
    spent = sum(node.seconds for node in nodes) or 1.0
    return tuple(_analyzed(node, counts.get(node.number), spent) for node in nodes)


def _analyzed(node: OperatorNode, count: _Count | None, spent: float) -> OperatorAnalysis:
    operator, seen = node.placed.operator, count or _Count()
    size, promise = operator.state_size(), node.output.frontier.time
    lag = None if node.tau in (NEVER, INF) or promise == INF else node.tau - promise if promise != NEVER else None
    return OperatorAnalysis(
        node.number + 1,
        node.placed.name,
        tuple(map(_port, node.placed.inputs)),
        node.rows_in,
        node.rows_out,
        seen.corrections_in,
        seen.corrections_out,
        seen.length / seen.finite if seen.finite else None,
        size.rows,
        size.bytes,
        node.seconds,
        node.seconds / spent,
        None if lag is None else max(lag, 0),
        operator.keeps,
    )


def _port(port: Port) -> str:
    return port.source if port.source is not None else str(port.operator + 1)


def _row(each: OperatorAnalysis) -> tuple[str, ...]:
    return (
        str(each.number),
        f"{each.name} of {', '.join(each.reads)}",
        f"{each.rows_in:,}",
        f"{each.rows_out:,}",
        f"{each.corrections_out:,}",
        "-" if each.lifetime is None else f"{each.lifetime:,.1f}",
        f"{each.state_rows:,}",
        f"{each.seconds:.3f} s",
        f"{100 * each.share:.0f}",
        "-" if each.lag is None else str(each.lag),
    )


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count //= 1000
    return f"{count:,} GB"
