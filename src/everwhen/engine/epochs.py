"""Epochs: in which order the elements of several inputs come, and where that order is cut into epochs.

**Guarantee.**  The epochs depend on the inputs, their order and the batch size alone, never on timing: whoever reads
the same inputs again gets the same epochs, on every engine, also from any epoch on (`taken` says where that is).

* Relations come first: those that are known whole, such as constants, make the first epoch and end with it.
* Without arrival numbers the inputs are read round-robin, `batch` elements of each in turn.
* If every element carries an arrival number (`at`), all elements are merged by it; ties go by the order of the inputs,
  then by the order within one.  An epoch is then a run of `batch` elements in all.
* An input that has ended is closed in the next epoch, unless the inputs are left open.

Memory is bounded by a few batches per input.  This is no synchronisation by application time: that is what promises and
consistency levels are for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF
from everwhen.errors import InputError, QueryError
from everwhen.stream.element import ExternalCti, Punct
from everwhen.stream.element_batch import ElementBatch


def require_batch(batch: int) -> None:
    """QueryError unless it is a number of elements."""
    if not isinstance(batch, Integral) or batch < 1:
        raise QueryError(f"a batch holds at least one element: a whole number such as 10000, not {batch!r}")


@dataclass(frozen=True, slots=True)
class Epoch:
    """What arrives together.  The inputs in `closes` have ended before `batches` come; `last`: nothing is left open."""

    batches: Mapping[str, ElementBatch]
    closes: tuple[str, ...] = ()
    last: bool = False


@dataclass
class EpochReader:
    """The epochs of several inputs; iterate once.  `taken` counts the elements of each that were handed out.

    `fill_up`: small batches of an input are put together.  Else each comes as soon as it is there.
    """

    inputs: Mapping[str, Iterable[ElementBatch]]
    batch: int
    open: bool = False
    relations: Collection[str] = ()
    fill_up: bool = True
    taken: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Epoch]:
        streams = {name: _Waiting(name, self.inputs[name]) for name in self.inputs if name not in self.relations}
        closes = [name for name in self.inputs if name in self.relations]
        if closes:
            known = {name: _Waiting(name, self.inputs[name]).all() for name in closes}
            if any(known.values()):
                yield self._epoch(known, ())
        if not self.inputs and not self.open:
            yield Epoch({}, (), True)  # a query of constants alone
        turn = self._merged if _numbered(streams.values()) else self._in_turn
        while streams:
            batches, ended = turn(streams)
            for name in ended:
                del streams[name]
            closes += [] if self.open else ended
            last = not streams and not self.open
            if batches or closes:
                yield self._epoch(batches, tuple(closes), last)
            closes = []
        if closes:
            yield Epoch({}, tuple(closes), not self.open or len(closes) == len(self.inputs))

    def _epoch(self, batches: Mapping[str, ElementBatch | None], closes: tuple[str, ...], last: bool = False) -> Epoch:
        found = {name: batch for name, batch in batches.items() if batch is not None and len(batch)}
        for name, batch in found.items():
            self.taken[name] = self.taken.get(name, 0) + len(batch)
        return Epoch(found, closes, last)

    def _in_turn(self, streams: Mapping[str, _Waiting]) -> tuple[dict[str, ElementBatch | None], list[str]]:
        ended = [name for name, waiting in streams.items() if not waiting.fill(self.batch if self.fill_up else 1)]
        return {name: waiting.take(self.batch) for name, waiting in streams.items() if name not in ended}, ended

    def _merged(self, streams: Mapping[str, _Waiting]) -> tuple[dict[str, ElementBatch | None], list[str]]:
        """The next `batch` elements of all: with so many of each at hand, the earliest are among them."""
        ended = [name for name, waiting in streams.items() if not waiting.fill(self.batch)]
        numbers = [waiting.numbers(self.batch) for waiting in streams.values()]
        whose = np.repeat(np.arange(len(numbers)), [len(at) for at in numbers])
        earliest = np.argsort(np.concatenate(numbers), kind="stable")[: self.batch]
        counts = np.bincount(whose[earliest], minlength=len(numbers)).tolist()
        taken = zip(streams.items(), counts, strict=True)
        return {name: waiting.take(count) for (name, waiting), count in taken if count}, ended


class _Waiting:
    """The elements of an input that have been read and not yet handed out."""

    def __init__(self, name: str, batches: Iterable[ElementBatch]) -> None:
        self.name = name
        self.numbered: bool | None = None
        self._unread = iter(batches)
        self._held: list[ElementBatch] = []
        self._count = 0
        self._latest: int | None = None

    def fill(self, count: int) -> bool:
        """Read on until there are so many, or all there are; whether there is any."""
        while self._count < count and (batch := next(self._unread, None)) is not None:
            if len(batch):
                self._check(batch)
                self._held.append(batch)
                self._count += len(batch)
        return self._count > 0

    def take(self, count: int) -> ElementBatch | None:
        """The next elements, at most so many."""
        found: list[ElementBatch] = []
        while count and self._held:
            batch = self._held.pop(0)
            if len(batch) > count:
                self._held.insert(0, batch.slice(count, len(batch) - count))
                batch = batch.slice(0, count)
            count -= len(batch)
            self._count -= len(batch)
            found.append(batch)
        return joined(found) if found else None

    def all(self) -> ElementBatch | None:
        """Everything."""
        self.fill(INF)
        return self.take(self._count)

    def numbers(self, count: int) -> np.ndarray:
        """The arrival numbers of the next elements."""
        at = [batch.at for batch in self._held if batch.at is not None]
        return np.concatenate(at)[:count] if at else np.empty(0, np.int64)

    @property
    def first(self) -> ElementBatch:
        return self._held[0]

    def _check(self, batch: ElementBatch) -> None:
        if self.numbered is None:
            self.numbered = batch.at is not None
        elif self.numbered != (batch.at is not None):
            raise _unnumbered(batch, 'some elements of this input have "at" and some have not')
        if batch.at is None:
            return
        before = int(batch.at[0]) if self._latest is None else self._latest
        previous = np.concatenate(([before], batch.at[:-1]))
        back = batch.at < previous
        if back.any():
            i = int(np.argmax(back))
            raise InputError(
                f'"at" goes back from {previous[i]} to {batch.at[i]}',
                source=batch.source or self.name,
                line=batch.line(i),
                remedy="elements stand in the order of their arrival; sort the file by it",
            )
        self._latest = int(batch.at[-1])


def _numbered(streams: Iterable[_Waiting]) -> bool:
    """Whether elements carry arrival numbers: those of all inputs or of none; an input without elements has a say in
    neither."""
    some = [waiting for waiting in streams if waiting.fill(1)]
    numbered = [waiting for waiting in some if waiting.numbered]
    without = [waiting for waiting in some if not waiting.numbered]
    if numbered and without:
        raise _unnumbered(without[0].first, f'there is no "at" here, and {numbered[0].first.source} has it')
    return bool(numbered)


def _unnumbered(batch: ElementBatch, problem: str) -> InputError:
    remedy = "give it to every element of every input, or to none"
    return InputError(problem, source=batch.source, line=batch.line(0), remedy=remedy)


def joined(batches: list[ElementBatch]) -> ElementBatch:
    """Batches of one input as one, in their order."""
    if len(batches) == 1:
        return batches[0]
    promises: dict[int, Punct | ExternalCti] = {}
    begin = 0
    for batch in batches:
        promises |= {begin + i: promise for i, promise in batch.promises.items()}
        begin += len(batch)
    first = batches[0]
    op, vs, ve, vnew = (np.concatenate([getattr(b, name) for b in batches]) for name in ("op", "vs", "ve", "vnew"))
    columns = tuple(pa.concat_arrays(pieces) for pieces in zip(*(b.columns for b in batches), strict=True))
    lines = np.concatenate([b.first_line + np.arange(len(b)) if b.lines is None else b.lines for b in batches])
    at = None if first.at is None else np.concatenate([b.at for b in batches if b.at is not None])
    return ElementBatch(first.schema, op, vs, ve, vnew, columns, promises, first.source, first.first_line, lines, at)
