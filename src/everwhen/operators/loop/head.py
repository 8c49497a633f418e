"""The head of a loop: takes derivations, decides which rows go and come, and so what goes round next.

Derivations carry the birth of their youngest premise in a column behind the row (`birth_codec`), where the loop needs
births; a batch that goes round carries each row's own birth there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Field, Schema
from everwhen.operators.contract import StateSize
from everwhen.rows.changes import Changes
from everwhen.rows.codec import BITS, RowCodec

BIRTH_COLUMN = "$birth"
"""The hidden column: a name that no query can write."""


def with_birth(schema: Schema) -> Schema:
    """The columns and the birth behind them."""
    return Schema((*schema.fields, Field(BIRTH_COLUMN, pa.int64())))


class LoopHead(ABC):
    """What stands between the body's result and its input."""

    codec: RowCodec
    """Rows as the loop's answer has them."""
    sent: RowCodec
    """Rows as they go round."""
    once: bool = False
    """Whether each row is there at most once at any instant."""
    endless: bool = False
    """Whether it is certain that the loop does not end."""
    keeps: str
    counts: str
    """Whether rows have births, and why, for people."""

    @abstractmethod
    def retract(self, derived: Changes) -> Changes:
        """Take derivations; what goes because of them."""

    @abstractmethod
    def insert(self, derived: Changes | None) -> Changes:
        """Take derivations, and let come what is due: what comes, and what it replaces.  None: only what is due."""

    @abstractmethod
    def hold(self, derived: Changes) -> None:
        """Take derivations; what is due because of them waits."""

    @property
    @abstractmethod
    def due(self) -> bool:
        """Whether something waits to come."""

    @abstractmethod
    def answer(self, sent: Changes) -> Changes:
        """What went round as the loop's answer tells it."""

    @abstractmethod
    def expire(self, promise: int) -> None:
        """Nothing before `promise` changes any more; called once an epoch, at its end."""

    def standing(self) -> Changes | None:
        """All rows that are present; None: they are not kept."""
        return None

    @abstractmethod
    def state_size(self) -> StateSize: ...

    @abstractmethod
    def snapshot(self) -> dict[str, Any]: ...

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None: ...


def split_birth(codec: RowCodec, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows without the birth behind them, and the births."""
    births = np.ascontiguousarray(rows[:, -1])
    if (len(codec.schema) + 1) <= BITS or rows.shape[1] - 1 == codec.width:
        return np.ascontiguousarray(rows[:, :-1]), births
    # the column of births begins a null mask word of its own
    return np.concatenate([rows[:, : codec.words], rows[:, codec.words + 1 : -1]], axis=1), births


def join_birth(codec: RowCodec, sent: RowCodec, rows: np.ndarray, births: np.ndarray) -> np.ndarray:
    """Rows with births behind them."""
    out = np.zeros((len(rows), sent.width), np.int64)
    out[:, : codec.words] = rows[:, : codec.words]
    out[:, sent.words : -1] = rows[:, codec.words :]
    out[:, -1] = births
    return out
