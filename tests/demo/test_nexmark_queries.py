"""The NEXMark queries: their schemas, and their meaning against plain Python over the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Source, walk
from everwhen.demo.nexmark import SCHEMAS, STREAMS, NexmarkConfig, generate
from everwhen.demo.nexmark import queries as nexmark
from everwhen.demo.nexmark.queries import QUERIES
from everwhen.engine.local import LocalRuntime
from everwhen.reference.evaluation import evaluate
from everwhen.stream.element import Insert
from everwhen.stream.element_batch import ADJUST, ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_valid

CONFIG = NexmarkConfig(rate=100, auction_length=8_000, hot_item_every=8, hot_items=0.3, bids=12, active_people=8)
EVENTS = 1_200
LONGEST, WINDOW, SHORT = CONFIG.auction_length, 1_500, 2_000

Event = tuple[int, Mapping[str, object]]


@pytest.fixture(scope="module")
def events() -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {name: [] for name in STREAMS}
    for epoch in generate(CONFIG, EVENTS):
        for name, batch in epoch.items():
            found[name] += [(e.vs, e.row) for e in batch.elements() if isinstance(e, Insert)]
    assert len(found["ClosedAuction"]) > 40
    return found


SCHEMA_TEXTS = {
    "q1": "(itemID int64, bid_price double, bidderID int64)",
    "q2": "(itemID int64, bid_price double, bidderID int64)",
    "q3": "(itemID int64, sellerID int64, start_price double, category int64)",
    "q4": "(itemID int64, bid_price double)",
    "q5": "(itemID int64, sellerID int64, price double)",
    "q6": "(itemID int64)",
    "q7": "(sellerID int64, price double)",
    "q8": "(id int64, name string, itemID int64)",
    "q9": "(itemID int64, bid_price double)",
}


def test_the_registry_names_every_query_and_each_needs_no_argument() -> None:
    assert {name: str(query().schema) for name, query in QUERIES.items()} == SCHEMA_TEXTS


@pytest.mark.parametrize("name", QUERIES)
def test_queries_read_the_generated_streams_and_explain_themselves(name: str) -> None:
    query = QUERIES[name]()
    sources = [node for node in walk(query.node) if isinstance(node, Source)]
    assert sources and all(node.schema == SCHEMAS[node.name] for node in sources)
    assert len({node.name for node in sources}) == len(sources), "a source stands in a plan once"
    assert "Source" in query.explain()


def test_average_price_can_share_the_closing_prices() -> None:
    closing = nexmark.closing_price()
    assert closing.node in walk(nexmark.average_selling_price(closing=closing).node)


# -- meaning: what the query says at an instant, in plain Python over (time, row) ------------------------------------

Meaning = Callable[[dict[str, list[Event]], int], Counter[tuple[object, ...]]]


def now(events: list[Event], t: int) -> list[Mapping[str, object]]:
    return [row for vs, row in events if vs == t]


def during(events: list[Event], t: int, size: int) -> list[Mapping[str, object]]:
    return [row for vs, row in events if t - size < vs <= t]


def euros(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    return Counter((r["itemID"], r["bid_price"] * 0.908, r["bidderID"]) for r in now(e["Bid"], t))  # type: ignore[operator]


def chosen(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    return Counter(tuple(r.values()) for r in now(e["Bid"], t) if r["itemID"] in nexmark.ITEMS)


def short(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    closing = {r["itemID"] for r in now(e["ClosedAuction"], t)}
    return Counter(tuple(r.values()) for r in during(e["OpenAuction"], t, SHORT) if r["itemID"] in closing)


def highest(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    recent = during(e["Bid"], t, WINDOW)
    top = max((r["bid_price"] for r in recent), default=None)  # type: ignore[type-var]
    return Counter((r["itemID"], r["bid_price"]) for r in recent if r["bid_price"] == top)


def tumbling(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    return highest(e, (t + 1) // WINDOW * WINDOW - 1)


def closing(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    sellers = {r["itemID"]: r["sellerID"] for _, r in e["OpenAuction"]}
    result: Counter[tuple[object, ...]] = Counter()
    for row in now(e["ClosedAuction"], t):
        item = row["itemID"]
        prices = [r["bid_price"] for vs, r in e["Bid"] if r["itemID"] == item and vs <= t]
        prices += [r["start_price"] for _, r in e["OpenAuction"] if r["itemID"] == item]
        result[item, sellers[item], max(prices)] += 1  # type: ignore[type-var]
    return result


def hot(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    counts = Counter(r["itemID"] for r in during(e["Bid"], t, WINDOW))
    return Counter((item,) for item, count in counts.items() if count == max(counts.values()))


def average(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    sold: dict[object, list[float]] = {}
    for at in sorted({vs for vs, _ in e["ClosedAuction"] if vs <= t}):
        for _, seller, price in sorted(closing(e, at)):
            sold.setdefault(seller, []).append(price)
    return Counter((seller, round(sum(p[-3:]) / len(p[-3:]), 9)) for seller, p in sold.items())


def sellers(e: dict[str, list[Event]], t: int) -> Counter[tuple[object, ...]]:
    people = {r["id"]: r["name"] for r in during(e["Person"], t, SHORT)}
    selling = now(e["OpenAuction"], t)
    return Counter((r["sellerID"], people[r["sellerID"]], r["itemID"]) for r in selling if r["sellerID"] in people)


MEANINGS: dict[str, tuple[Stream, Meaning]] = {
    "q1": (nexmark.currency_conversion(), euros),
    "q2": (nexmark.selection(), chosen),
    "q3": (nexmark.short_auctions(SHORT), short),
    "q4": (nexmark.highest_bid(WINDOW), highest),
    "q5": (nexmark.closing_price(LONGEST), closing),
    "q6": (nexmark.hot_items(WINDOW), hot),
    "q6 by maximum": (nexmark.hot_items_by_maximum(WINDOW), hot),
    "q7": (nexmark.average_selling_price(3, LONGEST), average),
    "q8": (nexmark.new_sellers(SHORT), sellers),
    "q9": (nexmark.highest_bid_tumbling(WINDOW), tumbling),
}


def instants(events: dict[str, list[Event]], streams: tuple[str, ...], many: int) -> list[int]:
    times = sorted({vs for name in streams for vs, _ in events[name]})
    return times[:: max(len(times) // many, 1)]


TROUBLED = replace(CONFIG, late=0.1, corrections=0.1, duplicates=0.1)


def assert_means(name: str, snapshot: Callable[[int], Counter[Any]], events: dict[str, list[Event]], many: int) -> None:
    streams = ("ClosedAuction",) if name in ("q3", "q5", "q7") else ("OpenAuction",) if name == "q8" else ("Bid",)
    said = 0
    for t in instants(events, streams, many):
        found = Counter({_rounded(row): count for row, count in snapshot(t).items()})
        meant = Counter({_rounded(row): count for row, count in MEANINGS[name][1](events, t).items()})
        assert found == meant, f"at {t}"
        said += found.total()
    assert said > 0, "the query has something to say"


def _rounded(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(round(value, 6) if isinstance(value, float) else value for value in row)


@pytest.mark.property
@pytest.mark.parametrize("name", MEANINGS)
def test_the_plan_means_what_the_query_says(name: str, events: dict[str, list[Event]]) -> None:
    query = MEANINGS[name][0]
    assert query.schema == QUERIES[name.split()[0]]().schema
    troubled = list(generate(TROUBLED, EVENTS))
    inputs = {stream: History.of([epoch[stream] for epoch in troubled], SCHEMAS[stream]) for stream in STREAMS}
    assert_means(name, evaluate(query.node, inputs).at, events, 5 if name == "q7" else 60)


@pytest.mark.parametrize("emit", ["current", "final"])
def test_the_local_runtime_says_the_same(emit: str, events: dict[str, list[Event]]) -> None:
    runtime = LocalRuntime({name: query for name, (query, _) in MEANINGS.items()}, emit=emit)
    said: dict[str, list[ElementBatch]] = {name: [] for name in MEANINGS}
    for epoch in generate(TROUBLED, EVENTS, epoch=83):
        for name, batch in runtime.push(epoch).items():
            said[name].append(batch)
    for name, batch in runtime.close().items():
        said[name].append(batch)
    for name, batches in said.items():
        assert_valid(batches)
        adjusts = sum(np.count_nonzero(batch.op == ADJUST) for batch in batches)
        assert not adjusts if emit == "final" else adjusts or name in ("q3", "q8"), "answers at once are corrected"
        assert_means(name, History.of(batches, MEANINGS[name][0].schema).snapshot, events, 60)
