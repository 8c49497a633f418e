"""AUDIT: do the inputs of a merge say the same, once it is final?

Application time is cut into spans of `SPAN` ticks.  An edge is an instant at which a row comes (+) or goes (-); a
segment `w·[lo, hi)` has two.  The fingerprint of a span is the sum, over the edges in it, of

    ± w · hash(row) · (ticks until the span ends, times a constant, plus 1)        modulo 2^64

It follows from the snapshots alone, however lifetimes are cut, and it is linear: what is corrected is subtracted.  The
first part is the sum of hash(row) × duration in the span, beyond that of the rows alive at its start; the second
one is the sum of hash(row) at its end, beyond the same.  So inputs with equal fingerprints in all spans say
the same everywhere, and one that begins late is compared from the first span on that it knows whole.

When an input's promise passes a span, its fingerprint is final.  The first one is kept, and each later one is compared
with it.  A difference is an error that names both inputs and the span; the step then changes nothing.  Kept are, per
input, the spans from its promise on in which something begins or ends, and the final ones between the slowest input and
the fastest.  Different histories have the same fingerprint by chance once in 2^64 spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF, NEVER, show
from everwhen.errors import InputError
from everwhen.operators.contract import StateSize
from everwhen.operators.merge.row_hash_loops import hash_bytes, hash_words
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.dictionary import freeze

SPAN: Final = 1000
"""Ticks of a span."""
_PER_TICK: Final = np.uint64(0x9E3779B97F4A7C15)
_NO_SPANS: Final = np.empty(0, np.int64)
_NO_SUMS: Final = np.empty(0, np.uint64)


class _Spans:
    """Fingerprints by the number of their span, in order; one that is missing is zero."""

    def __init__(self, at: np.ndarray = _NO_SPANS, sums: np.ndarray = _NO_SUMS) -> None:
        self.at, self.sums = at, sums

    def plus(self, at: np.ndarray, sums: np.ndarray) -> _Spans:
        both, inverse = np.unique(np.concatenate([self.at, at]), return_inverse=True)
        total = np.zeros(len(both), np.uint64)
        np.add.at(total, inverse, np.concatenate([self.sums, sums]))
        some = total != 0
        return _Spans(both[some], total[some])

    def between(self, first: int, end: int) -> _Spans:
        part = slice(*np.searchsorted(self.at, [first, end]).tolist())
        return _Spans(self.at[part], self.sums[part])

    def minus(self, other: _Spans) -> _Spans:
        return self.plus(other.at, np.uint64(0) - other.sums)

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"at": self.at, "sums": self.sums.view(np.int64)}

    @classmethod
    def restored(cls, state: dict[str, np.ndarray]) -> _Spans:
        restored.ints(len(state["at"]), state["at"], state["sums"])
        if (np.diff(state["at"]) <= 0).any():
            raise restored.misfit("spans of an audit are not in order")
        return cls(state["at"], state["sums"].view(np.uint64))


class Audit:
    """The fingerprints of n inputs, each right from its `since` on."""

    def __init__(self, codec: RowCodec, since: Sequence[int], names: Sequence[str]) -> None:
        self._codec = codec
        self._names = list(names)
        self._first = [_first(each) for each in since]  # per input the first span that has not been compared
        self._spans = [_Spans() for _ in since]  # and its fingerprints from there on
        self._final = _Spans()  # what the first input has said that was there,
        self._said: list[tuple[int, int]] = []  # and which one that was: before this span, this input
        self._until = min(self._first)  # the first span that nobody has promised

    def begin(self, port: int, since: int) -> None:
        """A new input is there; it is compared from `since` on."""
        self._first[port], self._spans[port] = _first(since), _Spans()

    def add(self, name: str) -> None:
        """One more input, which begins later (`begin`)."""
        self._names.append(name)
        self._first.append(INF)
        self._spans.append(_Spans())

    def skip(self, port: int, until: int) -> None:
        """The input has left out what is before `until`: there it is not compared."""
        self._first[port] = max(_first(until), self._first[port])
        self._spans[port] = self._spans[port].between(self._first[port], INF)

    def step(self, inputs: Sequence[Changes], promises: Sequence[int], ended: Sequence[bool]) -> None:
        """Take an epoch's changes; what has become final is compared."""
        first, spans = list(self._first), list(self._spans)
        final, said, until = self._final, list(self._said), self._until
        for port, batch in enumerate(inputs):
            if ended[port]:
                continue
            if len(batch):
                at, sums = self._edges(batch)
                known = at >= first[port]
                spans[port] = spans[port].plus(at[known], sums[known])
            reached = INF if promises[port] == INF else promises[port] // SPAN if promises[port] != NEVER else NEVER
            if reached <= first[port]:
                continue
            if first[port] > until:  # it begins later than what is known
                if any(at <= until and not over for at, over in zip(first, ended, strict=True)):
                    continue  # who knows what is before it comes first
                until = first[port]
            known_until = min(reached, until)
            if known_until > first[port]:
                self._compare(
                    port, spans[port].between(first[port], known_until), first[port], known_until, final, said
                )
            if reached > until:
                new = spans[port].between(max(until, first[port]), reached)
                final, until = final.plus(new.at, new.sums), reached
                said.append((until, port))
            first[port], spans[port] = reached, spans[port].between(reached, INF)
        alive = [at for at, over in zip(first, ended, strict=True) if not over]
        slowest = min(alive, default=INF)
        self._first, self._spans, self._until = first, spans, until
        self._final = final.between(slowest, INF)
        self._said = [each for each in said if each[0] > slowest]

    def _compare(
        self, port: int, mine: _Spans, first: int, end: int, final: _Spans, said: list[tuple[int, int]]
    ) -> None:
        wrong = mine.minus(final.between(first, end)).at
        if not len(wrong):
            return
        span = int(wrong[0])
        other = next(each for until, each in said if until > span)
        raise InputError(
            f"AUDIT: {self._names[port]} and {self._names[other]} say different things between {show(span * SPAN)} "
            f"and {show((span + 1) * SPAN)}, and both have promised that it is final",
            remedy="copies of one stream must agree: compare the two there (everwhen diff), leave the wrong one out, "
            "or merge without AUDIT",
        )

    def _edges(self, batch: Changes) -> tuple[np.ndarray, np.ndarray]:
        """The spans of edges and what they add to them."""
        rows = np.ascontiguousarray(batch.rows[:, : self._codec.width])
        change = row_hashes(self._codec, rows) * batch.weight.astype(np.uint64)
        times, signed = np.concatenate([batch.lo, batch.hi]), np.concatenate([change, np.uint64(0) - change])
        finite = times != INF
        times, signed = times[finite], signed[finite]
        at = times // SPAN
        left = ((at + 1) * SPAN - times).astype(np.uint64)
        return at, signed * (left * _PER_TICK + np.uint64(1))

    def state_size(self) -> StateSize:
        spans = [*self._spans, self._final]
        return StateSize(0, sum(each.at.nbytes + each.sums.nbytes for each in spans))

    def snapshot(self) -> dict[str, Any]:
        return {
            "first": list(self._first),
            "spans": [each.snapshot() for each in self._spans],
            "final": self._final.snapshot(),
            "said": [list(each) for each in self._said],
            "until": self._until,
        }

    def restore(self, state: dict[str, Any]) -> None:
        if not len(state["first"]) == len(state["spans"]) == len(self._names):
            raise restored.misfit("an audit of other inputs")
        self._first = list(state["first"])
        self._spans = [_Spans.restored(each) for each in state["spans"]]
        self._final = _Spans.restored(state["final"])
        self._said = [(until, port) for until, port in state["said"]]
        self._until = state["until"]


def _first(since: int) -> int:
    """The first span that an input knows whole which is right from `since` on."""
    return since if since in (NEVER, INF) else -(-since // SPAN)


# -- hashes ------------------------------------------------------------------------------------------------------------


def row_hashes(codec: RowCodec, rows: np.ndarray) -> np.ndarray:
    """A hash per coded row by its values: the same in every process and after a restart, unlike codes of a pool.  A
    value of a pool is hashed once per batch."""
    words = rows.view(np.uint64).copy()
    for column, type_ in codec.pooled:
        codes, of = np.unique(rows[:, column], return_inverse=True)
        values = codec.pool.dictionary(type_).decode(codes, None)
        words[:, column] = _value_hashes(values, type_)[of]
        missing = codec.valid(rows, column - codec.words)
        if missing is not None:
            words[~missing, column] = 0  # the mask says so already
    out = np.empty(len(rows), np.uint64)
    hash_words(words, out)
    return out


def _value_hashes(values: pa.Array, type_: pa.DataType) -> np.ndarray:
    out = np.empty(len(values), np.uint64)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32, values.offset + len(values) + 1)[values.offset :]
        hash_bytes(bounds, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), out)
        return out
    texts = (repr(freeze(value)).encode() for value in values.to_pylist())  # decimals, nested values
    return np.array([int.from_bytes(blake2b(text, digest_size=8).digest(), "little") for text in texts], np.uint64)
