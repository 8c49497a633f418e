"""Rows of partitions, each partition's in order, and the searches for matches among them.

Kept are rows until `ve ≤ c`.  A change is applied in three parts: `affected` marks the rows from which a search may
find something else and searches from them; `apply` lets rows come and go; `search` searches from marked rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.algebra.nodes import MatchRecognize
from everwhen.containers.arrays import grown
from everwhen.containers.calendar import Calendar
from everwhen.containers.live_runs import group_rows
from everwhen.containers.run_pool import LENGTH, Runs, needed
from everwhen.core.time import INF, NEVER
from everwhen.errors import EvaluationError, EverwhenError
from everwhen.operators.pattern.loops import changes as loops
from everwhen.operators.pattern.loops.layout import DIRTY, DONE, HI, LO, NO_RANKS, NO_ROOM, NOT_THERE, TOO_MANY, Scratch
from everwhen.operators.pattern.loops.order import find_places, sort_groups
from everwhen.operators.pattern.loops.search import FOUND, search
from everwhen.operators.pattern.tables import RowTables, states
from everwhen.rows.codec import RowCodec

MOST_CONFIGURATIONS: Final = 1 << 14
"""So many mappings are followed at once; a pattern that needs more would need twice as many for each further row."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """Records grouped by key, in the order of rows: those of `keys[g]` stand at `positions[offsets[g]:offsets[g + 1]]`.
    `before` and `behind`: how many kept rows are less, and how many are not greater."""

    keys: np.ndarray
    offsets: np.ndarray
    positions: np.ndarray
    records: np.ndarray
    weight: np.ndarray
    before: np.ndarray
    behind: np.ndarray


class KeptRows:
    """See the module.  Key ids are given by whoever owns the keys."""

    def __init__(self, node: MatchRecognize, codec: RowCodec) -> None:
        self.tables = RowTables(node, codec)
        self.runs = Runs(self.tables.width)
        self.rows = 0
        self._states = states(node.program)
        self._ends = Calendar()
        self._slot = np.full(64, -1, np.int64)
        self._stale = False  # codes have changed since ranks were noted
        self._out = np.empty((256, FOUND + node.program.words), np.int64)
        self._scratch = self._room(4, 1 << 10, 64)
        codec.pool.register(self)

    def grow(self, capacity: int) -> None:
        """Make room for key ids below `capacity`."""
        self.runs.grow(capacity)
        self._ends.grow(capacity)
        self._slot = grown(self._slot, capacity, -1)

    def _room(self, configurations: int, stack: int, rows: int) -> Scratch:
        words, registers = len(self._states.accepting), len(self.tables.machine.initial)
        found = np.zeros((2, configurations, words + registers), np.int64)
        depth = self.tables.program.depth + 2
        return Scratch(
            found, found.view(np.float64), np.zeros(stack, np.int64), np.zeros(depth, np.int64),
            np.zeros(depth, np.float64), np.zeros(depth, np.int64), np.zeros(words + registers, np.int64),
            np.zeros(rows + 2, np.int64), np.zeros(rows + 2, np.int64),
        )  # fmt: skip

    # -- changes --------------------------------------------------------------------------------------------------

    def sorted(self, ids: np.ndarray, records: np.ndarray, weight: np.ndarray) -> Sorted:
        """Records in order, and where they stand among the kept rows."""
        keys, offsets, positions = group_rows(ids, self._slot)
        ranking = self.tables.ranking
        if self._stale:
            ranking.note(self.runs.records)
            self._stale = False
        ranking.note(records)
        room = np.empty(len(records), np.int64)
        before, behind = np.empty(len(records), np.int64), np.empty(len(records), np.int64)
        while (
            sort_groups(offsets, positions, records, ranking.order, room) == NO_RANKS
            or find_places(keys, offsets, positions, records, ranking.order, self.runs.arrays, before, behind)
            == NO_RANKS
        ):
            ranking.need()
            ranking.note(self.runs.records, records)
        return Sorted(keys, offsets, positions, records, weight, before, behind)

    def affected(self, batch: Sorted, floor: int) -> tuple[np.ndarray, np.ndarray]:
        """Mark the rows from which a search may find something else because of a batch, and search from them as things
        stand; what is found, and the spans within which anything changes."""
        spans = np.full((len(batch.keys), 3), floor, np.int64)
        room = np.empty((len(batch.records), 2), np.int64)
        back = self.tables.machine.looks_back
        dirty = loops.mark(
            batch.keys, batch.offsets, batch.positions, batch.records, batch.before, batch.behind, self.runs.arrays,
            back, spans, room,
        )  # fmt: skip
        return (self.search(batch.keys, spans, False) if dirty else self._out[:0].copy()), spans

    def apply(self, batch: Sorted) -> None:
        """Let the rows of a batch come and go."""
        if (batch.weight < 0).any():
            batch = self._cut(batch)
        batch = self._extended(batch)
        runs = self.runs
        runs.reserve(needed(runs.place, batch.keys, batch.offsets)[0])
        runs.end = loops.merge(
            batch.keys, batch.offsets, batch.positions, batch.records, batch.behind, runs.place, runs.pool, runs.free,
            runs.end, self._ends.due, self._ends.block,
        )  # fmt: skip
        self.rows += len(batch.positions)

    def _extended(self, batch: Sorted) -> Sorted:
        """Without records that go on where equal rows end: those live longer."""
        comes = np.empty(len(batch.positions), np.int64)
        arrays = self.runs.arrays
        if not loops.extend(
            batch.keys, batch.offsets, batch.positions, batch.records, batch.before, batch.behind, arrays, comes
        ):
            return batch
        offsets = np.concatenate([[0], np.cumsum(comes)])[batch.offsets]
        left = comes == 1
        before, behind = batch.before[left], batch.behind[left]
        return replace(batch, offsets=offsets, positions=batch.positions[left], before=before, behind=behind)

    def _cut(self, batch: Sorted) -> Sorted:
        """Let rows go; what is left to come."""
        missing = np.zeros(1, np.int64)
        rest = np.empty((int(-batch.weight[batch.weight < 0].sum()), self.tables.width), np.int64)
        status, gone, left = loops.cut(
            batch.keys, batch.offsets, batch.positions, batch.records, batch.weight, batch.before, batch.behind,
            self.runs.arrays, rest, missing,
        )  # fmt: skip
        if status == NOT_THERE:
            raise EverwhenError(
                "a change takes back a row that is not there: the stream before this operator is not valid"
            )
        self.rows -= gone
        ids = np.empty(len(batch.records), np.int64)
        ids[batch.positions] = np.repeat(batch.keys, np.diff(batch.offsets))
        comes = batch.weight > 0
        rest = rest[:left]
        rest = rest[rest[:, LO] < rest[:, HI]]  # of some everything went by another change
        ids = np.concatenate([ids[comes], rest[:, DIRTY]])
        records = np.concatenate([batch.records[comes], rest])
        return self.sorted(ids, records, np.ones(len(records), np.int64))

    def search(self, keys: np.ndarray, spans: np.ndarray, settle: bool) -> np.ndarray:
        """The matches that begin at marked rows of keys."""
        progress = np.zeros(3, np.int64)
        longest = int(self.runs.place[keys, LENGTH].max(initial=0))
        if longest + 2 > len(self._scratch.starts):
            self._scratch = self._room(self._scratch.configurations.shape[1], len(self._scratch.stack), 2 * longest)
        floats = self.runs.pool.view(np.float64)
        tables = self.tables
        while True:
            status = search(
                progress, keys, spans, self.runs.arrays, floats, self._states, tables.machine, tables.ranking.order,
                self._scratch, self._out, int(settle),
            )  # fmt: skip
            if status == DONE:
                return self._out[: progress[2]].copy()
            self._make_room(status, int(progress[2]))

    def _make_room(self, status: int, found: int) -> None:
        scratch = self._scratch
        configurations, stack, rows = scratch.configurations.shape[1], len(scratch.stack), len(scratch.starts)
        if status == TOO_MANY:
            if configurations >= MOST_CONFIGURATIONS:
                raise EvaluationError(
                    f"a pattern maps rows to variables in more than {MOST_CONFIGURATIONS} ways at once, with different "
                    "counts or sums in each; let the conditions of variables exclude each other"
                )
            configurations *= 4
        elif status == NO_ROOM:
            if found + 16 > len(self._out):
                out = np.empty((4 * len(self._out), self._out.shape[1]), np.int64)
                out[:found] = self._out[:found]
                self._out = out
            stack *= 2
        else:
            raise EvaluationError(
                "a sum or another result in DEFINE or MEASURES of a pattern exceeds 64 bits; cast to float64 first"
            )
        self._scratch = self._room(configurations, stack, rows)

    def empty(self, keys: np.ndarray) -> np.ndarray:
        """Those of the keys that have no rows; they leave their room."""
        found = keys[self.runs.place[keys, LENGTH] == 0]
        if len(found):
            self.runs.release(found)
            self._ends.schedule(found, np.full(len(found), INF, np.int64))
        return found

    def mark_all(self, keys: np.ndarray) -> None:
        """Mark all rows of keys."""
        arrays = self.runs
        for start, length in arrays.place[keys][:, 2:4].tolist():
            arrays.pool[start : start + length, DIRTY] = 1

    # -- going ----------------------------------------------------------------------------------------------------

    def due(self, promise: int) -> np.ndarray:
        """Keys that have rows which end by a promise."""
        return self._ends.before(promise + 1) if promise < INF else np.flatnonzero(self.runs.place[:, LENGTH])

    def drop(self, keys: np.ndarray, until: np.ndarray) -> tuple[np.ndarray, int]:
        """Drop rows that have ended by a time of their key; the keys that have none left, and the largest end of what
        went."""
        if not len(keys):
            return keys, NEVER
        empty = np.empty(len(keys), np.int64)
        gone, n, last = loops.drop(keys, until, self.runs.arrays, self._ends.times, empty)
        self.rows -= gone
        if n:
            self.runs.release(empty[:n])
        if self.runs.crowded:
            self.runs.tidy()
        return empty[:n], last

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self.runs.tidy()
        return [(self.runs.pool[: self.runs.end], self.tables.pooled)]

    def recoded(self) -> None:
        self.tables.ranking.forget()
        self._stale = True

    @property
    def nbytes(self) -> int:
        return self.runs.nbytes + self._ends.nbytes

    def gather(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of keys, and the offsets at which each begins."""
        return self.runs.gather(ids)

    def lifetimes(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends of records."""
        return records[:, LO].copy(), records[:, HI].copy()
