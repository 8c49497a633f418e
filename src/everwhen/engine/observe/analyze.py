"""EXPLAIN ANALYZE: what the inputs and operators of a plan that ran have brought and done, measured.

    rows in, out     changes, in all and per second
    selectivity      rows out per row in
    corrections      the share of what was said that takes something back
    distance         of successive starts; lifetime: the mean length of what was said; granule: of starts and ends
    kept             keys, rows and bytes of state, now
    CPU              the time that its steps took: per row that came, and its share of that of all operators
    lag              how far its promise is behind the largest start it has seen

It is made of samples (`sample.py`), so it is the same of one process and of the partitions on Spark, where the largest
part is told beside the mean of all (`skew`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from everwhen.core.time import show_span
from everwhen.engine.observe.sample import ITEMS, Sample, Value

_INPUTS: Final = ("input", "rows", "rows/s", "corrections", "late", "distance", "lifetime", "granule", "lag")
_OPERATORS: Final = (
    "operator", "rows in", "/s", "rows out", "/s", "out/in", "corrections", "lifetime", "keys", "kept", "bytes",
    "us/row", "CPU %", "lag",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Observed:
    """An operator or an input, what it reads, what was measured of it, and what it keeps, in words.  `skew`: where it
    is in partitions, by how much the one with the most rows has more than the mean."""

    name: str
    kind: str
    reads: tuple[str, ...]
    sample: Sample
    keeps: str = "nothing"
    skew: float | None = None

    def item(self, name: str) -> Value:
        """One of the items of metadata."""
        return ITEMS[name].value(self.sample)


@dataclass(frozen=True, slots=True)
class Analysis:
    """A plan that ran.  `elements`: how many were read, `said` how many its answer has, in so many seconds.  `last`: of
    a query of a session, how many came to its last filters, which are no operator, and how many they let through."""

    elements: int
    said: int
    seconds: float
    observed: tuple[Observed, ...]
    remark: str = ""
    last: tuple[int, int] | None = None

    @property
    def operators(self) -> tuple[Observed, ...]:
        """Inputs before their users."""
        return tuple(each for each in self.observed if each.kind == "operator")

    @property
    def inputs(self) -> tuple[Observed, ...]:
        return tuple(each for each in self.observed if each.kind == "input")

    @property
    def costliest(self) -> Observed | None:
        """The operator that took most time."""
        return max(self.operators, key=lambda each: each.sample.seconds, default=None)

    @property
    def largest(self) -> Observed | None:
        """The operator that keeps most."""
        found = max(self.operators, key=lambda each: each.sample.state_bytes or 0, default=None)
        return found if found is not None and found.sample.state_rows else None

    def lines(self) -> list[str]:
        """Tables of inputs and operators, then what is worth looking at."""
        rate = f" ({self.elements / self.seconds:,.0f} a second)" if self.seconds else ""
        found = [f"{self.elements:,} elements read, {self.said:,} said, in {self.seconds:.2f} s{rate}", ""]
        if self.inputs:
            found += [*_table([_INPUTS, *(_input(each) for each in self.inputs)]), ""]
        if self.operators:
            rows = [_operator(each, self._spent) for each in self.operators]
            found += [*_table([_OPERATORS, *rows]), ""]
        return [*found, *self._remarks()]

    def _remarks(self) -> list[str]:
        costly, large = self.costliest, self.largest
        remarks = [self.remark] if self.remark else []
        if self.last is not None:
            came, passed = self.last
            remarks.insert(0, f"The last filters of the query got {came:,} rows and let {passed:,} through.")
        if costly is None:
            told = "The answer is the source itself: nothing is computed."
            return remarks if self.last is not None else [told, *remarks]
        share = costly.sample.seconds / self._spent
        found = [f"Costliest: {costly.name}, {share:.0%} of the operators' {self._spent:.3f} s."]
        if not costly.sample.seconds:
            found = ["No operator has had anything to do."]
        if large is None:
            found.append("No operator keeps anything now.")
        else:
            kept = f"{large.sample.state_rows:,} rows, {_bytes(large.sample.state_bytes or 0)}"
            found.append(f"Largest state: {large.name}, {kept}; it keeps {large.keeps}.")
        inputs, said = self.inputs, self.operators[-1]
        changes = sum(each.sample.changes for each in inputs)
        if changes:
            taken = sum(each.sample.taken for each in inputs) / changes
            found.append(
                f"Corrections: {taken:.1%} of what came, {_percent(said.item('corrections'))} of what was said."
            )
        late = sum(each.sample.late for each in inputs)
        if late:
            found.append(f"Late: {late / max(sum(each.sample.rows_in for each in inputs), 1):.1%} of what came.")
        behind = max(self.operators, key=lambda each: each.item("lag") or 0)
        if lag := behind.item("lag"):
            found.append(f"Furthest behind: {behind.name}, {show_span(int(lag))} after the largest start.")
        uneven = max(self.operators, key=lambda each: each.skew or 0)
        if uneven.skew is not None:
            found.append(f"Most uneven: {uneven.name}, its largest partition has {uneven.skew:.2f} times the mean.")
        return [*found, *remarks]

    @property
    def _spent(self) -> float:
        return sum(each.sample.seconds for each in self.operators) or 1.0

    def to_plain(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        costly, large = self.costliest, self.largest
        return {
            "elements": self.elements,
            "said": self.said,
            "seconds": self.seconds,
            "inputs": [self._plain(each) for each in self.inputs],
            "operators": [self._plain(each) for each in self.operators],
            "costliest": None if costly is None else costly.name,
            "largest": None if large is None else large.name,
            "remark": self.remark,
        }

    def _plain(self, each: Observed) -> dict[str, Any]:
        sample = asdict(each.sample)
        told = {name: sample[name] for name in ("rows_in", "rows_out", "seconds")}
        items = {name: each.item(name) for name in ITEMS}
        of = {"reads": list(each.reads), "keeps": each.keeps, "share": each.sample.seconds / self._spent}
        skew = {} if each.skew is None else {"skew": each.skew}
        return {"name": each.name, **(of if each.kind == "operator" else {}), **told, **items, **skew}


def _input(each: Observed) -> tuple[str, ...]:
    return (
        each.name, f"{each.sample.rows_in:,}", _number(each.item("rate_in"), 0), _percent(each.item("corrections")),
        _percent(each.item("late")), _number(each.item("distance"), 2), _number(each.item("lifetime"), 1),
        _number(each.item("granule"), 0), _number(each.item("lag"), 0),
    )  # fmt: skip


def _operator(each: Observed, spent: float) -> tuple[str, ...]:
    s = each.sample
    return (
        f"{each.name} of {', '.join(each.reads)}",
        f"{s.rows_in:,}", _number(each.item("rate_in"), 0), f"{s.rows_out:,}", _number(each.item("rate_out"), 0),
        _number(each.item("selectivity"), 2), _percent(each.item("corrections")), _number(each.item("lifetime"), 1),
        _number(s.keys, 0), _number(s.state_rows, 0), "-" if s.state_bytes is None else _bytes(s.state_bytes),
        _number(1e6 * s.seconds / s.rows_in if s.rows_in else None, 2), f"{100 * s.seconds / spent:.0f}",
        _number(each.item("lag"), 0),
    )  # fmt: skip


def _table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Columns side by side; the first is text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (t.rjust(w) if i else t.ljust(w) for i, (t, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()


def _number(value: Value, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(value: Value) -> str:
    return "-" if value is None else f"{value:.1%}"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
