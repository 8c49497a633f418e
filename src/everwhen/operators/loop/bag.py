"""The head of a UNION ALL loop: every derivation is a row, so derivations go round as they come.

It ends if every derivation does.  What is taken back goes round first, and meets what is still under way.
"""

from __future__ import annotations

from typing import Any, Final

from everwhen.operators.contract import StateSize
from everwhen.operators.loop.head import LoopHead
from everwhen.operators.net import netted, summed
from everwhen.operators.signed_bag import SignedBag
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec

_FEW: Final = 1024
"""So many segments go round as they are; more are added up if they do not get fewer from round to round."""
_MOST_COPIES: Final = 1 << 40
"""A row that is derived so often in one round is derived ever more often."""


class BagHead(LoopHead):
    """What is under way, if an epoch ends before the loop does."""

    keeps = "nothing but what is under way"
    counts = "no births: every derivation is a row"

    def __init__(self, codec: RowCodec) -> None:
        self.codec = self.sent = codec
        self._waiting = SignedBag(codec)
        self._last = 0

    def retract(self, derived: Changes) -> Changes:
        if self._waiting.size:
            self._waiting.add(derived)
            derived = netted(self._waiting.whole())
            self._waiting.put(no_changes(self.codec))
        else:
            derived = netted(derived)
        gone = derived.weight < 0
        if not gone.any():
            self._waiting.add(derived)
            return no_changes(self.codec)
        self._waiting.add(derived.take(~gone))
        return derived.take(gone)

    def insert(self, derived: Changes | None) -> Changes:
        if self._waiting.size:
            waiting = self._waiting.whole()
            self._waiting.put(no_changes(self.codec))
            derived = waiting if derived is None else concat(waiting, derived)
        if derived is None:
            return no_changes(self.codec)
        batch = derived
        if len(batch) > max(_FEW, self._last):
            batch = summed(batch)
            self.endless = len(batch) > 0 and int(batch.weight.max()) > _MOST_COPIES
        self._last = len(batch)
        return batch

    def hold(self, derived: Changes) -> None:
        self._waiting.add(derived)

    @property
    def due(self) -> bool:
        return self._waiting.size > 0

    def answer(self, sent: Changes) -> Changes:
        return sent

    def expire(self, promise: int) -> None:
        self._last = 0

    def state_size(self) -> StateSize:
        return self._waiting.state_size()

    def snapshot(self) -> dict[str, Any]:
        return self._waiting.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        self._waiting.restore(state)
