"""Patterns over several columns, found by what they hold: those around another one, and those inside.

    around(p)   the broad patterns that match whatever p matches: by their constants, then by one range of theirs
    inside(p)   all patterns that match nothing that p does not: by the values of one column of p

So a look-up costs about as much as it finds; it is near linear where patterns are disjoint or nested in few others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from typing import Any

from everwhen.values.sets import Key, Run, Spans

Box = Mapping[str, Spans]
"""The values of each bound column; columns left out are not bound."""
_Kind = tuple[str, tuple[str, ...]]


def within(inner: Box, outer: Box) -> bool:
    """Whether all that the inner one matches is in the outer one."""
    return all(name in inner and inner[name].within(spans) for name, spans in outer.items())


class _Stab:
    """Runs by their start, with the largest end so far: those that hold a run."""

    def __init__(self) -> None:
        self._starts: list[Key] = []
        self._held: list[tuple[Key | None, int]] = []
        self._reach: list[Key | None] = []

    def add(self, run: Run, number: int) -> None:
        at = bisect_right(self._starts, run[0])
        self._starts.insert(at, run[0])
        self._held.insert(at, (run[1], number))
        self._reach_from(at)

    def remove(self, run: Run, number: int) -> bool:
        """Takes a run out; whether none is left."""
        at = self._held.index((run[1], number), bisect_left(self._starts, run[0]))
        del self._starts[at], self._held[at]
        self._reach_from(at)
        return not self._held

    def _reach_from(self, at: int) -> None:
        del self._reach[at:]
        for end, _ in self._held[at:]:
            before = self._reach[-1] if self._reach else end
            self._reach.append(before if _upto(end, before) else end)

    def holding(self, run: Run) -> Iterator[int]:
        at = bisect_right(self._starts, run[0]) - 1
        while at >= 0 and _upto(run[1], self._reach[at]):
            end, number = self._held[at]
            if _upto(run[1], end):
                yield number
            at -= 1


class PatternIndex:
    """Patterns by number."""

    def __init__(self) -> None:
        self._boxes: dict[int, Box] = {}
        self._everywhere: list[int] = []  # broad patterns without a run that could be looked up
        self._broad: dict[_Kind, dict[tuple[Any, ...], _Stab]] = {}
        self._by_value: dict[str, list[tuple[Key, int]]] = {}

    def add(self, number: int, box: Box, broad: bool) -> None:
        self._boxes[number] = box
        for name, spans in box.items():
            if spans.runs:
                insort(self._by_value.setdefault(name, []), (spans.runs[0][0], number))
        if broad:
            place = _place(box)
            if place is None:
                self._everywhere.append(number)
            else:
                kind, values, run = place
                self._broad.setdefault(kind, {}).setdefault(values, _Stab()).add(run, number)

    def remove(self, number: int, broad: bool) -> None:
        box = self._boxes.pop(number)
        for name, spans in box.items():
            if spans.runs:
                found = self._by_value[name]
                del found[bisect_left(found, (spans.runs[0][0], number))]
        if broad:
            place = _place(box)
            if place is None:
                self._everywhere.remove(number)
            else:
                kind, values, run = place
                if self._broad[kind][values].remove(run, number):
                    del self._broad[kind][values]

    def around(self, box: Box) -> Iterator[int]:
        """The broad patterns that hold all of another."""
        for number in self._candidates(box):
            if within(box, self._boxes[number]):
                yield number

    def _candidates(self, box: Box) -> Iterator[int]:
        yield from self._everywhere
        for (name, fixed), groups in self._broad.items():
            if name in box and box[name].runs and all(other in box for other in fixed):
                group = groups.get(tuple(_point(box[other]) for other in fixed))
                if group is not None:
                    runs = box[name].runs
                    yield from group.holding((runs[0][0], runs[-1][1]))

    def inside(self, box: Box) -> Iterator[int]:
        """The patterns all of which another one holds."""
        numbers: list[int] | None = None
        for name, spans in box.items():
            if spans.runs and not spans.null:
                found = self._by_value.get(name, [])
                first, end = bisect_left(found, (spans.runs[0][0], -1)), spans.runs[-1][1]
                last = len(found) if end is None else bisect_left(found, (end, -1))
                if numbers is None or last - first < len(numbers):
                    numbers = [number for _, number in found[first:last]]
        return (number for number in (self._boxes if numbers is None else numbers) if within(self._boxes[number], box))


def _place(box: Box) -> tuple[_Kind, tuple[Any, ...], Run] | None:
    """By which of its ranges a broad pattern is found, behind which constants; None if it has no range."""
    for name, spans in box.items():
        if _point(spans) is None and spans.runs and not spans.null:
            fixed = tuple(other for other in box if _point(box[other]) is not None)
            values = tuple(_point(box[other]) for other in fixed)
            return (name, fixed), values, (spans.runs[0][0], spans.runs[-1][1])
    return None


def _point(spans: Spans) -> Any:
    """What stands for a single value; None if there are more."""
    if len(spans.runs) + spans.null + len(spans.values) != 1:
        return None
    if spans.null or spans.values:
        return "null" if spans.null else next(iter(spans.values))
    lo, hi = spans.runs[0]
    single = hi == lo + (1 if isinstance(lo, int) else b"\0") if hi is not None else False
    return (lo,) if single else None


def _upto(end: Key | None, other: Key | None) -> bool:
    return other is None or (end is not None and end <= other)
