"""Whether patterns on columns that are projected away cover all values together, and up to which time.

A projection may forget a column once its patterns have become a wildcard (Tucker leaves the condition open in section
4.2): for one column they must cover its type, null included unless the column has none.  `Steps` keeps the largest time
promised at each key of one column as a step function, so the answer is at hand after every promise.  `covered_by`
answers for boxes over several columns by cutting each column where any box begins or ends: exact, but its cost grows
with the product of the cuts, so it is for a few boxes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from typing import Any

from everwhen.core.time import NEVER
from everwhen.punctuation.values.sets import Key, Run, Spans, union

Box = Mapping[str, Spans]
"""The values of each bound column; columns left out are not bound."""


class Steps:
    """The largest time promised at each key of a column, and for its null."""

    def __init__(self, lowest: Key | None) -> None:
        self._lowest = lowest
        self.cuts: list[Key] = [] if lowest is None else [lowest]
        self.times: list[int] = [NEVER] * len(self.cuts)  # from each cut to the next
        self._gaps = len(self.cuts)
        self.null = NEVER

    def __len__(self) -> int:
        return len(self.cuts)

    def add(self, spans: Spans, t: int) -> None:
        """Cost: a search and the steps that are raised."""
        if spans.null:
            self.null = max(self.null, t)
        for lo, hi in spans.runs:
            self._raise(lo, hi, t)

    def _raise(self, lo: Key, hi: Key | None, t: int) -> None:
        first = self._cut(lo)
        last = len(self.cuts) if hi is None else self._cut(hi)
        times, cuts = self.times, self.cuts
        self._gaps -= sum(time == NEVER for time in times[first:last])
        times[first:last] = [max(time, t) for time in times[first:last]]
        # Equal neighbours become one, from the right so that positions stay.
        for at in range(min(last, len(times) - 1), max(first, 1) - 1, -1):
            if times[at] == times[at - 1]:  # never two gaps: one of any two was raised
                del times[at], cuts[at]

    def _cut(self, key: Key) -> int:
        """The step that begins at a key."""
        at = bisect_left(self.cuts, key)
        if at == len(self.cuts) or self.cuts[at] != key:
            self.cuts.insert(at, key)
            self.times.insert(at, self.times[at - 1])
            self._gaps += self.times[at] == NEVER
        return at

    def covered(self, never_null: bool) -> int:
        """The time up to which every value is promised."""
        if self._gaps or (not never_null and self.null == NEVER):
            return NEVER
        every = self.times if never_null else [*self.times, self.null]
        return min(every) if every else NEVER

    def spans(self, t: int) -> Spans:
        """The values that are promised up to `t` at least."""
        ends: list[Key | None] = [*self.cuts[1:], None]
        runs: list[Run] = [(lo, hi) for lo, hi, time in zip(self.cuts, ends, self.times, strict=True) if time >= t]
        return Spans(self._lowest, union(runs), self.null >= t)

    def all_times(self) -> set[int]:
        return {*self.times, self.null} - {NEVER}

    def state(self) -> tuple[Any, ...]:
        return self._lowest, list(self.cuts), list(self.times), self.null

    @classmethod
    def of(cls, state: tuple[Any, ...]) -> Steps:
        steps = cls(state[0])
        steps.cuts, steps.times, steps.null = list(state[1]), list(state[2]), state[3]
        steps._gaps = steps.times.count(NEVER)
        return steps


def covered_by(boxes: Sequence[Box], lowest: Mapping[str, Key | None], never_null: Set[str]) -> bool:
    """Whether boxes cover all values of all columns together; `lowest` is the smallest key of each column."""
    if any(not box for box in boxes):
        return True
    names = {name for box in boxes for name in box}
    if not names:
        return False
    # The column that fewest boxes leave open parts them best.
    name = max(sorted(names), key=lambda n: sum(n in box for box in boxes))
    rest = [{other: spans for other, spans in box.items() if other != name} for box in boxes]
    found = [box.get(name) for box in boxes]
    if name not in never_null:
        inside = [box for box, spans in zip(rest, found, strict=True) if spans is None or spans.null]
        if not covered_by(inside, lowest, never_null):
            return False
    if lowest[name] is None:
        return True
    cuts: set[Any] = {lowest[name]}
    cuts |= {bound for spans in found if spans for run in spans.runs for bound in run if bound is not None}
    for cut in sorted(cuts):
        inside = [box for box, spans in zip(rest, found, strict=True) if spans is None or _holds(spans, cut)]
        if not covered_by(inside, lowest, never_null):
            return False
    return True


def _holds(spans: Spans, key: Key) -> bool:
    at = bisect_right(spans.runs, key, key=lambda run: run[0]) - 1
    return at >= 0 and (spans.runs[at][1] is None or key < spans.runs[at][1])
