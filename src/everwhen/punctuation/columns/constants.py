"""The constants of one column, null aside, with a time each: flat tables by the kind of the column's type."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from everwhen.containers.bytes_times import BytesTimes
from everwhen.containers.int_table import IntTimes
from everwhen.core.scalars import python_values
from everwhen.core.time import NEVER
from everwhen.rows.dictionary import freeze
from everwhen.values.order import Kind, ValueOrder


class Constants(Protocol):
    """Keys (ranks, or a column without nulls) to the largest time given for each."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def add(self, keys: Any, times: np.ndarray) -> None: ...

    def raise_to(self, keys: Any, out: np.ndarray) -> None:
        """Raises `out` to the time of each that is there; what becomes of a null does not matter."""

    def entries(self) -> tuple[Any, np.ndarray]:
        """All keys and their times."""

    def retain(self, kept: np.ndarray) -> None:
        """Forgets the entries that are not marked, in the order of `entries`."""


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

    def add(self, keys: pa.Array, times: np.ndarray) -> None:
        self._table.add(*self._order.spans(keys), times)

    def raise_to(self, keys: pa.Array, out: np.ndarray) -> None:
        offsets, first, data = self._order.spans(keys)
        np.maximum(out, self._table.find(offsets, first, len(keys), data), out=out)

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

    def add(self, keys: pa.Array, times: np.ndarray) -> None:
        for value, t in zip(python_values(keys), times.tolist(), strict=True):
            key = freeze(value)
            self._times[key] = value, max(t, self._times.get(key, (value, NEVER))[1])

    def raise_to(self, keys: pa.Array, out: np.ndarray) -> None:
        nothing = (None, NEVER)
        found = (self._times.get(freeze(value), nothing)[1] for value in python_values(keys))
        np.maximum(out, np.fromiter(found, np.int64, len(keys)), out=out)

    def entries(self) -> tuple[pa.Array, np.ndarray]:
        found = self._times.values()
        return pa.array([value for value, _ in found], self._type), np.array([t for _, t in found], np.int64)

    def retain(self, kept: np.ndarray) -> None:
        marked = zip(self._times.items(), kept.tolist(), strict=True)
        self._times = {key: held for (key, held), is_kept in marked if is_kept}


def constants_for(order: ValueOrder) -> Constants:
    match order.kind:
        case Kind.RANK:
            return IntTimes()
        case Kind.BYTES:
            return ByteConstants(order)
        case Kind.OPAQUE:
            return NestedConstants(order)
