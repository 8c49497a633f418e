"""Rows of 64-bit words with a time each, in one flat hash table: no Python object per row.

A cell holds the row and its time side by side, so a look-up touches one place in memory, asked for some rows ahead.
Costs: add and find O(1) per row, amortised; forgetting rows is a sweep over the table.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.containers.int_table_loops import find_rows, number_rows, put_keys, put_rows, remove_rows
from everwhen.core.time import NEVER

_LEAST: Final = 16


class PointTable:
    """Rows of `width` words to the largest time given for each."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.count = 0
        self._cells = _empty(_LEAST, width)

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes

    @property
    def cells(self) -> np.ndarray:
        """The table itself, for kernels that only read."""
        return self._cells

    def add(self, rows: np.ndarray, times: np.ndarray) -> None:
        self._reserve(len(rows))
        self.count += int(put_rows(self._cells, rows, times))

    def add_keys(self, keys: np.ndarray, times: np.ndarray, limit: int) -> int:
        """The same for rows of one word; how many of one time stand in a row at most, up to about a limit."""
        self._reserve(len(keys))
        new, longest = put_keys(self._cells, keys, times, limit)
        self.count += int(new)
        return int(longest)

    def find(self, rows: np.ndarray) -> np.ndarray:
        """The time of each row, `NEVER` where there is none."""
        out = np.empty(len(rows), np.int64)
        find_rows(self._cells, rows, out)
        return out

    def number(self, rows: np.ndarray) -> np.ndarray:
        """Numbers rows from 0 in the order in which they first came: the number stands for the time."""
        self._reserve(len(rows))
        out = np.empty(len(rows), np.int64)
        self.count = int(number_rows(self._cells, rows, self.count, out))
        return out

    def remove(self, rows: np.ndarray) -> None:
        self.count -= int(remove_rows(self._cells, rows))

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows and their times, in no order."""
        used = self._cells[self._cells[:, self.width] != NEVER]
        return used[:, : self.width].copy(), used[:, self.width].copy()

    def replace(self, rows: np.ndarray, times: np.ndarray) -> None:
        """Holds these rows (each once) and no others."""
        self._cells, self.count = _empty(_LEAST, self.width), 0
        self.add(np.ascontiguousarray(rows), times)

    def _reserve(self, more: int) -> None:
        size = len(self._cells)
        while 2 * (self.count + more) > size:
            size *= 2
        if size > len(self._cells):
            rows, times = self.entries()
            self._cells = _empty(size, self.width)
            put_rows(self._cells, rows, times)


def _empty(size: int, width: int) -> np.ndarray:
    cells = np.zeros((size, width + 1), np.int64)
    cells[:, width] = NEVER
    return cells
