"""The NEXMark auction streams, seeded and columnar (Krämer, section 6.7): who registers, sells, bids and buys.

**Guarantee.**  The four streams are a pure function of the configuration and of the *slot*: slot `i` is the i-th
event, its kind, time and payload follow from `i` alone, and what arrives late is a function of the slots shortly
before.  So a run can be cut into epochs of any size, or replayed from any slot, and it is element for element the
same stream.  The streams are valid: no CTI is contradicted and every adjust names an event that is there.

How it stays free of state: random numbers are a hash of the slot; auctions close in an order that can be computed
both ways (`_closing`), so that the auctions open at a slot are known without a list of them; and time is a piecewise
linear function of the slot (`Clock`) with an exact inverse.

What goes wrong on purpose, by share: elements arrive late; bids carry a wrong price or a wrong instant and are
corrected (the wrong event is removed, the right one inserted); bids come twice and the copy is removed.  The final
history depends on none of it: it is the one of the same configuration without trouble.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.demo.nexmark.clock import Clock
from everwhen.demo.nexmark.config import NexmarkConfig
from everwhen.demo.nexmark.names import CITIES, PEOPLE, STATES
from everwhen.errors import QueryError
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

PERSON: Final = Schema.of([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("state", pa.string())])
OPEN_AUCTION: Final = Schema.of(
    [("itemID", pa.int64()), ("sellerID", pa.int64()), ("start_price", pa.float64()), ("category", pa.int64())]
)
CLOSED_AUCTION: Final = Schema.of([("itemID", pa.int64()), ("buyerID", pa.int64())])
BID: Final = Schema.of([("itemID", pa.int64()), ("bid_price", pa.float64()), ("bidderID", pa.int64())])

SCHEMAS: Final = {"Person": PERSON, "OpenAuction": OPEN_AUCTION, "ClosedAuction": CLOSED_AUCTION, "Bid": BID}
STREAMS: Final = tuple(SCHEMAS)

FIRST_ID: Final = 1000  # people and items are numbered from here on, in the order of their slots
CATEGORIES: Final = 10
SLIP: Final = 1000  # a wrong instant is at most this many ticks too late

_P, _A, _C, _B = range(4)  # the kinds, in the order of STREAMS
# What an element does at its slot; the order of the codes is the order within a slot.
_ON_TIME, _LATE, _COPY, _REMOVE, _RIGHT, _PROGRESS = 0, 1, 2, 3, 4, 7

_GOLD: Final = 0x9E3779B97F4A7C15
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_LOW: Final = np.uint64(0xFFFF_FFFF)
_U16: Final = np.uint64(16)
_U32: Final = np.uint64(32)


def _mix(index: np.ndarray, salt: int) -> np.ndarray:
    """Random 64 bits per index: the finalizer of SplitMix64 over `index` steps of its counter."""
    x = index.astype(np.uint64)
    x *= np.uint64(_GOLD)
    x += np.uint64(salt)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _below(bits: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """The low 32 bits scaled to `[0, bound)`, for bounds below 2**32."""
    limit = bound.astype(np.uint64) if isinstance(bound, np.ndarray) else np.uint64(bound)
    return (((bits & _LOW) * limit) >> _U32).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Moves:
    """Elements to emit: place in the arrival order (`slot * 8 + code`), the event, whether it is the wrong version."""

    key: np.ndarray
    index: np.ndarray
    wrong: np.ndarray

    @classmethod
    def of(cls, slots: np.ndarray, code: int, index: np.ndarray, wrong: np.ndarray | None = None) -> _Moves:
        return cls(slots * 8 + code, index, np.zeros(len(index), np.bool_) if wrong is None else wrong)

    @classmethod
    def join(cls, *moves: _Moves) -> _Moves:
        return cls(*(np.concatenate([getattr(m, name) for m in moves]) for name in ("key", "index", "wrong")))

    def where(self, chosen: np.ndarray) -> _Moves:
        return _Moves(self.key[chosen], self.index[chosen], self.wrong[chosen])

    def ordered(self) -> _Moves:
        """By place, ties by event, so that the order does not depend on when a move was planned."""
        return self.where(np.lexsort((self.index, self.key)))


_NO_MOVES: Final = _Moves(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


class NexmarkGenerator:
    """Reads any range of slots.  It remembers only what is still under way, and rebuilds that after a jump."""

    def __init__(self, config: NexmarkConfig) -> None:
        self.config = config
        self.clock = Clock.of(config)
        rng = np.random.Generator(np.random.PCG64(config.seed))
        self._salts = [int(salt) for salt in rng.integers(0, 2**63, 6)]
        # One cycle of kinds: somebody registers, then sells, so that every later slot has a person and an item.
        rest = [_P] * (config.persons - 1) + [_A] * (config.auctions - 1) + [_C] * config.auctions + [_B] * config.bids
        self._cycle = np.array([_P, _A, *rng.permutation(np.array(rest, np.int64)).tolist()], np.int64)
        self._size = len(self._cycle)
        self._before = [np.concatenate(([0], np.cumsum(self._cycle == kind)))[:-1] for kind in range(4)]
        self._per_cycle = [config.persons, config.auctions, config.auctions, config.bids]
        # Auctions of one block close in scrambled order while the next block opens: see `_closing`.
        self._block = config.auctions * (self.clock.slots_within(config.auction_length) // self._size - 2) // 2
        if self._block < 1:
            raise QueryError(
                f"NEXMark: an auction of at most {config.auction_length} ticks is over within one cycle of "
                f"{self._size} events at {config.rate} events per second; make auction_length longer or rate higher"
            )
        self._step = _coprime_step(self._block)
        first = self._block + config.auctions
        closings = np.flatnonzero(self._cycle == _C)
        self._first_closing = first // config.auctions * self._size + int(closings[first % config.auctions])
        late = config.lateness if config.late else 0
        troubled = config.correction_delay if config.corrections or config.duplicates else 0
        self._holds = (late, late, late, late + troubled)
        self._next_slot = 0
        self._pending: list[_Moves] = [_NO_MOVES] * 4

    def time(self, slot: int) -> int:
        """The application time of a slot's event."""
        return int(self.clock.times(np.array([slot]))[0])

    def last_slot(self, events: int) -> int:
        """The slot after which nothing of the first `events` events is still under way."""
        return max(events, self.clock.slot_at(self.time(max(events - 1, 0)) + max(self._holds)) + 1)

    def read(self, start: int, stop: int, events: int | None = None) -> dict[str, ElementBatch]:
        """What arrives during the slots `[start, stop)`; with `events`, only that many events ever happen.

        Reading on where the last call stopped costs time in proportion to the slots read; elsewhere also to the
        slots within the longest delay, which are looked through again.
        """
        if start != self._next_slot:
            self._pending = self._under_way(start, events)
        last = stop if events is None else max(start, min(stop, events))
        kinds = self._kinds(start, last)
        steps = self._progress_slots(start, stop)
        batches: dict[str, ElementBatch] = {}
        for kind, name in enumerate(STREAMS):
            index = np.flatnonzero(kinds == kind) + start
            on_time, later = self._plan(kind, index)
            later = _Moves.join(self._pending[kind], later)
            due = later.key < stop * 8
            self._pending[kind] = later.where(~due)
            cti = self.clock.step_before(steps) - self._holds[kind]
            known = cti > self.config.origin
            moves = _Moves.join(on_time, later.where(due).ordered(), _Moves.of(steps[known], _PROGRESS, steps[known]))
            if len(moves.key) > len(on_time.key):
                moves = moves.where(np.argsort(moves.key, kind="stable"))
            batches[name] = self._batch(kind, name, moves, cti[known])
        self._next_slot = stop
        return batches

    # -- which events, and when their elements arrive ------------------------------------------------------------

    def _kinds(self, start: int, stop: int) -> np.ndarray:
        offset, length = start % self._size, max(stop - start, 0)
        kinds = np.resize(np.roll(self._cycle, -offset), length) if length else np.empty(0, np.int64)
        if start < self._first_closing:  # nothing to close yet: a bid instead
            early = kinds[: self._first_closing - start]
            early[early == _C] = _B
        return kinds

    def _plan(self, kind: int, index: np.ndarray) -> tuple[_Moves, _Moves]:
        """The elements of these events: those that come at their own slot, and all later ones."""
        config = self.config
        shares = (config.late, config.corrections * (kind == _B), config.duplicates * (kind == _B))
        if not any(shares):
            return _Moves.of(index, _ON_TIME, index), _NO_MOVES
        bits = _mix(index, self._salts[0])
        late, wrong, copied = (_chance(bits, 20 * i, share) for i, share in enumerate(shares))
        copied &= ~wrong
        on_time = _Moves.of(index[~late], _ON_TIME, index[~late], wrong[~late])
        some = late | wrong | copied
        index, late, wrong, copied = index[some], late[some], wrong[some], copied[some]
        delay = _mix(index, self._salts[1])
        arrival = self.clock.times(index) + np.where(late, 1 + _below(delay, config.lateness), 0)
        removal = 1 + _below(delay >> _U32, config.correction_delay)
        copy = arrival + (removal * (delay & np.uint64(0xFFFF)).astype(np.int64) >> 16)
        slots = np.where(late, self.clock.slots_at(arrival), index)
        gone = self.clock.slots_at(arrival + removal)
        again = np.maximum(self.clock.slots_at(copy), slots)
        taken_back = wrong | copied
        later = _Moves.join(
            _Moves.of(slots[late], _LATE, index[late], wrong[late]),
            _Moves.of(again[copied], _COPY, index[copied]),
            _Moves.of(gone[taken_back], _REMOVE, index[taken_back], wrong[taken_back]),
            _Moves.of(gone[wrong], _RIGHT, index[wrong]),
        )
        return on_time, later

    def _under_way(self, start: int, events: int | None) -> list[_Moves]:
        """What belongs to events before `start` and arrives at or after it."""
        pending = [_NO_MOVES] * 4
        hold = max(self._holds)
        if not hold or start <= 0:
            return pending
        stop = start if events is None else min(start, events)
        for low in range(max(self.clock.slot_at(self.time(start - 1) - hold), 0), stop, 1 << 20):
            kinds = self._kinds(low, min(low + (1 << 20), stop))
            for kind in range(4):
                later = self._plan(kind, np.flatnonzero(kinds == kind) + low)[1]
                pending[kind] = _Moves.join(pending[kind], later.where(later.key >= start * 8))
        return pending

    def _progress_slots(self, start: int, stop: int) -> np.ndarray:
        """Slots whose time is the first at or after a multiple of the CTI interval."""
        steps = self.clock.steps(np.arange(max(start - 1, 0), stop))
        first = max(start, 1)
        return np.flatnonzero(np.diff(steps)) + first if len(steps) > 1 else np.empty(0, np.int64)

    # -- payloads ----------------------------------------------------------------------------------------------

    def _batch(self, kind: int, name: str, moves: _Moves, cti: np.ndarray) -> ElementBatch:
        index, code = moves.index, moves.key & 7
        progress = code == _PROGRESS
        vs = self.clock.times(index)
        columns = (self._person, self._open, self._closed, self._bid)[kind](index, moves.wrong, vs)
        vs[progress] = cti
        ve = vs + 1
        ve[progress] = cti
        removed = code == _REMOVE
        op = np.where(removed, ADJUST, INSERT).astype(np.uint8)
        op[progress] = CTI
        mask = progress if len(cti) else None
        return ElementBatch(
            SCHEMAS[name],
            op,
            vs,
            ve,
            np.where(removed, vs, 0),
            tuple(_column(values, mask) for values in columns),
            source=name,
        )

    def _person(self, index: np.ndarray, wrong: np.ndarray, vs: np.ndarray) -> list[Values]:
        bits = _mix(index, self._salts[2])
        home = _below(bits, len(CITIES))
        name = _below(bits >> _U32, len(PEOPLE))
        return [FIRST_ID + self._count(_P, index), (PEOPLE, name), (CITIES, home), (STATES, home)]

    def _open(self, index: np.ndarray, wrong: np.ndarray, vs: np.ndarray) -> list[Values]:
        bits = _mix(index, self._salts[3])
        rank, people = self._count(_A, index), self._count(_P, index)
        hot = (people - 1) // self.config.hot_seller_every * self.config.hot_seller_every
        seller = np.where(_chance(bits, 0, self.config.hot_sellers), hot, self._somebody(bits >> _U32, people))
        return [FIRST_ID + rank, FIRST_ID + seller, self._start_cents(rank) / 100.0, rank * 7 % CATEGORIES]

    def _closed(self, index: np.ndarray, wrong: np.ndarray, vs: np.ndarray) -> list[Values]:
        bits = _mix(index, self._salts[3])
        rank = self._count(_C, index) - self.config.auctions
        item = self._closing(rank // self._block - 1, rank % self._block)
        return [FIRST_ID + item, FIRST_ID + self._somebody(bits, self._count(_P, index))]

    def _bid(self, index: np.ndarray, wrong: np.ndarray, vs: np.ndarray) -> list[Values]:
        bits, more = _mix(index, self._salts[4]), _mix(index, self._salts[5])
        item = self._open_item(index, bits)
        start = self._start_cents(item)
        cents = start + (start * 4 * (more >> np.uint64(48)).astype(np.int64) >> 16)
        bidder = self._somebody(more, self._count(_P, index))
        if wrong.any():  # the point slipped by one digit, or the instant is a little late
            late = wrong & ((more & np.uint64(1)) == 1)
            cents = np.where(wrong & ~late, cents * 10, cents)
            vs += np.where(late, 1 + _below(bits, SLIP), 0)
        return [FIRST_ID + item, cents / 100.0, FIRST_ID + bidder]

    def _count(self, kind: int, index: np.ndarray) -> np.ndarray:
        """How many positions of a kind lie before these slots."""
        cycle = index // self._size
        return cycle * self._per_cycle[kind] + self._before[kind][index - cycle * self._size]

    def _somebody(self, bits: np.ndarray, people: np.ndarray) -> np.ndarray:
        """One of the people that registered last."""
        return people - 1 - _below(bits, np.minimum(people, self.config.active_people))

    def _start_cents(self, item: np.ndarray) -> np.ndarray:
        """An item's start price: many cheap ones, few dear ones, 1 to 1000 dollars."""
        bits = _mix(item, self._salts[2]) >> _U32
        return 100 + _below((bits * bits) >> _U32, 99_900)

    def _open_item(self, index: np.ndarray, bits: np.ndarray) -> np.ndarray:
        """An item whose auction is open at these slots: the hot one, or any with equal chances."""
        config, size = self.config, self._block
        opened = self._count(_A, index)
        block = (opened - 1) // size
        first = block * size
        here = opened - first
        closed = np.clip(self._count(_C, index) - config.auctions - first, 0, size)
        pick = _below(bits, here + np.where(block > 0, size - closed, 0))
        item = np.where(pick < here, first + pick, self._closing(block - 1, (closed + pick - here) % size))
        hot = np.maximum((opened - 1) // config.hot_item_every * config.hot_item_every, first)
        return np.where(_chance(bits, 40, config.hot_items), hot, item)

    def _closing(self, block: np.ndarray, place: np.ndarray) -> np.ndarray:
        """The auction of a block that is the `place`-th to close, while the next block opens.

        A walk through the block with a step near the golden section of it and a start that differs by block:
        durations spread between almost nothing and two blocks.
        """
        shift = _below(_mix(block, self._salts[1]), self._block)
        return block * self._block + (place * self._step + shift) % self._block


def generate(
    config: NexmarkConfig, events: int, *, start: int = 0, epoch: int = 10_000, drain: bool = True
) -> Iterator[dict[str, ElementBatch]]:
    """The first `events` events from slot `start` on, epoch by epoch, one batch per stream.

    With `drain` a last epoch brings what is then still under way, so that all corrections are in; without it the
    epochs are exactly a piece of the endless stream.
    """
    generator = NexmarkGenerator(config)
    limit = events if drain else None
    for low in range(start, events, epoch):
        yield generator.read(low, min(low + epoch, events), limit)
    end = generator.last_slot(events)
    if drain and start < events < end:
        yield generator.read(events, end, limit)


Values = np.ndarray | tuple[pa.Array, np.ndarray]  # a column, or words and the positions of those taken


def _column(values: Values, mask: np.ndarray | None) -> pa.Array:
    if isinstance(values, tuple):
        words, places = values
        return words.take(pa.array(places, mask=mask))
    return pa.array(values, mask=mask)


def _chance(bits: np.ndarray, offset: int, share: float) -> np.ndarray:
    """True for a share of the rows, decided by 20 of their bits."""
    return ((bits >> np.uint64(offset)) & np.uint64(0xFFFFF)) < np.uint64(round(share * (1 << 20)))


def _coprime_step(size: int) -> int:
    """The number nearest to the golden section of `size`, from there upwards, that shares no divisor with it."""
    step = max(1, round(size * 0.6180339887498949))
    while gcd(step, size) != 1:
        step += 1
    return step
