"""Where two histories differ first: the smallest instant at which their snapshots are not equal, and how.

Attributes are matched by name; one that a history lacks is null there.  Values are equal when their kind and their
value are: 1, 1.0 and true are three values, though `typed=False` compares the numbers of differently typed columns by
value.  With a tolerance, floats may differ by `tolerance * max(|x|, |y|, 1e-6)` (the last term for sums that should be
zero), and snapshots are equal when their rows can be paired so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from everwhen.core.time import INF, show
from everwhen.errors import QueryError

if TYPE_CHECKING:
    from everwhen.stream.history import History

Row = tuple[Any, ...]
_NEARLY_ZERO: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Difference:
    """At `instant`, and at none before, `missing` rows are in the first history only and `extra` ones in the second."""

    instant: int
    columns: tuple[str, ...]
    missing: Mapping[Row, int]
    extra: Mapping[Row, int]

    def __str__(self) -> str:
        lines = [f"differ first at instant {show(self.instant)}"]
        for label, rows in (("missing", self.missing), ("extra", self.extra)):
            for row, count in rows.items():
                text = " ".join(f"{name}={value!r}" for name, value in zip(self.columns, row, strict=True))
                lines.append(f"  {label}: {text or '(the empty row)'}" + (f"  ({count} times)" if count > 1 else ""))
        return "\n".join(lines)


def same_history(a: History, b: History, tolerance: float = 0.0, *, typed: bool = True) -> bool:
    """Whether the snapshots are equal at every instant."""
    return first_difference(a, b, tolerance, typed=typed) is None


def first_difference(a: History, b: History, tolerance: float = 0.0, *, typed: bool = True) -> Difference | None:
    """The first instant at which the snapshots of two histories differ, or None if they never do."""
    if not tolerance >= 0:
        raise QueryError(f"a tolerance is 0 or more, not {tolerance}")
    aligned = _Aligned(a, b, typed)
    net: defaultdict[tuple[int, Row], int] = defaultdict(int)
    for (vs, ve, row), count in aligned.uncommon():
        net[vs, row] += count
        if ve != INF:
            net[ve, row] -= count
    changes = [(t, row, count) for (t, row), count in net.items() if count]
    if not changes:
        return None
    if tolerance:
        return _first_beyond(aligned, changes, tolerance)
    # Before the first net change all multiplicities agree, so at it they differ by exactly these changes.
    instant = min(t for t, _, _ in changes)
    return aligned.difference(instant, {row: count for t, row, count in changes if t == instant})


@dataclass(frozen=True, slots=True)
class _Kinded:
    """A value of a column that has another kind in the other history."""

    kind: str
    value: Any


class _Aligned:
    """Two histories with the same columns in the same order."""

    def __init__(self, a: History, b: History, typed: bool) -> None:
        self.a, self.b = a, b
        self.columns = (*a.schema.names, *(name for name in b.schema.names if name not in a.schema))
        kinds = [{f.name: _kind(f.type, typed) for f in history.schema} for history in (a, b)]
        mixed = {name for name in kinds[0] if name in kinds[1] and kinds[0][name] != kinds[1][name]}
        self.row_of_a = _aligner(a.schema.names, self.columns, kinds[0], mixed)
        self.row_of_b = _aligner(b.schema.names, self.columns, kinds[1], mixed)
        # Nested and other columns are compared exactly; only whole float values may be off a little.
        floats = {f.name for history in (a, b) for f in history.schema if pa.types.is_floating(f.type)} - mixed
        self.floats = tuple(j for j, name in enumerate(self.columns) if name in floats)

    def uncommon(self) -> Iterable[tuple[tuple[int, int, Row], int]]:
        """Events with their multiplicity in a minus that in b, where it is not zero."""
        net: Counter[tuple[int, int, Row]] = Counter()
        for (vs, ve, row), count in self.a.multiset.items():
            net[vs, ve, self.row_of_a(row)] += count
        for (vs, ve, row), count in self.b.multiset.items():
            net[vs, ve, self.row_of_b(row)] -= count
        return ((event, count) for event, count in net.items() if count)

    def alive(self, history: History, t: int, belongs: Callable[[Row], bool]) -> list[Row]:
        align = self.row_of_a if history is self.a else self.row_of_b
        rows = ((align(row), count) for row, count in history.snapshot(t).items())
        return [row for row, count in rows if belongs(row) for _ in range(count)]

    def difference(self, instant: int, net: Mapping[Row, int]) -> Difference:
        ordered = sorted(net.items(), key=lambda item: repr(item[0]))
        missing = {_plain(row): count for row, count in ordered if count > 0}
        extra = {_plain(row): -count for row, count in ordered if count < 0}
        return Difference(instant, self.columns, missing, extra)


def _aligner(
    names: Sequence[str], columns: Sequence[str], kinds: Mapping[str, str], mixed: set[str]
) -> Callable[[Row], Row]:
    if tuple(names) == tuple(columns) and not mixed and not {"float", "number"} & set(kinds.values()):
        return lambda row: row
    places = [(names.index(name) if name in names else None, kinds[name] if name in mixed else "") for name in columns]

    def align(row: Row) -> Row:
        found = []
        for place, kind in places:
            value = None if place is None else row[place]
            if value != value:
                value = nan  # one object: a history that was built by hand may have others
            found.append(_Kinded(kind, value) if kind and value is not None else value)
        return tuple(found)

    return align


def _plain(row: Row) -> Row:
    return tuple(value.value if isinstance(value, _Kinded) else value for value in row)


def _kind(type_: pa.DataType, typed: bool) -> str:
    """What tells values apart that Python takes for equal; it tells texts, bytes, dates and times apart by itself."""
    is_ = pa.types
    if is_.is_boolean(type_):
        return "boolean"
    if is_.is_nested(type_):
        return f"{type_.id} of {', '.join(_kind(type_.field(i).type, typed) for i in range(type_.num_fields))}"
    if not (is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_)):
        return "other"
    if not typed:
        return "number"
    return "integer" if is_.is_integer(type_) else "float" if is_.is_floating(type_) else "decimal"


# --- with a tolerance ---------------------------------------------------------------------------------------------


def _first_beyond(aligned: _Aligned, changes: list[tuple[int, Row, int]], tolerance: float) -> Difference | None:
    """Sweeps over the rows that have no exact partner; a group is the rows that agree but for their floats."""
    floats = frozenset(aligned.floats)

    def group_of(row: Row) -> Row:
        return tuple(None if j in floats else value for j, value in enumerate(row))

    by_instant: defaultdict[int, list[tuple[Row, int]]] = defaultdict(list)
    for t, row, count in changes:
        by_instant[t].append((row, count))
    groups: defaultdict[Row, Counter[Row]] = defaultdict(Counter)
    for t in sorted(by_instant):
        touched = set()
        for row, count in by_instant[t]:
            group = group_of(row)
            touched.add(group)
            groups[group][row] += count
        wrong: dict[Row, int] = {}
        for group in touched:
            left = groups[group] = Counter({row: count for row, count in groups[group].items() if count})
            missing = [row for row, count in left.items() for _ in range(count)]
            extra = [row for row, count in left.items() for _ in range(-count)]
            unpaired = _unpaired(missing, extra, aligned.floats, tolerance)
            if any(unpaired):
                # Pairing equal rows with each other first may have taken a partner away: try without.
                def belongs(row: Row, group: Row = group) -> bool:
                    return group_of(row) == group

                here, there = aligned.alive(aligned.a, t, belongs), aligned.alive(aligned.b, t, belongs)
                unpaired = _unpaired(here, there, aligned.floats, tolerance)
            for row in unpaired[0]:
                wrong[row] = wrong.get(row, 0) + 1
            for row in unpaired[1]:
                wrong[row] = wrong.get(row, 0) - 1
        if wrong:
            return aligned.difference(t, wrong)
    return None


def _unpaired(a: list[Row], b: list[Row], floats: Sequence[int], tolerance: float) -> tuple[list[Row], list[Row]]:
    """The rows left over after pairing as many close ones as possible."""
    if not a or not b:
        return a, b

    def values(row: Row) -> tuple[float, ...]:
        return tuple(inf if row[j] is None or isnan(row[j]) else float(row[j]) for j in floats)

    a, b = sorted(a, key=values), sorted(b, key=values)
    if len(a) == len(b) and all(_close(x, y, floats, tolerance) for x, y in zip(a, b, strict=True)):
        return [], []
    partners = [[j for j, y in enumerate(b) if _close(x, y, floats, tolerance)] for x in a]
    mate_of_a: dict[int, int] = {}
    mate_of_b: dict[int, int] = {}
    alone = [i for i in range(len(a)) if not _augment(i, partners, mate_of_a, mate_of_b)]
    return [a[i] for i in alone], [y for j, y in enumerate(b) if j not in mate_of_b]


def _augment(start: int, partners: list[list[int]], mate_of_a: dict[int, int], mate_of_b: dict[int, int]) -> bool:
    """Finds a partner for one more row, moving others along an augmenting path, breadth first."""
    came_from: dict[int, int] = {}
    queue = [start]
    for i in queue:
        for j in partners[i]:
            if j in came_from:
                continue
            came_from[j] = i
            if j in mate_of_b:
                queue.append(mate_of_b[j])
                continue
            while True:  # back along the path: everybody on it moves to the partner found
                owner = came_from[j]
                mate_of_b[j] = owner
                if owner == start:
                    mate_of_a[owner] = j
                    return True
                mate_of_a[owner], j = j, mate_of_a[owner]
    return False


def _close(x: Row, y: Row, floats: Sequence[int], tolerance: float) -> bool:
    return all(x[j] is y[j] or _near(x[j], y[j], tolerance) for j in floats)


def _near(x: Any, y: Any, tolerance: float) -> bool:
    if x is None or y is None:
        return False
    x, y = float(x), float(y)
    if not (isfinite(x) and isfinite(y)):
        return x == y or (isnan(x) and isnan(y))
    return abs(x - y) <= tolerance * max(abs(x), abs(y), _NEARLY_ZERO)
