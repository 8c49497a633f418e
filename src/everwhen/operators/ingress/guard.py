"""The source guard: elements in arrival order in, legal changes out, or an error that names the line.

It checks each element against what the stream has promised so far (also within the batch) and each adjust against the
events that are there.  Kept is the multiset of events (vs, ve, row) until `ve < c`, strictly, because an event that
ends at the CTI may still grow; for a source declared insert-only nothing is kept and an adjust is an error.  On a
source declared to live one tick a longer lifetime is an error, because plans leave work out that it would need.  On one
declared to arrive in order an insert that starts before the one before it is an error; the largest start is the last
one's, so nothing more is kept.

**Floor.**  Where nothing before an instant is of interest (`raise_floor`), elements that say nothing from then on are
skipped before their rows are read.  Their times are checked, and promises about data; events that end before the floor
are not kept, so an adjust that names such an end goes unchecked, and if it reaches over the floor it counts as an
insert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER, show
from everwhen.errors import InputError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.checked_batch import Arrived, times_problem
from everwhen.operators.ingress.event_log import EventLog, EventStore
from everwhen.operators.ingress.event_log_loops import first_fall, look, segments
from everwhen.operators.ingress.source_punctuation import SourcePromises
from everwhen.operators.punctuate.punctuator import Punctuator
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.batch_punctuation import BatchPunctuation
from everwhen.stream.element_batch import ADJUST, EXTERNAL_CTI, INSERT, ElementBatch

NOT_ONE_TICK: Final = "the lifetime [{}, {}) on a source that is declared to live one tick (ORDERED BY, chronons=True)"
ONE_TICK: Final = "leave the end out, or declare the source without it; an adjust may only remove the event"


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A checked batch: payload rows with the times of their elements.

    `ordered`: it is known that all are inserts, in the order of their starts.
    """

    codec: RowCodec
    op: np.ndarray
    vs: np.ndarray
    ve: np.ndarray
    vnew: np.ndarray
    rows: np.ndarray
    adjusts: int
    ordered: bool = False

    @property
    def sync(self) -> np.ndarray:
        """The earliest instant that each changes."""
        return np.where(self.op == ADJUST, np.minimum(self.ve, self.vnew), self.vs) if self.adjusts else self.vs

    def without(self, gone: np.ndarray) -> CheckedBatch:
        """The same without those at some places, which are adjusts."""
        keep = np.ones(len(self.op), bool)
        keep[gone] = False
        op, vs, ve, vnew, rows = (part[keep] for part in (self.op, self.vs, self.ve, self.vnew, self.rows))
        return CheckedBatch(self.codec, op, vs, ve, vnew, rows, self.adjusts - len(gone))

    def segments(self) -> Changes:
        """An insert is +[vs, ve); an adjust is the difference it makes."""
        if not self.adjusts:
            weight = np.empty(len(self.op), np.int64)
            weight.fill(1)
            return Changes(self.codec, self.vs, self.ve, weight, self.rows)
        lo, hi, weight, some = segments(self.op, self.vs, self.ve, self.vnew)
        if some == len(lo):
            return Changes(self.codec, lo, hi, weight, self.rows)
        keep = lo < hi
        return Changes(self.codec, lo[keep], hi[keep], weight[keep], self.rows[keep])

    def events(self) -> Changes:
        """Event form: an adjust takes the whole event back and says it again."""
        if not self.adjusts:
            return self.segments()
        adjust = np.flatnonzero(self.op == ADJUST)
        again = adjust[self.vnew[adjust] > self.vs[adjust]]
        lo, hi = np.concatenate([self.vs, self.vs[again]]), np.concatenate([self.ve, self.vnew[again]])
        weight = np.ones(len(lo), np.int64)
        weight[adjust] = -1
        return Changes(self.codec, lo, hi, weight, np.concatenate([self.rows, self.rows[again]]))


class Guard:
    """One source's guard.  `whole`: it keeps all events, also behind the CTI, as for a finite relation.

    `finalized`: Finalize stands behind it, which matches adjusts with events and reads external CTIs.  `log`: where its
    events are kept, if not in a log of its own.
    """

    def __init__(
        self,
        name: str,
        codec: RowCodec,
        insert_only: bool = False,
        chronons: bool = False,
        whole: bool = False,
        finalized: bool = False,
        punctuator: Punctuator | None = None,
        arrives: Literal["any", "in order", "strictly"] = "any",
        log: EventStore | None = None,
    ) -> None:
        self.name = name
        self.codec = codec
        self.arrives = arrives
        self.insert_only = insert_only
        self.chronons = chronons
        self.whole = whole
        self.finalized = finalized
        self.cti = NEVER
        self.tau = NEVER
        self.floor = NEVER
        """Nothing that is over by then is of interest."""
        self.fresh: Sequence[Punctuation] = ()
        """What the last settled batch has promised about data."""
        self._promises = SourcePromises(codec.schema, punctuator)
        self._silent = punctuator is None  # nothing has been promised about data, nothing declared is looked after
        self._log: EventStore = log or EventLog(codec)
        self.unfound = np.empty(0, np.int64)
        """The places of adjusts without their event in the last batch, where those are left out (`pass_over`)."""
        self._forgotten = NEVER  # what `forgotten` was when Finalize took the events over
        self._before: tuple[int, int] = (NEVER, NEVER)

    @property
    def frontier(self) -> Frontier:
        """What is promised, and what the last batch has promised about data."""
        return Frontier(self.cti, self.fresh)

    @property
    def promised(self) -> Any:
        """What stands of the promises about data, as plain data for `resume`."""
        return self._promises.snapshot()

    def resume(self, cti: int, tau: int, promised: Any) -> None:
        """Go on where another guard of the source has stopped."""
        self.cti, self.tau = cti, tau
        self._silent &= promised is None
        self._promises.restore(promised)

    def pass_over(self) -> None:
        """Leave adjusts out whose event is not there: its insert may have been left out, too."""
        if isinstance(self._log, EventLog):
            self._log.lenient = True

    def reach(self, t: int) -> None:
        """Everything before `t` is promised with the batch that was checked last; `settle` or `undo` follows."""
        if t > self.cti:
            self.cti = t

    def hurry(self, t: int) -> None:
        """Take everything before `t` for promised, without a batch."""
        if t > self.cti:
            self.cti = t
            if not self.whole:
                self._log.forget(self._kept_from(t))

    def step(self, batch: ElementBatch) -> CheckedBatch:
        """Check and take a batch; on an error nothing of it has been taken.

        Either `settle` or `undo` must follow: an epoch is taken by all inputs or by none.
        """
        self._before = (self.cti, self.tau)
        op, vs, ve, vnew = batch.op, batch.vs, batch.ve, batch.vnew
        self._check_types(batch)
        gaps = np.empty(len(op), np.int64)
        at, sync, cti, tau, n, adjusts, g, falls = look(
            op, vs, ve, vnew, self.cti, self.tau, MIN_TIME, MAX_TIME, INF, gaps
        )
        if at >= 0:
            self._explain_times(batch, at, sync, cti)
        if self.chronons:
            self._check_chronons(batch)
        if self.arrives != "any":
            self._check_order(batch)
        columns, end = batch.columns, n + g
        if end < len(op):  # what stands behind the last element that is data
            op, vs, ve, vnew = op[:end], vs[:end], ve[:end], vnew[:end]
            columns = tuple([column.slice(0, end) for column in columns])
        data = Arrived(op, vs, ve, vnew, columns, adjusts, gaps[:g])
        if batch.promises or not self._silent:
            self._silent = False
            self._check_promises(batch, data)
        places = self._after_floor(data)
        if places is None:
            rows = self.codec.encode(columns, n, data.gaps if g else None)
        else:
            rows = self._encoded(data, places)
            g, data = 0, data.taken(places)
            op, vs, ve, vnew = data.op, data.vs, data.ve, data.vnew
        if self.insert_only and adjusts:
            at = int(np.flatnonzero(batch.op == ADJUST)[0])
            raise self._error(
                batch, at, "an adjust on a source that is declared insert-only", "declare it with insert_only=False"
            )
        if g:
            op, vs, ve, vnew = data.head()
        guarded = CheckedBatch(self.codec, op, vs, ve, vnew, rows, data.adjusts, not (adjusts or falls))
        if self.whole or not (self.insert_only or self.finalized):
            guarded = self._check_events(batch, guarded, cti, data, places)
        self.cti, self.tau = cti, tau
        return guarded

    def _after_floor(self, data: Arrived) -> np.ndarray | None:
        """The places of elements that are of interest; None: all are."""
        if not self._skips or self.finalized:
            return None
        places = data.after(self.floor)
        return None if len(places) == len(data) else places

    def _encoded(self, data: Arrived, places: np.ndarray) -> np.ndarray:
        """The rows at these places.  To copy most of the columns would cost more than to read all of them."""
        if not len(places):
            return self.codec.empty()
        if 4 * len(places) < 3 * len(data):
            at = pa.array(places)
            return self.codec.encode([column.take(at) for column in data.columns], len(places))
        rows = self.codec.encode(data.columns, len(data), data.gaps if len(data.gaps) else None)
        return rows[places - np.searchsorted(data.gaps, places)]

    @property
    def _skips(self) -> bool:
        """Whether the source has not come to the floor yet."""
        return NEVER < self.floor >= self.cti

    def raise_floor(self, floor: int) -> None:
        """Nothing before `floor` is of interest any more, unless all events are kept."""
        if floor > self.floor and not self.whole:
            self.floor = floor
            self._log.forget(self._kept_from(self.cti))

    def _kept_from(self, cti: int) -> int:
        """Events that end earlier are not kept: of one that ends at the CTI it must be known whether it grows."""
        return max(cti, self.floor if self.floor in (NEVER, INF) else self.floor + 1)

    def settle(self) -> None:
        """The batch stays: forget what its promises allow to forget."""
        self._log.settle()
        if not self._silent:
            self._settle_promises()
        if self.cti > self._before[0] and not self.whole:
            self._log.forget(self._kept_from(self.cti))

    def _settle_promises(self) -> None:
        self._promises.settle(self.cti)
        self.fresh = self._promises.fresh
        if self.fresh and not self.whole:
            self._log.close(self.fresh)

    def undo(self) -> None:
        """Be as before the last batch."""
        self.cti, self.tau = self._before
        self._promises.undo()
        self._log.undo()

    def part(self) -> None:
        """What goes on is not what is taken any more: keep events apart from who hears of them at once."""
        self._log.part()

    def hand_over(self) -> Changes | None:
        """Let Finalize match adjusts from now on: the events that can still be named, if they are kept."""
        self.finalized = True
        events = None if self.insert_only else self._log.events()
        self._forgotten = self.forgotten
        self._log.forget(INF)
        self._log = EventLog(self.codec)
        return events

    def close(self) -> None:
        """The input has ended: everything is promised."""
        self.cti = INF
        self._promises.settle(INF)
        self.fresh = self._promises.fresh
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
            type_ = column.type
            if type_ != field.type and pa.types.is_dictionary(type_):
                type_ = type_.value_type
            if type_ != field.type:
                raise self._error(batch, 0, f"column {field.name!r} is of type {type_}, not {field.type}", "cast it")

    def _explain_times(self, batch: ElementBatch, at: int, sync: int, cti: int) -> None:
        raise self._error(batch, at, *times_problem(batch, at, sync, cti, self.name))

    def _check_chronons(self, batch: ElementBatch) -> None:
        """Every event lives one tick, so an adjust can only remove it."""
        wrong = longer(batch.op, batch.vs, batch.ve, batch.vnew)
        if wrong >= 0:
            end = batch.vnew[wrong] if batch.op[wrong] == ADJUST else batch.ve[wrong]
            raise self._error(batch, wrong, NOT_ONE_TICK.format(show(int(batch.vs[wrong])), show(int(end))), ONE_TICK)

    def _check_order(self, batch: ElementBatch) -> None:
        """Starts of inserts never go down, or always go up."""
        strictly = self.arrives == "strictly"
        at, last = first_fall(batch.op, batch.vs, self.tau, strictly)
        if at >= 0:
            how, words = ("not after", " STRICTLY") if strictly else ("before", "")
            raise self._error(
                batch, at, f"an insert that starts at {show(int(batch.vs[at]))}, {how} {show(int(last))}, where the "
                f"one before it starts, on a source that is declared to come in order (ARRIVES IN ORDER{words})",
                "sort the input, or declare the source without it; then it may come in any order",
            )  # fmt: skip

    def _check_promises(self, batch: ElementBatch, data: Arrived) -> None:
        """No element contradicts an earlier punctuation."""
        external = []
        if not (self.finalized or isinstance(batch.promises, BatchPunctuation)):
            external = [i for i in batch.promises if batch.op[i] == EXTERNAL_CTI]
        if external:
            raise self._error(
                batch, external[0], "an external CTI, which counts elements that may come in any order",
                "only Finalize can read it: ask for it by REMEMBER (--remember, or remember=)",
            )  # fmt: skip
        broken = self._promises.check(batch, data)
        if broken is not None:
            raise self._error(batch, broken.at, broken.problem, broken.remedy)

    def _check_events(
        self, batch: ElementBatch, given: CheckedBatch, cti: int, data: Arrived, places: np.ndarray | None
    ) -> CheckedBatch:
        """Every adjust finds its event, if that has not ended before the floor, or is left out (`pass_over`)."""
        op, vs, ve, adjusts = given.op, given.vs, given.ve, given.adjusts
        if adjusts and self._skips:
            known = (op != ADJUST) | (ve > self.floor)
            op, ve = np.where(known, op, np.uint8(INSERT)), np.where(known, ve, given.vnew)
            adjusts = int(np.count_nonzero(op))
        until = NEVER if self.whole else self._kept_from(cti)
        missing = self._log.apply(op, vs, ve, given.vnew, given.rows, adjusts, until)
        if missing >= 0:
            at = data.place(missing) if places is None else int(places[missing])
            row = dict(zip(self.codec.schema.names, (c[at].as_py() for c in batch.columns), strict=True))
            lifetime = f"[{show(int(vs[missing]))}, {show(int(ve[missing]))})"
            raise self._error(
                batch, at, f"an adjust of an event that is not there: {lifetime} {row}",
                "an adjust names the event's start, its present end and its whole row, after its insert",
            )  # fmt: skip
        if not isinstance(self._log, EventLog) or not self._log.lenient:
            return given
        gone = self._log.unfound
        self.unfound = np.flatnonzero(batch.op <= ADJUST)[gone] if places is None else places[gone]
        return given.without(gone) if len(gone) else given

    def _error(self, batch: ElementBatch, at: int, problem: str, remedy: str) -> InputError:
        return InputError(problem, source=batch.source or self.name, line=batch.line(at), remedy=remedy)

    @property
    def forgotten(self) -> int:
        """The largest end of the events that were dropped because their rows are promised (-∞: none was)."""
        return max(self._forgotten, self._log.forgotten)

    def standing(self) -> Changes | None:
        """The events that may still be named, all that live at the CTI and at `forgotten` or later among them; None if
        they are not kept."""
        return self._log.events() if self.whole or not self.insert_only else None

    def state_size(self) -> StateSize:
        return self._log.state_size()

    def snapshot(self) -> dict[str, Any]:
        promises = self._promises.snapshot()
        log = self._log.snapshot()
        return {
            "cti": self.cti, "tau": self.tau, "promises": promises, "log": log, "forgotten": self._forgotten,
            "floor": self.floor,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.resume(state["cti"], state["tau"], state["promises"])
        self._log.restore(state["log"])
        self._forgotten, self.floor = state["forgotten"], state.get("floor", NEVER)


def longer(op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray) -> int:
    """The first element that says a lifetime of more than one tick (-1: none)."""
    wrong = ((op == INSERT) & (ve - vs != 1)) | ((op == ADJUST) & ((ve - vs != 1) | (vnew > ve)))
    return int(np.argmax(wrong)) if wrong.any() else -1
