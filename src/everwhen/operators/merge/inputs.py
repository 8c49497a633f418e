"""What every kernel of LMerge shares: inputs that come and go, the promise, promises about data, the audit.

The promise is the largest of the joined inputs', because what one of them has promised is final.  An input that is
right from an instant on only (`since`) has joined once the merge has come to it.  One that has ended has left: its
promise does not count any more.  Where nobody is left who has joined, those are believed that have ended, up to where
another input is right.  One that has gone before its end (`leave`) is not believed; the merge waits for another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from everwhen.core.merge_policy import MergePolicy
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator, StateSize
from everwhen.operators.key_frontiers import upto
from everwhen.operators.merge.audit import Audit
from everwhen.operators.signed_bag import SignedBag
from everwhen.punctuation.api import PunctuationStore
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec

_KEPT: Final = ("since", "promise", "tau", "ended", "left", "until")


@dataclass
class MergeInput:
    """An input and how far it is.  `bag`: what it says that the kernel keeps."""

    bag: SignedBag
    since: int
    promise: int = NEVER
    tau: int = NEVER
    ended: bool = False
    left: bool = False
    """It has gone before its end: what it knew is not believed any more."""
    until: int = INF
    """What it promises counts up to then only."""


class MergeOperator(Operator):
    """n copies in, one stream out.  `since`: from when on each input is right; `names`: what messages call them."""

    merges = True
    kernel: str = "R4"
    """The class of the paper whose conditions its inputs must keep."""

    def __init__(self, codec: RowCodec, since: Sequence[int], policy: MergePolicy, names: Sequence[str] = ()) -> None:
        self.ports = len(since)
        self.codec = codec
        self.names = tuple(names) or tuple(f"input {at}" for at in range(1, len(since) + 1))
        self._policy = policy
        self._promise = min(since)
        self._over = False  # no other input will come
        self._floor = NEVER  # all before is decided, whether or not it is promised: nobody cares
        self._inputs = [self._begun(each) for each in since]
        self._said = PunctuationStore(codec.schema)
        self._audit = Audit(codec, since, self.names) if policy.audit else None

    def _begun(self, since: int) -> MergeInput:
        return MergeInput(SignedBag(self.codec), since)

    @property
    def promise(self) -> int:
        """Nothing of the answer before it changes any more."""
        return self._promise

    # -- inputs that come and go --------------------------------------------------------------------------------

    def end(self, ports: Collection[int]) -> None:
        """These inputs have ended: their frontiers do not count any more."""
        for port in ports:
            self._inputs[port].ended = True

    def leave(self, ports: Collection[int]) -> None:
        """These inputs have gone before their end."""
        self.end(ports)
        for port in ports:
            self._inputs[port].left = True

    def finish(self) -> None:
        self._over = True

    def leave_at(self, port: int, until: int) -> None:
        """What an input promises counts up to an instant only: another one is to be believed from then on."""
        self._inputs[port].until = until

    def reach(self, starts: Sequence[int]) -> bool:
        news = any(start > each.tau for each, start in zip(self._inputs, starts, strict=True))
        for each, start in zip(self._inputs, starts, strict=True):
            each.tau = max(each.tau, start)
        return news and self._policy.leader

    def add_input(self, name: str, since: int) -> None:
        """One more input, right from `since` on, at a new port behind the others."""
        self._inputs.append(self._begun(since))
        self.ports = len(self._inputs)
        self.names = (*self.names, name)
        if self._audit is not None:
            self._audit.add(name)
        self.begin_anew(self.ports - 1, since)

    @property
    def unknown(self) -> tuple[int, int] | None:
        """The span of time that none of the inputs knows that are there, if there is one: the merge waits for it."""
        alive = [each.since for each in self._inputs if not each.ended]
        if self._promise == INF or (alive and min(alive) <= self._promise):
            return None
        return self._promise, min(alive, default=INF)

    def _believed(self) -> tuple[list[MergeInput], int]:
        """Where nobody is there who has joined: those that have ended, and up to when they are believed.  While another
        one may come in the place of one that has gone before its end, nobody is."""
        if not self._over and any(each.left for each in self._inputs):
            return [], INF
        known = [each for each in self._inputs if not each.left and each.since <= self._promise]
        return known, min((e.since for e in self._inputs if not e.left and e.since > self._promise), default=INF)

    def begin_anew(self, port: int, since: int) -> None:
        """A new input takes the place of one that has left.  It is right from `since` on."""
        self._inputs[port] = self._begun(since)
        self._joins(port)
        if self._audit is not None:
            self._audit.begin(port, max(since, self._promise))

    @abstractmethod
    def _joins(self, port: int) -> None:
        """A new input is there, of which nothing has come."""

    def needs_from(self, wanted: int) -> int:
        """Behind the promise no input counts; an audit compares all that they say."""
        return NEVER if self._policy.audit else max(wanted, self._promise)

    def fast_forward(self, t: int) -> None:
        """All before `t` is decided with the next step, as the input says it that is followed."""
        self._floor = max(self._floor, t)

    def skip(self, port: int, until: int) -> None:
        """The input has left out what is before `until` (fast-forward): there it is not compared with the others."""
        if self._audit is not None:
            self._audit.skip(port, until)

    def _joined(self) -> list[MergeInput]:
        return [each for each in self._inputs if not each.ended and each.since <= self._promise]

    # -- an epoch -----------------------------------------------------------------------------------------------

    def _hear(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier]) -> None:
        """How far the inputs are; with an audit, whether they agree."""
        if self._audit is not None:
            ended = [each.ended for each in self._inputs]
            self._audit.step(inputs, [frontier.time for frontier in frontiers], ended)
        for each, frontier in zip(self._inputs, frontiers, strict=True):
            if not each.ended:
                each.promise = max(each.promise, min(frontier.time, each.until))

    def _limit(self, changes: Changes, since: int = NEVER) -> int | np.ndarray:
        """Before when nothing counts: it is decided, or the input is not right there."""
        everywhere = max(self._promise, since)
        if not len(self._said):
            return everywhere
        rows = np.ascontiguousarray(changes.rows[:, : self.codec.width])
        return np.maximum(upto(self._said, self.codec, rows), everywhere)

    # -- looking ------------------------------------------------------------------------------------------------

    def needs(self, t: int) -> tuple[int, ...]:
        """Any input that is believed will do; one that has ended, or is right until earlier only, will not."""
        believed = [each for each in self._inputs if not each.ended and each.since <= self._promise] or self._inputs
        return tuple(t if each in believed and not each.ended and each.until >= t else INF for each in self._inputs)

    def waits_for(self, frontiers: Sequence[Frontier]) -> tuple[int, ...]:
        """All inputs that have not ended: the promise of any one would do."""
        if self._promise == INF:
            return ()
        return tuple(port for port, each in enumerate(self._inputs) if not each.ended)

    def state_size(self) -> StateSize:
        size = self._audit.state_size() if self._audit is not None else StateSize()
        return sum((each.bag.state_size() for each in self._inputs), size)

    def snapshot(self) -> dict[str, Any]:
        return {
            "promise": self._promise,
            "floor": self._floor,
            "said": self._said.snapshot() if len(self._said) else None,
            "audit": self._audit.snapshot() if self._audit is not None else None,
            "inputs": [{**{name: getattr(e, name) for name in _KEPT}, "bag": e.bag.snapshot()} for e in self._inputs],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._promise, self._floor = state["promise"], state["floor"]
        if state["said"] is not None:
            self._said.restore(state["said"])
        if self._audit is not None and state["audit"] is not None:
            self._audit.restore(state["audit"])
        for each, known in zip(self._inputs, state["inputs"], strict=True):
            for name in _KEPT:
                setattr(each, name, known[name])
            each.bag.restore(known["bag"])
