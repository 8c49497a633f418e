"""The source guard of an epoch whose elements come in no particular order.

An epoch is the set of elements that arrive at one CEDR instant; an exchange between machines does not keep the order
within it.  So an adjust need not follow its event: after the whole epoch every event that is named must have been
there. Each element is a move of events (vs, ve, row): an insert adds one, an adjust adds one and takes one, and
taking comes last.  Elements behind the CTI of the epochs before are errors, and so are those that a promise about data
from the epochs before has ruled out; the epoch's own promises hold from the next one on.  Schemes are watched by a
punctuator of the guard's own: its share of a stream keeps each of them if the whole stream does.

With `lenient` an adjust of an event that is not there is left out and counted: its insert came too late and was
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER, show
from everwhen.errors import InputError
from everwhen.operators.contract import StateSize
from everwhen.operators.ingress.event_log import EventLog
from everwhen.operators.ingress.guard import NOT_ONE_TICK, ONE_TICK, CheckedBatch, longer
from everwhen.operators.ingress.source_punctuation import KEEP_YOUR_WORD, RULED_OUT
from everwhen.operators.punctuate.punctuator import Punctuator
from everwhen.punctuation.api import PunctuationStore, show_promise
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import ADJUST, INSERT


class UnorderedGuard:
    """One source's guard in one partition; `name` is what messages call the source."""

    def __init__(
        self,
        name: str,
        codec: RowCodec,
        insert_only: bool = False,
        lenient: bool = False,
        chronons: bool = False,
        punctuator: Punctuator | None = None,
    ) -> None:
        self.name = name
        self.codec = codec
        self.insert_only = insert_only
        self.lenient = lenient
        self.chronons = chronons
        self.cti = NEVER
        self.left_out = 0
        self._punctuator = punctuator
        self._said = PunctuationStore(codec.schema)
        self._fresh: tuple[Punctuation, ...] = ()
        self._log = EventLog(codec)

    @property
    def frontier(self) -> Frontier:
        """What is promised, and what the last epoch has promised about data."""
        return Frontier(self.cti, self._fresh)

    def step(
        self,
        op: np.ndarray,
        vs: np.ndarray,
        ve: np.ndarray,
        vnew: np.ndarray,
        columns: tuple[pa.Array, ...],
        cti: int,
        promises: Sequence[Punctuation] = (),
    ) -> CheckedBatch:
        """Check an epoch's elements (inserts and adjusts) and take them; from then on the CTI is at least `cti`, and
        the promises about data hold."""
        adjust = op == ADJUST
        self._check(adjust, op, vs, ve, vnew, columns)
        derived = self._observed(columns, len(op))
        self._check_promises(np.where(adjust, np.minimum(ve, vnew), vs), columns)
        rows = self.codec.encode(columns, len(op))
        adjusts = int(adjust.sum())
        if self.insert_only and adjusts:
            at = int(np.flatnonzero(adjust)[0])
            raise self._error(
                "an adjust on a source that is declared insert-only", columns, at, "give the source an op column"
            )
        if not self.insert_only:
            wrong = self._move(adjust, vs, ve, vnew, rows)
            while wrong >= 0:
                if not self.lenient:
                    lifetime = f"[{show(int(vs[wrong]))}, {show(int(ve[wrong]))})"
                    raise self._error(
                        f"an adjust of an event that is not there: {lifetime}", columns, wrong,
                        "an adjust names the event's start, its present end and its whole row",
                    )  # fmt: skip
                self.left_out += 1
                keep = np.arange(len(op)) != wrong
                op, vs, ve, vnew, rows, adjust = op[keep], vs[keep], ve[keep], vnew[keep], rows[keep], adjust[keep]
                columns = tuple(column.filter(pa.array(keep)) for column in columns)
                adjusts -= 1
                wrong = self._move(adjust, vs, ve, vnew, rows)
        if cti > self.cti:
            self.cti = cti
            self._log.forget(cti)
        self._promise([*promises, *derived])
        return CheckedBatch(self.codec, op.astype(np.uint8), vs, ve, vnew, rows, adjusts)

    def _check_promises(self, sync: np.ndarray, columns: tuple[pa.Array, ...]) -> None:
        """No element contradicts a promise of an earlier epoch."""
        if not len(sync) or not self._said:
            return
        names = self.codec.schema.names
        read = {name: columns[names.index(name)] for name in self._said.bound}
        broken = sync < self._said.upto(read, len(sync))
        if broken.any():
            at = int(np.argmax(broken))
            row = {name: column[at].as_py() for name, column in zip(names, columns, strict=True)}
            found = (promise for promise in self._said if promise.t > sync[at] and promise.matches(row))
            promise = next(found, Punctuation({}, NEVER))
            raise self._error(f"{RULED_OUT}: {show_promise(promise)}", columns, at, KEEP_YOUR_WORD)

    def _observed(self, columns: tuple[pa.Array, ...], n: int) -> list[Punctuation]:
        """What follows from the rows by the schemes of the source."""
        if self._punctuator is None:
            return []
        names = self.codec.schema.names
        read = {name: columns[names.index(name)] for name in self._punctuator.reads}
        seen = self._punctuator.observe(read, n)
        if seen.broken is not None:
            raise self._error(seen.broken.problem, columns, seen.broken.at, seen.broken.remedy)
        return seen.promises

    def _promise(self, fresh: Sequence[Punctuation]) -> None:
        """The epoch stays, and its promises hold."""
        if self._punctuator is not None:
            self._punctuator.settle()
        if fresh:
            together = PunctuationStore(self.codec.schema)
            together.add(fresh)
            self._said.add(fresh)
            fresh = tuple(together)
        self._fresh = tuple(promise for promise in fresh if promise.t > self.cti)
        if self._fresh:
            self._log.close(self._fresh)
        if self.cti == INF:
            self._said = PunctuationStore(self.codec.schema)
        elif self._said:
            self._said.forget(self.cti)

    def _move(self, adjust: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray, rows: np.ndarray) -> int:
        """Add first, take afterwards; the first adjust whose event is missing (then nothing is moved), or -1."""
        if not adjust.any():
            return self._log.apply(np.zeros(len(vs), np.uint8), vs, ve, ve, rows, 0)
        taken = np.flatnonzero(adjust)
        kept = np.flatnonzero(~adjust | (vnew > vs))
        at = np.concatenate([kept, taken])
        kinds = np.repeat(np.array([INSERT, ADJUST], np.uint8), [len(kept), len(taken)])
        ends = np.concatenate([np.where(adjust, vnew, ve)[kept], ve[taken]])
        starts = vs[at]
        # an adjust to its start takes the event away
        new = np.where(kinds == ADJUST, starts, ends)
        wrong = self._log.apply(kinds, starts, ends, new, rows[at], len(taken))
        return int(taken[wrong - len(kept)]) if wrong >= 0 else -1

    def _check(
        self,
        adjust: np.ndarray,
        op: np.ndarray,
        vs: np.ndarray,
        ve: np.ndarray,
        vnew: np.ndarray,
        columns: tuple[pa.Array, ...],
    ) -> None:
        long = longer(op, vs, ve, vnew) if self.chronons else -1
        if long >= 0:
            problem = NOT_ONE_TICK.format(show(int(vs[long])), show(int(vnew[long] if adjust[long] else ve[long])))
            raise self._error(problem, columns, long, ONE_TICK)
        sync = np.where(adjust, np.minimum(ve, vnew), vs)
        unknown = (op != INSERT) & ~adjust
        far = (vs < MIN_TIME) | (vs > MAX_TIME) | ((ve > MAX_TIME) & (ve != INF))
        far |= adjust & (vnew > MAX_TIME) & (vnew != INF)
        bad = unknown | far | (vs >= ve) | (adjust & (vnew < vs)) | (sync < self.cti)
        if not bad.any():
            return
        at = int(np.flatnonzero(bad)[0])
        lifetime = f"[{show(int(vs[at]))}, {show(int(ve[at]))})"
        if unknown[at]:
            raise self._error("an unknown op", columns, at, "ops are insert, adjust and cti")
        if far[at]:
            raise self._error(
                f"the lifetime {lifetime} is out of range", columns, at, f"finite times lie within ±{MAX_TIME}"
            )
        if vs[at] >= ve[at]:
            raise self._error(f"the lifetime {lifetime} is empty", columns, at, "it must start before it ends")
        if adjust[at] and vnew[at] < vs[at]:
            raise self._error(
                f"an adjust of {lifetime} to {show(int(vnew[at]))}, before its start",
                columns, at, "an adjust to the start removes the event",
            )  # fmt: skip
        what = "an adjust that changes" if adjust[at] else "an insert that starts"
        raise self._error(
            f"{what} at {show(int(sync[at]))}, behind the CTI {show(self.cti)}", columns, at,
            "nothing before a CTI may change; late elements need a policy: late='drop' or late='adjust'",
        )  # fmt: skip

    def _error(self, problem: str, columns: tuple[pa.Array, ...], at: int, remedy: str) -> InputError:
        row = {name: column[at].as_py() for name, column in zip(self.codec.schema.names, columns, strict=True)}
        return InputError(f"{problem}; row {row}", source=self.name, remedy=remedy)

    def standing(self) -> Changes:
        """The events that may still be named; none of a source that is never corrected."""
        return no_changes(self.codec) if self.insert_only else self._log.events()

    def state_size(self) -> StateSize:
        return self._log.state_size()

    def snapshot(self) -> dict[str, Any]:
        return {
            "cti": self.cti,
            "left_out": self.left_out,
            "log": self._log.snapshot(),
            "said": self._said.snapshot() if self._said else None,
            "punctuator": None if self._punctuator is None else self._punctuator.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.cti, self.left_out = state["cti"], state["left_out"]
        self._log.restore(state["log"])
        if state["said"] is not None:
            self._said.restore(state["said"])
        if self._punctuator is not None:
            self._punctuator.restore(state["punctuator"])
