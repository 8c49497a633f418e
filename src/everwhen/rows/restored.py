"""What a snapshot says is checked before compiled loops, which check nothing themselves, follow it.

A state may come from a file that anybody has written.  Numbers of rows, widths, types, ids and offsets must fit one
another here; then no loop reads or writes beyond its arrays because of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.errors import StateError
from everwhen.rows.codec import RowCodec

_MAX_IDS: Final = 1 << 31


def misfit(what: str) -> StateError:
    """The error of a state that this operator cannot have had."""
    return StateError(f"the state does not fit the query: {what}")


def ints(n: int, *arrays: Any) -> None:
    """Each must be a column of so many 64-bit integers."""
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.shape != (n,):
            raise misfit(f"a column of {n} times or weights is something else")


def records(array: Any, width: int) -> int:
    """The number of records of so many words."""
    if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 2 or array.shape[1] != width:
        raise misfit(f"records of {width} words are something else")
    return len(array)


def due(n: int, times: Any, kept: np.ndarray) -> None:
    """So many times, one or several of each, as a calendar keeps them."""
    wanted = (n,) if kept.ndim == 1 else (n, kept.shape[1])
    if not isinstance(times, np.ndarray) or times.dtype != np.int64 or times.shape != wanted:
        raise misfit(f"{n} times at which something is due are something else")


def counts(array: np.ndarray) -> None:
    """How often rows are there: so often that sums of it overflow they never are."""
    if array.size and (int(array.min()) <= -_MAX_IDS or int(array.max()) >= _MAX_IDS):
        raise misfit("a row is there more often than it can be")


def rows(codec: RowCodec, columns: Sequence[pa.Array], n: int) -> np.ndarray:
    """Columns as coded rows, if there are so many and they are of the codec's types."""
    types = codec.schema.types
    if len(columns) != len(types) or not isinstance(n, int) or not 0 <= n < _MAX_IDS:
        raise misfit(f"{n} rows of {codec.schema} have {len(columns)} columns")
    for column, type_ in zip(columns, types, strict=True):
        if not isinstance(column, pa.Array) or column.type != type_ or len(column) != n:
            raise misfit(f"{n} rows of {codec.schema} are something else")
    return codec.encode(columns, n)


def runs(ids: Any, offsets: Any, found: Any, width: int) -> None:
    """Each of several ids has a run of records: `found[offsets[i]:offsets[i + 1]]`."""
    n = len(ids)
    ints(n, ids)
    ints(n + 1, offsets)
    total = records(found, width)
    if n and (int(ids.min()) < 0 or int(ids.max()) >= _MAX_IDS or len(np.unique(ids)) != n):
        raise misfit("keys have numbers that they cannot have")
    if int(offsets[0]) != 0 or int(offsets[-1]) != total or (np.diff(offsets) < 0).any():
        raise misfit("runs of records overlap, or leave some out")
