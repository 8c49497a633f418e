"""Finalize(M): how long a source is remembered, and with that how much memory a query may take.

**Guarantee.**  After every element, progress is at least the largest start seen minus M, so no operator keeps more than
that allows.  What is said is a valid stream, whatever comes in, as long as it keeps its own promises: an insert behind
the progress is dropped; a shrink behind it is cut there, and later adjusts still find the event by the end that the
source believes in; an adjust of an event that is not known, or not any more, is dropped.  All of that is given up:
counted by reason, and handed on.  With M at least the true disorder nothing is given up.

**Repair.**  An adjust that comes before its insert waits for it, as long as the insert could still be admitted.  Chains
of such adjusts are put together when the insert comes.  What waits in vain when the input ends is an error.

**External CTIs** announce how many elements have a sync time in an interval.  One becomes progress when so many have
come and progress has reached its start (time begins at 0 here), so that there is no gap; then the next is looked at.

Elements are taken one by one, also inside a batch, so batching changes nothing.  CEDR, section 4.6, and its slips in
`docs/papers.md`; the definition is `reference/admission.py`.  It is no source policy: it never waits for the clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, MIN_TIME, NEVER, show
from everwhen.errors import InputError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress import finalize_loops as kernel
from everwhen.operators.ingress.event_index import EventIndex
from everwhen.operators.ingress.event_log_loops import Elements
from everwhen.operators.ingress.guard import CheckedBatch
from everwhen.punctuation.api import PunctuationStore
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element import ExternalCti
from everwhen.stream.element_batch import ADJUST, EXTERNAL_CTI, ElementBatch, taken


class Reason(Enum):
    """Why an element was given up, by the number that the kernel uses."""

    LATE = "late"
    """An insert that starts behind the progress: dropped."""
    CUT = "cut"
    """An adjust that ends an event behind the progress: the event ends there instead."""
    UNKNOWN = "unknown"
    """An adjust of an event that was dropped or is over: dropped."""
    IN_VAIN = "in vain"
    """An adjust that waited for its insert until that would have been late: dropped."""


REASONS: Final = {
    kernel.LATE: Reason.LATE,
    kernel.CUT: Reason.CUT,
    kernel.UNKNOWN: Reason.UNKNOWN,
    kernel.IN_VAIN: Reason.IN_VAIN,
}


@dataclass(frozen=True, slots=True)
class DroppedElements:
    """Elements that were given up, and why each was: `codes` are the numbers of reasons."""

    elements: ElementBatch
    codes: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(REASONS[code] for code in self.codes.tolist())

    def counts(self) -> Counter[Reason]:
        """How many were given up for each reason."""
        found = np.bincount(self.codes, minlength=len(REASONS) + 1).tolist()
        return Counter({reason: found[code] for code, reason in REASONS.items() if found[code]})


@dataclass(frozen=True, slots=True)
class Admitted:
    """What is said of a batch, and what is given up."""

    said: CheckedBatch
    dropped: tuple[DroppedElements, ...] = ()


class Finalize:
    """The Finalize of one source.  `remember` may be changed between steps; progress never goes back.

    Cost: an element O(1) expected, with announced intervals one look at each.  Kept: events until they end before the
    progress or are promised (`close`), adjusts until it has passed their start, sync times until it has passed them.
    """

    keeps = "events until ve < c or they are promised, adjusts without their event until vs < c"

    def __init__(self, name: str, codec: RowCodec, remember: int, insert_only: bool = False) -> None:
        self.name = name
        self.codec = codec
        self.remember = remember
        self.insert_only = insert_only
        self.counts: Counter[Reason] = Counter()
        self._progress = np.array([NEVER, NEVER, 0, 0, 0, 0, 0, NEVER], np.int64)
        self._events = EventIndex(codec, column=2)
        self._over = PunctuationStore(
            codec.schema
        )  # what was promised about data since events were last dropped for it
        self._forgotten = NEVER
        self._broken = EventIndex(codec, column=0)
        self._announced = np.empty((0, 3), np.int64)
        self._syncs = np.empty(64, np.int64)
        self._n_syncs = 0
        self._ordered: deque[np.ndarray] = deque()  # sync times of batches in order
        self._source = name

    @property
    def cti(self) -> int:
        return int(self._progress[kernel.CTI_AT])

    @property
    def tau(self) -> int:
        """The largest start seen."""
        return int(self._progress[kernel.TAU_AT])

    def begin(self, cti: int, tau: int, events: Changes | None) -> None:
        """Go on where a source stood that had none so far."""
        self._progress[kernel.CTI_AT], self._progress[kernel.TAU_AT] = cti, tau
        self._events.forget(cti)
        if events is not None and len(events):
            fields = np.stack([events.lo, events.hi, events.hi, np.zeros_like(events.lo)], axis=1)
            self._events.append(fields, events.rows)

    # -- checking -----------------------------------------------------------------------------------------------

    def check(self, batch: ElementBatch) -> None:
        """Announced intervals begin at 0 or later and do not overlap; on an error nothing has been taken."""
        if not batch.promises:
            return
        known = [(int(start), int(end)) for start, end, _ in self._pending() if end > self.cti]
        for at, each in sorted(batch.promises.items()):
            if not isinstance(each, ExternalCti) or batch.op[at] != EXTERNAL_CTI:
                continue
            span = f"[{show(each.vs)}, {show(each.ve)})"
            problem = ""
            if each.vs < 0 or each.vs >= each.ve:
                problem = f"the interval {span} of an external CTI"
                remedy = "it begins at 0 or later, and before its end"
            elif each.count < 0:
                problem, remedy = f"an external CTI that announces {each.count} elements", "0 or more"
            else:
                other = next(((a, b) for a, b in known if a < each.ve and each.vs < b), None)
                if other is not None:
                    problem = f"an external CTI for {span} beside one for [{show(other[0])}, {show(other[1])})"
                    remedy = "their intervals do not overlap"
            if problem:
                raise InputError(problem, source=batch.source or self.name, line=batch.line(at), remedy=remedy)
            known.append((each.vs, each.ve))

    def check_end(self) -> None:
        """Whether the input may end here: no adjust still waits for its insert."""
        if not self._progress[kernel.WAITING_AT]:
            return
        fields = self._broken.fields[: self._broken.count][self._broken.alive()]
        first = fields[np.argmin(fields[:, 3])]
        raise InputError(
            f"an adjust of an event that never came: [{show(int(first[0]))}, {show(int(first[1]))})",
            source=self._source,
            line=int(first[3]),
            remedy=f"{len(fields)} adjusts wait for their inserts, and the input has ended",
        )

    # -- taking -------------------------------------------------------------------------------------------------

    def close(self, promises: Iterable[Punctuation]) -> None:
        """Events whose rows are promised can no longer be named; they go when room is needed."""
        if self._events.count:
            self._over.add(promises)

    def _drop_promised(self) -> None:
        if len(self._over):
            self._forgotten = max(self._forgotten, self._events.drop_promised(self._over))
            self._over = PunctuationStore(self.codec.schema)

    @property
    def forgotten(self) -> int:
        """The largest end of the events that were dropped because their rows are promised (-∞: none was)."""
        self._drop_promised()
        return self._forgotten

    def step(self, batch: ElementBatch, checked: CheckedBatch, cti: int) -> Admitted:
        """Take a batch, with what the guard made of it: its inserts and adjusts, in their order, and its last CTI."""
        n, rows = len(batch), checked.rows
        if not (self.insert_only or self._events.has_room(n)):
            self._drop_promised()
        self._source = batch.source or self._source
        external = np.flatnonzero(batch.op == EXTERNAL_CTI).tolist() if batch.promises else []
        plain = not checked.adjusts and not external and not self._progress[kernel.WAITING_AT]
        if plain and not len(self._pending()) and self._none_late(batch, checked, cti):
            forgotten = self._forget()
            if not self.insert_only:
                self._events.note(checked.vs, checked.ve, rows)
            self._note(checked.vs, checked.ordered)
            return Admitted(checked, forgotten)
        self._events.make_room(n)
        self._broken.make_room(n)
        self._progress[kernel.EVENTS_AT], self._progress[kernel.BROKEN_AT] = self._events.count, self._broken.count
        self._progress[kernel.CHANGED_AT] = 0
        out, which = np.empty((len(rows), 4), np.int64), np.empty(len(rows), np.int64)
        reason = np.zeros(n, np.uint8)
        lines = np.arange(batch.first_line, batch.first_line + n) if batch.lines is None else batch.lines
        lines = np.ascontiguousarray(lines, np.int64)
        sync = np.where(checked.op == ADJUST, np.minimum(checked.ve, checked.vnew), checked.vs)
        said, taken, begin = 0, 0, 0
        for end in [*external, n]:
            part = slice(begin, end)
            elements = Elements(batch.op[part], batch.vs[part], batch.ve[part], batch.vnew[part], rows)
            admission = kernel.Admission(out[said:], which[said:], reason[part])
            said += int(
                kernel.admit(
                    elements, taken, lines[part], self.remember, not self.insert_only, self._progress,
                    self._events.searched, self._broken.searched, self._announced, admission,
                )
            )  # fmt: skip
            before, begin = taken, end
            taken = len(rows) if end == n else taken + int((batch.op[part] <= ADJUST).sum())
            self._note(sync[before:taken])
            if end < n:
                announced = batch.promises[end]
                assert isinstance(announced, ExternalCti)
                self._announce(announced)
        self._events.extended(int(self._progress[kernel.EVENTS_AT]), hashed=True)
        self._broken.extended(int(self._progress[kernel.BROKEN_AT]), hashed=True)
        dropped = self._give_up(batch, reason) + self._forget()
        if not self._progress[kernel.CHANGED_AT]:
            return Admitted(checked, dropped)
        out, which = out[:said], which[:said]
        kinds = out[:, 0].astype(np.uint8)
        chosen = rows if said == len(rows) else rows[which]
        vs, ve, vnew = (np.ascontiguousarray(out[:, j]) for j in (1, 2, 3))
        return Admitted(CheckedBatch(self.codec, kinds, vs, ve, vnew, chosen, int((kinds == ADJUST).sum())), dropped)

    def _none_late(self, batch: ElementBatch, checked: CheckedBatch, cti: int) -> bool:
        """Whether no insert of a batch without adjusts is late; then progress has moved on, else nothing has changed.

        In order none can be behind what one before it has forced, and none is behind a CTI, so the first one tells.
        """
        if not checked.ordered:
            return bool(kernel.glance(batch.op, batch.vs, self.remember, self._progress))
        reached, tau = self.cti, self.tau
        if len(checked.vs):
            if checked.vs[0] < reached:
                return False
            tau = max(tau, int(checked.vs[-1]))
            forced = tau - self.remember if self.remember != INF else NEVER
            reached = max(reached, forced) if forced >= MIN_TIME else reached
        self._progress[kernel.CTI_AT], self._progress[kernel.TAU_AT] = max(reached, cti), tau
        return True

    def force(self, cti: int = NEVER) -> tuple[DroppedElements, ...]:
        """Progress without an element: to `cti`, or as M says after it was changed."""
        if self.remember != INF and self.tau != NEVER:
            cti = max(cti, self.tau - self.remember)
        self._progress[kernel.CTI_AT] = max(self.cti, cti)
        kernel.fire(self._progress, self._announced)
        return self._forget()

    def raise_floor(self, floor: int) -> None:
        """Nothing before `floor` is of interest any more: an adjust of what is over by then may name anything."""
        self._progress[kernel.FLOOR_AT] = max(int(self._progress[kernel.FLOOR_AT]), floor)

    def _announce(self, external: ExternalCti) -> None:
        if external.ve <= self.cti:
            return  # progress has passed it
        syncs = self._noted()
        inside = (syncs >= external.vs) & (syncs < external.ve)
        line = np.array([[external.vs, external.ve, external.count - int(inside.sum())]], np.int64)
        pending = np.concatenate([self._pending(), line])
        self._announced = np.ascontiguousarray(pending[np.argsort(pending[:, 0], kind="stable")])
        self._progress[kernel.NEXT_AT] = 0
        kernel.fire(self._progress, self._announced)

    def _pending(self) -> np.ndarray:
        return self._announced[int(self._progress[kernel.NEXT_AT]) :]

    def _note(self, sync: np.ndarray, ordered: bool = False) -> None:
        """Remember sync times, for intervals that are announced later; those in order stay as they came."""
        while self._ordered and self._ordered[0][-1] < self.cti:
            self._ordered.popleft()
        if ordered:
            if len(sync):
                self._ordered.append(sync)
            return
        if self._n_syncs + len(sync) > len(self._syncs):
            kept = self._syncs[: self._n_syncs]
            kept = kept[kept >= self.cti]
            self._n_syncs = len(kept)
            self._syncs[: len(kept)] = kept
            self._syncs = grown(self._syncs, 2 * (len(kept) + len(sync)), 0)
        self._syncs[self._n_syncs : self._n_syncs + len(sync)] = sync
        self._n_syncs += len(sync)

    def _noted(self) -> np.ndarray:
        """The sync times that progress has not passed."""
        syncs = np.concatenate([self._syncs[: self._n_syncs], *self._ordered])
        return syncs[syncs >= self.cti]

    def _give_up(self, batch: ElementBatch, reason: np.ndarray) -> tuple[DroppedElements, ...]:
        at = np.flatnonzero(reason)
        if not len(at):
            return ()
        return self._lost(DroppedElements(replace(taken(batch, at), at=None), reason[at]))

    def _forget(self) -> tuple[DroppedElements, ...]:
        """Drop what progress has passed; adjusts that waited in vain are given up."""
        cti = self.cti
        floor = int(self._progress[kernel.FLOOR_AT])
        self._events.forget(max(cti, floor if floor in (NEVER, INF) else floor + 1))
        if not self._progress[kernel.WAITING_AT]:
            self._broken.forget(cti)
            return ()
        before = self._broken.alive()
        self._broken.forget(cti)
        at = np.flatnonzero(before & ~self._broken.alive())
        if not len(at):
            return ()
        self._progress[kernel.WAITING_AT] -= len(at)
        fields = self._broken.fields[at]
        vs, ve, vnew = (np.ascontiguousarray(fields[:, j]) for j in range(3))
        elements = ElementBatch(
            self.codec.schema, np.full(len(at), ADJUST, np.uint8), vs, ve, vnew,
            self.codec.decode(self._broken.rows[at]), source=self._source, lines=fields[:, 3].copy(),
        )  # fmt: skip
        self._broken.fields[at, 1] = NEVER
        return self._lost(DroppedElements(elements, np.full(len(at), kernel.IN_VAIN, np.uint8)))

    def _lost(self, dropped: DroppedElements) -> tuple[DroppedElements, ...]:
        self.counts.update(dropped.counts())
        return (dropped,)

    def standing(self) -> Changes | None:
        """The events that live from the progress on, as they were said; None if they are not kept."""
        if self.insert_only:
            return None
        self._drop_promised()
        alive = self._events.alive()
        fields = self._events.fields[: self._events.count][alive]
        lo, hi = fields[:, 0].copy(), fields[:, 2].copy()
        return Changes(self.codec, lo, hi, np.ones(len(lo), np.int64), self._events.rows[: len(alive)][alive])

    # -- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        self._drop_promised()
        rows = int(self._events.alive().sum()) + int(self._progress[kernel.WAITING_AT])
        syncs = self._syncs.nbytes + sum(each.nbytes for each in self._ordered)
        return StateSize(rows, self._events.nbytes + self._broken.nbytes + syncs)

    def snapshot(self) -> dict[str, Any]:
        self._drop_promised()
        return {
            "progress": self._progress.tolist(),
            "forgotten": self._forgotten,
            "events": self._events.snapshot(),
            "broken": self._broken.snapshot(),
            "announced": self._pending().copy(),
            "syncs": self._noted(),
            "counts": {reason.value: count for reason, count in self.counts.items()},
            "source": self._source,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._progress[: len(state["progress"])] = state["progress"]
        self._forgotten = state["forgotten"]
        self._progress[kernel.NEXT_AT] = 0
        self._events.restore(state["events"])
        self._broken.restore(state["broken"])
        self._announced = np.ascontiguousarray(state["announced"], np.int64).reshape(-1, 3)
        self._note(np.asarray(state["syncs"], np.int64))
        self.counts = Counter({Reason(name): count for name, count in state["counts"].items()})
        self._source = state["source"]
