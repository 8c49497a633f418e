"""What a join does with promises about data.

    keep       a row goes when the other side has promised its key for as long as the row lives (Table 4, join)
    propagate  what both sides have promised (each by a pattern or by its time), and what one side has promised alone,
               as soon as no row is kept that matches it and lives before the promised time (Table 3, join): only such
               a row could still meet a new partner

Both key columns have the same value in every answer, so a promise about one is said about the other, too: whoever reads
the answer may keep only one of them.

Kept are both sides' promises about keys, for rows still to come, and those that wait for kept rows to go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.model.pattern_algebra import combine
from everwhen.model.promise_projection import Projection
from everwhen.model.promise_set import PromiseSet
from everwhen.model.punctuation import Frontier, OneOf, Promise, Range
from everwhen.model.rows import RowCodec
from everwhen.model.schema import Schema
from everwhen.model.time import NEVER
from everwhen.operators.promised import Meeting, coded_constants, compacted, constants, promised, renamed

Blocks = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""(side, coded keys, times) -> whether a row with that key is kept that lives before the time."""
Kept = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""side -> starts and coded rows of what it keeps."""


SHORT: Final = 1_000
"""A range of so many whole numbers waits number by number."""


class JoinPromises:
    """The promises of one join.  `keys` are the positions of the key columns of both sides."""

    def __init__(
        self, sides: Sequence[RowCodec], keys: Sequence[Sequence[int]], key_codec: RowCodec, out: Schema
    ) -> None:
        self._sides = sides
        self._key_codec = key_codec
        self._out = out
        self._keyed = len(keys[0]) > 0
        self._whole = all(pa.types.is_integer(type_) for type_ in key_codec.schema.types)
        n = len(sides[0].schema)
        first = (out.names[:n], out.names[n:])
        self._names = [
            dict(zip(side.schema.names, names, strict=True)) for side, names in zip(sides, first, strict=True)
        ]
        self._key_names = [[side.schema.names[at] for at in some] for side, some in zip(sides, keys, strict=True)]
        self._pairs = [(out.names[a], out.names[n + b]) for a, b in zip(*keys, strict=True)]
        self._to_right = dict(self._pairs)
        self._to_left = {b: a for a, b in reversed(self._pairs)}
        self._one_to_one = len(self._to_right) == len(self._to_left) == len(self._pairs)
        self._to_keys = [
            Projection(side.schema, _kept(names)) for side, names in zip(sides, self._key_names, strict=True)
        ]
        self._about_keys = [PromiseSet(key_codec.schema) for _ in sides]
        self._both = Meeting(out)
        self._waiting: tuple[dict[tuple[Any, ...], int], ...] = ({}, {})  # constants of the key, and until when
        self._others: tuple[list[Promise], ...] = ([], [])
        self._low = NEVER

    def idle(self, frontiers: Sequence[Frontier]) -> bool:
        """Whether there has never been a promise."""
        return not (any(frontier.promises for frontier in frontiers) or len(self))

    def about_keys(self, frontiers: Sequence[Frontier]) -> tuple[list[Promise], list[Promise]]:
        """What each side newly promises about keys; kept for the rows that the other side may still bring."""
        fresh: tuple[list[Promise], list[Promise]] = ([], [])
        if self._keyed:
            for side, frontier in enumerate(frontiers):
                if frontier.promises:
                    fresh[side].extend(self._to_keys[side].take(frontier.promises))
                    self._about_keys[side].add(fresh[side])
                self._about_keys[side].forget(frontier.time)
        return fresh

    def until(self, side: int, keys: np.ndarray) -> np.ndarray | None:
        """How long each of these coded keys is promised by a side; None: it has promised nothing about keys."""
        said = self._about_keys[side]
        return promised(said, self._key_codec, keys) if len(said) else None

    def take(
        self,
        frontiers: Sequence[Frontier],
        blocks: Blocks,
        kept: Kept,
        died: Sequence[bool],
        freed: Sequence[Sequence[Promise]],
    ) -> list[Promise]:
        """The promises of the answer; rows that need not be kept have gone.

        `died`: rows of that side went with time, or may have; `freed`: the other side's promises about keys by which
        some went.
        """
        low = min(frontier.time for frontier in frontiers)
        own = [self._on_left(f.promises, side) for side, f in enumerate(frontiers)]
        found = self._both.take([Frontier(f.time, tuple(said)) for f, said in zip(frontiers, own, strict=True)])
        self._forget(low, found)
        for side, frontier in enumerate(frontiers):
            waiting: dict[tuple[Any, ...], int] = {}
            others = []
            for promise in frontier.promises:
                rows = self._constants(promise, self._key_names[side]) if self._keyed else None
                if rows is None:
                    others.append(promise)
                else:
                    _raise(waiting, dict.fromkeys(rows, promise.t))
            if died[side] or freed[side]:
                _raise(waiting, self._looked_at_again(side, died[side], freed[side]))
                others = [*self._others[side], *others]
                self._others[side].clear()
            found += self._alone(side, waiting, others, blocks, kept)
        if self._one_to_one:  # fewer words first: then they are said of both
            found = list(compacted([left for promise in found for left in self._said_of_both(promise)[:1]], self._out))
            return [each for promise in found for each in self._said_of_both(promise)]
        return list(compacted([each for promise in found for each in self._said_of_both(promise)], self._out))

    def _looked_at_again(self, side: int, died: bool, freed: Sequence[Promise]) -> dict[tuple[Any, ...], int]:
        """What waits for rows that may have gone, and waits no more: all of it, or the keys that were freed."""
        waiting = self._waiting[side]
        keys: list[tuple[Any, ...]] = []
        for promise in freed:
            rows = self._constants(promise, self._key_codec.schema.names)
            if rows is None or len(rows) > len(waiting):
                died = True
                break
            keys += rows
        if died:
            keys = list(waiting)
        return {key: waiting.pop(key) for key in keys if key in waiting}

    def _constants(self, promise: Promise, names: Sequence[str]) -> list[tuple[Any, ...]] | None:
        """The keys that a promise speaks of, if it speaks of keys alone and of few: a short range of whole numbers is a
        list of them."""
        rows = constants(promise, names)
        if rows is not None or len(names) != 1 or len(promise.match) != 1 or not self._whole:
            return rows
        pattern = promise.match.get(names[0])
        if not isinstance(pattern, Range) or (pattern.ge is None and pattern.gt is None):
            return None
        low = pattern.ge if pattern.ge is not None else pattern.gt + 1
        if pattern.le is None and pattern.lt is None:
            return None
        high = pattern.le if pattern.le is not None else pattern.lt - 1
        return [(value,) for value in range(low, high + 1)] if high - low < SHORT else None

    def _alone(
        self, side: int, waiting: dict[tuple[Any, ...], int], others: list[Promise], blocks: Blocks, kept: Kept
    ) -> list[Promise]:
        """Those of one side's promises that no kept row holds back; the others wait."""
        found: list[Promise] = []
        if waiting:
            times = np.array(list(waiting.values()), np.int64)
            blocked = blocks(side, coded_constants(list(waiting), self._key_codec), times)
            names = [self._names[side][name] for name in self._key_names[side]]
            free: dict[int, list[Any]] = {}
            for (row, t), wait in zip(waiting.items(), blocked.tolist(), strict=True):
                if wait:
                    _raise(self._waiting[side], {row: t})
                elif len(row) == 1:
                    free.setdefault(t, []).append(row[0])
                else:
                    found.append(Promise.constants(dict(zip(names, row, strict=True)), t))
            found += [Promise({names[0]: OneOf(tuple(values))}, t) for t, values in free.items()]
        if others:
            starts, rows = kept(side)
            for promise in others:
                if (promised([promise], self._sides[side], rows) > starts).any():
                    self._others[side].append(promise)
                else:
                    found += renamed([promise], self._names[side])
        return found

    def _forget(self, low: int, said: Sequence[Promise]) -> None:
        """What both sides have said, or time has passed, does not wait any more."""
        together = PromiseSet(self._out)
        if any(self._others):
            together.add(said)
        for side in (0, 1):
            waiting, names = self._waiting[side], [self._names[side][name] for name in self._key_names[side]]
            names = [self._to_left.get(name, name) for name in names]
            for promise in said if waiting else ():
                for row in self._constants(promise, names) or ():
                    if waiting.get(row, NEVER) <= promise.t:
                        waiting.pop(row, None)
            if low > self._low:
                for row in [row for row, t in waiting.items() if t <= low]:
                    del waiting[row]
            self._others[side][:] = [
                p for p in self._others[side]
                if p.t > low and not (said and all(map(together.implies, self._on_left([p], side))))
            ]  # fmt: skip
        self._low = low

    def _on_left(self, promises: Sequence[Promise], side: int) -> list[Promise]:
        """A side's promises with what they say about keys on the left columns: where two sides speak of different keys,
        nothing is said together."""
        found = renamed(promises, self._names[side])
        if side == 0:
            return found
        if self._one_to_one:
            to_left = self._to_left
            return [Promise({to_left.get(n, n): pattern for n, pattern in p.match.items()}, p.t) for p in found]
        return [self._said_of_both(promise)[0] for promise in found if self._said_of_both(promise)]

    def _said_of_both(self, promise: Promise) -> list[Promise]:
        """The same promise with all patterns about keys on the left columns, and on the right ones."""
        if self._one_to_one:
            on_left, on_right = (
                self._to_right.keys() & promise.match.keys(),
                self._to_left.keys() & promise.match.keys(),
            )
            if not (on_left or on_right):
                return [promise]
            if not (on_left and on_right):
                there = self._to_right if on_left else self._to_left
                other = Promise({there.get(name, name): pattern for name, pattern in promise.match.items()}, promise.t)
                return [promise, other] if on_left else [other, promise]
        bound = [(a, b) for a, b in self._pairs if a in promise.match or b in promise.match]
        if not bound:
            return [promise]
        found = []
        for which in (0, 1):
            match = {
                name: pattern for name, pattern in promise.match.items() if all(name not in pair for pair in bound)
            }
            all_of: Promise | None = Promise(match, promise.t)
            for pair in bound:
                for name in pair:
                    if name in promise.match and all_of is not None:
                        all_of = combine(all_of, Promise({pair[which]: promise.match[name]}, promise.t))
            if all_of is not None and all_of not in found:
                found.append(all_of)
        return found

    def __len__(self) -> int:
        return (
            len(self._both) + sum(map(len, self._about_keys)) + sum(map(len, self._waiting))
            + sum(map(len, self._others)) + sum(map(len, self._to_keys))
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        waiting = 200 * (sum(map(len, self._waiting)) + sum(map(len, self._others)))
        return self._both.nbytes + sum(said.nbytes for said in self._about_keys) + waiting

    def snapshot(self) -> dict[str, Any]:
        return {
            "both": self._both.snapshot(),
            "to_keys": [each.snapshot() for each in self._to_keys],
            "about_keys": [each.snapshot() for each in self._about_keys],
            "waiting": [dict(each) for each in self._waiting],
            "others": [list(each) for each in self._others],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._both.restore(state["both"])
        for side in (0, 1):
            self._to_keys[side].restore(state["to_keys"][side])
            self._about_keys[side].restore(state["about_keys"][side])
            self._waiting[side].update(state["waiting"][side])
            self._others[side].extend(state["others"][side])


def _raise(waiting: dict[tuple[Any, ...], int], more: Mapping[tuple[Any, ...], int]) -> None:
    """Of two promises for the same constants the stronger one counts."""
    for row, t in more.items():
        waiting[row] = max(t, waiting.get(row, NEVER))


def _kept(names: Sequence[str]) -> dict[str, list[str]]:
    """Column → the positions at which it stands among the keys, which are their names there."""
    kept: dict[str, list[str]] = {}
    for at, name in enumerate(names):
        kept.setdefault(name, []).append(str(at))
    return kept
