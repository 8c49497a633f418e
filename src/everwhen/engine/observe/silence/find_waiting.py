"""Find out why a query is silent: which promise is missing is computed, and what it brings is tried.

*What waits* is found by trying: a runtime is a state machine and can be copied, so a copy is given the promise of
everything, and the first instant that it then says something about is the first that waits.

*Which promise releases it* is computed: the answer has to promise all before the instant after that one, and from the
output downwards each operator tells what its ports have to promise for it (`needed_promises.py`).  It is then proved on
copies.  For any policy and level:

    * the promise that is named, of the source that is named, brings something, or moves the wait to another source
      that was named as well; one tick less brings nothing, whatever the others that are named promise;
    * a source that is not named is not waited for.

Recursion with the high-water mark, or with some rounds an epoch, says what depends on what comes in one epoch: there
the promises that are named bring something together, and not with one tick less of any, or without it.

*What comes by itself* waits for no promise: rows that go round in a recursion of which each epoch does some rounds,
constant rows, what a change of the query lets say next.  It is told first, and a trial goes on until nothing goes
round.

*Where the proof fails* it is searched.  That is where rows wait for something else than the answer's promise: in front
of the operators (levels that block), or for a promise about data that others follow from.  There more promised hardly
ever means less said, so the least instant is found by bisection.  Which of several sources are waited for is found by
leaving out one after the other, those first that have come least far, as long as the rest would do (a merge follows
whichever of its inputs is ahead); the least promise of each is then found with the others of the rest at the end of
time.  Where more of one does mean less said (the high-water mark; an answer that speculates, where what one promise
lets in takes back what another one did), they are lowered one after the other until none can be.

It costs a copy of the state, and a few steps on copies.  Beyond `LARGEST` rows of state nothing is copied: what is told
is how far the answer is final, and the computed promises that bring it further.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER, last_tick, next_tick, show
from everwhen.engine.observe.metadata import OperatorMetadata
from everwhen.engine.observe.silence.waiting import Needed, SourceStatus, Waiting
from everwhen.errors import QueryError
from everwhen.punctuation.api import write_match
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ADJUST, INSERT, ElementBatch, joined

LARGEST: Final = 1_000_000
Writes = Callable[[ElementBatch], tuple[int, int]]
_PATTERNS: Final = 8
"""So many patterns are tried at most."""
SWITCHING: Final = "another plan takes over in slices, and a copy would have to do the rest of it at once"
"""Why nothing is copied while it does."""
_EPOCHS: Final = 1_000
"""After so many epochs a trial ends although rows still go round."""


class Trial(Protocol):
    """A copy of what runs."""

    def push(self, elements: Mapping[str, Sequence[Element]]) -> ElementBatch:
        """What the query says to elements, by source."""

    def goes_on(self) -> bool:
        """Whether the next epoch does something although nothing may come."""

    def needs(self, t: int) -> Mapping[str, int]:
        """What sources have to promise so that the answer promises all before an instant, by source."""


@dataclass(frozen=True)
class Situation:
    """What runs: the sources that the query reads, its operators with inputs before their users, and how to copy it."""

    query: str
    sources: Sequence[SourceStatus]
    schemas: Mapping[str, Schema]
    """Of each source that takes promises about data."""
    operators: Sequence[OperatorMetadata]
    copy: Callable[[], Trial]
    state_rows: int = 0
    given_up: Mapping[str, int] | None = None
    unknown: Mapping[str, tuple[int, int]] | None = None
    """Merges, with the span that nobody knows."""
    begins: int = NEVER
    """From which instant on the answer is right."""
    sink: str = ""
    """What is wrong with a sink that is tried again."""
    untried: str = ""
    """Why no promise can be tried."""
    final: int = NEVER
    """Before which instant the answer is final."""
    further: Mapping[str, int] = field(default_factory=dict)
    """What sources have to promise so that it is final further than that."""
    writes: Writes | None = None
    """How many rows a sink that lets some wait would write if this was said, and the first instant of those that do;
    without, what is said counts."""

    @property
    def why_untried(self) -> str:
        """Why nothing is copied."""
        many = f"there are {self.state_rows:,} rows of state, and at most {LARGEST:,} are copied"
        return self.untried or (many if self.state_rows > LARGEST else "")


def find_waiting(now: Situation) -> Waiting:
    """Why the query says nothing."""
    told: dict[str, Any] = {"given_up": dict(now.given_up or {})}
    here, open_ = tuple(now.sources), [each for each in now.sources if each.promised < INF]
    if now.sink:
        return Waiting(now.query, "sink", here, detail=f": {now.sink}; it is tried again", **told)
    for merge, (first, end) in (now.unknown or {}).items():
        detail = f"the instants from {show(first)} to {show(end)}"
        return Waiting(now.query, "unknown span", here, operator=merge, detail=detail, **told)
    if untried := now.why_untried:
        return _not_tried(now, here, untried, told) if open_ else Waiting(now.query, "ended", here, **told)
    search = _Search(now, open_)
    try:
        by_itself = search.brings({})
    except QueryError as failed:
        return Waiting(now.query, "fails", here, detail=str(failed), **told)
    if search.enough(by_itself):
        return Waiting(now.query, "under way", here, (), *_told(now, by_itself), **told)
    if not open_:
        return Waiting(now.query, "ended", here, **told)
    most = search.most()
    if not search.enough(most):
        if search.error is not None:
            return Waiting(now.query, "fails", here, first=search.fails_at, detail=str(search.error), **told)
        return _silent(now, here, told)
    first = _first(most) if _count(most) else 0
    needs = search.computed(first) or search.needed(first)
    met = {need.source.name: need.t for need in needs}
    brought = search.brings(met)
    needs = [search.with_pattern(need, most, met) for need in needs]
    return Waiting(now.query, "promise", here, tuple(needs), *_told(now, brought), **told)


def _told(now: Situation, said: ElementBatch) -> tuple[int, int, int]:
    """Rows and corrections, and the first instant that they are about."""
    if now.writes is not None:
        rows, first = now.writes(said)
        return rows, 0, first
    inserts = int((said.op == INSERT).sum())
    return inserts, _count(said) - inserts, _first(said)


def _not_tried(now: Situation, here: tuple[SourceStatus, ...], why: str, told: Mapping[str, Any]) -> Waiting:
    """Nothing is copied: the promises that bring the answer further than it is final."""
    return Waiting(now.query, "not tried", here, tuple(_missing(now, now.further)), first=now.final, detail=why, **told)


def _missing(now: Situation, needs: Mapping[str, int]) -> list[Needed]:
    """Of promises that are needed, those that have not been given yet."""
    return [
        Needed(each, needs[each.name])
        for each in now.sources
        if not each.resting and each.promised < needs.get(each.name, NEVER)
    ]


def next_final(final: int, sources: Sequence[SourceStatus]) -> int:
    """What an answer has to promise to be final further; if nothing is, up to behind the first known start."""
    starts = [each.largest_start for each in sources if each.largest_start > NEVER]
    return next_tick(final if final > NEVER else min(starts, default=0))


def _silent(now: Situation, here: tuple[SourceStatus, ...], told: Mapping[str, Any]) -> Waiting:
    """No promise would bring anything."""
    if all(each.largest_start == NEVER for each in here):
        return Waiting(now.query, "late" if any(told["given_up"].values()) else "nothing came", here, **told)
    reached = max(max(each.largest_start, each.promised) for each in here if each.promised < INF)
    if now.begins > reached:
        return Waiting(now.query, "catching up", here, detail=f"at {show(now.begins)}", **told)
    for each in now.operators if now.operators and not now.operators[-1].rows_out else ():
        if each.rows_in and not each.rows_out:
            detail = f" ({each.rows_in:,} in, 0 out)"
            return Waiting(now.query, "nothing passes", here, operator=each.name, detail=detail, **told)
    resting = all(each.resting for each in here if each.promised < INF)
    return Waiting(now.query, "resting" if resting else "all is said", here, **told)


class _Search:
    """Trials with promises of sources."""

    def __init__(self, now: Situation, sources: Sequence[SourceStatus]) -> None:
        self._now = now
        self.sources = {each.name: each for each in sorted(sources, key=lambda each: each.name)}
        self._all = dict.fromkeys(self.sources, INF)
        self._end = INF
        """What is tried at most."""
        self.error: QueryError | None = None
        """Why the query fails if more is promised."""
        self.fails_at = INF

    def most(self) -> ElementBatch:
        """What is said if everything is promised.

        Where the query fails on that, what is said if a little more is promised than is known of, and then more and
        more, as long as it does not fail; nothing later is tried then.  (RSTREAM can not say rows without end to their
        end; a function may fail on a row that waits in front of it.)
        """
        try:
            return self.brings(self._all)
        except QueryError as failed:
            self.error = failed
        known = max(max(each.promised, each.largest_start) for each in self.sources.values())
        fine, t, step = min(each.promised for each in self.sources.values()), known + 1 if known > NEVER else 1, 1
        while t < MAX_TIME:
            if self._fails(t):
                self.fails_at = least(self._fails, fine, t, t)
                break
            self._end = fine = t
            if self.enough(said := self.brings(self._all)):
                return said
            t, step = t + step, 2 * step
        self._end = last_tick(self.fails_at)
        return self.brings(self._all)

    def _fails(self, t: int) -> bool:
        """Whether the query fails if so much is promised."""
        self._end = INF
        try:
            self.brings(dict.fromkeys(self.sources, t))
        except QueryError as failed:
            self.error = failed
            return True
        return False

    def brings(self, promises: Mapping[str, int]) -> ElementBatch:
        """What is said if sources promise so much, where that is more than they have."""
        given = {name: [Cti(min(t, self._end))] for name, t in promises.items() if t > self.sources[name].promised}
        return self._said(given)

    def _said(self, elements: Mapping[str, Sequence[Element]]) -> ElementBatch:
        """What a copy says to elements, until nothing goes round in it."""
        trial = self._now.copy()
        said = trial.push(elements)
        for _ in range(_EPOCHS):
            if not trial.goes_on():
                break
            said = joined(said, trial.push({}))
        return said

    def enough(self, said: ElementBatch) -> bool:
        """Whether something is said, or written where rows wait in a sink."""
        writes = self._now.writes
        return _count(said) > 0 if writes is None else writes(said)[0] > 0

    def computed(self, first: int) -> list[Needed]:
        """The promises that follow from the operators' rules, if the first thing that waits is about an instant, proved
        on copies; none if they are not just what brings something."""
        rules = self._now.copy()
        for t in (next_tick(first), first):  # policies that speculate say a piece once its first instant is reached
            needs = _missing(self._now, rules.needs(t))
            if needs and self._is_proved({need.source.name: need.t for need in needs}):
                return needs
        return []

    def _does(self, promises: Mapping[str, int]) -> bool:
        """Whether promises bring something; what makes the query fail brings nothing."""
        try:
            return self.enough(self.brings(promises))
        except QueryError:
            return False

    def _is_proved(self, needs: Mapping[str, int]) -> bool:
        """Whether the promises are the lowest, also if the others are at the end."""
        if not self._is_lowest(needs):
            return False
        others = dict.fromkeys(needs, INF)
        return len(needs) == 1 or not any(self._does({**others, name: last_tick(t)}) for name, t in needs.items())

    def _is_lowest(self, needs: Mapping[str, int]) -> bool:
        """Whether the promises bring something, and not with one tick less of any of them, nor without it."""
        less: list[Mapping[str, int]] = [{**needs, name: last_tick(t)} for name, t in needs.items()]
        if len(needs) > 1:
            less += [_without(needs, name) for name in needs]
        return self._does(needs) and not any(map(self._does, less))

    def needed(self, first: int) -> list[Needed]:
        """Sources that are waited for, each with the least promise that brings something once the others have come."""
        rest = self._all
        for name in sorted(self.sources, key=lambda name: self.sources[name].promised):
            if self._does(fewer := _without(rest, name)):
                rest = fewer
        needs = {name: self._least(name, rest, first) for name in rest}
        if len(needs) > 1 and not self._is_lowest(needs):
            needs = self._lowered(rest, first)
        return [Needed(self.sources[name], t) for name, t in needs.items()]

    def _lowered(self, needs: Mapping[str, int], first: int) -> dict[str, int]:
        """From promises that bring something, one after the other lowered, and the others left as they are by then,
        until none can be lowered: where more of one promise asks for more of another."""
        found = dict(needs)
        while not self._is_lowest(found):
            for name in list(found):
                if self._does(fewer := _without(found, name)):
                    found = fewer
                else:
                    found[name] = self._least(name, found, first)
        return found

    def _least(self, name: str, needs: Mapping[str, int], first: int) -> int:
        """The least promise of one of the sources, with those of the others, that brings something as these do."""
        return least(
            lambda t: self._does({**needs, name: t}), self.sources[name].promised, next_tick(first), needs[name]
        )

    def with_pattern(self, need: Needed, most: ElementBatch, met: Mapping[str, int]) -> Needed:
        """With a promise about data that brings something instead of the one about time, if one does: about the columns
        that the first row that waits has in common with the source."""
        rows = [each for each in most.elements() if isinstance(each, Insert | Adjust)]
        schema = self._now.schemas.get(need.source.name)
        if not rows or schema is None:
            return need
        first = min(rows, key=lambda each: each.sync)
        common = [field.name for field in schema if field in most.schema.fields]
        others = {name: t for name, t in met.items() if name != need.source.name}
        for names in [[name] for name in common[: _PATTERNS - 1]] + ([common] if len(common) > 1 else []):
            promise = Punctuation.constants({name: first.row[name] for name in names})
            given: dict[str, list[Element]] = {name: [Cti(t)] for name, t in others.items()}
            given[need.source.name] = [Punct(promise)]
            with suppress(QueryError):  # about rows without end
                if self.enough(self._said(given)):
                    match = json.dumps(write_match(promise.match, schema), ensure_ascii=False, separators=(",", ":"))
                    return Needed(need.source, need.t, promise, match)
        return need


def _without(needs: Mapping[str, int], name: str) -> dict[str, int]:
    return {other: t for other, t in needs.items() if other != name}


def least(enough: Callable[[int], bool], low: int, guess: int, high: int = INF) -> int:
    """An instant after `low`, and not after `high`, at which a test holds and one tick earlier does not, of a test that
    holds at `high`; near `guess` it is found quickest.  Of a monotone test it is the least at which it holds.

    >>> [least(lambda t: t >= 40, low, guess) for low, guess in ((-3, 40), (5, 9), (39, 700), (NEVER, 0))]
    [40, 40, 40, 40]
    >>> least(lambda t: t == INF, 5, 9) == INF
    True
    """
    floor = max(low, MIN_TIME - 1)
    last = last_tick(high)
    if last <= floor or not enough(last):
        return high
    guess = min(max(guess, floor + 1), last)
    no, yes, step = floor, last, 1
    if enough(guess):
        yes = guess
        while yes - step > floor:
            if not enough(yes - step):
                no = yes - step
                break
            yes, step = yes - step, 2 * step
    else:
        no = guess
        while no + step < last:
            if enough(no + step):
                yes = no + step
                break
            no, step = no + step, 2 * step
    while yes - no > 1:
        middle = (no + yes) // 2
        no, yes = (no, middle) if enough(middle) else (middle, yes)
    return yes


def _count(batch: ElementBatch) -> int:
    return int(((batch.op == INSERT) | (batch.op == ADJUST)).sum())


def _first(batch: ElementBatch) -> int:
    """The first instant that changes."""
    begins = np.where(batch.op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)
    return int(begins[(batch.op == INSERT) | (batch.op == ADJUST)].min())
