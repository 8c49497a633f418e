"""How a loop finds out how far it is final: the token of the Flying Fixed-Point operator (the paper, 3.3 to 3.5, 5.3).

A token goes round the loop behind a batch of data, at most one at a time, and is back a round later.  It begins as a
guess and is lowered to what the loop's inputs have promised.  When it is back, everything before it is final, unless
something earlier has come to the head since it left.

Times are CTIs: a promise of `t` is about everything before `t`, and an event counts with the start of its segment.

    High-Water Mark   guesses the largest start seen; the token waits until the inputs have promised that much, and is
                      sent again if something earlier came
    Probing           guesses infinity; the token is lowered to what the inputs have promised, and always sent again
    Hybrid            as Probing, but sent only while the inputs have promised more than the loop has

The machine sees neither rows nor operators.  `sent` and `given` count for those who compare the strategies.
"""

from __future__ import annotations

from typing import Any, Final

from everwhen.core.loop_options import ProgressStrategy
from everwhen.core.time import INF, NEVER

_KEPT: Final = ("promise", "token", "earliest", "high", "converged", "sent", "given")


class ProgressToken:
    """The state of one loop's token.

    >>> token = ProgressToken("hybrid")
    >>> token.leave(external=5); token.arrived(3, 4); token.returned(external=5); token.promise
    3
    """

    def __init__(self, strategy: ProgressStrategy) -> None:
        self.strategy = strategy
        self.promise = NEVER
        """Everything before it is final."""
        self.token: int | None = None
        """What the token under way says."""
        self.earliest = INF
        """The earliest start that has come to the head since the token left."""
        self.high = NEVER
        """The largest start that ever came to the head."""
        self.converged = True
        """Whether nothing before the token has come to the head since it left."""
        self.sent = 0
        self.given = 0

    def arrived(self, low: int, high: int) -> None:
        """Data with these smallest and largest starts has come to the head."""
        self.earliest = min(self.earliest, low)
        self.high = max(self.high, high)
        if self.token is not None and low < self.token:
            self.converged = False

    def returned(self, external: int) -> None:
        """A round is over: the token is back, if one was under way; `external` is what all inputs have promised."""
        if self.token is None:
            return
        if self.strategy == "high water mark":
            if external < self.token:
                return  # it waits at the input that is behind
            if self.converged:
                self._give(self.token)
                self.token = None
            else:
                self.converged = True
                self.sent += 1
            return
        self._give(min(self.token, external, self.earliest))
        self.token = None

    def leave(self, external: int) -> None:
        """A batch has left behind which nothing is due: send a token behind it, if the strategy wants one."""
        if self.token is not None or not self._wanted(external):
            return
        # nothing is promised beyond the largest time, except everything
        guess = INF if self.strategy != "high water mark" or self.high == INF else self.high + 1
        self.token = guess
        self.earliest, self.converged = INF, True
        self.sent += 1

    def settle(self, external: int) -> None:
        """Nothing circulates, so a token comes back as it left: go on until nothing new follows.  When all inputs have
        ended, so has the loop."""
        if external == INF:
            self._give(INF)
        while True:
            self.leave(external)
            before = self.promise, self.converged
            self.returned(external)
            if (self.promise, self.converged) == before:
                return

    def _wanted(self, external: int) -> bool:
        match self.strategy:
            case "high water mark":
                return self.high > NEVER and self.high + 1 > self.promise
            case "hybrid":
                return external > self.promise
        return True

    def _give(self, promise: int) -> None:
        if promise > self.promise:
            self.promise = promise
            self.given += 1

    def needs(self, t: int) -> int:
        """What all inputs have to promise before the loop promises `t`, if nothing circulates.  The high-water mark
        stays where the token was sent to, and is promised at once."""
        if self.strategy != "high water mark" or t == INF:
            return t
        if self.token is not None and t <= self.token:
            return self.token
        return self.high + 1 if self.high < INF and t <= self.high + 1 else INF

    def snapshot(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _KEPT}

    def restore(self, state: dict[str, Any]) -> None:
        for name in _KEPT:
            setattr(self, name, state[name])
