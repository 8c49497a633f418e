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
been emitted and may still change.  Copies at the same speed differ in little, so many cost no more than two.

**Joining.**  An input that is right from an instant on only (`since`) counts once the merge has come to it.  One that
has ended has left: it decides nothing any more.  When all have, of those that had joined the one that had promised most
is believed.

**Events.**  Where every input keeps events the start of an event is one more column of its row.  A segment [a, b) of
(start, row) is the difference of the events [start, b) and [start, a), so events stay events.  An event that began
before the promise and has not been emitted then (an input that decided lacked it) begins at the promise: from then on
it has that start for all inputs (`_Names`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.containers.live_runs import group_rows
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.merge.policy_loops import kth_largest
from everwhen.operators.net import cancelled, net_corrected
from everwhen.operators.signed_bag import SignedBag, after, before
from everwhen.punctuation.api import PunctuationStore, make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat_all, no_changes
from everwhen.rows.codec import RowCodec

_NO_KEYS: Final = np.empty(0, np.int64)
_FEWEST_NAMES: Final = 32


@dataclass
class _Input:
    """An input: what it says more (or less) than has been emitted, and how far it is."""

    ahead: SignedBag
    since: int
    promise: int = NEVER
    tau: int = NEVER
    ended: bool = False
    until: int = INF


_KEPT: Final = ("since", "promise", "tau", "ended", "until")


class _Names:
    """Starts under which events are emitted, where they are not their own: per (row, start) the other start, which is
    later.  Kept while somebody says something of the event that may still change."""

    def __init__(self, codec: RowCodec) -> None:
        self._codec = codec
        self._table = KeyTable(codec.width + 1, codec.pooled)
        self._starts = np.empty(0, np.int64)
        self._left = 0  # how many there were when they were last looked through
        codec.pool.register(self._table)

    def give(self, rows: np.ndarray, start: int) -> None:
        """Let (row, start) begin at another time; who had another name before gets the new one, too."""
        ids = self._table.intern(rows)
        self._starts = grown(self._starts, self._table.capacity, NEVER)
        self._starts[ids] = start

    def known(self, rows: np.ndarray) -> np.ndarray:
        """Rows under the starts by which they are emitted."""
        if not len(self._table):
            return rows
        rows = rows.copy()
        while True:  # a name may have been given another one since
            ids = self._table.find(rows)
            found = ids >= 0
            if not found.any():
                return rows
            rows[found, -1] = self._starts[ids[found]]

    def forget(self, bags: Sequence[SignedBag]) -> None:
        """Drop names that stand in none of the bags, once as many have come as were left the last time, or all bags are
        empty."""
        few = len(self._table) <= 2 * self._left + _FEWEST_NAMES
        if few and any(bag.size for bag in bags):
            return
        used = KeyTable(self._codec.width + 1)
        for bag in bags:
            used.intern(bag.netted().rows)
        ids = self._table.ids()
        self._table.remove(ids[used.find(self.known(self._table.codes[ids])) < 0])
        self._left = len(self._table)

    def state_size(self) -> StateSize:
        return StateSize(len(self._table), self._table.nbytes + self._starts.nbytes)

    def snapshot(self) -> dict[str, Any]:
        ids = self._table.ids()
        codes = self._table.codes[ids]
        rows = self._codec.decode(np.ascontiguousarray(codes[:, :-1]))
        return {"rows": rows, "start": codes[:, -1].copy(), "name": self._starts[ids]}

    def restore(self, state: dict[str, Any]) -> None:
        n = len(state["start"])
        restored.ints(n, state["start"], state["name"])
        if (state["name"] <= state["start"]).any():
            raise restored.misfit("an event begins before its own start")
        rows = np.concatenate([restored.rows(self._codec, state["rows"], n), state["start"][:, None]], axis=1)
        ids = self._table.intern(rows)
        self._starts = grown(self._starts, self._table.capacity, NEVER)
        self._starts[ids] = state["name"]


class LMergeOperator(Operator):
    """n copies in, one stream out; see the module's docstring.  `since`: from when on each input is right."""

    keeps = "what inputs say differently, and what has been emitted, after the promise"
    follows = True

    def __init__(self, codec: RowCodec, since: Sequence[int], policy: MergePolicy, events: bool) -> None:
        self.ports = len(since)
        self.codec = codec
        self._policy = policy
        self._events = events
        self._promise = min(since)
        self._inputs = [_Input(SignedBag(codec, int(events)), each) for each in since]
        self._emitted = SignedBag(codec, int(events))
        self._said = PunctuationStore(codec.schema)
        self._names = _Names(codec)

    # -- inputs that come and go --------------------------------------------------------------------------------

    def end(self, ports: Collection[int]) -> None:
        """These inputs have ended: their frontiers do not count any more."""
        for port in ports:
            self._inputs[port].ended = True

    def begin_anew(self, port: int, since: int) -> None:
        """A new input takes the place of one that has left.  It is right from `since` on."""
        bag = SignedBag(self.codec, int(self._events))
        bag.add(self._emitted.netted(), -1)
        bag.cut(max(since, self._promise))
        self._inputs[port] = _Input(bag, since)

    def leave_at(self, port: int, until: int) -> None:
        """What an input promises counts up to an instant only: another one is to be believed from then on."""
        self._inputs[port].until = until

    def reach(self, starts: Sequence[int]) -> bool:
        news = any(start > each.tau for each, start in zip(self._inputs, starts, strict=True))
        for each, start in zip(self._inputs, starts, strict=True):
            each.tau = max(each.tau, start)
        return news and self._policy.leader

    def _joined(self) -> list[_Input]:
        return [each for each in self._inputs if not each.ended and each.since <= self._promise]

    # -- running ------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        for each, batch in zip(self._inputs, inputs, strict=True):
            if len(batch):
                each.ahead.add(self._open(self._keyed(batch), each.since))
        for each, frontier in zip(self._inputs, frontiers, strict=True):
            if not each.ended:
                each.promise = max(each.promise, min(frontier.time, each.until))
        out: list[Changes] = []
        self._decide(out)
        promises: list[Punctuation] = []
        for each, frontier in zip(self._inputs, frontiers, strict=True):
            if frontier.promises and not each.ended and each.since <= self._promise and each.until == INF:
                self._decide_rows(each, frontier, out)
                promises += frontier.promises
        self._speculate(out)
        changes = net_corrected(concat_all(self.codec, out)) if out else no_changes(self.codec)
        return Output(self._as_events(changes) if self._events else changes, make_frontier(self._promise, promises))

    def _keyed(self, batch: Changes) -> Changes:
        """Rows with the start of their event as one more word."""
        if not self._events:
            return batch
        rows = np.concatenate([batch.rows, batch.lo[:, None]], axis=1)
        return Changes(self.codec, batch.lo, batch.hi, batch.weight, self._names.known(rows))

    def _as_events(self, changes: Changes, since: int = NEVER) -> Changes:
        """The difference of events that segments of (start, row) are; what has a segment from `since` on lived then."""
        start, rows = changes.rows[:, -1].copy(), np.ascontiguousarray(changes.rows[:, :-1])
        longer = Changes(self.codec, start, changes.hi, changes.weight, rows)
        shorter = Changes(self.codec, start, changes.lo, -changes.weight, rows)
        return cancelled(self.codec, [longer, shorter.take((shorter.lo < shorter.hi) & (shorter.hi != since))])

    def _limit(self, changes: Changes, since: int = NEVER) -> int | np.ndarray:
        """Before when nothing counts: it is decided, or the input is not right there."""
        everywhere = max(self._promise, since)
        if not len(self._said):
            return everywhere
        rows = np.ascontiguousarray(changes.rows[:, : self.codec.width])
        return np.maximum(upto(self._said, self.codec, rows), everywhere)

    def _open(self, changes: Changes, since: int) -> Changes:
        return after(changes, self._limit(changes, since))

    def _decide(self, out: list[Changes]) -> None:
        """What joined inputs have promised is the answer.  Who joins because of it may have promised more."""
        while True:
            if all(each.ended for each in self._inputs):
                best, until = self._furthest([each for each in self._inputs if each.since <= self._promise]), INF
            else:
                joined = self._joined()
                if not joined:
                    return
                best = self._furthest(joined)
                until = best.promise
            if until <= self._promise:
                return
            ahead = best.ahead.netted()
            self._emit(self._due(ahead, until), out)
            self._promise = until
            self._said.forget(until)
            for each in self._inputs:
                each.ahead.cut(until)
            self._emitted.cut(self._kept_from)
            self._names.forget([self._emitted, *(each.ahead for each in self._inputs)])

    def _due(self, ahead: Changes, until: int | np.ndarray) -> Changes:
        """What must be emitted so that all before a time is said.  A correction reaches as far as the difference does,
        else it would come in parts; of an event, to its end."""
        if self._policy.final:
            return before(ahead, until)
        due = ahead.lo < until
        if self._events and due.any() and not due.all():
            table = KeyTable(ahead.rows.shape[1])
            table.intern(ahead.rows[due])
            due = table.find(ahead.rows) >= 0
        return ahead.take(due)

    def _decide_rows(self, each: _Input, frontier: Frontier, out: list[Changes]) -> None:
        """What is promised of rows is the answer there."""
        ahead = each.ahead.netted()
        until = upto(frontier.promises, self.codec, np.ascontiguousarray(ahead.rows[:, : self.codec.width]))
        self._emit(self._due(ahead, until), out)
        self._said.add(frontier.promises)
        for other in self._inputs:
            other.ahead.cut(self._limit(other.ahead.whole()))

    def _speculate(self, out: list[Changes]) -> None:
        """From the promise on, what the policy says."""
        joined = self._joined()
        if not joined or self._policy.final:
            return
        if self._policy.leader:
            target = self._furthest(joined).ahead.netted()
        else:
            target = self._kth(joined, min(self._policy.quorum, len(joined)))
            if self._events:  # who promised the past has no such event: it is for a promise to say that it is there
                keys, table = self._late(target)
                target = target.take(~np.isin(table.find(target.rows), keys)) if len(keys) else target
        if self._policy.lazy:
            new = target.weight > 0
            if self._events:  # an event that grows is known already
                new &= target.lo == target.rows[:, -1]
            target = target.take(new)
        self._emit(target, out)

    def _furthest(self, inputs: Sequence[_Input]) -> _Input:
        return max(inputs, key=lambda each: (each.promise, each.tau))

    def _kth(self, joined: Sequence[_Input], k: int) -> Changes:
        parts = [each.ahead.netted() for each in joined]
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
        if self._events:
            changes = self._named(changes, out)
        out.append(changes)
        self._emitted.add(changes)
        for each in self._inputs:
            known = changes if each.since <= self._promise else after(changes, each.since)
            each.ahead.add(known, -1)

    @property
    def _kept_from(self) -> int:
        """What has been emitted is kept from then on: of events also those that end just at the promise, which may
        grow."""
        return self._promise - 1 if self._events and NEVER < self._promise < INF else self._promise

    def _late(self, changes: Changes) -> tuple[np.ndarray, KeyTable]:
        """The keys of which there are events that began before the promise and have not been emitted, in a table."""
        at, table = self._promise, KeyTable(changes.rows.shape[1])
        late = (changes.lo == at) & (changes.rows[:, -1] < at) & (changes.weight > 0)
        if not late.any():
            return _NO_KEYS, table
        ids = table.intern(changes.rows[late])
        missing = np.zeros(table.capacity, np.int64)
        np.add.at(missing, ids, changes.weight[late])
        emitted = self._emitted.netted()
        of = table.find(emitted.rows)
        for times, sign in ((emitted.hi, -1), (emitted.lo, 1)):  # as many may grow as end there
            there = (of >= 0) & (times == at)
            np.add.at(missing, of[there], sign * emitted.weight[there])
        return np.flatnonzero(missing > 0), table

    def _named(self, changes: Changes, out: list[Changes]) -> Changes:
        """The same, where events that began before the promise and are new have the promise as their start."""
        keys, table = self._late(changes)
        if not len(keys):
            return changes
        emitted = self._emitted.netted()
        moved = after(emitted.take(np.isin(table.find(emitted.rows), keys)), self._promise)
        self._names.give(table.codes[keys], self._promise)
        if len(moved):  # of equal events, those that were emitted are cut at the promise and go on with the new ones
            out.append(moved.negated())
            self._emitted.add(moved, -1)
            moved = Changes(self.codec, moved.lo, moved.hi, moved.weight, self._names.known(moved.rows))
            out.append(moved)
            self._emitted.add(moved)
        for each in self._inputs:
            ahead = each.ahead.netted()
            each.ahead.put(Changes(self.codec, ahead.lo, ahead.hi, ahead.weight, self._names.known(ahead.rows)), True)
        return Changes(self.codec, changes.lo, changes.hi, changes.weight, self._names.known(changes.rows))

    # -- looking ------------------------------------------------------------------------------------------------

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        emitted = self._emitted.netted()
        if self._events:
            emitted = emitted.take(emitted.hi > self._promise)
            return self._promise, self._as_events(emitted, self._kept_from)
        return self._promise, emitted

    def waits_for(self, frontiers: Sequence[Frontier]) -> tuple[int, ...]:
        """All inputs that have not ended: the promise of any one would do."""
        if self._promise == INF:
            return ()
        return tuple(port for port, each in enumerate(self._inputs) if not each.ended)

    def state_size(self) -> StateSize:
        size = self._emitted.state_size() + self._names.state_size()
        return sum((each.ahead.state_size() for each in self._inputs), size)

    def snapshot(self) -> dict[str, Any]:
        return {
            "promise": self._promise,
            "emitted": self._emitted.snapshot(),
            "said": self._said.snapshot() if len(self._said) else None,
            "names": self._names.snapshot(),
            "inputs": [
                {**{name: getattr(e, name) for name in _KEPT}, "ahead": e.ahead.snapshot()} for e in self._inputs
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._promise = state["promise"]
        self._emitted.restore(state["emitted"])
        if state["said"] is not None:
            self._said.restore(state["said"])
        self._names.restore(state["names"])
        for each, known in zip(self._inputs, state["inputs"], strict=True):
            for name in _KEPT:
                setattr(each, name, known[name])
            each.ahead.restore(known["ahead"])
