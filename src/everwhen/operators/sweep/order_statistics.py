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

from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.live_runs import group_rows
from everwhen.containers.run_pool import LENGTH, Runs, resized
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.contract import StateSize
from everwhen.operators.sweep.loops import counted_tree as tree
from everwhen.operators.sweep.loops import cursor as kernel
from everwhen.operators.sweep.value_labels import Labels, RankedLabels, labels_of
from everwhen.rows import restored
from everwhen.rows.codec import decode_column, encode_column
from everwhen.rows.interner import Interner, is_pooled

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


def longer(array: np.ndarray, size: int, used: int) -> np.ndarray:
    """A copy of the first `used` entries with room for at least `size`, and for many more."""
    return resized(array[:, None], size, used)[:, 0]


class OrderStatistics:
    """The values of keys, each made up of `codes`; ids are given by whoever owns the keys."""

    _nodes: tuple[np.ndarray, np.ndarray, np.ndarray]
    _fill: np.ndarray
    _book: np.ndarray

    def __init__(self, codes: Sequence[Code], pool: Interner) -> None:
        self._codes = tuple(codes)
        self._dictionaries = pool
        width = tree.LABELS + len(codes)
        self._runs = Runs(width)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)
        self._trees = self._no_trees(64)
        self._forget_nodes(64)
        self._old = np.empty((64, width), np.int64)
        self._path = np.empty((2, tree.DEEPEST), np.int64)
        self._labels = [labels_of(code.type, code.ordered, pool) for code in codes]
        self._pooled = [(c, code.type) for c, code in enumerate(codes) if code.pooled]
        self._held: tuple[np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray] | None = None
        self.cti = NEVER
        if self._pooled:
            pool.register(self)

    @staticmethod
    def _no_trees(size: int) -> np.ndarray:
        trees = np.zeros((size, tree.RECORD), np.int64)
        trees[:, tree.ROOT], trees[:, tree.TIME] = -1, NEVER
        return trees

    @property
    def _forest(self) -> tuple[np.ndarray, ...]:
        return self._trees, *self._nodes, self._fill, self._book, self._path

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
            at, why, wanted = loop(at, self._forest, *given)
            self._give(why, wanted)

    def _give(self, why: int, wanted: int) -> None:
        if why == kernel.MISSING:
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )
        if why == kernel.NODES:
            used = int(self._book[tree.END]) * tree.FANOUT
            size = used + tree.DEEPEST * tree.FANOUT
            labels, weights, children = self._nodes
            self._nodes = resized(labels, size, used), longer(weights, size, used), longer(children, size, used)
            self._fill = grown(self._fill, len(self._nodes[0]) // tree.FANOUT, 0)
        elif why == kernel.RUNS:
            self._runs.reserve(wanted)
        elif why == kernel.SCRATCH:
            self._old = np.empty((2 * wanted, self._old.shape[1]), np.int64)

    def _labelled(self, codes: np.ndarray) -> np.ndarray:
        """The labels of codes (nulls: -1); where they change those of others, these are changed wherever they stand."""
        out = np.empty(codes.shape, np.int64)
        valid = None
        for c, labels in enumerate(self._labels):
            column = codes[:, c]
            if self._codes[c].type is None:  # a number of our own says whether what follows is there
                valid = column != 0
            elif isinstance(labels, RankedLabels):
                renewed = labels.note(column if valid is None else column[valid])
                if renewed is not None:
                    self._relabel(c, renewed)
            out[:, c] = labels.of(column)
            if valid is not None and labels.ranked:
                out[~valid, c] = -1
        return out

    def _relabel(self, c: int, renewed: np.ndarray) -> None:
        nodes = self._nodes[0][: self._book[tree.END] * tree.FANOUT]
        for column in (self._runs.pool[: self._runs.end, tree.LABELS + c], nodes[:, c]):  # some is garbage
            column[:] = np.where(column < 0, -1, renewed[np.clip(column, 0, len(renewed) - 1)])

    def _coded(self, labels: np.ndarray) -> np.ndarray:
        """The codes of labels."""
        return np.stack([each.codes(labels[:, c]) for c, each in enumerate(self._labels)], axis=1)

    def apply(self, ids: np.ndarray, lo: np.ndarray, hi: np.ndarray, weight: np.ndarray, codes: np.ndarray) -> None:
        """Add signed segments."""
        if not len(ids):
            return
        labels = self._labelled(codes)
        keys, offsets, starts = group_rows(ids, self._slot)
        ends = starts.copy()
        segments = lo, hi, weight, labels, np.empty(len(ids), np.int64)
        runs, at = self._runs, 0
        while at < len(keys):
            at, why, wanted, runs.end = kernel.take(
                at, keys, offsets, starts, ends, segments, runs.arrays, runs.end, self._forest, self._old,
                self._ends.times,
            )  # fmt: skip
            self._give(why, wanted)

    def ask(
        self, keys: np.ndarray, times: np.ndarray, quantiles: np.ndarray, newest: bool = False, top: int = 0
    ) -> np.ndarray:
        """What `kernels.cursor.ask` gives, with codes of the last column; instants are grouped by key, in order.  What
        stands where there is nothing does not matter."""
        codes, runs = len(self._codes), self._runs
        out = np.zeros((len(keys), 2 + (codes + 1) * len(quantiles) + codes * newest + top), np.int64)
        self._driven(
            lambda at, *given: kernel.ask(at, keys, times, quantiles, newest, top, runs.place, runs.pool, *given),
            len(keys),
            out,
        )
        last = self._labels[-1]
        if type(last) is not Labels:
            for at in self._places(len(quantiles), newest, top):
                out[:, at] = last.codes(out[:, at])
        return out

    def _places(self, quantiles: int, newest: bool, top: int) -> list[int]:
        """Where in an answer labels of the last column stand."""
        codes = len(self._codes)
        found = [2 + (codes + 1) * q + codes - 1 + high for q in range(quantiles) for high in (0, 1)]
        behind = 2 + (codes + 1) * quantiles
        return [*found, *[behind + codes - 1] * newest, *(behind + codes * newest + i for i in range(top))]

    def expire(self, cti: int) -> None:
        """Forget what was before `cti`."""
        self.cti = cti
        if cti == INF:
            self._runs.clear()
            self._trees = self._no_trees(len(self._trees))
            self._forget_nodes(64)
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

    def _forget_nodes(self, room: int) -> None:
        """No node is used any more; let there be room for so many."""
        self._book = np.array([-1, 0, 0], np.int64)
        size = room * tree.FANOUT
        self._nodes = np.empty((size, len(self._codes)), np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
        self._fill = np.zeros(room, np.int64)

    def _dumped(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All that is alive at the cursors: the keys, where the values of each begin, and these."""
        keys = np.flatnonzero(self._trees[:, tree.DISTINCT])
        return keys, *self._values(keys)

    def _values(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets = np.concatenate([[0], np.cumsum(self._trees[keys, tree.DISTINCT])])
        values = np.zeros((int(offsets[-1]), tree.LABELS + len(self._codes)), np.int64)
        kernel.dump(keys, self._forest, values)
        return offsets, values

    def _plant(self, keys: np.ndarray, offsets: np.ndarray, values: np.ndarray) -> None:
        """Make all trees anew: these are their values."""
        self._forget_nodes(2 * len(values) // tree.FANOUT + tree.DEEPEST)
        self._trees[:, [tree.ROOT, tree.HEIGHT, tree.TOTAL, tree.DISTINCT]] = -1, 0, 0, 0
        self._driven(lambda at, *given: kernel.load(at, keys, offsets, values, *given), len(values))

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._runs.tidy()  # what is left has codes in use
        keys, offsets, values = self._dumped()
        changes = self._coded(self._runs.pool[: self._runs.end, tree.LABELS :])
        self._held = keys, (offsets, values), changes, self._coded(values[:, tree.LABELS :])
        return [(self._held[2], self._pooled), (self._held[3], self._pooled)]

    def recoded(self) -> None:
        """Codes are others, in the same order."""
        assert self._held is not None
        keys, (offsets, values), changes, codes = self._held
        for labels in self._labels:
            if isinstance(labels, RankedLabels):
                labels.clear()
        self._forget_nodes(64)
        both = self._labelled(np.concatenate([changes, codes]))
        self._runs.pool[: self._runs.end, tree.LABELS :] = both[: len(changes)]
        values[:, tree.LABELS :] = both[len(changes) :]
        self._plant(keys, offsets, values)
        self._held = None

    def state_size(self) -> StateSize:
        """Each value that is kept counts one row."""
        runs, used = self._runs, int(self._book[tree.END] - self._book[tree.SPARE])
        ids = np.flatnonzero((runs.place[: len(self._trees), LENGTH] != 0) | (self._trees[: len(runs.place), 0] >= 0))
        nodes = used * (tree.FANOUT * (len(self._codes) + 2) + 1) * 8
        rows = int(kernel.rows(ids, runs.place, runs.pool, self._trees))
        return StateSize(rows, runs.nbytes + nodes + self._trees.nbytes + self._ends.nbytes)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self, ids: np.ndarray) -> dict[str, Any]:
        changes, offsets = self._runs.gather(ids)
        starts, values = self._values(ids)
        return {
            "cti": self.cti, "times": self._trees[ids, tree.TIME], "offsets": offsets,
            "changes": changes[:, : tree.LABELS].copy(), "codes": self._decoded(changes),
            "starts": starts, "weights": values[:, 0].copy(), "values": self._decoded(values),
        }  # fmt: skip

    def restore(self, ids: np.ndarray, state: dict[str, Any]) -> None:
        self.cti = state["cti"]
        restored.runs(ids, state["offsets"], state["changes"], tree.LABELS)
        restored.ints(len(ids) + 1, state["starts"])
        restored.ints(int(state["starts"][-1]), state["weights"])
        restored.runs(ids, state["starts"], state["weights"][:, None], 1)
        restored.ints(len(ids), state["times"])
        restored.counts(state["weights"])
        self._check_columns(state["codes"], len(state["changes"]))
        self._check_columns(state["values"], len(state["weights"]))
        codes = np.concatenate([self._encoded(state["codes"]), self._encoded(state["values"])])
        labels, split = self._labelled(codes), len(state["changes"])
        changes = np.concatenate([state["changes"], labels[:split]], axis=1)
        weights = np.zeros((len(state["weights"]), tree.LABELS), np.int64)
        weights[:, 0] = state["weights"]
        values = np.concatenate([weights, labels[split:]], axis=1)
        self._runs.put(ids, state["offsets"], changes)
        self._plant(ids, state["starts"], values)
        self._trees[ids, tree.TIME] = state["times"]
        kernel.caught_up(ids, self._runs.place, self._runs.pool, self._trees)
        self._fold(ids, _NO_INTS)

    def _decoded(self, rows: np.ndarray) -> list[Any]:
        """The columns of codes; a number of our own says whether what follows is there."""
        found: list[Any] = []
        valid = None
        codes = self._coded(rows[:, tree.LABELS :])
        for c, code in enumerate(self._codes):
            column = codes[:, c].copy()
            if code.type is None:
                valid = column != 0
                found.append(column)
            else:
                found.append(decode_column(column, valid, code.type, self._dictionaries))
        return found

    def _check_columns(self, columns: Sequence[Any], n: int) -> None:
        """Columns of codes as `_decoded` makes them, each of so many values."""
        if len(columns) != len(self._codes):
            raise restored.misfit(f"{len(self._codes)} columns of values are {len(columns)}")
        for code, column in zip(self._codes, columns, strict=True):
            if code.type is None:
                restored.ints(n, column)
            elif not isinstance(column, pa.Array) or column.type != code.type or len(column) != n:
                raise restored.misfit(f"{n} values of type {code.type} are something else")

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
