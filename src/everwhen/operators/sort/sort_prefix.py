"""init(Sort, ps) of Tucker (5.2): the part of a sort order, from its beginning on, of which everything is promised.

The order goes column by column, each rising or falling, nulls last.  `take` gets promises about the sort columns, for
all time; `covered` are promises that together say the prefix, or `everything`.  The beginning of a type counts: of an
unsigned hour [2, 4] promises no prefix, and with [0, 3] after it the prefix is [0, 4].  What is known of the first
value beyond the prefix of a column extends it by a prefix of the columns behind it.

Kept are the runs of values of the first column that are promised, and promises that bind several columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.punctuation.api import patterns_of, promises_of, promises_state
from everwhen.values.order import Kind, order_of
from everwhen.values.sets import Key, Run, Spans, range_of, spans_of, union

By = Sequence[tuple[str, bool]]


class SortPrefix:
    """See the module's docstring."""

    def __init__(self, by: By, schema: Schema) -> None:
        self._by = tuple(by)
        self._schema = schema
        self._type = schema.field(by[0][0]).type
        self._alone = spans_of(OneOf(()), self._type)
        self._several: list[Punctuation] = []
        self.everything = False
        self.covered: tuple[Punctuation, ...] = ()

    def take(self, promises: Iterable[Punctuation]) -> bool:
        """Whether the prefix has grown."""
        first, _ = self._by[0]
        runs: list[Run] = []
        null, more = self._alone.null, False
        for promise in promises:
            if not promise.match:
                self.everything = True
            elif set(promise.match) == {first}:
                spans = spans_of(promise.match[first], self._type)
                runs += spans.runs
                null |= spans.null
                more = True
            else:
                self._several.append(promise)
                more = True
        if self.everything:
            self._several, grown = [], self.covered != (Punctuation(),)
            self.covered = (Punctuation(),)
            return grown
        if not more:
            return False
        self._alone = Spans(self._alone.lowest, union((*self._alone.runs, *runs)), null)
        before, self.covered = self.covered, tuple(self._prefix())
        return self.covered != before

    def _prefix(self) -> list[Punctuation]:
        found, self._alone, whole = _prefix(self._by, self._alone, self._several, self._schema)
        if whole:
            self.everything, self._several = True, []
            return [Punctuation()]
        name = self._by[0][0]
        # what the first column alone says now need not be kept twice
        self._several = [p for p in self._several if not _within(p.match.get(name), self._alone, self._type)]
        return found

    @property
    def nbytes(self) -> int:
        return 200 * (len(self._alone.runs) + len(self._several))

    def snapshot(self) -> dict[str, Any]:
        name = self._by[0][0]
        alone = [Punctuation({name: pattern}) for pattern in patterns_of(self._alone, self._type)]
        return {"promises": promises_state((*alone, *self._several)), "everything": self.everything}

    def restore(self, state: dict[str, Any]) -> None:
        self.take(promises_of(state["promises"]))
        if state["everything"]:
            self.take([Punctuation()])


def _prefix(
    by: By, alone: Spans, several: Sequence[Punctuation], schema: Schema
) -> tuple[list[Punctuation], Spans, bool]:
    """Promises that say the prefix, what the first column alone is known to say now, and whether that is everything."""
    (name, down), rest = by[0], by[1:]
    type_ = schema.field(name).type
    while True:
        run = _first_run(alone, down)
        if run == (alone.lowest, None) and alone.null:
            return [Punctuation()], alone, True
        following = _following(alone, run, down, type_)
        inner: list[Punctuation] = []
        if rest and several and following is not None:
            value = range_of(following, _after(following, type_), type_)
            inner = [_without(p, name) for p in several if _has(p.match.get(name), following, type_)]
            found, whole = _of_rest(rest, inner, schema)
            if whole:
                alone = Spans(alone.lowest, union((*alone.runs, (following, _after(following, type_)))), alone.null)
                continue
            inner = [Punctuation({name: value, **promise.match}) for promise in found]
        return [*([] if run is None else [Punctuation({name: range_of(*run, type_)})]), *inner], alone, False


def _of_rest(by: By, promises: Sequence[Punctuation], schema: Schema) -> tuple[list[Punctuation], bool]:
    """The prefix of the columns behind one value of the first."""
    if any(not promise.match for promise in promises):
        return [Punctuation()], True
    name = by[0][0]
    type_ = schema.field(name).type
    alone, several = spans_of(OneOf(()), type_), []
    for promise in promises:
        if set(promise.match) == {name}:
            spans = spans_of(promise.match[name], type_)
            alone = Spans(alone.lowest, union((*alone.runs, *spans.runs)), alone.null or spans.null)
        else:
            several.append(promise)
    found, _, whole = _prefix(by, alone, several, schema)
    return found, whole


def _first_run(spans: Spans, down: bool) -> Run | None:
    """The values from the beginning of the order on."""
    if not spans.runs:
        return None
    run = spans.runs[-1] if down else spans.runs[0]
    return run if (run[1] is None if down else run[0] == spans.lowest) else None


def _following(spans: Spans, run: Run | None, down: bool, type_: Any) -> Key | None:
    """The first value beyond the run, where there is one that can be named."""
    order = order_of(type_)
    if not down:
        return spans.lowest if run is None else run[1]
    if order.kind is Kind.RANK:
        last = order.hi + 1 if run is None else run[0]
        return last - 1 if last > order.lo else None
    return None  # no text is the last one before another


def _after(key: Key, type_: Any) -> Key | None:
    """The key behind one key: the end of the run of that value alone."""
    order = order_of(type_)
    if order.kind is Kind.RANK:
        return None if key == order.hi else key + 1
    return key + b"\0"


def _has(pattern: AttributePattern | None, key: Key, type_: Any) -> bool:
    if pattern is None:
        return True
    return any(lo <= key and (hi is None or key < hi) for lo, hi in spans_of(pattern, type_).runs)


def _within(pattern: AttributePattern | None, spans: Spans, type_: Any) -> bool:
    return pattern is not None and spans_of(pattern, type_).within(spans)


def _without(promise: Punctuation, name: str) -> Punctuation:
    return Punctuation({other: pattern for other, pattern in promise.match.items() if other != name}, promise.t)
