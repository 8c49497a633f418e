"""Levels of consistency: how long a query may wait before it answers (B), and how long it remembers (M).

    B = 0, M = 0      weak      answer at once, forget at once
    B = 0, M = ∞      middle    answer at once, correct later
    B = ∞, M = ∞      strong    wait until an answer is final

and all that lies between, with B ≤ M: the triangle of CEDR's Figure 1.  B and M are ticks of application time, behind
the largest time seen.  Blocking is what Align does, remembering what Finalize does; what is said of the answer is the
emission policy's matter.

    >>> level = consistency(block="5 s", remember="1 min")
    >>> level.block, level.remember, level.emit.value
    (5000, 60000, 'current')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from everwhen.core.emit import Emit
from everwhen.core.time import INF, MAX_TIME, show_length, ticks
from everwhen.errors import QueryError

FOREVER: Final = ("inf", "infinity", "∞", "forever")

Duration = int | str


@dataclass(frozen=True, slots=True)
class Consistency:
    """A consistency level: its name, the bounds B (`block`) and M (`remember`) in ticks, and the emission policy.

    `repair`: inputs may have an adjust before its insert, and external CTIs, also if M is ∞.  `within`: an element also
    waits at most so many seconds of the clock, so that an idle input does not block.

    >>> STRONG.block == STRONG.remember == INF, MIDDLE.block, WEAK.remember
    (True, 0, 0)
    >>> consistency(block="5 s", remember="1 min").changed(emit="final").emit.value
    'final'
    """

    name: str
    block: int
    remember: int
    emit: Emit
    repair: bool = False
    within: float | None = None

    def __post_init__(self) -> None:
        if self.within is not None and not self.within >= 0:
            raise QueryError(f"to wait for {self.within} seconds is impossible: 0 or more")
        for what, length in (("block", self.block), ("remember", self.remember)):
            if not (0 <= length <= MAX_TIME or length == INF):
                raise QueryError(f"to {what} for {length} ticks is impossible: 0 or more, at most {MAX_TIME}, or ∞")
        if self.block > self.remember:
            waits, keeps = show_length(self.block), show_length(self.remember)
            raise QueryError(
                f"to block for {waits} ticks and remember {keeps} is impossible: what waits is remembered, "
                "so block at most as long as you remember"
            )

    def to_plain(self) -> dict[str, Any]:
        """The level as JSON can say it."""
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "emit": self.emit.value}

    def in_words(self) -> str:
        """All that it is, in a line.

        >>> MIDDLE.in_words()
        'middle, block 0, remember ∞, emit current'
        """
        spans = {"block": self.block, "remember": self.remember, "within": self.within}
        told = [f"{name} {'∞' if t == INF else t}" for name, t in spans.items() if t is not None]
        return ", ".join([self.name, *told, f"emit {self.emit.value}", *(["repair"] if self.repair else [])])

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Consistency:
        return cls(**{**plain, "emit": Emit(plain["emit"])})

    @property
    def finalizes(self) -> bool:
        """Whether Finalize stands below operators with state."""
        return self.remember < INF or self.repair

    @property
    def aligns(self) -> bool:
        """Whether Align does; who says only what is final needs no order before."""
        return self.block > 0 and self.emit is not Emit.FINAL

    def emitting(self, emit: Emit) -> Consistency:
        """Another emission policy.  Who blocks for ever does so by saying only what is final: to say more is to wait
        for nothing."""
        waits = not (self.block == INF and self.emit is Emit.FINAL and emit is not Emit.FINAL)
        return replace(self, emit=emit, block=self.block if waits else 0)

    def changed(
        self,
        block: Duration | None = None,
        remember: Duration | None = None,
        emit: str | Emit | None = None,
        tick: str = "1ms",
    ) -> Consistency:
        """Another B, M or emission policy; what is None stays as it is."""
        level = self
        if emit is not None:
            level = level.emitting(emit if isinstance(emit, Emit) else emit_named(emit))
        return level if block is None and remember is None else level.moved(block, remember, tick)

    def moved(self, block: Duration | None, remember: Duration | None, tick: str = "1ms") -> Consistency:
        """Another B or M, the same emission policy."""
        b = self.block if block is None else length_of(block, "block", tick)
        m = self.remember if remember is None else length_of(remember, "remember", tick)
        return Consistency(_named(b, m), b, m, self.emit, self.repair or remember is not None, self.within)


def consistency(
    block: Duration | None = None,
    remember: Duration | None = None,
    *,
    emit: str | Emit | None = None,
    tick: str = "1ms",
    within: float | None = None,
) -> Consistency:
    """A consistency level from its bounds: durations as text or ticks, "inf" or `INF` for ∞.

    Without `block` nothing waits (B = 0).  Without `remember` nothing is dropped (M = ∞).  With it, even if it is ∞,
    adjusts before their inserts are repaired and external CTIs are read.  `emit` is `final` if B is ∞, else `current`.
    With `within`, elements wait at most so many seconds of the clock, and at most `block`, if it is given.

    >>> level = consistency(block="5 s", remember="1 min")
    >>> level.block, level.remember, level.emit.value
    (5000, 60000, 'current')
    """
    m = INF if remember is None else length_of(remember, "remember", tick)
    b = length_of(block, "block", tick) if block is not None else 0 if within is None else m
    policy = Emit.FINAL if b == INF and within is None else Emit.CURRENT
    if emit is not None:
        policy = emit if isinstance(emit, Emit) else emit_named(emit)
    return Consistency(_named(b, m), b, m, policy, remember is not None, within)


def length_of(duration: Duration, what: str, tick: str = "1ms") -> int:
    """A duration in ticks; ∞ in words too."""
    if isinstance(duration, str):
        text = duration.strip()
        if text.lower() in FOREVER:
            return INF
        if text.startswith("-"):
            raise QueryError(f"{what}: {text} is less than nothing; write a duration such as 0, '5 s' or '10 minutes'")
        duration = int(text) if text.isdecimal() else text
    try:
        return ticks(duration, tick)
    except QueryError as bad:
        raise QueryError(f"{what}: {bad}") from None


def emit_named(text: str) -> Emit:
    """The emission policy of that name."""
    try:
        return Emit(text)
    except ValueError:
        names = ", ".join(policy.value for policy in Emit)
        raise QueryError(f"unknown emission policy {text!r}; there are {names}") from None


def _named(block: int, remember: int) -> str:
    return f"block {show_length(block)}, remember {show_length(remember)}"


STRONG = Consistency("strong", INF, INF, Emit.FINAL)
"""Wait until a result is final; nothing is ever retracted."""

MIDDLE = Consistency("middle", 0, INF, Emit.CURRENT)
"""Emit at once, correct later."""

WEAK = Consistency("weak", 0, 0, Emit.CURRENT)
"""Emit at once, keep no state for corrections: late elements are dropped."""

LEVELS: Final = {level.name: level for level in (STRONG, MIDDLE, WEAK)}
