"""Promises over an input's columns as promises over some of them, renamed (Tucker, Table 3: projection and group-by).

A promise that binds kept columns only goes on at once.  One that binds a dropped column says something of the output
only together with others: with the same pattern on the kept columns, or a wider one, they must cover all values of what
is dropped.  So it is kept until they do, and what goes on is the pattern on the kept columns with the smallest time of
the cover.

    take says (k, t)  ⟹  every input payload whose kept columns match k has been promised up to t

For one dropped column the converse holds, too, for the patterns on kept columns that came (a list of constants counts
as its constants).  Over several dropped columns it holds while at most 64 promises are open for a pattern; beyond,
promises that bind one dropped column each still count.  What a wider pattern completes is found when it comes if at
most 4096 patterns are open, and otherwise with the next promise for the narrower one.

Nothing is kept here for promises that go on at once: who needs them later keeps them in a `PunctuationStore`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Final

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation
from everwhen.core.schema import Field, Schema
from everwhen.core.time import INF, NEVER
from everwhen.punctuation.columns.steps import Steps
from everwhen.punctuation.domain_cover import Point, uncovered
from everwhen.punctuation.pattern_algebra import simplified
from everwhen.punctuation.pattern_index import Box, PatternIndex, within
from everwhen.punctuation.plain import pattern_of, pattern_state
from everwhen.punctuation.read import read_promises
from everwhen.punctuation.store import PunctuationStore
from everwhen.punctuation.table import PunctuationTable, joined
from everwhen.values.order import Kind, order_of
from everwhen.values.sets import Spans, holds, lowest_key, spans_of

_BOXES: Final = 64
_PATTERNS: Final = 4096
_LISTED: Final = 4096

Match = tuple[tuple[str, AttributePattern], ...]
"""Patterns on the kept columns, in the order of the schema."""


@dataclass
class _Open:
    """What is promised for one pattern on the kept columns: by one dropped column alone, or by several together.

    `gap` was in none of it beyond `said` when that was looked for last.
    """

    number: int
    values: Box
    broad: bool
    steps: dict[str, Steps] = field(default_factory=dict)
    boxes: list[tuple[Box, int]] = field(default_factory=list)
    said: int = NEVER
    gap: Point | None = None

    def at(self, point: Point) -> int:
        """The largest time that is promised at a point of the dropped columns, or may be."""
        times = [steps.at(point[name]) for name, steps in self.steps.items() if name in point]
        times += [t for name, steps in self.steps.items() if name not in point for t in steps.all_times()]
        times += [
            t for box, t in self.boxes if all(n not in point or holds(spans, point[n]) for n, spans in box.items())
        ]
        return max(times, default=NEVER)

    def __len__(self) -> int:
        return sum(map(len, self.steps.values())) + len(self.boxes)


class Projection:
    """Promises over some columns.

    >>> import pyarrow as pa
    >>> from everwhen.core.punctuation import Range
    >>> drop_hour = Projection(Schema.of([("item", pa.int64()), ("hour", pa.int64())]), {"item": ["item"]}, ["hour"])
    >>> list(drop_hour.project([Punctuation({"item": OneOf((7,)), "hour": Range(lt=12)})]))
    []
    >>> list(drop_hour.project([Punctuation({"item": OneOf((7,)), "hour": Range(ge=12)}, 50)]))
    [Punctuation(match={'item': OneOf(values=(7,))}, t=50)]
    """

    def __init__(self, schema: Schema, kept: Mapping[str, Sequence[str]], never_null: Collection[str] = ()) -> None:
        self.schema = schema
        self._kept = {name: tuple(names) for name, names in kept.items() if names}
        for name in (*self._kept, *never_null):
            schema.index(name, "a projection")
        self._once = {name: names[0] for name, names in self._kept.items() if len(names) == 1}
        self._same = {name for name, new in self._once.items() if name == new}
        self._target = Schema(
            tuple(Field(new, schema.field(name).type) for name, names in self._kept.items() for new in names)
        )
        self._never_null = frozenset(never_null)
        self._open: dict[Match, _Open] = {}
        self._by_number: dict[int, Match] = {}
        self._index = PatternIndex()
        self._count = 0
        self._done = PunctuationStore(schema)

    def __len__(self) -> int:
        """Pieces that wait for others."""
        return sum(map(len, self._open.values()))

    @property
    def nbytes(self) -> int:
        return 400 * len(self._open) + 120 * len(self) + self._done.nbytes

    def project(self, fresh: Iterable[Punctuation]) -> PunctuationTable:
        """What follows for the kept columns.  What binds none but those goes on as it is, by columns."""
        said = read_promises(fresh, self.schema)
        bound = said.bound
        if bound <= self._same:
            return said
        if bound <= self._once.keys():
            return said.renamed(self._once, self._target)
        inside, rest = said.split(self._once.keys())
        found = self._completed(rest)
        going = inside.renamed(self._once, self._target)
        return joined([going, read_promises(found, self._target)]) if found else going

    def _completed(self, fresh: Iterable[Punctuation]) -> list[Punctuation]:
        """What follows from promises that bind dropped columns, or one that is kept more than once."""
        out: list[Punctuation] = []
        touched: dict[Match, None] = {}
        for promise in fresh:
            match = promise.match
            if match.keys() <= self._kept.keys():
                out.append(self._renamed(match.items(), promise.t))
                continue
            for kept in self._partial(promise):
                touched[kept] = None
        for kept in self._reached(touched):
            t = self._covered(kept)
            if t > self._open[kept].said:
                self._open[kept].said = t
                out.append(self._renamed(kept, t))
                if t == INF:
                    self._done.add([Punctuation(dict(kept), INF)])
                    held = self._open.pop(kept)
                    del self._by_number[held.number]
                    self._index.remove(held.number, held.broad)
        return out

    def snapshot(self) -> dict[str, Any]:
        """Plain values, from which `restore` makes an equal projection."""
        return {
            "open": [
                (
                    [(name, pattern_state(pattern)) for name, pattern in kept],
                    {name: steps.state() for name, steps in held.steps.items()},
                    [({name: _state(spans) for name, spans in box.items()}, t) for box, t in held.boxes],
                    held.said,
                )
                for kept, held in self._open.items()
            ],
            "done": self._done.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Holds what a snapshot held, and nothing else."""
        self._open, self._by_number, self._index = {}, {}, PatternIndex()
        for patterns, steps, boxes, said in state["open"]:
            kept = tuple((name, pattern_of(pattern)) for name, pattern in patterns)
            self._remember(kept)
            held = self._open[kept]
            held.steps = {name: Steps.of(saved) for name, saved in steps.items()}
            held.boxes = [({name: Spans(*saved) for name, saved in box.items()}, t) for box, t in boxes]
            held.said = said
        self._done.restore(state["done"])

    def _partial(self, promise: Punctuation) -> Iterator[Match]:
        """Keeps a promise that binds dropped columns; the patterns on kept columns that it is about."""
        if promise.t == NEVER:
            return
        patterns: dict[str, AttributePattern] = {}
        for name in sorted(promise.match, key=lambda name: self.schema.index(name, "a pattern")):
            patterns[name] = simplified(promise.match[name], self.schema.field(name).type, name)
            if isinstance(patterns[name], Nothing):
                return
        dropped = {
            name: spans_of(pattern, self.schema.field(name).type)
            for name, pattern in patterns.items()
            if name not in self._kept
        }
        for kept in _each({name: pattern for name, pattern in patterns.items() if name in self._kept}):
            if self._done and self._done.implies(Punctuation(dict(kept), promise.t)):
                continue
            self._remember(kept)
            self._keep(self._open[kept], dropped, promise.t)
            yield kept

    def _remember(self, kept: Match) -> None:
        if kept not in self._open:
            self._count += 1
            values = {name: spans_of(pattern, self.schema.field(name).type) for name, pattern in kept}
            constant = all(isinstance(pattern, OneOf) and len(pattern.values) == 1 for _, pattern in kept)
            held = self._open[kept] = _Open(self._count, values, broad=not (kept and constant))
            self._by_number[held.number] = kept
            self._index.add(held.number, values, held.broad)

    def _keep(self, held: _Open, dropped: Box, t: int) -> None:
        if len(dropped) == 1:
            ((name, spans),) = dropped.items()
            if name not in held.steps:
                held.steps[name] = Steps(lowest_key(order_of(self.schema.field(name).type)))
            if order_of(self.schema.field(name).type).kind is not Kind.OPAQUE:  # nested values never cover their type
                held.steps[name].add(spans, t)
            return
        if any(s >= t and within(dropped, box) for box, s in held.boxes):
            return
        held.boxes = [(box, s) for box, s in held.boxes if s > t or not within(box, dropped)]
        held.boxes.append((dropped, t))

    def _reached(self, touched: Mapping[Match, None]) -> list[Match]:
        """The open patterns for which something new was promised."""
        reached = {kept: None for kept in touched if kept in self._open}
        if len(self._open) <= _PATTERNS:
            wider = [self._open[kept] for kept in reached if self._open[kept].broad]
            reached |= {self._by_number[n]: None for held in wider for n in self._index.inside(held.values)}
        return list(reached)

    def _covered(self, kept: Match) -> int:
        """The time up to which all dropped values are promised for a pattern on the kept columns."""
        held = self._open[kept]
        best = max((steps.covered(name in self._never_null) for name, steps in held.steps.items()), default=NEVER)
        numbers = (number for number in self._index.around(held.values) if number != held.number)
        together = [held, *(self._open[self._by_number[number]] for number in numbers)]
        if len(together) == 1 and not held.boxes and len(held.steps) < 2:
            return best
        if held.gap is not None and max(one.at(held.gap) for one in together) <= best:
            return best
        times = {s for one in together for steps in one.steps.values() for s in steps.all_times()}
        times |= {s for one in together for _, s in one.boxes}
        later = sorted(t for t in times if t > best)
        low, high, held.gap = -1, len(later), None  # all is promised up to the time at `low`, not up to that at `high`
        while high - low > 1:
            middle = (low + high) // 2
            gap = self._gap(together, later[middle])
            if gap is None:
                low = middle
            else:
                high, held.gap = middle, gap
        return best if low < 0 else later[low]

    def _gap(self, together: Sequence[_Open], t: int) -> Point | None:
        """A point of the dropped columns that nothing promises up to `t`."""
        boxes: list[Box] = [{name: steps.spans(t)} for one in together for name, steps in one.steps.items()]
        if sum(len(one.boxes) for one in together) <= _BOXES:
            boxes += [box for one in together for box, s in one.boxes if s >= t]
        lowest = {n: lowest_key(order_of(self.schema.field(n).type)) for box in boxes for n in box}
        return uncovered(boxes, lowest, self._never_null)

    def _renamed(self, match: Iterable[tuple[str, AttributePattern]], t: int) -> Punctuation:
        return Punctuation({name: pattern for given, pattern in match for name in self._kept[given]}, t)


def _each(patterns: Mapping[str, AttributePattern]) -> Iterator[Match]:
    """Patterns on kept columns with their lists written out, unless these are long."""
    lists = {name: p.values for name, p in patterns.items() if isinstance(p, OneOf)}
    if prod(map(len, lists.values())) > _LISTED:
        yield tuple(patterns.items())
        return
    for combination in product(*lists.values()):
        constants = dict(zip(lists, combination, strict=True))
        yield tuple((name, OneOf((constants[name],)) if name in constants else p) for name, p in patterns.items())


def _state(spans: Spans) -> tuple[Any, ...]:
    return spans.lowest, spans.runs, spans.null, dict(spans.values)
