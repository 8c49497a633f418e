"""LMerge of inputs that are never corrected and come in the order of their starts: the kernels R0, R1 and R2.

What has been emitted stays, so the policy is FIRST.  An element that starts later than all that was emitted is new.
One that starts earlier is not.  At the present instant, the largest start emitted, it depends:

    R0   starts always go up: there is one element, and it has been emitted
    R1   elements of one instant come in the same order on all inputs: counters, one per input and one for the output
    R2   they come in any order: per row of the instant, how often each input has said it and how often it was emitted

Nothing else is kept, whatever the length of lifetimes.  That needs lifetimes which no copy cuts: one tick, or a key of
the whole history.  With R1 an input that lacks an element shifts its counter, so it needs complete inputs.  With R0 and
R2 an element is lost that the inputs lack which are ahead.  In no case is anything emitted behind the promise.

The data of an input that has not joined waits: it may be ahead, and what starts at its elements would hide what older
inputs still have to say.  Where lifetimes may be long, a new input may say an event that goes on as if it began at
`since`; so it joins only when the merge is past that instant, unless nobody else is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everwhen.containers.arrays import grown
from everwhen.containers.key_table import KeyTable
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import NEVER
from everwhen.operators.contract import Output, StateSize
from everwhen.operators.merge.in_order_loops import by_count, by_row
from everwhen.operators.merge.inputs import MergeInput, MergeOperator
from everwhen.punctuation.api import make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat_all, no_changes
from everwhen.rows.codec import RowCodec


class InOrderMergeOperator(MergeOperator):
    """See the module's docstring.  `kernel`: R0, R1 or R2.  `instants`: every lifetime is one tick."""

    def __init__(
        self,
        codec: RowCodec,
        since: Sequence[int],
        policy: MergePolicy,
        kernel: str,
        instants: bool,
        names: Sequence[str] = (),
    ) -> None:
        self.kernel = kernel
        self._instants = instants
        self.keeps = {
            "R0": "the largest start emitted",
            "R1": "the largest start emitted, a counter per input and one for the output",
            "R2": "how often each row of the present instant was said by each input",
        }[kernel]
        self._now = NEVER  # the largest start emitted
        self._counts = np.zeros(len(since) + 1, np.int64)  # R1: elements of that instant, per input; emitted
        self._rows = KeyTable(codec.width + 1, codec.pooled)  # R2: rows and ends of that instant
        self._times = np.zeros((self._rows.capacity, len(since) + 1), np.int64)  # how often, per input; emitted
        super().__init__(codec, since, policy, names)
        codec.pool.register(self._rows)

    # -- inputs that come and go --------------------------------------------------------------------------------

    def _joins(self, port: int) -> None:
        self._counts[port] = 0
        self._times[:, port] = 0

    def add_input(self, name: str, since: int) -> None:
        self._counts = np.insert(self._counts, self.ports, 0)
        self._times = np.insert(self._times, self.ports, 0, axis=1)
        super().add_input(name, since)

    def _has_joined(self, each: MergeInput) -> bool:
        if each.since != self._promise or self._instants:
            return each.since <= self._promise
        return not any(other.since < self._promise and not other.ended for other in self._inputs)

    # -- an epoch -----------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        self._hear(inputs, frontiers)
        out: list[Changes] = []
        for port, (each, batch) in enumerate(zip(self._inputs, inputs, strict=True)):
            if not len(batch):
                continue
            if self._has_joined(each):
                self._take(port, batch, out)
            else:
                each.bag.add(batch.take(batch.lo >= each.since))
        self._advance(out)
        promises: list[Punctuation] = []
        for each, frontier in zip(self._inputs, frontiers, strict=True):
            if frontier.promises and not each.ended and self._has_joined(each):
                self._said.add(frontier.promises)
                promises += frontier.promises
        return Output(
            concat_all(self.codec, out) if out else no_changes(self.codec), make_frontier(self._promise, promises)
        )

    def _advance(self, out: list[Changes]) -> None:
        """What joined inputs have promised is promised.  Who joins because of it may have said and promised more."""
        while True:
            for port, each in enumerate(self._inputs):
                if each.bag.size and self._has_joined(each):
                    waiting = each.bag.whole()
                    each.bag.put(waiting.take(slice(0)))
                    if not each.left:
                        self._take(port, waiting, out)
            joined = [each for each in self._inputs if not each.ended and self._has_joined(each)]
            until = max((max(each.promise, self._floor) for each in joined), default=NEVER)
            if not joined:
                known, until = self._believed()
                until = until if known else NEVER
            if until <= self._promise:
                return
            self._promise = until
            self._said.forget(until)

    def _take(self, port: int, batch: Changes, out: list[Changes]) -> None:
        """Emit what is new of an input's elements, which are in order."""
        first = int(np.searchsorted(batch.lo, max(self._now, self._promise)))
        if first:
            batch = batch.take(slice(first, None))
        if len(self._said):
            batch = batch.take(batch.lo >= self._limit(batch))
        if not len(batch):
            return
        here = int(np.searchsorted(batch.lo, self._now, "right"))  # so many of the present instant
        present, later = batch.take(slice(here)), batch.take(slice(here, None))
        if here and self.kernel != "R0":
            present = self._compared(port, present)
            if len(present):
                out.append(present)
        if not len(later):
            return
        out.append(later)
        self._now = int(later.lo[-1])
        if self.kernel == "R1":
            self._counts[:] = 0
        elif self.kernel == "R2":
            self._rows.remove(self._rows.ids())
            self._times[:] = 0
        if self.kernel != "R0":
            self._compared(port, later.take(slice(int(np.searchsorted(later.lo, self._now)), None)))

    def _compared(self, port: int, present: Changes) -> Changes:
        """What is new of an input's elements of the present instant."""
        new = np.empty(len(present), np.bool_)
        if self.kernel == "R1":
            by_count(self._counts, port, new)
        else:
            ids = self._rows.intern(np.concatenate([present.rows, present.hi[:, None]], axis=1))
            self._times = grown(self._times, self._rows.capacity, 0)
            by_row(self._times, port, ids, new)
        return present.take(new)

    # -- looking ------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        own = self._rows.nbytes + self._times.nbytes if self.kernel == "R2" else self._counts.nbytes
        return super().state_size() + StateSize(len(self._rows), own)

    def snapshot(self) -> dict[str, Any]:
        ids = self._rows.ids()
        codes = self._rows.codes[ids]
        return super().snapshot() | {
            "kernel": self.kernel,
            "now": self._now,
            "counts": self._counts.copy(),
            "rows": self.codec.decode(np.ascontiguousarray(codes[:, :-1])),
            "ends": codes[:, -1].copy(),
            "times": [self._times[ids, port].copy() for port in range(self.ports + 1)],
        }

    def restore(self, state: dict[str, Any]) -> None:
        if state["kernel"] != self.kernel:
            raise restored.misfit(f"it was merged by {state['kernel']}, now by {self.kernel}")
        super().restore(state)
        n = len(state["ends"])
        restored.ints(n, state["ends"], *state["times"])
        restored.ints(self.ports + 1, state["counts"])
        self._now, self._counts = state["now"], state["counts"].copy()
        rows = restored.rows(self.codec, state["rows"], n)
        ids = self._rows.intern(np.concatenate([rows, state["ends"][:, None]], axis=1))
        self._times = grown(self._times, self._rows.capacity, 0)
        self._times[ids] = np.array(state["times"], np.int64).T
