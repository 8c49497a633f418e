"""Promises over an input's columns as promises over some of them (first form)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from everwhen.model.pattern_algebra import simplified_promise
from everwhen.model.punctuation import AttributePattern, Promise
from everwhen.model.schema import Schema
from everwhen.model.time import NEVER
from everwhen.model.value_spans import Spans, spans_of, union

Kept = tuple[tuple[str, AttributePattern], ...]


class Projection:
    """Promises over some columns, renamed."""

    def __init__(self, schema: Schema, kept: Mapping[str, Sequence[str]], never_null: Collection[str] = ()) -> None:
        self.schema = schema
        self._kept = {name: tuple(names) for name, names in kept.items() if names}
        self._never_null = frozenset(never_null)
        self._partial: dict[tuple[Kept, str], list[tuple[AttributePattern, int]]] = {}
        self._said: dict[tuple[Kept, str], int] = {}

    def take(self, fresh: Iterable[Promise]) -> list[Promise]:
        """What follows for the kept columns."""
        out = []
        for given in fresh:
            p = simplified_promise(given, self.schema)
            if p is None:
                continue
            dropped = [name for name in p.match if name not in self._kept]
            kept: Kept = tuple(sorted((n, q) for n, q in p.match.items() if n in self._kept))
            if not dropped:
                out.append(self._renamed(kept, p.t))
            elif len(dropped) == 1:
                key = (kept, dropped[0])
                self._partial.setdefault(key, []).append((p.match[dropped[0]], p.t))
                t = self._covered(key)
                if t > self._said.get(key, NEVER):
                    self._said[key] = t
                    out.append(self._renamed(kept, t))
        return out

    def _covered(self, key: tuple[Kept, str]) -> int:
        type_ = self.schema.field(key[1]).type
        found = [(spans_of(pattern, type_), t) for pattern, t in self._partial[key]]
        for t in sorted({t for _, t in found}, reverse=True):
            parts = [spans for spans, s in found if s >= t]
            null = any(s.null for s in parts) or key[1] in self._never_null
            whole = Spans(parts[0].lowest, union(run for s in parts for run in s.runs), null)
            if whole.complete:
                return t
        return NEVER

    def _renamed(self, kept: Kept, t: int) -> Promise:
        return Promise({name: pattern for n, pattern in kept for name in self._kept[n]}, t)

    def __len__(self) -> int:
        return sum(map(len, self._partial.values()))

    @property
    def nbytes(self) -> int:
        return 200 * len(self)

    def snapshot(self) -> Any:
        return [dict(self._partial), dict(self._said)]

    def restore(self, state: Any) -> None:
        self._partial, self._said = dict(state[0]), dict(state[1])
