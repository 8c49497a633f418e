"""Under which starts events are emitted whose own start is before the promise."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.core.time import NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.merge.event_differences import EventDifferences
from everwhen.rows import restored
from everwhen.rows.codec import RowCodec

_FEWEST_NAMES: Final = 32


class Names:
    """Starts under which events are emitted, where they are not their own: per (row, start) the other start, which is
    later.  Kept while somebody says something of the event that may still change."""

    def __init__(self, codec: RowCodec) -> None:
        self._codec = codec
        self._table = KeyTable(codec.width + 1, codec.pooled)
        self._starts = np.empty(0, np.int64)
        self._left = 0  # how many there were when they were last looked through
        codec.pool.register(self._table)

    def give(self, rows: np.ndarray, start: int | np.ndarray) -> None:
        """Let (row, start) begin at another time; who had another name before gets the new one, too."""
        ids = self._table.intern(rows)
        self._starts = grown(self._starts, self._table.capacity, NEVER)
        self._starts[ids] = start

    def known(self, rows: np.ndarray) -> np.ndarray:
        """Rows under the starts by which they are emitted."""
        if not len(self._table):
            return rows
        rows = rows.copy()
        while True:  # a name may have been given another one since
            ids = self._table.find(rows)
            found = ids >= 0
            if not found.any():
                return rows
            rows[found, -1] = self._starts[ids[found]]

    def forget(self, events: EventDifferences) -> None:
        """Drop names of which there are no events any more, once as many have come as were left the last time, or no
        events are there."""
        if not len(self._table) or (events.used and len(self._table) <= 2 * self._left + _FEWEST_NAMES):
            return
        used = KeyTable(self._codec.width + 1)
        used.intern(events.rows())
        ids = self._table.ids()
        self._table.remove(ids[used.find(self.known(self._table.codes[ids])) < 0])
        self._left = len(self._table)

    def state_size(self) -> StateSize:
        return StateSize(len(self._table), self._table.nbytes + self._starts.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._table.ids()
        codes = self._table.codes[ids]
        rows = self._codec.decode(np.ascontiguousarray(codes[:, :-1]))
        return {"rows": rows, "start": codes[:, -1].copy(), "name": self._starts[ids]}

    def restore(self, state: dict[str, Any]) -> None:
        n = len(state["start"])
        restored.ints(n, state["start"], state["name"])
        if (state["name"] <= state["start"]).any():
            raise restored.misfit("an event begins before its own start")
        rows = np.concatenate([restored.rows(self._codec, state["rows"], n), state["start"][:, None]], axis=1)
        ids = self._table.intern(rows)
        self._starts = grown(self._starts, self._table.capacity, NEVER)
        self._starts[ids] = state["name"]
