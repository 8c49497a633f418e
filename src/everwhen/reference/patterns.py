"""MATCH_RECOGNIZE on one snapshot: all runs of neighbours that spell the pattern are tried; per start the longest.

What is meant is said in `algebra/patterns/match_recognize.py`; this is the same as a search.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from everwhen.algebra.expressions.definition import integer
from everwhen.algebra.nodes import MatchRecognize
from everwhen.algebra.patterns.pattern import Alternation, Concatenation, Pattern, Repeat, Symbol, variables
from everwhen.algebra.patterns.terms import Term, terms
from everwhen.reference.logical import Snapshot
from everwhen.reference.order import Row, canonical, canonical_row, value_order

Mapping = tuple[str, ...]
"""The variables of the rows of a run, from its first row on."""
Named = dict[str, Any]
Holds = Callable[[Mapping], bool]
"""Whether the last row of a mapping meets the condition of its variable."""


def matches(node: MatchRecognize, snapshot: Snapshot) -> Snapshot:
    """The answer at one instant."""
    names = node.input.schema.names
    parts: defaultdict[Row, list[Named]] = defaultdict(list)
    for row in snapshot.elements():
        named = dict(zip(names, row, strict=True))
        parts[tuple(named[name] for name in node.partition)].append(named)
    found: Snapshot = Counter()
    for key, rows in parts.items():
        _sort(rows, node)
        for start in range(len(rows)):
            best = longest(node, rows, start)
            if best:
                found[key + _measured(node, rows[start : start + len(best)], best)] += 1
    return found


def _sort(rows: list[Named], node: MatchRecognize) -> None:
    """By ORDER BY, nulls last; ties by the values of the columns that are read, nulls first."""
    rows.sort(key=lambda row: [value_order(row[name]) for name in node.ties])
    for name, down in reversed(node.order):
        rows.sort(key=lambda row: value_order(row[name]), reverse=down)
        rows.sort(key=lambda row: row[name] is None)


def longest(node: MatchRecognize, rows: Sequence[Named], start: int) -> Mapping:
    """The mapping of the longest match that begins at a row; of equally long ones the first; empty: there is none."""
    conditions = dict(node.define)
    before = rows[start - 1] if start else None

    def holds(mapping: Mapping) -> bool:
        at = start + len(mapping) - 1
        if at >= len(rows):
            return False
        condition = conditions.get(mapping[-1])
        if condition is None:
            return True
        previous = rows[at - 1] if len(mapping) > 1 else before
        run = rows[start : at + 1]
        values = {each.name: term_value(each, run, mapping, previous) for each in terms(condition)}
        return bool(condition.value({**rows[at], **values}))

    rank = {name: at for at, name in enumerate(variables(node.pattern))}
    ways = set(_ways(node.pattern, (), holds))
    return min(ways, key=lambda mapping: (-len(mapping), [rank[name] for name in mapping]), default=())


def _ways(pattern: Pattern, taken: Mapping, holds: Holds) -> Iterator[Mapping]:
    """Every mapping that begins with what is taken and goes on as the pattern says."""
    match pattern:
        case Symbol(name):
            if holds((*taken, name)):
                yield (*taken, name)
        case Concatenation(()):
            yield taken
        case Concatenation((part, *rest)):
            for way in _ways(part, taken, holds):
                yield from _ways(Concatenation(tuple(rest)), way, holds)
        case Alternation(parts):
            for part in parts:
                yield from _ways(part, taken, holds)
        case Repeat(part, least, most):
            if least == 0:
                yield taken
            for way in _ways(part, taken, holds) if most != 0 else ():
                if len(way) > len(taken):
                    again = Repeat(part, max(least - 1, 0), None if most is None else most - 1)
                    yield from _ways(again, way, holds)
                elif least > 0:
                    yield taken  # nothing, as often as is needed


def _measured(node: MatchRecognize, run: Sequence[Named], mapping: Mapping) -> Row:
    read = {each.name: each for _, measure in node.measures for each in terms(measure)}
    values = {name: term_value(each, run, mapping, None) for name, each in read.items()}
    return canonical_row(measure.value(values) for _, measure in node.measures)


def term_value(term: Term, run: Sequence[Named], mapping: Mapping, previous: Named | None) -> Any:
    """A term over the rows of a match so far."""
    if term.function == "prev":
        assert term.argument is not None
        return term.argument.value(previous if previous is not None else dict.fromkeys(term.argument.columns()))
    mapped = [row for row, name in zip(run, mapping, strict=True) if term.variable in (None, name)]
    if term.argument is None:
        return len(mapped)
    values = [canonical(term.argument.value(row)) for row in mapped]
    if term.function in ("first", "last"):
        return (values[0] if term.function == "first" else values[-1]) if values else None
    there = [value for value in values if value is not None]
    match term.function:
        case "count":
            return len(there)
        case "sum":
            return _sum(there) if there else None
        case "avg":
            return float(_sum(there)) / len(there) if there else None
        case "min":
            return min(there, key=value_order, default=None)
    return max(there, key=value_order, default=None)


def _sum(values: Sequence[Any]) -> Any:
    """From the first row to the last."""
    total = values[0]
    for value in values[1:]:
        total = total + value if isinstance(total, float) else integer(total + value)
    return total
