"""Multisets of values per key over time, in the order of the values: how many there are, how many different ones, and
which stands at a position, at any instant from the CTI on.

This is the state of count distinct, median, quantile, top-k, first, last, and of min and max of values that are not
64-bit numbers.  Kept are, per key, the changes after the CTI and what is alive at a cursor (`kernels.cursor`): as many
values as there are rows at most, each different one once.  An instant is answered by letting the cursor go there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.errors import EverwhenError
from everwhen.model.arrays import grown
from everwhen.model.pool import Pool, is_pooled
from everwhen.model.rows import decode_column, encode_column
from everwhen.model.time import INF, NEVER
from everwhen.operators.base import StateSize
from everwhen.operators.kernels import counted_tree as tree
from everwhen.operators.kernels import cursor as kernel
from everwhen.operators.kernels.calendar import Calendar
from everwhen.operators.kernels.live import group_rows
from everwhen.operators.kernels.runs import LENGTH, Runs, resized
from everwhen.operators.value_ranks import ValueRanks

_NO_INTS: Final = np.empty(0, np.int64)
_FEW: Final = 1 << 10
"""So many free nodes are no reason to tidy."""


@dataclass(frozen=True, slots=True)
class Code:
    """One of the codes that make a value up, and its type (None: a number of our own).

    If it is not `ordered`, values are told from each other and that is all.
    """

    type: pa.DataType | None
    ordered: bool = True

    @property
    def pooled(self) -> bool:
        return self.type is not None and is_pooled(self.type)

    @property
    def kind(self) -> int:
        if self.type is None or not self.ordered:
            return tree.PLAIN
        if self.pooled:
            return tree.RANKED
        if pa.types.is_floating(self.type):
            return tree.FLOAT
        unsigned = pa.types.is_unsigned_integer(self.type) and self.type.bit_width == 64
        return tree.UNSIGNED if unsigned else tree.PLAIN


class OrderStatistics:
    """The values of keys, each made up of `codes`; ids are given by whoever owns the keys."""

    def __init__(self, codes: Sequence[Code], pool: Pool) -> None:
        self._codes = tuple(codes)
        self._dictionaries = pool
        width = tree.CODES + len(codes)
        self._runs = Runs(width)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)
        self._trees = self._no_trees(64)
        self._nodes = np.empty((tree.FANOUT * 64, width), np.int64)
        self._fill = np.zeros(64, np.int64)
        self._book = np.array([-1, 0, 0], np.int64)
        self._old = np.empty((64, width), np.int64)
        self._scratch = np.empty(len(codes), np.int64), np.empty((2, tree.DEEPEST), np.int64)
        self._ranks = {c: ValueRanks(pool.dictionary(code.type)) for c, code in self._ranked()}
        self._pooled = [(tree.CODES + c, code.type) for c, code in enumerate(codes) if code.pooled]
        self._held: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self._orders = self._order()
        self.cti = NEVER
        if self._pooled:
            pool.register(self)

    def _ranked(self) -> Iterable[tuple[int, Code]]:
        return ((c, code) for c, code in enumerate(self._codes) if code.kind == tree.RANKED)

    def _order(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How codes compare: their kinds, and where the ranks of each begin."""
        labels = [self._ranks[c].labels if c in self._ranks else _NO_INTS for c in range(len(self._codes))]
        first = np.cumsum([0, *map(len, labels[:-1])])
        return np.array([code.kind for code in self._codes], np.int64), first, np.concatenate(labels)

    @staticmethod
    def _no_trees(size: int) -> np.ndarray:
        trees = np.zeros((size, tree.RECORD), np.int64)
        trees[:, tree.ROOT], trees[:, tree.TIME] = -1, NEVER
        return trees

    @property
    def _forest(self) -> tuple[np.ndarray, ...]:
        return self._trees, self._nodes, self._fill, self._book, *self._scratch

    def grow(self, capacity: int) -> None:
        self._runs.grow(capacity)
        self._ends.grow(capacity)
        if capacity > len(self._trees):
            more = max(capacity, 2 * len(self._trees))
            self._trees = np.concatenate([self._trees, self._no_trees(more - len(self._trees))])
            self._slot = grown(self._slot, more, -1)

    def _driven(self, loop: Callable[..., tuple[int, ...]], until: int, *given: Any) -> None:
        """Call a loop until it is through, giving it the room that it asks for."""
        at = 0
        while at < until:
            at, why, wanted = loop(at, self._forest, self._orders, *given)
            self._give(why, wanted)

    def _give(self, why: int, wanted: int) -> None:
        if why == kernel.MISSING:
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )
        if why == kernel.NODES:
            used = self._book[tree.END]
            self._nodes = resized(self._nodes, (used + tree.DEEPEST) * tree.FANOUT, used * tree.FANOUT)
            self._fill = grown(self._fill, len(self._nodes) // tree.FANOUT, 0)
        elif why == kernel.RUNS:
            self._runs.reserve(wanted)
        elif why == kernel.SCRATCH:
            self._old = np.empty((2 * wanted, self._old.shape[1]), np.int64)

    def _note(self, codes: np.ndarray, first: int = 0) -> None:
        """Let all codes have a rank that need one; they stand in columns from `first` on."""
        news = [ranks.note(codes[:, first + c]) for c, ranks in self._ranks.items()]
        if any(news):
            self._orders = self._order()

    def apply(self, ids: np.ndarray, lo: np.ndarray, hi: np.ndarray, weight: np.ndarray, codes: np.ndarray) -> None:
        """Add signed segments."""
        if not len(ids):
            return
        self._note(codes)
        keys, offsets, starts = group_rows(ids, self._slot)
        ends = starts.copy()
        segments = lo, hi, weight, codes, np.empty(len(ids), np.int64)
        runs, at = self._runs, 0
        while at < len(keys):
            at, why, wanted, runs.end = kernel.take(
                at, keys, offsets, starts, ends, segments, runs.place, runs.pool, runs.free, runs.end, self._forest,
                self._orders, self._old, self._ends.due, self._ends.block,
            )  # fmt: skip
            self._give(why, wanted)

    def ask(
        self, keys: np.ndarray, times: np.ndarray, quantiles: np.ndarray, newest: bool = False, top: int = 0
    ) -> np.ndarray:
        """What `kernels.cursor.ask` gives, zeros where there is nothing; instants are grouped by key, in order."""
        codes, runs = len(self._codes), self._runs
        out = np.zeros((len(keys), 2 + (codes + 1) * len(quantiles) + codes * newest + top), np.int64)
        self._driven(
            lambda at, *given: kernel.ask(at, keys, times, quantiles, newest, top, runs.place, runs.pool, *given),
            len(keys),
            out,
        )
        return out

    def expire(self, cti: int) -> None:
        """Forget what was before `cti`."""
        self.cti = cti
        if cti == INF:
            self._runs.clear()
            self._trees = self._no_trees(len(self._trees))
            self._clear_nodes()
            return
        keys = self._ends.before(cti + 1)
        if len(keys):
            self._fold(keys, _NO_INTS)

    def expire_keys(self, keys: np.ndarray, until: np.ndarray) -> None:
        """Forget what was before the time that is promised for its key."""
        if len(keys):
            self._fold(keys, until)

    def _fold(self, keys: np.ndarray, until: np.ndarray) -> None:
        runs, ends = self._runs, self._ends
        self._driven(
            lambda at, *given: kernel.fold(at, keys, self.cti, until, runs.place, runs.pool, *given),
            len(keys),
            ends.due,
            ends.block,
        )
        runs.release(keys[runs.place[keys, LENGTH] == 0])
        if runs.crowded:
            runs.tidy()
        if self._book[tree.SPARE] > max(_FEW, self._book[tree.END] // 2):
            self._plant(*self._dumped())

    def _clear_nodes(self) -> None:
        self._book[:] = -1, 0, 0

    def _dumped(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All that is alive at the cursors: the keys, where the values of each begin, and these."""
        keys = np.flatnonzero(self._trees[:, tree.DISTINCT])
        return keys, *self._values(keys)

    def _values(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets = np.concatenate([[0], np.cumsum(self._trees[keys, tree.DISTINCT])])
        values = np.zeros((int(offsets[-1]), self._nodes.shape[1]), np.int64)
        kernel.dump(keys, self._forest, values)
        return offsets, values

    def _plant(self, keys: np.ndarray, offsets: np.ndarray, values: np.ndarray) -> None:
        """Make all trees anew: these are their values."""
        self._clear_nodes()
        self._trees[:, [tree.ROOT, tree.HEIGHT, tree.TOTAL, tree.DISTINCT]] = -1, 0, 0, 0
        nodes = 2 * len(values) // tree.FANOUT + 64
        self._nodes = np.empty((nodes * tree.FANOUT, self._nodes.shape[1]), np.int64)
        self._fill = np.zeros(nodes, np.int64)
        self._driven(lambda at, *given: kernel.load(at, keys, offsets, values, *given), len(values))

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._runs.tidy()  # what is left has codes in use
        self._held = self._dumped()
        return [(self._runs.pool[: self._runs.end], self._pooled), (self._held[2], self._pooled)]

    def recoded(self) -> None:
        """Codes are others, in the same order; ranks are made anew."""
        assert self._held is not None
        for ranks in self._ranks.values():
            ranks.clear()
        for matrix in (self._runs.pool[: self._runs.end], self._held[2]):
            self._note(matrix, tree.CODES)
        self._orders = self._order()
        self._plant(*self._held)
        self._held = None

    def state_size(self) -> StateSize:
        """Each value that is kept counts one row."""
        runs, used = self._runs, int(self._book[tree.END] - self._book[tree.SPARE])
        ids = np.flatnonzero((runs.place[: len(self._trees), LENGTH] != 0) | (self._trees[: len(runs.place), 0] >= 0))
        nodes = used * (tree.FANOUT * self._nodes.shape[1] + 1) * 8
        rows = int(kernel.rows(ids, runs.place, runs.pool, self._trees))
        return StateSize(rows, runs.nbytes + nodes + self._trees.nbytes + self._ends.nbytes)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self, ids: np.ndarray) -> dict[str, Any]:
        changes, offsets = self._runs.gather(ids)
        starts, values = self._values(ids)
        return {
            "cti": self.cti, "times": self._trees[ids, tree.TIME], "offsets": offsets,
            "changes": changes[:, : tree.CODES].copy(), "codes": self._decoded(changes),
            "starts": starts, "weights": values[:, 0].copy(), "values": self._decoded(values),
        }  # fmt: skip

    def restore(self, ids: np.ndarray, state: dict[str, Any]) -> None:
        self.cti = state["cti"]
        changes = np.concatenate([state["changes"], self._encoded(state["codes"])], axis=1)
        weights = np.zeros((len(state["weights"]), tree.CODES), np.int64)
        weights[:, 0] = state["weights"]
        values = np.concatenate([weights, self._encoded(state["values"])], axis=1)
        self._note(changes, tree.CODES)
        self._note(values, tree.CODES)
        self._runs.put(ids, state["offsets"], changes)
        self._plant(ids, state["starts"], values)
        self._trees[ids, tree.TIME] = state["times"]
        kernel.caught_up(ids, self._runs.place, self._runs.pool, self._trees)
        self._fold(ids, _NO_INTS)

    def _decoded(self, rows: np.ndarray) -> list[Any]:
        """The columns of codes; a number of our own says whether what follows is there."""
        found: list[Any] = []
        valid = None
        for c, code in enumerate(self._codes):
            column = rows[:, tree.CODES + c].copy()
            if code.type is None:
                valid = column != 0
                found.append(column)
            else:
                found.append(decode_column(column, valid, code.type, self._dictionaries))
        return found

    def _encoded(self, columns: Sequence[Any]) -> np.ndarray:
        found: list[np.ndarray] = []
        valid = None
        for code, column in zip(self._codes, columns, strict=True):
            if code.type is None:
                found.append(column)
                valid = column != 0
            else:
                codes = encode_column(column, code.type, self._dictionaries)
                found.append(codes if valid is None else np.where(valid, codes, 0))
        return np.stack(found, axis=1)
