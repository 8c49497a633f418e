"""People, auctions and bids with the columns of the NEXMark suite: what happened, and how it arrives.

What happened is a function of the seed alone.  How it arrives is not as it happened: bids come late, twice, or with a
wrong price first; auctions are announced with a wrong end.  All of it is put right, so every answer over what arrives
must in the end be the answer over what happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.demo.nexmark.names import CITIES, PEOPLE, STATES
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch

_MOMENT: Final = pa.timestamp("us")
_TEXT: Final = pa.string()
_WHOLE: Final = pa.int64()
PERSON: Final = Schema.of(
    [("id", _WHOLE), ("name", _TEXT), ("email_address", _TEXT), ("credit_card", _TEXT), ("city", _TEXT),
     ("state", _TEXT), ("date_time", _MOMENT), ("extra", _TEXT)]
)  # fmt: skip
AUCTION: Final = Schema.of(
    [("id", _WHOLE), ("item_name", _TEXT), ("description", _TEXT), ("initial_bid", _WHOLE), ("reserve", _WHOLE),
     ("date_time", _MOMENT), ("expires", _MOMENT), ("seller", _WHOLE), ("category", _WHOLE), ("extra", _TEXT)]
)  # fmt: skip
BID: Final = Schema.of(
    [("auction", _WHOLE), ("bidder", _WHOLE), ("price", _WHOLE), ("channel", _TEXT), ("url", _TEXT),
     ("date_time", _MOMENT), ("extra", _TEXT)]
)  # fmt: skip
SIDE: Final = Schema.of([("key", _WHOLE), ("value", _TEXT)])
SCHEMAS: Final[Mapping[str, Schema]] = {"Person": PERSON, "Auction": AUCTION, "Bid": BID, "Side": SIDE}

FIRST_ID: Final = 1000  # of people
FIRST_AUCTION: Final = 984
SIDE_KEYS: Final = 10_000
_CHANNELS: Final = pa.array(["Google", "Facebook", "Baidu", "Apple", *(f"channel-{i}" for i in range(40))])
_EXTRAS: Final = pa.array(["", "c", "abc", "accc", "xyz", "cacao", "plain", "ccccc"])
_WORDS: Final = pa.array(["lamp", "chair", "table", "vase", "book", "clock", "stamp", "coin", "map", "ring"])


@dataclass(frozen=True, slots=True)
class SuiteConfig:
    """So many bids, with their share of people and auctions; times are milliseconds."""

    bids: int = 1000
    seed: int = 1
    step: int = 4  # between two events
    origin: int = 1_436_918_400_000  # 2015-07-15
    late: float = 0.0  # share of elements that arrive late, by at most so many events
    lateness: int = 200
    corrections: float = 0.0  # share of bids with a wrong price, and of auctions with a wrong end, at first
    duplicates: float = 0.0  # share of bids that come twice


class SuiteStreams:
    """The streams of a configuration.

    >>> streams = SuiteStreams(SuiteConfig(bids=100))
    >>> {name: table.num_rows for name, table in streams.tables().items()}
    {'Person': 3, 'Auction': 9, 'Bid': 100, 'Side': 10000}
    """

    def __init__(self, config: SuiteConfig) -> None:
        self.config = config
        rng = np.random.default_rng(config.seed)
        cycle = np.array([0] + [1] * 3 + [2] * 46)
        total = -(-config.bids * 50 // 46) + 4
        kinds = np.resize(cycle, total)
        kinds[:3] = (0, 1, 1)
        bids = np.flatnonzero(kinds == 2)
        kinds = kinds[: bids[config.bids - 1] + 1] if config.bids else kinds[:3]
        times = config.origin + np.arange(len(kinds)) * config.step
        self._times = [times[kinds == kind] for kind in range(3)]
        self._places = [np.flatnonzero(kinds == kind) for kind in range(3)]
        people = np.searchsorted(self._places[0], np.arange(len(kinds)))
        auctions = np.searchsorted(self._places[1], np.arange(len(kinds)))
        self._ends = self._times[1] + rng.integers(1, 20, len(self._times[1])) * 1000
        self._columns = {
            "Person": self._people(rng),
            "Auction": self._auctions(rng, people[self._places[1]]),
            "Bid": self._bids(rng, people[self._places[2]], auctions[self._places[2]]),
        }
        self._rng = np.random.default_rng(config.seed + 1)

    # -- what happened ---------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, pa.Table]:
        """What happened, with the lifetimes of rows in the columns `vs` and `ve`."""
        found = {}
        for name in ("Person", "Auction", "Bid"):
            vs, ve = self._lifetimes(name)
            found[name] = pa.table({**self._columns[name], "vs": vs, "ve": ve})
        keys = np.arange(SIDE_KEYS)
        values = pa.array([f"value {key}" for key in keys.tolist()])
        found["Side"] = pa.table({"key": keys, "value": values, "vs": np.zeros(SIDE_KEYS, np.int64),
                                  "ve": np.full(SIDE_KEYS, INF)})  # fmt: skip
        return found

    def _lifetimes(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """People are there for ever, auctions while they are open, bids for one tick."""
        match name:
            case "Person":
                return self._times[0], np.full(len(self._times[0]), INF)
            case "Auction":
                return self._times[1], self._ends
        return self._times[2], self._times[2] + 1

    def _people(self, rng: np.random.Generator) -> dict[str, pa.Array]:
        n = len(self._times[0])
        names, home = PEOPLE.take(pa.array(rng.integers(0, len(PEOPLE), n))), rng.integers(0, len(CITIES), n)
        cards = pa.array([f"{number:016d}" for number in rng.integers(0, 10**15, n).tolist()])
        mail = pa.array([f"{number}@example.org" for number in rng.integers(0, 10**6, n).tolist()])
        return {
            "id": pa.array(FIRST_ID + np.arange(n)), "name": names, "email_address": mail, "credit_card": cards,
            "city": CITIES.take(pa.array(home)), "state": STATES.take(pa.array(home)),
            "date_time": _moments(self._times[0]), "extra": _EXTRAS.take(pa.array(rng.integers(0, 8, n))),
        }  # fmt: skip

    def _auctions(self, rng: np.random.Generator, people: np.ndarray) -> dict[str, pa.Array]:
        n = len(self._times[1])
        start = rng.integers(100, 10_000, n)
        words = _WORDS.take(pa.array(rng.integers(0, len(_WORDS), n)))
        return {
            "id": pa.array(FIRST_AUCTION + np.arange(n)), "item_name": words, "description": words,
            "initial_bid": pa.array(start), "reserve": pa.array(start + rng.integers(0, 1000, n)),
            "date_time": _moments(self._times[1]), "expires": _moments(self._ends),
            "seller": pa.array(FIRST_ID + _somebody(rng, people)), "category": pa.array(10 + rng.integers(0, 5, n)),
            "extra": _EXTRAS.take(pa.array(rng.integers(0, 8, n))),
        }  # fmt: skip

    def _bids(self, rng: np.random.Generator, people: np.ndarray, auctions: np.ndarray) -> dict[str, pa.Array]:
        n = len(self._times[2])
        hot = np.maximum(auctions - 1, 0) // 50 * 50
        recent = np.maximum(auctions - 1 - rng.integers(0, 100, n), 0)
        item = np.where(rng.random(n) < 0.5, hot, recent)
        price = np.exp(rng.random(n) * 12).astype(np.int64) * 100 + rng.integers(0, 100, n)
        at = rng.integers(0, len(_CHANNELS), n)
        numbers = rng.integers(0, 1 << 24, n).tolist()
        pages = [
            f"https://www.example.org/{word % 97}/{word % 89}/item.htm?query=1" + f"&channel_id={word}" * (word % 5 > 0)
            for word in numbers
        ]
        return {
            "auction": pa.array(FIRST_AUCTION + item), "bidder": pa.array(FIRST_ID + _somebody(rng, people)),
            "price": pa.array(price), "channel": _CHANNELS.take(pa.array(at)), "url": pa.array(pages),
            "date_time": _moments(self._times[2]), "extra": _EXTRAS.take(pa.array(rng.integers(0, 8, n))),
        }  # fmt: skip

    # -- how it arrives --------------------------------------------------------------------------------------------

    def epochs(self, events: int) -> Iterator[dict[str, ElementBatch]]:
        """What arrives, so many events at a time; every epoch promises what is over."""
        moves = {name: self._moves(kind, name) for kind, name in enumerate(("Person", "Auction", "Bid"))}
        last = max(int(keys[-1]) for keys, *_ in moves.values() if len(keys)) + 1
        side = _whole(self.tables()["Side"])
        for low in range(0, last, events):
            high = INF if low + events >= last else low + events
            found = {name: self._batch(name, each, low, high) for name, each in moves.items()}
            if low == 0:
                found["Side"] = side
            yield found

    def _moves(self, kind: int, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Elements in the order in which they arrive: place, operation, row, whether it is the wrong version."""
        config, rng = self.config, self._rng
        place = self._places[kind].astype(np.int64)
        n = len(place)
        late = rng.random(n) < config.late
        arrival = place + np.where(late, rng.integers(1, config.lateness + 1, n), 0)
        wrong = (rng.random(n) < config.corrections) & (kind != 0)
        twice = (rng.random(n) < config.duplicates) & (kind == 2) & ~wrong
        soon, later = rng.integers(1, config.lateness + 1, (2, n))
        index = np.arange(n)
        parts = [
            (arrival, np.full(n, INSERT), index, wrong),
            *([((arrival + soon)[wrong], np.full(wrong.sum(), ADJUST), index[wrong], wrong[wrong])]),
            *(
                [((arrival + soon)[wrong], np.full(wrong.sum(), INSERT), index[wrong], ~wrong[wrong])]
                if kind == 2
                else []
            ),
            ((arrival + soon)[twice], np.full(twice.sum(), INSERT), index[twice], wrong[twice]),
            ((arrival + soon + later)[twice], np.full(twice.sum(), ADJUST), index[twice], wrong[twice]),
        ]
        keys, ops, rows, bad = (np.concatenate([part[i] for part in parts]) for i in range(4))
        order = np.argsort(keys, kind="stable")
        return keys[order], ops[order], rows[order], bad[order]

    def _batch(self, name: str, moves: tuple[np.ndarray, ...], low: int, high: int) -> ElementBatch:
        keys, ops, rows, bad = moves
        first, stop = np.searchsorted(keys, [low, high])
        ops, index, wrong = ops[first:stop], rows[first:stop], bad[first:stop]
        vs, ve = (times[index] for times in self._lifetimes(name))
        new = np.where(ops == ADJUST, vs, 0)
        taken = pa.array(index)
        columns = {each: values.take(taken) for each, values in self._columns[name].items()}
        if name == "Bid" and wrong.any():
            prices = columns["price"].to_numpy()
            columns["price"] = pa.array(np.where(wrong, prices * 10, prices))
        if name == "Auction":  # the wrong end is later; the adjust brings the right one
            new = np.where(ops == ADJUST, ve, 0)
            ve = ve + np.where(wrong, 5000, 0)
        left = self._lifetimes(name)[0][rows[stop:]]
        future = self.config.origin + high * self.config.step if high != INF else INF
        cti = min(int(left.min(initial=INF)), future)
        none = pa.array([None])
        schema = SCHEMAS[name]
        return ElementBatch(
            schema,
            np.append(ops, CTI).astype(np.uint8),
            np.append(vs, cti),
            np.append(ve, cti),
            np.append(new, 0),
            tuple(pa.concat_arrays([columns[f.name], none.cast(f.type)]) for f in schema.fields),
            source=name,
        )


def _whole(table: pa.Table) -> ElementBatch:
    """A constant relation, known as a whole."""
    ops = np.append(np.full(SIDE_KEYS, INSERT), CTI).astype(np.uint8)
    zeros, ends = np.zeros(SIDE_KEYS + 1, np.int64), np.full(SIDE_KEYS + 1, INF)
    starts = np.append(zeros[1:], INF)
    columns = (pa.concat_arrays([table.column(f.name).combine_chunks(), pa.nulls(1, f.type)]) for f in SIDE.fields)
    return ElementBatch(SIDE, ops, starts, ends, zeros, tuple(columns), source="Side")


def _moments(times: np.ndarray) -> pa.Array:
    return pa.array(times * 1000, pa.int64()).cast(_MOMENT)


def _somebody(rng: np.random.Generator, people: np.ndarray) -> np.ndarray:
    """One of the thousand who registered last."""
    return np.maximum(people - 1 - (rng.random(len(people)) * np.minimum(people, 1000)).astype(np.int64), 0)
