"""The multiset of events that an adjust may still name: kept until `ve < c`, and behind one that lasts longer, but not
for ever, for as long as the ring has room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress import event_log_loops as kernel
from everwhen.operators.key_frontiers import upto
from everwhen.punctuation.api import PunctuationStore
from everwhen.rows import restored
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec

_FEWEST: Final = 1024
"""A ring has room for so many entries at least; its size is a power of two."""


class _Ring:
    """Entries in arrival order, those before `oldest` forgotten, and the last one of each hash."""

    def __init__(self, width: int) -> None:
        self.oldest = self.count = 0
        self.log = np.zeros((_FEWEST, kernel.ROW + width), np.int64)
        self.heads = np.full(_FEWEST, -1, np.int64)

    @property
    def arrays(self) -> kernel.Ring:
        return kernel.Ring(self.heads, self.log, self.oldest, self.count)

    def tidy(self, cti: int, more: int = 0) -> None:
        """Write the events that are left anew, with room for so many more, and half of the ring besides."""
        size = max(_FEWEST, 1 << (2 * (self.alive(cti) + more) - 1).bit_length())
        if size != len(self.heads):
            self.heads = np.empty(size, np.int64)
        log = np.empty((size, self.log.shape[1]), np.int64)
        self.count = kernel.compact(cti, self.heads, self.log, self.oldest, self.count, log)
        self.oldest, self.log = 0, log

    def forget(self, cti: int) -> None:
        """Forget from the oldest on what ended before `cti`: all of it, if nothing may be named any more."""
        if self.oldest < self.count:
            self.oldest = self.count if cti == INF else int(kernel.forget(cti, self.log, self.oldest, self.count))

    def alive(self, cti: int) -> int:
        return int(kernel.alive(cti, self.log, self.oldest, self.count))

    def drop_promised(self, over: PunctuationStore, codec: RowCodec) -> int:
        """Drop events that ended before what is promised of their rows; the largest end among them (-∞: none)."""
        at = np.arange(self.oldest, self.count) & (len(self.log) - 1)
        ends, until = self.log[at, kernel.VE], upto(over, codec, self.log[at, kernel.ROW :])
        gone = (ends < until) | (until == INF)
        self.log[at[gone], kernel.VE] = NEVER
        return int(ends[gone].max(initial=NEVER))

    @property
    def nbytes(self) -> int:
        return self.log.nbytes + self.heads.nbytes


class EventStore(Protocol):
    """What a guard needs of a log of events: `EventLog`, or one that several copies of a stream share."""

    def apply(
        self,
        op: np.ndarray,
        vs: np.ndarray,
        ve: np.ndarray,
        vnew: np.ndarray,
        rows: np.ndarray,
        adjusts: int,
        until: int = NEVER,
    ) -> int: ...

    def undo(self) -> None: ...

    def settle(self) -> None: ...

    def part(self) -> None: ...

    def close(self, promises: Iterable[Punctuation]) -> None: ...

    @property
    def forgotten(self) -> int: ...

    def forget(self, cti: int) -> None: ...

    def events(self) -> Changes: ...

    def state_size(self) -> StateSize: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


class EventLog:
    """Events by (vs, ve, row).  Those without an end stand apart: they keep nothing else from being forgotten."""

    def __init__(self, codec: RowCodec) -> None:
        self.codec = codec
        self._cti = NEVER
        self._last: tuple[kernel.Elements, kernel.Taken, tuple[int, int]] | None = None
        self.lenient = False
        """Whether adjusts without their event are passed over; those of the last `apply` are then `unfound`."""
        self.unfound = np.empty(0, np.int64)
        self._forgotten = NEVER
        self._over: PunctuationStore | None = None  # what was promised since the last tidying
        self._rings = _Ring(codec.width), _Ring(codec.width)  # events that end, and that don't
        codec.pool.register(self)

    def apply(
        self,
        op: np.ndarray,
        vs: np.ndarray,
        ve: np.ndarray,
        vnew: np.ndarray,
        rows: np.ndarray,
        adjusts: int,
        until: int = NEVER,
    ) -> int:
        """Take elements in arrival order; the position of the first adjust without its event (then nothing is
        taken), or -1.

        So many `adjusts` are among them.  `until`: the CTI that comes with the batch.
        """
        n = len(op)
        marks = np.zeros(1 << (16 * adjusts).bit_length(), np.uint8)
        todo, hashes = np.empty(n, np.int64), np.empty(n, np.uint64)
        elements = kernel.Elements(op, vs, ve, vnew, rows)
        named, endless = kernel.named(elements, until, marks, todo, hashes)
        ending, lasting = self._rings
        self._reserve(ending, named)
        self._reserve(lasting, endless)
        taken = kernel.Taken(todo[:named], np.empty(named, np.int64), np.empty(named, np.uint8))
        before = ending.count, lasting.count
        ending.count, lasting.count, wrong = kernel.apply(
            elements, until, marks, hashes, ending.arrays, lasting.arrays, taken, self.lenient
        )
        if self.lenient:
            self.unfound = taken.todo[taken.killed == -2]
        self._last = (elements, taken, before) if wrong < 0 else None
        return int(wrong)

    def undo(self) -> None:
        """Take back what the last `apply` took."""
        if self._last is not None:
            elements, taken, before = self._last
            ending, lasting = self._rings
            kernel.undo(elements, ending.arrays, lasting.arrays, taken)
            (ending.count, lasting.count), self._last = before, None

    def settle(self) -> None:
        """What the last `apply` took stays."""
        self._last = None

    def part(self) -> None:
        """Nobody else has the events."""

    def close(self, promises: Iterable[Punctuation]) -> None:
        """Events whose rows are promised can no longer be named; they go with the next tidying."""
        self._last = None
        if any(ring.count > ring.oldest for ring in self._rings):  # what comes later can't be what is promised
            self._over = self._over or PunctuationStore(self.codec.schema)
            self._over.add(promises)

    def _drop_promised(self) -> None:
        """Drop events that ended before what is promised of their rows."""
        over, self._over = self._over, None
        if over is not None and len(over):
            self._forgotten = max(self._forgotten, *(ring.drop_promised(over, self.codec) for ring in self._rings))

    @property
    def forgotten(self) -> int:
        """The largest end of the events that were dropped because their rows are promised (-∞: none was)."""
        self._drop_promised()
        return self._forgotten

    def forget(self, cti: int) -> None:
        """Events that ended before `cti` can no longer be named."""
        self._cti, self._last = cti, None
        for ring in self._rings:
            ring.forget(cti)

    def _reserve(self, ring: _Ring, more: int) -> None:
        if ring.count + more - ring.oldest > len(ring.log):
            self._last = None
            self._drop_promised()
            ring.tidy(self._cti, more)

    def _tidy(self) -> None:
        """Write the events that are left anew."""
        self._last = None
        self._drop_promised()
        for ring in self._rings:
            ring.tidy(self._cti)

    def events(self) -> Changes:
        """The events that can still be named."""
        self._tidy()
        left = np.concatenate([ring.log[: ring.count] for ring in self._rings])
        vs, ve, rows = left[:, kernel.VS].copy(), left[:, kernel.VE].copy(), left[:, kernel.ROW :].copy()
        return Changes(self.codec, vs, ve, np.ones(len(left), np.int64), rows)

    def state_size(self) -> StateSize:
        """Events that can still be named."""
        self._drop_promised()
        parts = (StateSize(ring.alive(self._cti), ring.nbytes) for ring in self._rings)
        return sum(parts, StateSize())

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        self._tidy()
        pooled = [(kernel.ROW + j, type_) for j, type_ in self.codec.pooled]
        return [(ring.log[: ring.count], pooled) for ring in self._rings]

    def recoded(self) -> None:
        self._tidy()

    def snapshot(self) -> dict[str, Any]:
        left = self.events()
        rows = self.codec.decode(left.rows)
        return {"cti": self._cti, "forgotten": self._forgotten, "vs": left.lo, "ve": left.hi, "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        self._cti, self._forgotten = state["cti"], state["forgotten"]
        vs, ve = state["vs"], state["ve"]
        restored.ints(len(vs), vs, ve)
        self.apply(np.zeros(len(vs), np.uint8), vs, ve, ve, restored.rows(self.codec, state["rows"], len(vs)), 0)
