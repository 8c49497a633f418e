"""The source guard: elements in arrival order in, legal changes out, or an error that names the line.

It checks each element against what the stream has promised so far (also within the batch) and each adjust against the
events that are there.  Kept is the multiset of events (vs, ve, row) until `ve < c`, strictly, because an event that
ends at the CTI may still grow; for a source declared insert-only nothing is kept and an adjust is an error.  On a
source declared to live one tick a longer lifetime is an error, because plans leave work out that it would need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.errors import InputError
from everwhen.model.changes import Changes
from everwhen.model.element import Punct
from everwhen.model.elements import ADJUST, CTI, EXTERNAL_CTI, INSERT, PUNCT, ElementBatch
from everwhen.model.punctuation import Frontier, Nothing, OneOf, Promise, Range
from everwhen.model.rows import RowCodec
from everwhen.model.time import INF, MAX_TIME, MIN_TIME, NEVER, show
from everwhen.operators.base import StateSize
from everwhen.operators.event_log import EventLog
from everwhen.operators.kernels.log import look

NOT_ONE_TICK: Final = "the lifetime [{}, {}) on a source that is declared to live one tick (ORDERED BY, chronons=True)"
ONE_TICK: Final = "leave the end out, or declare the source without it; an adjust may only remove the event"


@dataclass(frozen=True, slots=True)
class Guarded:
    """A checked batch: payload rows with the times of their elements."""

    codec: RowCodec
    op: np.ndarray
    vs: np.ndarray
    ve: np.ndarray
    vnew: np.ndarray
    rows: np.ndarray
    adjusts: int

    def segments(self) -> Changes:
        """An insert is +[vs, ve); an adjust is the difference it makes."""
        if not self.adjusts:
            return Changes(self.codec, self.vs, self.ve, np.ones(len(self.op), np.int64), self.rows)
        adjust = self.op == ADJUST
        lo = np.where(adjust, np.minimum(self.ve, self.vnew), self.vs)
        hi = np.where(adjust, np.maximum(self.ve, self.vnew), self.ve)
        weight = np.where(adjust & (self.vnew < self.ve), -1, 1)
        keep = lo < hi
        if keep.all():
            return Changes(self.codec, lo, hi, weight, self.rows)
        return Changes(self.codec, lo[keep], hi[keep], weight[keep], self.rows[keep])

    def events(self) -> Changes:
        """Event form: an adjust takes the whole event back and says it again."""
        adjust = np.flatnonzero(self.op == ADJUST)
        again = adjust[self.vnew[adjust] > self.vs[adjust]]
        at = np.concatenate([np.arange(len(self.op)), again])
        hi = np.concatenate([self.ve, self.vnew[again]])
        weight = np.ones(len(at), np.int64)
        weight[adjust] = -1
        return Changes(self.codec, self.vs[at], hi, weight, self.rows[at])


class Guard:
    """One source's guard.  `whole`: it keeps all events, also behind the CTI, as for a finite relation.

    `finalized`: Finalize stands behind it, which matches adjusts with events and reads external CTIs.
    """

    def __init__(
        self,
        name: str,
        codec: RowCodec,
        insert_only: bool = False,
        chronons: bool = False,
        whole: bool = False,
        finalized: bool = False,
    ) -> None:
        self.name = name
        self.codec = codec
        self.insert_only = insert_only
        self.chronons = chronons
        self.whole = whole
        self.finalized = finalized
        self.cti = NEVER
        self.tau = NEVER
        self.promises: list[Promise] = []
        self._log = EventLog(codec)
        self._before: tuple[int, int, list[Promise]] = (NEVER, NEVER, [])

    @property
    def frontier(self) -> Frontier:
        return Frontier(self.cti, tuple(self.promises))

    def step(self, batch: ElementBatch) -> Guarded:
        """Check and take a batch; on an error nothing of it has been taken.

        Either `settle` or `undo` must follow: an epoch is taken by all inputs or by none.
        """
        self._before = (self.cti, self.tau, self.promises)
        op, vs, ve, vnew = batch.op, batch.vs, batch.ve, batch.vnew
        self._check_types(batch)
        at, sync, cti, tau, k, leading, adjusts = look(op, vs, ve, vnew, self.cti, self.tau, MIN_TIME, MAX_TIME, INF)
        if at >= 0:
            self._explain_times(batch, int(at), int(sync), int(cti))
        if self.chronons:
            self._check_chronons(batch)
        promises = self._check_promises(batch)
        columns, data = batch.columns, None
        if k < len(op):
            if leading == k:  # promises stand behind the data: no need to copy
                columns = tuple(column.slice(0, k) for column in columns)
                op, vs, ve, vnew = op[:k], vs[:k], ve[:k], vnew[:k]
            else:
                data = op <= ADJUST
                keep = pa.array(data)
                columns = tuple(column.filter(keep) for column in columns)
                op, vs, ve, vnew = op[data], vs[data], ve[data], vnew[data]
        rows = self.codec.encode(columns, k)
        if self.insert_only and adjusts:
            at = int(np.flatnonzero(batch.op == ADJUST)[0])
            raise self._error(
                batch, at, "an adjust on a source that is declared insert-only", "declare it with insert_only=False"
            )
        if self.whole or not (self.insert_only or self.finalized):
            self._check_events(batch, op, vs, ve, vnew, rows, data)
        self.tau = int(tau)
        if promises or cti > self.cti:
            self.promises = [promise for promise in (*self.promises, *promises) if promise.t > cti]
        self.cti = int(cti)
        return Guarded(self.codec, op, vs, ve, vnew, rows, int(adjusts))

    def settle(self) -> None:
        """The batch stays: forget what its CTI allows to forget."""
        if self.cti > self._before[0] and not self.whole:
            self._log.forget(self.cti)

    def undo(self) -> None:
        """Be as before the last batch."""
        self.cti, self.tau, self.promises = self._before
        self._log.undo()

    def hand_over(self) -> Changes | None:
        """Let Finalize match adjusts from now on: the events that can still be named, if they are kept."""
        self.finalized = True
        events = None if self.insert_only else self._log.events()
        self._log = EventLog(self.codec)
        return events

    def close(self) -> None:
        """The input has ended: everything is promised."""
        self.cti = INF
        if not self.whole:
            self._log.forget(INF)

    def _check_types(self, batch: ElementBatch) -> None:
        """The batch has the source's columns: what they hold is read as what the source declares."""
        schema = self.codec.schema
        if batch.schema is not schema and batch.schema != schema:
            raise self._error(
                batch, 0, f"a batch with the columns {batch.schema}", f"the source has {schema}, in this order"
            )
        for field, column in zip(schema.fields, batch.columns, strict=True):
            type_ = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if type_ != field.type:
                raise self._error(batch, 0, f"column {field.name!r} is of type {type_}, not {field.type}", "cast it")

    def _explain_times(self, batch: ElementBatch, at: int, sync: int, cti: int) -> None:
        op, vs, ve, vnew = int(batch.op[at]), int(batch.vs[at]), int(batch.ve[at]), int(batch.vnew[at])
        if op > 4:
            raise self._error(batch, at, f"unknown op {op}", "ops are insert, adjust, cti, punct, external_cti")
        if op == CTI:
            raise self._error(batch, at, f"the CTI {show(vs)} is out of range", f"finite times lie within ±{MAX_TIME}")
        if not MIN_TIME <= vs <= MAX_TIME or (ve > MAX_TIME and ve != INF):
            raise self._error(
                batch,
                at,
                f"the lifetime [{show(vs)}, {show(ve)}) is out of range",
                f"finite times lie within ±{MAX_TIME}",
            )
        if vs >= ve:
            raise self._error(batch, at, f"the lifetime [{show(vs)}, {show(ve)}) is empty", "vs must be less than ve")
        if op == ADJUST and vnew < vs:
            raise self._error(
                batch,
                at,
                f"an adjust to {show(vnew)}, before the event's start {show(vs)}",
                "vnew = vs removes the event",
            )
        if op == ADJUST and vnew > MAX_TIME and vnew != INF:
            raise self._error(batch, at, f"an adjust to {vnew} is out of range", f"finite times lie within ±{MAX_TIME}")
        what = "an adjust that changes" if op == ADJUST else "an insert that starts"
        raise self._error(
            batch, at, f"{what} at {show(sync)}, behind the CTI {show(cti)}",
            "a CTI promises that nothing before it changes; late elements need a source policy or Finalize",
        )  # fmt: skip

    def _check_chronons(self, batch: ElementBatch) -> None:
        """Every event lives one tick, so an adjust can only remove it."""
        wrong = longer(batch.op, batch.vs, batch.ve, batch.vnew)
        if wrong >= 0:
            end = batch.vnew[wrong] if batch.op[wrong] == ADJUST else batch.ve[wrong]
            raise self._error(batch, wrong, NOT_ONE_TICK.format(show(int(batch.vs[wrong])), show(int(end))), ONE_TICK)

    def _check_promises(self, batch: ElementBatch) -> list[Promise]:
        """No element contradicts an earlier punctuation; returns the batch's own."""
        external = [i for i in batch.promises if batch.op[i] == EXTERNAL_CTI]
        if external and not self.finalized:
            raise self._error(
                batch, external[0], "an external CTI, which counts elements that may come in any order",
                "only Finalize can read it: ask for it by REMEMBER (--remember, or remember=)",
            )  # fmt: skip
        fresh = [(i, p.promise) for i, p in batch.promises.items() if isinstance(p, Punct) and batch.op[i] == PUNCT]
        for i, promise in fresh:
            for name in promise.match:
                if name not in self.codec.schema:
                    raise self._error(
                        batch, i, f"a punctuation on the unknown attribute {name!r}", f"there is {self.codec.schema}"
                    )
        if not fresh and not self.promises:
            return []
        data = batch.op <= ADJUST
        sync = np.where(batch.op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)
        for position, promise in [*((-1, p) for p in self.promises), *fresh]:
            hit = data & (np.arange(len(batch)) > position) & (sync < promise.t)
            if hit.any():
                hit &= _matching(promise, batch)
                if hit.any():
                    at = int(np.flatnonzero(hit)[0])
                    raise self._error(
                        batch, at, f"an element that the punctuation {dict(promise.match)} had ruled out", ""
                    )
        return [promise for _, promise in fresh]

    def _check_events(
        self,
        batch: ElementBatch,
        op: np.ndarray,
        vs: np.ndarray,
        ve: np.ndarray,
        vnew: np.ndarray,
        rows: np.ndarray,
        data: np.ndarray | None,
    ) -> None:
        """Every adjust finds its event."""
        missing = self._log.apply(op, vs, ve, vnew, rows)
        if missing >= 0:
            at = missing if data is None else int(np.flatnonzero(data)[missing])
            row = dict(zip(self.codec.schema.names, (c[at].as_py() for c in batch.columns), strict=True))
            lifetime = f"[{show(int(vs[missing]))}, {show(int(ve[missing]))})"
            raise self._error(
                batch, at, f"an adjust of an event that is not there: {lifetime} {row}",
                "an adjust names the event's start, its present end and its whole row, after its insert",
            )  # fmt: skip

    def _error(self, batch: ElementBatch, at: int, problem: str, remedy: str) -> InputError:
        return InputError(problem, source=batch.source or self.name, line=batch.line(at), remedy=remedy)

    def standing(self) -> tuple[int, Changes] | None:
        """The CTI and the events that live from then on (see `Operator.standing`); None if they are not kept."""
        if self.whole:
            return NEVER, self._log.events()
        return None if self.insert_only else (self.cti, self._log.events())

    def state_size(self) -> StateSize:
        return self._log.state_size()

    def snapshot(self) -> dict[str, Any]:
        return {"cti": self.cti, "tau": self.tau, "promises": list(self.promises), "log": self._log.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self.cti, self.tau, self.promises = state["cti"], state["tau"], list(state["promises"])
        self._log.restore(state["log"])


def longer(op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray) -> int:
    """The first element that says a lifetime of more than one tick (-1: none)."""
    wrong = ((op == INSERT) & (ve - vs != 1)) | ((op == ADJUST) & ((ve - vs != 1) | (vnew > ve)))
    return int(np.argmax(wrong)) if wrong.any() else -1


def _matching(promise: Promise, batch: ElementBatch) -> np.ndarray:
    """Which elements' rows a promise matches."""
    hit = np.ones(len(batch), np.bool_)
    for name, pattern in promise.match.items():
        column = batch.columns[batch.schema.index(name)]
        match pattern:
            case Nothing():
                return np.zeros(len(batch), np.bool_)
            case OneOf(values):
                some = [v for v in values if v is not None]
                found = pc.is_in(column, pa.array(some, column.type)).to_numpy(zero_copy_only=False)
                if None in values:
                    found = found | column.is_null().to_numpy(zero_copy_only=False)
                hit &= found
            case Range():
                for bound, compare in (
                    ("ge", pc.greater_equal),
                    ("gt", pc.greater),
                    ("le", pc.less_equal),
                    ("lt", pc.less),
                ):
                    value = getattr(pattern, bound)
                    if value is not None:
                        verdict = compare(column, pa.scalar(value, column.type)).fill_null(False)
                        hit &= verdict.to_numpy(zero_copy_only=False)
    return hit
