"""The head of a MIN or MAX loop: per key the best derivable value.

Each key has *candidates*, values with the birth of their youngest premise, and what is said of it: a value with its
birth.  A value goes when no candidate of that value is older than it; then the best candidate comes where it is better
than what is said.  Births are what keeps a cycle without weights from supporting itself.

Values are compared as ranks: 64-bit integers in whose order the smallest is the best, a null the worst.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.containers.regions import Regions
from everwhen.errors import EvaluationError, EverwhenError, QueryError
from everwhen.operators.loop import best_loops as kernel
from everwhen.operators.loop.best_loops import CANDIDATE, HI, LO, NOT_THERE, RANK, SAID, WORSE
from everwhen.operators.loop.head import split_birth
from everwhen.operators.loop.keyed_head import NO_INTS, KeyedHead
from everwhen.operators.loop.support_loops import INSERT
from everwhen.rows import restored
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import BITS, RowCodec
from everwhen.rows.interner import is_pooled

_WORST: Final = np.int64(2**63 - 1)
"""The rank of a null."""
_SIGN: Final = np.int64(-(2**63))
_MAGNITUDE: Final = np.int64(2**63 - 1)


class Ranks:
    """Codes of values of a type as ranks, and back; `largest`: the largest value is the best."""

    def __init__(self, type_: pa.DataType, largest: bool) -> None:
        if is_pooled(type_):
            raise QueryError(
                f"a recursion keeps the best value of numbers and times, not of {type_}; cast it to a number"
            )
        self._float = pa.types.is_floating(type_)
        self._unsigned = pa.types.is_unsigned_integer(type_) and type_.bit_width == 64
        self._largest = largest

    def of(self, codes: np.ndarray) -> np.ndarray:
        """Ranks of codes."""
        if self._float:
            codes = np.where(codes >= 0, codes, codes ^ _MAGNITUDE)
        elif self._unsigned:
            codes = codes ^ _SIGN
        ranks = ~codes if self._largest else codes
        if len(ranks) and (ranks == _WORST).any():
            raise EvaluationError("the worst value that its type has cannot be the value of a recursion")
        return ranks

    def codes(self, ranks: np.ndarray) -> np.ndarray:
        """Codes of ranks."""
        codes = ~ranks if self._largest else ranks
        if self._float:
            return np.where(codes >= 0, codes, codes ^ _MAGNITUDE)
        return codes ^ _SIGN if self._unsigned else codes


class BestHead(KeyedHead):
    """Keys with their candidates and what is said of them."""

    keeps = "per key its candidates and its best value, until ve ≤ c"
    counts = "births: a value needs a candidate older than itself"

    def __init__(self, codec: RowCodec, sent: RowCodec, keys: RowCodec, value: str, largest: bool) -> None:
        self._candidates = Regions(CANDIDATE)
        self._said = Regions(SAID)
        super().__init__(codec, sent, keys, [self._candidates, self._said])
        self._value = codec.schema.index(value)
        self._key_at = [j for j in range(len(codec.schema)) if j != self._value]
        self._key_codec = keys
        self._ranks = Ranks(codec.schema.types[self._value], largest)

    def _take(self, derived: Changes, phase: int) -> Changes:
        rows, premise = split_birth(self.codec, derived.rows)
        codes = np.ascontiguousarray(rows[:, self.codec.words + self._value])
        valid = self.codec.valid(rows, self._value)
        if valid is None:
            ranks = self._ranks.of(codes)
        else:
            ranks = np.full(len(codes), _WORST)
            ranks[valid] = self._ranks.of(codes[valid])
        grouped = self._grouped(self.codec.select(rows, self._key_at, self._key_codec))
        found = np.stack([derived.lo, derived.hi, ranks, premise, derived.weight], axis=1)
        return self._visit(*grouped, found, phase)

    def _come(self, ids: np.ndarray) -> Changes:
        nothing = np.zeros(len(ids) + 1, np.int64)
        return self._visit(ids, nothing, NO_INTS, np.empty((0, CANDIDATE), np.int64), INSERT)

    def _visit(
        self, keys: np.ndarray, given: np.ndarray, order: np.ndarray, derived: np.ndarray, phase: int
    ) -> Changes:
        old, offsets = self._candidates.gather(keys)
        said, said_offsets = self._said.gather(keys)
        new, ends, told, told_ends, sent, due, verdict = kernel.take(
            old, offsets, said, said_offsets, given, order, derived, phase, self._round, self._promise
        )
        if verdict == NOT_THERE:
            raise EverwhenError("a change takes back a derivation that is not there: the loop's input is not valid")
        if verdict == WORSE:
            raise EvaluationError(
                "a better value of one key has made that of another worse: the step of a recursion with MIN or MAX "
                "must be monotone in the value"
            )
        self._candidates.put(keys, ends, new)
        self._said.put(keys, told_ends, told)
        self._visited(keys, due)
        if not len(sent):
            return no_changes(self.sent)
        lo, hi, weight, rank, birth = (np.ascontiguousarray(sent[:, column]) for column in range(1, 6))
        rows = np.zeros((len(sent), self.sent.width), np.int64)
        self._fill(rows, self.sent, keys[sent[:, 0]], rank)
        rows[:, -1] = birth
        return Changes(self.sent, lo, hi, weight, rows)

    def _fill(self, rows: np.ndarray, codec: RowCodec, ids: np.ndarray, ranks: np.ndarray) -> None:
        """Write keys and values into the first columns of rows."""
        keys, source = self._keys.codes[ids], self._key_codec
        for at, j in enumerate(self._key_at):
            rows[:, codec.words + j] = keys[:, source.words + at]
            rows[:, j // BITS] |= ((keys[:, at // BITS] >> (at % BITS)) & 1) << (j % BITS)
        null = ranks == _WORST
        j = self._value
        rows[:, codec.words + j] = np.where(null, 0, self._ranks.codes(ranks))
        rows[:, j // BITS] |= null.astype(np.int64) << (j % BITS)

    def answer(self, sent: Changes) -> Changes:
        return sent.with_rows(self.codec, split_birth(self.codec, sent.rows)[0])

    def standing(self) -> Changes:
        ids = self._keys.ids()
        said, offsets = self._said.gather(ids)
        rows = np.zeros((len(said), self.codec.width), np.int64)
        self._fill(rows, self.codec, np.repeat(ids, np.diff(offsets)), said[:, RANK])
        lo, hi = (np.ascontiguousarray(said[:, column]) for column in (LO, HI))
        return Changes(self.codec, lo, hi, np.ones(len(lo), np.int64), rows)

    def snapshot(self) -> dict[str, Any]:
        ids = self._keys.ids()
        candidates, offsets = self._candidates.gather(ids)
        said, said_offsets = self._said.gather(ids)
        due = np.concatenate(self._due) if self._due else NO_INTS
        return {
            "keys": self._key_codec.decode(self._keys.codes[ids]), "candidates": candidates, "offsets": offsets,
            "said": said, "said_offsets": said_offsets, "due": np.isin(ids, due), "round": self._round,
            "promise": self._promise,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        n = len(state["offsets"]) - 1
        restored.runs(np.arange(n), state["offsets"], state["candidates"], CANDIDATE)
        restored.runs(np.arange(n), state["said_offsets"], state["said"], SAID)
        ids = self._keys.intern(restored.rows(self._key_codec, state["keys"], n))
        self._grow()
        self._candidates.put(ids, state["offsets"], state["candidates"])
        self._said.put(ids, state["said_offsets"], state["said"])
        self._round, self._promise = state["round"], state["promise"]
        self._schedule(ids)
        waiting = ids[state["due"]]
        self._due = [waiting] if len(waiting) else []
