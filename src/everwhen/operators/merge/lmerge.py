"""LMerge: physically different copies of one stream as one stream (Chandramouli, Maier, Goldstein).

**The rule.**  At every instant the answer is what that input says there which was the first to promise the instant.
From the promise on it is what a policy says:

    FIRST       what any input says (the largest of their counts)
    LEADER      what the input says that has promised most; of several, the one with the latest start
    QUORUM k    what k inputs say (the k-th largest count)
    FINAL       nothing

EAGER follows the policy at once.  LAZY only adds: what turns out too much is retracted when a promise decides.

So nothing is matched event by event.  Copies may cut lifetimes differently, begin late, lack elements; the output is
valid, and exact if the inputs agree.  The promise is the largest of the joined inputs', because what one of them has
promised is final.

**State.**  Per input the difference between what it says and what has been emitted, from the promise on; and what has
been emitted and may still change.  Copies at the same speed differ in little, so many cost no more than two.  Of events
all is one index, with a bit per input (`event_differences.py`); of snapshots each is a sum of segments.

**Joining.**  See `inputs.py`.  Where no input that is there has joined, of those that have ended the one that had
promised most is believed.

**Events.**  Where every input keeps events the start of an event is one more column of its row.  A segment [a, b) of
(start, row) is the difference of the events [start, b) and [start, a), so events stay events.  An event that began
before the promise and has not been emitted then (an input that decided lacked it) begins at the promise: from then on
it has that start for all inputs (`names.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from everwhen.containers.key_table import KeyTable
from everwhen.containers.live_runs import group_rows
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.operators.contract import Output, StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.merge.event_differences import EventDifferences
from everwhen.operators.merge.event_pool import MOST_COPIES
from everwhen.operators.merge.inputs import MergeInput, MergeOperator
from everwhen.operators.merge.names import Names
from everwhen.operators.merge.policy_loops import kth_largest
from everwhen.operators.merge.shared_log import CopyLog
from everwhen.operators.net import cancelled, net_corrected
from everwhen.operators.signed_bag import SignedBag, after, before
from everwhen.punctuation.api import make_frontier
from everwhen.rows.changes import Changes, concat_all, no_changes
from everwhen.rows.codec import RowCodec

_NO_KEYS: Final = np.empty(0, np.int64)
_FEWEST_TO_TIDY: Final = 1024


class LMergeOperator(MergeOperator):
    """n copies in, one stream out; see the module's docstring.  `since`: from when on each input is right."""

    keeps = "what inputs say differently, and what has been emitted, after the promise"

    def __init__(
        self, codec: RowCodec, since: Sequence[int], policy: MergePolicy, events: bool, names: Sequence[str] = ()
    ) -> None:
        super().__init__(codec, since, policy, names)
        if events and len(since) > MOST_COPIES:
            raise QueryError(
                f"events of {len(since)} inputs are merged, and {MOST_COPIES} can be; merge some of them first"
            )
        self._events = events
        self._index = EventDifferences(codec) if events else None
        self._emitted = SignedBag(codec)
        self._kept = 0  # how much had been emitted and could change when that was last looked through
        self._names = Names(codec)
        self._follows = events and policy.leader and not policy.lazy

    def log(self, port: int) -> CopyLog | None:
        """Where a guard may keep its events whose source is this input, and nothing else's; None: elsewhere.  An audit
        hears all that an input says, so it is of interest to the guard, too."""
        return self._index.copy(port) if self._index is not None and self._audit is None else None

    def _joins(self, port: int) -> None:
        each = self._inputs[port]
        if self._index is not None:
            self._index.begin(port)
            return
        each.bag.add(self._emitted.netted(), -1)
        each.bag.cut(max(each.since, self._promise))

    def add_input(self, name: str, since: int) -> None:
        if self._index is not None and self.ports == MOST_COPIES:
            raise QueryError(f"events of {MOST_COPIES} inputs are merged already; merge some of them before")
        super().add_input(name, since)

    def leave(self, ports: Collection[int]) -> None:
        super().leave(ports)
        for port in ports:  # they are not believed any more
            if self._index is not None:
                self._index.begin(port)
            else:
                self._inputs[port].bag.put(no_changes(self.codec))

    # -- running ------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        self._hear(inputs, frontiers)
        heard = self._taken_by_guards()
        for port, (each, batch) in enumerate(zip(self._inputs, inputs, strict=True)):
            if len(batch) and not heard >> port & 1:
                if self._index is not None:
                    self._index.add(port, self._keyed(batch), max(self._promise, each.since))
                else:
                    each.bag.add(after(batch, self._limit(batch, each.since)))
        out: list[Changes] = []
        followed = self._decide(out)
        promises: list[Punctuation] = []
        for each, frontier in zip(self._inputs, frontiers, strict=True):
            if frontier.promises and not each.ended and each.since <= self._promise and each.until == INF:
                self._decide_rows(each, frontier, out)
                promises += frontier.promises
        self._speculate(out, followed if not promises else None)
        for each in self._inputs:
            each.bag.settle()
        frontier = make_frontier(self._promise, promises)
        if not out:
            return Output(no_changes(self.codec), frontier)
        changes = net_corrected(concat_all(self.codec, out))
        return Output(self._as_events(changes) if self._events else changes, frontier)

    def _taken_by_guards(self) -> int:
        """Bits of the inputs whose events are in the index already."""
        if self._index is None:
            return 0
        heard, self._index.heard = self._index.heard, 0
        return heard

    def _keyed(self, batch: Changes) -> Changes:
        """Rows with the start of their event as one more word."""
        rows = np.concatenate([batch.rows, batch.lo[:, None]], axis=1)
        return Changes(self.codec, batch.lo, batch.hi, batch.weight, self._names.known(rows))

    def _as_events(self, changes: Changes) -> Changes:
        """The difference of events that segments of (start, row) are."""
        start, rows = changes.rows[:, -1].copy(), np.ascontiguousarray(changes.rows[:, :-1])
        if np.array_equal(changes.lo, start):
            return Changes(self.codec, start, changes.hi, changes.weight, rows)
        longer = Changes(self.codec, start, changes.hi, changes.weight, rows)
        shorter = Changes(self.codec, start, changes.lo, -changes.weight, rows)
        return cancelled(self.codec, [longer, shorter.take(shorter.lo < shorter.hi)])

    def _ahead(self, each: MergeInput) -> Changes:
        """What an input says more or less than has been emitted, where that is not decided."""
        if self._index is None:
            return each.bag.netted()
        found = self._index.ahead(self._port(each), max(self._promise, each.since))
        return net_corrected(after(found, self._limit(found)) if len(self._said) else found)

    def _port(self, each: MergeInput) -> int:
        return next(port for port, other in enumerate(self._inputs) if other is each)

    def _said_so_far(self) -> Changes:
        """What has been emitted and may still change."""
        return self._emitted.netted() if self._index is None else self._index.emitted(self._kept_from)

    def _decide(self, out: list[Changes]) -> MergeInput | None:
        """What joined inputs have promised is the answer.  Who joins because of it may have promised more.  Returns
        the input, if there is one, that says what has been emitted."""
        followed = None
        while True:
            joined = self._joined()
            known, until = (joined, NEVER) if joined else self._believed()
            if not known:
                return followed
            best = self._furthest(known)
            until = max(best.promise, self._floor) if joined else until
            if until <= self._promise:
                return followed
            if self._follows:
                self._follow(best, out)
                followed = best
            else:
                self._emit(self._due(self._ahead(best), until), out)
            self._promise = until
            self._said.forget(until)
            if self._index is not None:
                self._index.forget(until)
                self._names.forget(self._index)
                continue
            for each in self._inputs:
                each.bag.cut(until)
            self._tidy()

    def _tidy(self, now: bool = False) -> None:
        """Forget what has been emitted and is final: now, or once as much has come as was left the last time."""
        if now or self._emitted.size > 2 * self._kept + _FEWEST_TO_TIDY or self._promise == INF:
            self._emitted.cut(self._kept_from)
            self._kept = self._emitted.size

    def _due(self, ahead: Changes, until: int | np.ndarray) -> Changes:
        """What must be emitted so that all before a time is said.  A correction reaches as far as the difference does,
        else it would come in parts; of an event, to its end."""
        if self._policy.final:
            return before(ahead, until)
        due = ahead.lo < until
        if self._events and due.any() and not due.all() and ahead.weight.min() < 0:
            table = KeyTable(ahead.rows.shape[1])
            table.intern(ahead.rows[due])
            due = table.find(ahead.rows) >= 0
        return ahead.take(due)

    def _decide_rows(self, each: MergeInput, frontier: Frontier, out: list[Changes]) -> None:
        """What is promised of rows is the answer there."""
        ahead = self._ahead(each)
        until = upto(frontier.promises, self.codec, np.ascontiguousarray(ahead.rows[:, : self.codec.width]))
        self._emit(self._due(ahead, until), out)
        self._said.add(frontier.promises)
        if self._index is not None:
            self._index.close(lambda rows: upto(frontier.promises, self.codec, rows))
            return
        for other in self._inputs:
            other.bag.cut(self._limit(other.bag.whole()))

    def _follow(self, each: MergeInput, out: list[Changes]) -> None:
        """Emit what an input says, from the promise on."""
        if self._index is not None and not len(self._said):
            found, more = self._index.follow(self._port(each), max(self._promise, each.since))
            if len(found):
                out.append(found)
            if not more:
                return
        self._emit(self._ahead(each), out)

    def _speculate(self, out: list[Changes], followed: MergeInput | None) -> None:
        """From the promise on, what the policy says."""
        joined = self._joined()
        if not joined or self._policy.final:
            return
        if self._policy.leader:
            leader = self._furthest(joined)
            if self._follows:
                if leader is not followed:
                    self._follow(leader, out)
                return
            target = self._ahead(leader)
        else:
            target = self._kth(joined, min(self._policy.quorum, len(joined)))
            if self._events:  # who promised the past has no such event: it is for a promise to say that it is there
                keys, table, _ = self._late(target)
                target = target.take(~np.isin(table.find(target.rows), keys)) if len(keys) else target
        if self._policy.lazy:
            new = target.weight > 0
            if self._events:  # an event that grows is known already
                new &= target.lo == target.rows[:, -1]
            target = target.take(new)
        self._emit(target, out)

    def _furthest(self, inputs: Sequence[MergeInput]) -> MergeInput:
        return max(inputs, key=lambda each: (each.promise, each.tau))

    def _kth(self, joined: Sequence[MergeInput], k: int) -> Changes:
        parts = [self._ahead(each) for each in joined]
        whole = concat_all(self.codec, parts)
        if not len(whole):
            return whole
        port = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        table = KeyTable(whole.rows.shape[1])
        ids = table.intern(whole.rows)
        keys, offsets, order = group_rows(ids, np.full(table.capacity, -1, np.int64))
        found = kth_largest(offsets, order, port, whole.lo, whole.hi, whole.weight, len(parts), k)
        rows = table.codes[keys[found[:, 0]]]
        return Changes(self.codec, found[:, 1].copy(), found[:, 2].copy(), found[:, 3].copy(), rows)

    def _emit(self, changes: Changes, out: list[Changes]) -> None:
        if not len(changes):
            return
        if self._index is not None:
            changes = self._named(changes, self._index, out)
            out.append(changes)
            self._index.emit(changes)
            return
        out.append(changes)
        self._emitted.add(changes)
        for each in self._inputs:
            known = changes if each.since <= self._promise else after(changes, each.since)
            each.bag.add(known, -1)

    @property
    def _kept_from(self) -> int:
        """What has been emitted is kept from then on: of events also those that end just at the promise, which may
        grow."""
        return self._promise - 1 if self._events and NEVER < self._promise < INF else self._promise

    def _late(self, changes: Changes) -> tuple[np.ndarray, KeyTable, np.ndarray]:
        """The keys of which there are events that began before the promise and have not been emitted, in a table; and
        by key until when its row is promised."""
        table = KeyTable(changes.rows.shape[1])
        limit = np.broadcast_to(np.asarray(self._limit(changes)), len(changes))
        late = (changes.lo == limit) & (changes.rows[:, -1] < limit) & (changes.weight > 0)
        if not late.any():
            return _NO_KEYS, table, _NO_KEYS
        ids = table.intern(changes.rows[late])
        missing, at = np.zeros(table.capacity, np.int64), np.full(table.capacity, self._promise, np.int64)
        at[ids] = limit[late]
        np.add.at(missing, ids, changes.weight[late])
        emitted = self._said_so_far()
        of = table.find(emitted.rows)
        for times, sign in ((emitted.hi, -1), (emitted.lo, 1)):  # as many may grow as end there
            there = (of >= 0) & (times == at[of])
            np.add.at(missing, of[there], sign * emitted.weight[there])
        return np.flatnonzero(missing > 0), table, at

    def _named(self, changes: Changes, index: EventDifferences, out: list[Changes]) -> Changes:
        """The same, where events that began before the promise and are new have the promise as their start."""
        keys, table, at = self._late(changes)
        if not len(keys):
            return changes
        emitted = self._said_so_far()
        of = table.find(emitted.rows)
        same = np.isin(of, keys)
        moved = after(emitted.take(same), at[of[same]])
        self._names.give(table.codes[keys], at[keys])
        if len(moved):  # of equal events, those that were emitted are cut at the promise and go on with the new ones
            again = Changes(self.codec, moved.lo, moved.hi, moved.weight, self._names.known(moved.rows))
            for each in (moved.negated(), again):
                out.append(each)
                index.emit(each)
        index.rename(self._names.known, self._promise)
        return Changes(self.codec, changes.lo, changes.hi, changes.weight, self._names.known(changes.rows))

    # -- looking ------------------------------------------------------------------------------------------------

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        self._tidy(now=True)
        emitted = self._said_so_far()
        if self._index is not None:
            since = max(self._promise, self._index.closed)
            return since, self._as_events(emitted.take(emitted.hi > self._promise))
        return self._promise, emitted

    def state_size(self) -> StateSize:
        self._tidy(now=True)
        said = self._emitted.state_size() if self._index is None else self._index.state_size()
        return super().state_size() + said + self._names.state_size()

    def snapshot(self) -> dict[str, Any]:
        self._tidy(now=True)
        index = None if self._index is None else self._index.snapshot()
        return super().snapshot() | {
            "emitted": self._emitted.snapshot(), "index": index, "names": self._names.snapshot(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._emitted.restore(state["emitted"])
        self._kept = self._emitted.size
        if self._index is not None:
            self._index.restore(state["index"])
        self._names.restore(state["names"])
