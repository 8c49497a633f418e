"""What a run said, and when: how late its answers were, what it took back, what it kept, and how right it ended up.

An answer is about a *key* and an instant.  It is first said at the end of the first epoch in which something is said
of both and the query has come to that instant (an open end says nothing yet of what is to come), and last changed at
the end of the last one.  An adjust is a *correction* if it changes an instant before the largest start that the query
had let in: closing an open piece at the present takes nothing back.  Two runs are compared by their histories, at every
instant: the share of rows in which they agree, and by how much an amount is off on the whole.

It measures what it is handed and runs nothing by itself but `follow`, which takes anything with `push` and `close`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.stream.element_batch import ADJUST, INSERT, ElementBatch
from scenarios.arrivals import Epoch, Scenario


class _Size(Protocol):
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class Runs(Protocol):
    """What `follow` can follow: a `LocalRuntime` with one query."""

    @property
    def tau(self) -> int: ...
    @property
    def dropped(self) -> Mapping[str, Mapping[Any, int]]: ...
    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]: ...
    def close(self) -> dict[str, ElementBatch]: ...
    def state_size(self) -> _Size: ...


@dataclass
class Account:
    """What one run said.  `changes` are signed segments (lo, hi, weight, epoch) of the rows in `table`.

    At each of its `moments` it had come to the instant in `reached`.
    """

    scenario: Scenario
    schema: Schema | None = None
    moments: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    elements: int = 0
    said: int = 0
    adjusts: int = 0
    corrections: int = 0
    dropped: int = 0
    peak_rows: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0
    _parts: list[np.ndarray] = field(default_factory=list)
    _rows: list[pa.Table] = field(default_factory=list)

    def take(self, now: int, out: ElementBatch, tau: int) -> None:
        """Note what was said at a moment; `tau` is the largest start that has been let in by now."""
        before = self.reached[-1] if self.reached else NEVER
        self.schema = out.schema
        self.moments.append(now)
        self.reached.append(max(before, tau))
        data = np.flatnonzero(out.op <= ADJUST)
        if not len(data):
            return
        op, vs, ve, vnew = (array[data] for array in (out.op, out.vs, out.ve, out.vnew))
        adjust = op == ADJUST
        lo = np.where(adjust, np.minimum(ve, vnew), vs)
        hi = np.where(adjust, np.maximum(ve, vnew), ve)
        weight = np.where(adjust & (vnew < ve), -1, 1)
        self.said += int((op == INSERT).sum())
        self.adjusts += int(adjust.sum())
        self.corrections += int((adjust & (lo < before)).sum())
        moment = np.full(len(lo), len(self.moments) - 1)
        self._parts.append(np.stack([lo, hi, weight, moment], axis=1))
        names = list(out.schema.names)
        self._rows.append(pa.table(list(out.columns), names).take(pa.array(data)))

    def keep(self, size: _Size) -> None:
        self.peak_rows, self.peak_bytes = max(self.peak_rows, size.rows), max(self.peak_bytes, size.bytes)

    @property
    def changes(self) -> np.ndarray:
        return np.concatenate(self._parts) if self._parts else np.empty((0, 4), np.int64)

    @property
    def table(self) -> pa.Table:
        assert self.schema is not None
        empty = pa.table([pa.array([], type_) for type_ in self.schema.types], list(self.schema.names))
        return pa.concat_tables([empty, *self._rows]).combine_chunks()


def follow(
    scenario: Scenario,
    runtime: Runs,
    epochs: Iterable[Epoch],
    clock: Callable[[], float] = time.process_time,
) -> Account:
    """Run a query over a scenario's epochs, to the end."""
    account = Account(scenario)
    now = 0
    for epoch in epochs:
        now = epoch.now
        began = clock()
        out = runtime.push(epoch.batches)
        account.seconds += clock() - began
        account.elements += epoch.elements
        account.take(now, next(iter(out.values())), runtime.tau)
        account.keep(runtime.state_size())
    began = clock()
    out = runtime.close()
    account.seconds += clock() - began
    account.take(now, next(iter(out.values())), runtime.tau)
    account.dropped = sum(sum(counts.values()) for counts in runtime.dropped.values())
    return account


@dataclass(frozen=True)
class Comparison:
    """One run beside the exact answer.

    `right`: of all rows and instants that either has, the share that both have.  `off`: how much amount is too much or
    too little, as a share of the exact amount.  `first` and `last`: ticks from an answer's instant to when it was first
    said and last changed, for the answers that were said at all; those at the end of the stream, where nobody waits any
    longer, are left out.
    """

    right: float
    off: float
    first: np.ndarray
    last: np.ndarray

    @property
    def latency(self) -> float:
        """Ticks until an answer is first said, on the average."""
        return float(self.first.mean()) if len(self.first) else 0.0

    def percentile(self, share: float, last: bool = False) -> float:
        waits = self.last if last else self.first
        return float(np.quantile(waits, share, method="lower")) if len(waits) else 0.0


def compare(account: Account, exact: Account, samples: int = 2_000, seed: int = 7) -> Comparison:
    """An account beside the one that is right: the same stream, with nothing given up."""
    scenario = account.scenario
    mine, right = account.changes, exact.changes
    rows = pa.concat_tables([account.table, exact.table])
    if not len(right):
        return Comparison(1.0 if not len(mine) else 0.0, 0.0, np.empty(0), np.empty(0))
    end = exact.moments[-1]
    both = np.concatenate([mine, right])
    exact_one = np.arange(len(both)) >= len(mine)
    row, key = _codes(rows, rows.column_names), _codes(rows, scenario.key)
    amount = np.ones(len(both), np.int64)
    if scenario.amount is not None:
        amount = rows[scenario.amount].to_numpy()

    found, wanted, lengths = _levels(row, both, both[:, 2], exact_one, end)
    agreed = (np.minimum(found, wanted) * lengths).sum()
    in_all = (np.maximum(found, wanted) * lengths).sum()
    found, wanted, lengths = _levels(key, both, both[:, 2] * amount, exact_one, end)
    missed, expected = (np.abs(found - wanted) * lengths).sum(), (np.abs(wanted) * lengths).sum()

    asked = np.flatnonzero(exact_one & (both[:, 2] > 0) & (both[:, 0] <= exact.reached[-1] - scenario.disorder))
    chosen = np.random.default_rng([seed]).choice(asked, min(samples, len(asked)), replace=False)
    first, last = _waits(key[~exact_one], mine, account, key[chosen], both[chosen, 0])
    return Comparison(float(agreed / max(in_all, 1)), float(missed / max(expected, 1)), first, last)


def _codes(rows: pa.Table, names: Iterable[str]) -> np.ndarray:
    """A number for each different row of these columns."""
    code = np.zeros(len(rows), np.int64)
    for name in names:
        encoded = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        values = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        code = np.unique(code * (int(values.max(initial=0)) + 1) + values, return_inverse=True)[1]
    return code


def _levels(
    code: np.ndarray, changes: np.ndarray, weight: np.ndarray, exact: np.ndarray, end: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Between any two edges of a code: the weight of the one, that of the exact one, and how long, before `end`."""
    at = np.minimum(np.concatenate([changes[:, 0], changes[:, 1]]), end)
    step = np.concatenate([weight, -weight])
    code, exact = np.concatenate([code, code]), np.concatenate([exact, exact])
    order = np.lexsort((at, code))
    at, step, code, exact = at[order], step[order], code[order], exact[order]
    lengths = np.append(np.where(code[1:] == code[:-1], at[1:] - at[:-1], 0), 0)
    return np.where(exact, 0, step).cumsum(), np.where(exact, step, 0).cumsum(), lengths


def _waits(
    key: np.ndarray, changes: np.ndarray, account: Account, asked: np.ndarray, instants: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each key and instant asked for: ticks until anything was said of it, and until the last was."""
    order = np.argsort(key, kind="stable")
    key, changes = key[order], changes[order]
    begins, ends = np.searchsorted(key, asked), np.searchsorted(key, asked, side="right")
    moments = np.asarray(account.moments)
    there = np.minimum(np.searchsorted(np.asarray(account.reached), instants), len(moments) - 1)
    first, last = list[int](), list[int]()
    for begin, end, t, since in zip(*(each.tolist() for each in (begins, ends, instants, there)), strict=True):
        part = changes[begin:end]
        covering = part[(part[:, 0] <= t) & (t < part[:, 1]), 3]
        if len(covering):
            first.append(max(int(moments[max(covering.min(), since)]) - t, 0))
            last.append(max(int(moments[max(covering.max(), since)]) - t, 0))
    return np.array(first, np.int64), np.array(last, np.int64)
