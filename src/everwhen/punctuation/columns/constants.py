"""The constants of one column, null aside, with a time each: flat tables by the kind of the column's type."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from everwhen.containers.bytes_times import BytesTimes
from everwhen.containers.int_table import PointTable
from everwhen.core.scalars import python_values
from everwhen.core.time import NEVER
from everwhen.punctuation.values.order import Kind, ValueOrder
from everwhen.rows.interner import freeze


class Constants(Protocol):
    """Values to the largest time given for each; no column that is handed in has nulls, but for `at`."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def add(self, column: pa.Array, times: np.ndarray) -> None: ...

    def at(self, column: pa.Array) -> np.ndarray:
        """The time of each value, `NEVER` where there is none; what is said of a null does not matter."""

    def entries(self) -> tuple[pa.Array, np.ndarray]:
        """All values and their times."""

    def retain(self, kept: np.ndarray) -> None:
        """Forgets the entries that are not marked, in the order of `entries`."""


class RankConstants:
    """Values that have a rank."""

    def __init__(self, order: ValueOrder) -> None:
        self._order = order
        self.table = PointTable(1)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def nbytes(self) -> int:
        return self.table.nbytes

    def add(self, column: pa.Array, times: np.ndarray) -> None:
        self.table.add(np.ascontiguousarray(self._order.ranks(column)).reshape(-1, 1), times)

    def at(self, column: pa.Array) -> np.ndarray:
        return self.table.find(np.ascontiguousarray(self._order.ranks(column)).reshape(-1, 1))

    def entries(self) -> tuple[pa.Array, np.ndarray]:
        rows, times = self.table.entries()
        return self._order.column(np.ascontiguousarray(rows[:, 0])), times

    def retain(self, kept: np.ndarray) -> None:
        rows, times = self.table.entries()
        self.table.replace(rows[kept], times[kept])


class ByteConstants:
    """Text, binaries, long decimals."""

    def __init__(self, order: ValueOrder) -> None:
        self._order = order
        self._table = BytesTimes()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes

    def add(self, column: pa.Array, times: np.ndarray) -> None:
        self._table.add(*self._order.spans(column), times)

    def at(self, column: pa.Array) -> np.ndarray:
        offsets, first, data = self._order.spans(column)
        return self._table.find(offsets, first, len(column), data)

    def entries(self) -> tuple[pa.Array, np.ndarray]:
        raw, times = self._table.entries()
        return self._order.column_of_bytes(raw), times

    def retain(self, kept: np.ndarray) -> None:
        values, times = self.entries()
        self._table = BytesTimes()
        self.add(values.filter(pa.array(kept)), times[kept])


class NestedConstants:
    """Nested values, by what they hash as: Python objects, one by one."""

    def __init__(self, order: ValueOrder) -> None:
        self._type = order.type
        self._times: dict[Any, tuple[Any, int]] = {}

    def __len__(self) -> int:
        return len(self._times)

    @property
    def nbytes(self) -> int:
        return 300 * len(self._times)

    def add(self, column: pa.Array, times: np.ndarray) -> None:
        for value, t in zip(python_values(column), times.tolist(), strict=True):
            key = freeze(value)
            self._times[key] = value, max(t, self._times.get(key, (value, NEVER))[1])

    def at(self, column: pa.Array) -> np.ndarray:
        nothing = (None, NEVER)
        found = (self._times.get(freeze(value), nothing)[1] for value in python_values(column))
        return np.fromiter(found, np.int64, len(column))

    def entries(self) -> tuple[pa.Array, np.ndarray]:
        found = self._times.values()
        return pa.array([value for value, _ in found], self._type), np.array([t for _, t in found], np.int64)

    def retain(self, kept: np.ndarray) -> None:
        marked = zip(self._times.items(), kept.tolist(), strict=True)
        self._times = {key: held for (key, held), is_kept in marked if is_kept}


def constants_for(order: ValueOrder) -> Constants:
    match order.kind:
        case Kind.RANK:
            return RankConstants(order)
        case Kind.BYTES:
            return ByteConstants(order)
        case Kind.OPAQUE:
            return NestedConstants(order)
