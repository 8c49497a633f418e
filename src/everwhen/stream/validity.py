"""What a stream is: valid, ordered, perfect, closed, grammatical.  One pass, in arrival order.

* valid: no element changes anything before an earlier CTI or against an earlier punctuation (its `sync` is not before
  the promised time), and every adjust names an event that is there with exactly that start, end and row.
* grammatical (Tucker): no element matches an earlier pattern at an instant that it has promised.
* ordered (Goldstein/Hong, definition 3): sync times never decrease, those of CTIs included.
* perfect (definition 4): ordered, and no adjusts.
* shrink-only (CEDR asks it of every stream): no adjust makes a lifetime longer.
* closed up to t (definition 5): t is the largest CTI.  closed: the last element is a CTI beyond all that came before.

An offending element is reported and then ignored, so that the rest is judged by what was right.  Kept between batches:
the events that an adjust may still name (end not before the CTI) and the patterns that the CTI has not overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from everwhen.core.punctuation import OneOf, Punctuation, Range, less
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, show
from everwhen.errors import InputError
from everwhen.punctuation.api import show_promise
from everwhen.rows.dictionary import freeze
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch, lifetime_problem, well_formed
from everwhen.stream.history import Elements, Event, batch_element, batches_of, canonical_rows

_PURGE: Final = 100_000
"""So many events and patterns are kept at least before a look is taken at which are still needed."""
_RECENT: Final = 16
"""So many of the last ranges are asked whether a new one says all that they say."""


@dataclass(frozen=True, slots=True)
class Offence:
    """Where a property breaks first, and why."""

    line: int
    why: str
    source: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


@dataclass(frozen=True, slots=True)
class Report:
    """What holds for a stream; `offences` says of each property that does not hold where it broke first.

    >>> from everwhen.stream.element import Cti, Insert
    >>> report = check([Insert(3, 4, {"x": 1}), Cti(5)])
    >>> report.valid, report.perfect, report.closed_up_to
    (True, True, 5)
    """

    elements: int
    inserts: int
    adjusts: int
    ctis: int
    punctuations: int
    valid: bool
    ordered: bool
    perfect: bool
    grammatical: bool
    insert_only: bool
    shrink_only: bool
    chronon: bool
    closed: bool
    closed_up_to: int
    offences: dict[str, Offence] = field(default_factory=dict)

    @property
    def first_offence(self) -> Offence | None:
        """The element that makes the stream invalid, if it is."""
        return self.offences.get("valid")

    def __str__(self) -> str:
        counts = {"inserts": self.inserts, "adjusts": self.adjusts, "ctis": self.ctis, "patterns": self.punctuations}
        lines = [f"{'elements':<14}{self.elements}  ({', '.join(f'{n} {name}' for name, n in counts.items())})"]
        for name in ("valid", "ordered", "perfect", "grammatical", "insert_only", "shrink_only", "chronon"):
            offence = self.offences.get(name)
            answer = "yes" if getattr(self, name) else "no" + (f"   {offence}" if offence else "")
            lines.append(f"{name.replace('_', '-'):<14}{answer}")
        lines.append(f"{'closed up to':<14}{show(self.closed_up_to) if self.ctis else 'nothing: there is no cti'}")
        lines.append(f"{'closed':<14}{'yes' if self.closed else 'no'}")
        return "\n".join(lines)


def check(elements: Elements, schema: Schema | None = None) -> Report:
    """The properties of a stream.

    >>> from everwhen.stream.element import Cti, Insert
    >>> report = check([Insert(3, 4, {"x": 1}), Cti(5), Insert(4, 9, {"x": 2})])
    >>> report.valid, report.ordered, report.closed_up_to
    (False, False, 5)
    >>> print(report.first_offence)
    line 3: insert [4, 9) x=2 changes instant 4, but cti 5 came before
    """
    checker = Checker()
    for batch in batches_of(elements, schema):
        checker.take(batch)
    return checker.report()


def checked(batches: Iterable[ElementBatch]) -> Iterator[ElementBatch]:
    """The same batches; the first element that makes the stream invalid is an `InputError`."""
    checker = Checker()
    for batch in batches:
        checker.take(batch)
        if (offence := checker.offences.get("valid")) is not None:
            raise InputError(offence.why, source=offence.source, line=offence.line)
        yield batch


class Checker:
    """Judges a stream batch by batch."""

    def __init__(self) -> None:
        self.offences: dict[str, Offence] = {}
        self.cti = NEVER
        self._counts = np.zeros(5, np.int64)
        self._latest = NEVER  # the largest sync time so far
        self._latest_change = NEVER  # the same without CTIs
        self._closed = False
        self._events: dict[Event, int] = {}
        self._patterns = _Patterns()
        self._purge_at = _PURGE

    def report(self) -> Report:
        """What holds for all that was taken."""
        inserts, adjusts, ctis, punctuations, _ = self._counts.tolist()
        offences = dict(self.offences)
        broken = [offences[name] for name in ("ordered", "insert_only") if name in offences]
        if broken:
            offences["perfect"] = min(broken, key=lambda offence: offence.line)
        return Report(
            elements=int(self._counts.sum()),
            inserts=inserts,
            adjusts=adjusts,
            ctis=ctis,
            punctuations=punctuations,
            valid="valid" not in offences,
            ordered="ordered" not in offences,
            perfect="perfect" not in offences,
            grammatical="grammatical" not in offences,
            insert_only="insert_only" not in offences,
            shrink_only="shrink_only" not in offences,
            chronon="chronon" not in offences,
            closed=self._closed,
            closed_up_to=self.cti,
            offences=offences,
        )

    def take(self, batch: ElementBatch) -> None:
        """Judges the next batch of the stream."""
        if not len(batch):
            return
        op = batch.op
        sync = np.where(op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)
        before, self.cti = _running(self.cti, np.where(op == CTI, batch.vs, NEVER))
        self._judge_kind(batch, sync)
        self._judge_each(batch, sync, before)
        self._counts += np.bincount(op, minlength=5)
        self._latest_change = max(self._latest_change, int(np.where(op <= ADJUST, sync, NEVER).max()))
        beyond = self.cti > self._latest_change or self.cti == INF
        self._closed = bool(op[-1] == CTI and batch.vs[-1] == self.cti and beyond)
        if len(self._events) + len(self._patterns) > self._purge_at:
            self._events = {event: count for event, count in self._events.items() if event[1] >= self.cti}
            self._patterns.purge(self.cti)
            self._purge_at = max(_PURGE, 2 * (len(self._events) + len(self._patterns)))

    def _judge_kind(self, batch: ElementBatch, sync: np.ndarray) -> None:
        """The properties that need no state but the largest sync time."""
        op = batch.op
        timed = op <= CTI
        before, self._latest = _running(self._latest, np.where(timed, sync, NEVER))
        if (index := _first(timed & (sync < before))) is not None:
            why = f"{batch_element(batch, index)} comes after an element at {show(int(before[index]))}"
            self._offend("ordered", batch, index, why)
        if (index := _first(op == ADJUST)) is not None:
            self._offend("insert_only", batch, index, str(batch_element(batch, index)))
        if (index := _first((op == ADJUST) & (batch.vnew > batch.ve))) is not None:
            self._offend("shrink_only", batch, index, str(batch_element(batch, index)))
        # Where a lifetime is longer than a tick, or an adjust makes it so.
        longer = (op == INSERT) & (batch.ve != batch.vs + 1)
        longer |= (op == ADJUST) & (batch.vnew != batch.vs) & (batch.vnew != batch.vs + 1)
        if (index := _first(longer)) is not None:
            self._offend("chronon", batch, index, str(batch_element(batch, index)))

    def _judge_each(self, batch: ElementBatch, sync: np.ndarray, before: np.ndarray) -> None:
        names = batch.schema.names
        good = well_formed(batch.op, batch.vs, batch.ve, batch.vnew).tolist()
        late, syncs = ((batch.op <= ADJUST) & (sync < before)).tolist(), sync.tolist()
        ops, starts, ends, news = (times.tolist() for times in (batch.op, batch.vs, batch.ve, batch.vnew))
        events, patterns = self._events, self._patterns
        for i, row in enumerate(canonical_rows(batch)):
            op, event = ops[i], (starts[i], ends[i], row)
            if not good[i]:
                self._offend("valid", batch, i, lifetime_problem(op, starts[i], ends[i], news[i])[0])
                continue
            if op > ADJUST:
                promise = batch.promises.get(i)
                if isinstance(promise, Punct):
                    patterns.add(promise.promise)
                continue
            t = syncs[i]
            if patterns and (broken := patterns.against(dict(zip(names, row, strict=True)), t)) is not None:
                why = f"{batch_element(batch, i)} changes instant {show(t)}, but {show_promise(broken)} came before"
                self._offend("grammatical", batch, i, why)
                self._offend("valid", batch, i, why)
                continue
            if late[i]:
                promised = show(int(before[i]))
                why = f"{batch_element(batch, i)} changes instant {show(t)}, but cti {promised} came before"
                self._offend("valid", batch, i, why)
                continue
            if op == INSERT:
                events[event] = events.get(event, 0) + 1
                continue
            there = events.get(event, 0)
            if not there:
                self._offend("valid", batch, i, f"{batch_element(batch, i)} adjusts an event that is not there")
                continue
            if there == 1:
                del events[event]
            else:
                events[event] = there - 1
            if news[i] > starts[i]:
                moved = (starts[i], news[i], row)
                events[moved] = events.get(moved, 0) + 1

    def _offend(self, name: str, batch: ElementBatch, index: int, why: str) -> None:
        if name not in self.offences:
            self.offences[name] = Offence(batch.line(index), why, batch.source)


class _Patterns:
    """The promises with patterns so far, found by a constant where they have one."""

    def __init__(self) -> None:
        self._by_constant: dict[str, dict[Any, list[Punctuation]]] = {}
        self._others: list[Punctuation] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, promise: Punctuation) -> None:
        self._size += 1
        for name, pattern in promise.match.items():
            if isinstance(pattern, OneOf):
                of_name = self._by_constant.setdefault(name, {})
                for value in set(map(freeze, pattern.values)):
                    of_name.setdefault(value, []).append(promise)
                return
        # Ranges that grow cover those before them; only the last ones are asked, so that adding stays cheap.
        recent = [other for other in self._others[-_RECENT:] if not _covers(promise, other)]
        self._size -= min(len(self._others), _RECENT) - len(recent)
        self._others[-_RECENT:] = [*recent, promise]

    def against(self, row: Mapping[str, Any], sync: int) -> Punctuation | None:
        """A promise that a change of the row at `sync` breaks; an attribute that the row lacks is null."""
        found = [of_name.get(freeze(row.get(name)), ()) for name, of_name in self._by_constant.items()]
        for promise in chain(*found, self._others):
            if sync < promise.t and all(pattern.matches(row.get(name)) for name, pattern in promise.match.items()):
                return promise
        return None

    def purge(self, cti: int) -> None:
        """Forgets what the CTI says as well."""
        kept = {id(promise): promise for promise in self._all() if promise.t > cti}
        self._by_constant, self._others, self._size = {}, [], 0
        for promise in kept.values():
            self.add(promise)

    def _all(self) -> Iterator[Punctuation]:
        for of_name in self._by_constant.values():
            yield from chain.from_iterable(of_name.values())
        yield from self._others


def _covers(promise: Punctuation, other: Punctuation) -> bool:
    """Whether a promise of ranges says all that another one says, as far as that shows by their bounds."""
    if promise.t < other.t or not promise.match.keys() <= other.match.keys():
        return False
    for name, ours in promise.match.items():
        theirs = other.match[name]
        if not (isinstance(ours, Range) and isinstance(theirs, Range)):
            return False
        low, high = ((ours.ge, theirs.ge), (ours.gt, theirs.gt)), ((ours.le, theirs.le), (ours.lt, theirs.lt))
        if any(a is not None and (b is None or less(b, a)) for a, b in low):
            return False
        if any(a is not None and (b is None or less(a, b)) for a, b in high):
            return False
    return True


def _running(so_far: int, times: np.ndarray) -> tuple[np.ndarray, int]:
    """The largest time before each element, and the largest of all."""
    largest = np.maximum.accumulate(np.concatenate((np.array([so_far], np.int64), times)))
    return largest[:-1], int(largest[-1])


def _first(mask: np.ndarray) -> int | None:
    return int(np.argmax(mask)) if mask.any() else None
