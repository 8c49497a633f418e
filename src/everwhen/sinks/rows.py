"""Sinks of rows: what a query says, in a form that other systems read.

    append     rows that are final, once each, with their lifetimes (valid_from, valid_to)
    upsert     the answer as of now, one row per key: what was put, and the keys that went
    retract    the answer as of now: rows that came, went, or took the place of another one of the same key

`elements` is our own form, for which a sink is an `EpochSink`.  How elements become rows is said by `forms` in the
package `jobs`; a `RowSink` only takes them, epoch by epoch, with the guarantee of every sink (`base.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.sinks.base import Sink

FORMS: Final = ("elements", "append", "upsert", "retract")
PUT: Final = 0
"""A row is there now: appended, or put in the place of the one with its key, if there is one."""
DELETE: Final = 1
"""A row is gone.  Of an upsert only the key columns have values."""
BEFORE: Final = 2
"""A row was replaced, in a retract with a key; the next change is `AFTER`."""
AFTER: Final = 3
"""The row that is there instead of the one `BEFORE`."""


@dataclass(frozen=True, eq=False)
class RowChanges:
    """The changes of an epoch, in order: one kind (`op`) per row.  `now`: the instant of which it is the answer, for
    an append that up to which everything is there.  An epoch may be empty."""

    form: str
    op: np.ndarray  # uint8
    rows: pa.RecordBatch
    now: int

    def __len__(self) -> int:
        return len(self.op)


class RowSink(Sink):
    """A sink of rows that change."""

    lasting = True

    @abstractmethod
    def commit(self, epoch: int, changes: RowChanges) -> None:
        """Takes all changes of an epoch; one that is in already changes nothing, and nothing is half in."""
