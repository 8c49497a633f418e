"""What a join does with promises about data.

    keep       a row goes when the other side has promised its key for as long as the row lives (Table 4, join)
    propagate  what both sides have promised (each by a pattern or by its time), and what one side has promised alone,
               as soon as no row is kept that matches it and lives before the promised time (Table 3, join): only such
               a row could still meet a new partner

Both key columns have the same value in every answer, so a promise about one is said about the other, too: whoever reads
the answer may keep only one of them.

Kept are both sides' promises about keys, for rows still to come, and those that wait for kept rows to go: by the number
of their key where they are constants of it, which rows are kept by, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.operators.key_frontiers import constant_keys, upto
from everwhen.punctuation.api import (
    Intersection,
    Projection,
    PunctuationStore,
    PunctuationTable,
    combine,
    joined,
    promises_of,
    promises_state,
    read_promises,
)
from everwhen.rows import restored
from everwhen.rows.codec import RowCodec

Blocks = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""(side, numbers of keys, times) -> whether a row with that key is kept that lives before the time."""
Kept = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""side -> starts and coded rows of what it keeps."""


_NO_INTS: Final = np.empty(0, np.int64)
SHORT: Final = 1 << 14
"""A range of so many whole numbers waits number by number."""


class JoinPromises:
    """The promises of one join.

    `at` are the positions of the key columns of both sides, `keys` numbers the keys that rows are kept by.
    """

    def __init__(
        self,
        sides: Sequence[RowCodec],
        at: Sequence[Sequence[int]],
        key_codec: RowCodec,
        keys: KeyTable,
        out: Schema,
    ) -> None:
        self._sides = sides
        self._key_codec = key_codec
        self._keys = keys
        self._no_keys = key_codec.empty()
        self._out = out
        self._keyed = len(at[0]) > 0
        self._whole = all(pa.types.is_integer(type_) for type_ in key_codec.schema.types)
        n = len(sides[0].schema)
        first = (out.names[:n], out.names[n:])
        self._names = [
            dict(zip(side.schema.names, names, strict=True)) for side, names in zip(sides, first, strict=True)
        ]
        self._key_names = [[side.schema.names[i] for i in some] for side, some in zip(sides, at, strict=True)]
        self._pairs = [(out.names[a], out.names[n + b]) for a, b in zip(*at, strict=True)]
        to_right, to_left = dict(self._pairs), {b: a for a, b in reversed(self._pairs)}
        self._one_to_one = len(to_right) == len(to_left) == len(self._pairs)
        self._on_left = [{name: to_left.get(new, new) for name, new in names.items()} for names in self._names]
        self._on_right = {name: to_right.get(name, name) for name in out.names}
        self._left_keys = [a for a, _ in self._pairs]
        self._others_than_keys = set(out.names) - set(self._left_keys)
        self._heard: frozenset[str] = frozenset()
        self._on = (True, True)  # whether what is said of keys is said of the left columns, and of the right ones
        self._to_keys = [
            Projection(side.schema, _kept(names)) for side, names in zip(sides, self._key_names, strict=True)
        ]
        self._about_keys = [PunctuationStore(key_codec.schema) for _ in sides]
        self._both = Intersection(out)
        self._waiting = [np.full(0, NEVER, np.int64) for _ in sides]  # by key: until when it is promised, but not said
        self._others = [PunctuationTable(side.schema) for side in sides]
        self._low = NEVER

    def heard(self, columns: Collection[str]) -> None:
        """Promises about these columns of the answer are of use to somebody.  A key's two columns have the same value,
        so what is said of one that nobody hears need not be said."""
        self._heard |= frozenset(columns)
        if self._pairs and self._one_to_one:
            left, right = (any(pair[which] in self._heard for pair in self._pairs) for which in (0, 1))
            self._on = (left or not right, right)

    @property
    def hears(self) -> frozenset[str]:
        return self._heard

    def idle(self, frontiers: Sequence[Frontier]) -> bool:
        """Whether nothing is promised, now or before."""
        return not (any(frontier.promises for frontier in frontiers) or len(self))

    def about_keys(self, frontiers: Sequence[Frontier]) -> list[PunctuationTable]:
        """What each side newly promises about keys; kept for the rows that the other side may still bring."""
        fresh = [PunctuationTable(self._key_codec.schema)] * 2
        if self._keyed:
            for side, frontier in enumerate(frontiers):
                if frontier.promises:
                    fresh[side] = self._to_keys[side].project(frontier.promises)
                    self._about_keys[side].add(fresh[side])
                self._about_keys[side].forget(frontier.time)
        return fresh

    def until(self, side: int, keys: np.ndarray) -> np.ndarray | None:
        """How long each of these coded keys is promised by a side; None: it has promised nothing about keys."""
        said = self._about_keys[side]
        return upto(said, self._key_codec, keys) if said else None

    def waits(self, ids: np.ndarray) -> np.ndarray:
        """Whether a promise about each of these keys waits."""
        found = np.zeros(len(ids), np.bool_)
        for waiting in self._waiting:
            known = ids < len(waiting)
            found[known] |= waiting[ids[known]] != NEVER
        return found

    def take(
        self,
        frontiers: Sequence[Frontier],
        blocks: Blocks,
        kept: Kept,
        died: Sequence[bool],
        freed: Sequence[np.ndarray],
    ) -> PunctuationTable:
        """The promises of the answer; rows that need not be kept have gone.

        `died`: rows of that side went with time, or may have; `freed`: the keys that the other side has promised, if
        some went by that.
        """
        low = min(frontier.time for frontier in frontiers)
        fresh = [self._read(frontier.promises, side) for side, frontier in enumerate(frontiers)]
        both = [
            Frontier(frontier.time, self._in_answer(said, side))
            for side, (frontier, said) in enumerate(zip(frontiers, fresh, strict=True))
        ]
        found = [self._both.intersect(both)]
        self._forget(low, found[0])
        for side, said in enumerate(fresh):
            if self._said_by_both(said, found[0], side):
                said = PunctuationTable(said.schema)
            rows, times, others = self._listed(said, self._key_names[side])
            again = died[side] or len(freed[side]) > 0
            if again:
                ids = self._looked_at_again(side, died[side], freed[side])
                rows = np.concatenate([rows, self._keys.codes[ids]])
                times = np.concatenate([times, self._waiting[side][ids]])
                self._waiting[side][ids] = NEVER
                others, self._others[side] = joined([others, self._others[side]]), PunctuationTable(said.schema)
            if len(rows):
                found.append(self._free_keys(side, rows, times, blocks))
            if others:
                found.append(self._free_others(side, others, kept))
        return self._said_twice(joined(found).narrowed(*fresh).united())

    def _said_by_both(self, said: PunctuationTable, both: PunctuationTable, side: int) -> bool:
        """Whether all that a side says both say for as long; only asked of constants of one column."""
        name, on_left = said.only_constants, both.only_constants
        if name is None or on_left is None or self._on_left[side][name] != on_left:
            return False
        one, two = said.constants[name], both.constants[on_left]
        if not isinstance(one.keys, np.ndarray) or len(one.times) != len(two.times):
            return False
        return bool((one.keys == two.keys).all() and (one.times == two.times).all())

    def _listed(self, said: PunctuationTable, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, PunctuationTable]:
        """The keys of which alone promises speak, coded, and until when they do; and the other promises."""
        if not self._keyed or not said or len(set(names)) < len(names):
            return self._no_keys, _NO_INTS, said
        return constant_keys(said, self._key_codec, names)

    def _read(self, promises: Sequence[Punctuation], side: int) -> PunctuationTable:
        """A side's promises; a short range of whole numbers that are keys is a list of them."""
        said = read_promises(promises, self._sides[side].schema)
        return said.spelled_out(self._key_names[side][0], SHORT) if self._whole and len(self._pairs) == 1 else said

    def _looked_at_again(self, side: int, died: bool, freed: np.ndarray) -> np.ndarray:
        """The keys of what waits for rows that may have gone: all, or those that were freed."""
        waiting = self._waiting[side]
        if died:
            return np.flatnonzero(waiting != NEVER)
        freed = freed[freed < len(waiting)]
        return freed[waiting[freed] != NEVER]

    def _free_keys(self, side: int, rows: np.ndarray, times: np.ndarray, blocks: Blocks) -> PunctuationTable:
        """What is promised of coded keys by one side, if no kept row holds it back; the rest waits."""
        ids = self._keys.find(rows)
        blocked = blocks(side, ids, times)
        if blocked.any():
            if len(self._waiting[side]) < self._keys.capacity:
                self._waiting[side] = grown(self._waiting[side], self._keys.capacity, NEVER)
            np.maximum.at(self._waiting[side], ids[blocked], times[blocked])
            rows, times = rows[~blocked], times[~blocked]
        names = [self._on_left[side][name] for name in self._key_names[side]]
        if not len(rows):
            return PunctuationTable(self._out)
        return PunctuationTable.of_keys(self._out, names, self._key_codec.decode(rows), times)

    def _free_others(self, side: int, others: PunctuationTable, kept: Kept) -> PunctuationTable:
        """Those of one side's other promises that no kept row holds back; the rest waits."""
        starts, rows = kept(side)
        free: list[Punctuation] = []
        held: list[Punctuation] = []
        for promise in others:
            waits = (upto([promise], self._sides[side], rows) > starts).any()
            (held if waits else free).append(promise)
        schema = self._sides[side].schema
        self._others[side] = joined([self._others[side], read_promises(held, schema)])
        return self._in_answer(read_promises(free, schema), side)

    def _forget(self, low: int, said: PunctuationTable) -> None:
        """What both sides have said, or time has passed, does not wait any more."""
        if any(map(len, self._waiting)):
            rows, times, _ = self._listed(said, self._left_keys)
            ids = self._keys.find(rows)
            for waiting in self._waiting:
                there = (ids >= 0) & (ids < len(waiting))
                over = there.copy()
                over[there] = waiting[ids[there]] <= times[there]
                waiting[ids[over]] = NEVER
                if low > self._low:
                    waiting[waiting <= low] = NEVER
        if any(self._others):
            together = PunctuationStore(self._out)
            together.add(said)
            for side, others in enumerate(self._others):
                left = [
                    promise
                    for promise in others.after(low)
                    if not (said and all(map(together.implies, self._in_answer([promise], side))))
                ]
                self._others[side] = read_promises(left, others.schema)
        self._low = low

    def _in_answer(self, promises: Sequence[Punctuation], side: int) -> PunctuationTable:
        """A side's promises with what they say about keys on the left columns: where two sides speak of different keys,
        nothing is said together."""
        said = read_promises(promises, self._sides[side].schema)
        if side == 0 or self._one_to_one:
            return said.renamed(self._on_left[side], self._out)
        found = said.renamed(self._names[side], self._out)
        return read_promises([both[0] for promise in found if (both := self._said_of_both(promise))], self._out)

    def _said_twice(self, said: PunctuationTable) -> PunctuationTable:
        """Promises with patterns about keys on the left columns, and the same on the right ones, as they are heard."""
        left, right = self._on
        if not said or not right:
            return said
        if not self._one_to_one:
            both = [each for promise in said for each in self._said_of_both(promise)]
            return read_promises(both, self._out).united()
        if not left:
            return said.renamed(self._on_right, self._out)
        _, of_keys = said.split(self._others_than_keys)
        return joined([said, of_keys.renamed(self._on_right, self._out)])

    def _said_of_both(self, promise: Punctuation) -> list[Punctuation]:
        """The same promise with all patterns about keys on the left columns, and on the right ones."""
        bound = [(a, b) for a, b in self._pairs if a in promise.match or b in promise.match]
        if not bound:
            return [promise]
        found = []
        for which in (0, 1):
            match = {
                name: pattern for name, pattern in promise.match.items() if all(name not in pair for pair in bound)
            }
            all_of: Punctuation | None = Punctuation(match, promise.t)
            for pair in bound:
                for name in pair:
                    if name in promise.match and all_of is not None:
                        part = Punctuation({pair[which]: promise.match[name]}, promise.t)
                        all_of = combine(all_of, part, self._out)
            if all_of is not None and all_of not in found:
                found.append(all_of)
        return found

    def __len__(self) -> int:
        return (
            len(self._both) + sum(map(len, self._about_keys)) + sum(map(len, self._others))
            + sum(map(len, self._to_keys)) + sum(int(np.count_nonzero(w != NEVER)) for w in self._waiting)
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        waiting = 200 * sum(map(len, self._others)) + sum(waiting.nbytes for waiting in self._waiting)
        return self._both.nbytes + sum(said.nbytes for said in self._about_keys) + waiting

    def snapshot(self) -> dict[str, Any]:
        waiting = [np.flatnonzero(each != NEVER) for each in self._waiting]
        return {
            "both": self._both.snapshot(),
            "to_keys": [each.snapshot() for each in self._to_keys],
            "about_keys": [each.snapshot() for each in self._about_keys],
            "waiting": [
                (self._key_codec.decode(self._keys.codes[ids]), each[ids])
                for ids, each in zip(waiting, self._waiting, strict=True)
            ],
            "others": [promises_state(each) for each in self._others],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Rows are kept again by then; keys that only promises know get their numbers here."""
        self._both.restore(state["both"])
        for side in (0, 1):
            self._to_keys[side].restore(state["to_keys"][side])
            self._about_keys[side].restore(state["about_keys"][side])
            columns, times = state["waiting"][side]
            if len(times):
                restored.ints(len(times), times)
                ids = self._keys.intern(restored.rows(self._key_codec, columns, len(times)))
                self._waiting[side] = np.full(self._keys.capacity, NEVER, np.int64)
                self._waiting[side][ids] = times
            self._others[side] = read_promises(promises_of(state["others"][side]), self._sides[side].schema)


def _kept(names: Sequence[str]) -> dict[str, list[str]]:
    """Column → the positions at which it stands among the keys, which are their names there."""
    kept: dict[str, list[str]] = {}
    for at, name in enumerate(names):
        kept.setdefault(name, []).append(str(at))
    return kept
