"""The NEXMark generator: the same stream however it is read, valid whatever goes wrong, sensible in its references."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.demo.nexmark import SCHEMAS, STREAMS, NexmarkConfig, NexmarkGenerator, generate
from everwhen.demo.nexmark.clock import Clock
from everwhen.errors import QueryError
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch
from everwhen.testing import assert_valid

CLEAN = NexmarkConfig(rate=2_000, auction_length=4_000, burst_period=3_000, active_people=50, cti_interval=250)
TROUBLED = replace(
    CLEAN, burst=3.0, late=0.1, lateness=700, corrections=0.05, duplicates=0.05, correction_delay=900, hot_items=0.3
)
SLOW = replace(TROUBLED, rate=20, burst_period=20_000, auction_length=60_000, lateness=90, correction_delay=70)
FAST = replace(TROUBLED, rate=80_000, cti_interval=7, auction_length=150)
CONFIGS = {"clean": CLEAN, "troubled": TROUBLED, "slow": SLOW, "fast": FAST}
EVENTS = 20_000


def stream(batches: Iterable[dict[str, ElementBatch]]) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {name: [] for name in STREAMS}
    for epoch in batches:
        for name, batch in epoch.items():
            found[name].extend(batch.elements())
    return found


@cache
def whole(config: NexmarkConfig) -> dict[str, list[Element]]:
    """All events of a configuration, made once for all tests that look at them."""
    return stream(generate(config, EVENTS))


def row(element: Insert | Adjust) -> tuple[object, ...]:
    return tuple(element.row.values())


def history(elements: Iterable[Element]) -> Counter[tuple[object, ...]]:
    """The events that remain; an element that contradicts a CTI or adjusts what is not there fails."""
    alive: Counter[tuple[object, ...]] = Counter()
    cti = -(2**62)
    for element in elements:
        match element:
            case Cti(t):
                assert t > cti, f"CTI {t} after {cti}"
                cti = t
            case Insert(vs, ve):
                assert element.sync >= cti and vs < ve, f"{element} after CTI {cti}"
                assert None not in row(element)
                alive[vs, ve, *row(element)] += 1
            case Adjust(vs, ve, vnew):
                assert element.sync >= cti, f"{element} after CTI {cti}"
                assert alive[vs, ve, *row(element)] > 0, f"{element} names no event"
                alive[vs, ve, *row(element)] -= 1
                if vnew > vs:
                    alive[vs, vnew, *row(element)] += 1
    return +alive


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> NexmarkConfig:
    return CONFIGS[request.param]


def test_the_stream_depends_on_the_seed_and_on_nothing_else(config: NexmarkConfig) -> None:
    first, again = (stream(generate(config, EVENTS, epoch=4_000)) for _ in range(2))
    other = stream(generate(replace(config, seed=8), EVENTS, epoch=4_000))
    assert first == again
    assert first["Bid"] != other["Bid"]


@pytest.mark.property
@pytest.mark.parametrize("epoch", [53, 997, 10**6])
def test_the_epoch_size_does_not_change_the_stream(config: NexmarkConfig, epoch: int) -> None:
    assert stream(generate(config, EVENTS, epoch=epoch)) == whole(config)


def test_streams_are_valid_and_every_stream_makes_progress(config: NexmarkConfig) -> None:
    found = whole(config)
    generator = NexmarkGenerator(config)
    troubled = config.lateness + config.correction_delay if config.late else 0
    for name in STREAMS:
        assert history(found[name]), name
        ctis = [element.t for element in found[name] if isinstance(element, Cti)]
        interval = max(config.cti_interval, 1_000 // config.rate)
        assert ctis[-1] >= generator.time(EVENTS - 1) - troubled - 5 * interval


def test_the_checker_of_the_model_agrees(config: NexmarkConfig) -> None:
    epochs = list(generate(config, EVENTS))
    for name in STREAMS:
        assert_valid([epoch[name] for epoch in epochs])


def test_trouble_changes_nothing_in_the_end(config: NexmarkConfig) -> None:
    calm = replace(config, late=0.0, corrections=0.0, duplicates=0.0)
    troubled, clean = whole(config), whole(calm)
    for name in STREAMS:
        assert history(troubled[name]) == history(clean[name])
    assert sum(len(history(clean[name])) for name in STREAMS) <= EVENTS
    assert sum(history(clean[name]).total() for name in STREAMS) == EVENTS


SHARES = st.sampled_from([0.0, 0.01, 0.3, 1.0])


@st.composite
def configs(draw: st.DrawFn) -> NexmarkConfig:
    rate = draw(st.sampled_from([3, 50, 999, 7_000, 500_000]))
    proportions = draw(st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(0, 20)))
    cycle = proportions[0] + 2 * proportions[1] + proportions[2]
    return NexmarkConfig(
        seed=draw(st.integers(0, 2**40)),
        rate=rate,
        persons=proportions[0],
        auctions=proportions[1],
        bids=proportions[2],
        # Long enough for a few cycles even while the clock is slow.
        auction_length=draw(st.integers(4, 60)) * cycle * 4_000 // rate + 4,
        hot_items=draw(SHARES),
        hot_item_every=draw(st.integers(1, 30)),
        burst=draw(st.sampled_from([1.0, 1.7, 20.0])),
        burst_share=draw(st.sampled_from([0.01, 0.3, 0.7])),
        burst_period=draw(st.integers(3, 50)) * 1_000 // min(rate, 1_000) + draw(st.integers(1, 9)),
        late=draw(SHARES),
        lateness=draw(st.integers(1, 400)),
        corrections=draw(SHARES),
        duplicates=draw(SHARES),
        correction_delay=draw(st.integers(1, 400)),
        cti_interval=draw(st.integers(1, 300)),
        origin=draw(st.sampled_from([0, -10_000, 1_700_000_000_000])),
    )


@given(configs(), st.integers(1, 900), st.integers(0, 1_500))
def test_any_configuration_is_valid_and_replayable(config: NexmarkConfig, epoch: int, start: int) -> None:
    try:
        found = stream(generate(config, 1_500))
    except QueryError as error:
        assert "make" in str(error)  # too slow a rate for so short a time: the remedy is named
        return
    calm = stream(generate(replace(config, late=0.0, corrections=0.0, duplicates=0.0), 1_500))
    assert stream(generate(config, 1_500, epoch=epoch)) == found
    before, after = stream([NexmarkGenerator(config).read(0, start)]), stream(generate(config, 1_500, start=start))
    for name in STREAMS:
        assert history(found[name]) == history(calm[name])
        if start < 1_500:
            assert before[name] + after[name] == found[name]


def test_trouble_comes_in_the_shares_asked_for() -> None:
    bids = whole(TROUBLED)["Bid"]
    inserts = [element for element in bids if isinstance(element, Insert)]
    adjusts = [element for element in bids if isinstance(element, Adjust)]
    events = history(bids).total()
    assert all(element.vnew == element.vs for element in adjusts)
    assert len(inserts) == events + len(adjusts)
    assert len(adjusts) / events == pytest.approx(0.05 + 0.95 * 0.05, rel=0.15)
    ahead = np.maximum.accumulate([element.vs for element in inserts])
    late = np.count_nonzero([element.vs < before for element, before in zip(inserts, ahead, strict=True)])
    assert late / len(inserts) > 0.1
    moved = Counter(element.vs for element in adjusts)
    assert len(moved) > 100


def test_a_steady_ordered_stream_is_ordered_and_insert_only() -> None:
    for elements in whole(CLEAN).values():
        syncs = [element.sync for element in elements]
        assert syncs == sorted(syncs)
        assert not any(isinstance(element, Adjust) for element in elements)


@pytest.mark.property
@pytest.mark.parametrize("start", [1, 52, 4_321, 15_000])
def test_a_replay_from_any_slot_is_the_same_stream(config: NexmarkConfig, start: int) -> None:
    played, replayed = NexmarkGenerator(config), NexmarkGenerator(config)
    before = stream([played.read(0, start)])
    after = stream([played.read(start, EVENTS)])
    assert stream([replayed.read(start, EVENTS)]) == after
    assert stream([replayed.read(0, start)]) == before, "jumping back"
    joined = stream(generate(config, EVENTS, epoch=3_000, drain=False))
    assert {name: before[name] + after[name] for name in STREAMS} == joined
    drained = stream(generate(config, EVENTS, start=start))
    assert {name: before[name] + drained[name] for name in STREAMS} == whole(config)


@pytest.mark.parametrize("burst", [1.0, 3.0])
def test_references_make_sense(burst: float) -> None:
    # Never two events in one tick, so that the order of times is the order of slots across streams.
    config = replace(CLEAN, rate=300, auction_length=30_000, burst=burst)
    found = whole(config)
    events = sorted((e.vs, name, e.row) for name in STREAMS for e in found[name] if isinstance(e, Insert))
    assert len({vs for vs, _, _ in events}) == len(events) == EVENTS
    people: set[int] = set()
    opened: dict[int, tuple[int, float]] = {}
    closed: set[int] = set()
    for vs, name, r in events:
        match name:
            case "Person":
                people.add(r["id"])
            case "OpenAuction":
                assert r["itemID"] not in opened and r["sellerID"] in people
                opened[r["itemID"]] = (vs, r["start_price"])
            case "ClosedAuction":
                assert r["itemID"] in opened and r["itemID"] not in closed and r["buyerID"] in people
                assert vs - opened[r["itemID"]][0] < config.auction_length
                closed.add(r["itemID"])
            case _:
                assert r["itemID"] in opened and r["itemID"] not in closed and r["bidderID"] in people
                assert r["bid_price"] >= opened[r["itemID"]][1]
    assert len(closed) > 100 and len(opened) - len(closed) > 100


def test_every_auction_closes_once_and_lengths_spread() -> None:
    found = whole(CLEAN)
    opened = {e.row["itemID"]: e.vs for e in found["OpenAuction"] if isinstance(e, Insert)}
    closed = {e.row["itemID"]: e.vs for e in found["ClosedAuction"] if isinstance(e, Insert)}
    lengths = np.array([closed[item] - opened[item] for item in closed])
    assert len(closed) == sum(isinstance(e, Insert) for e in found["ClosedAuction"])
    last = max(closed.values()) - CLEAN.auction_length
    assert all(item in closed for item, at in opened.items() if at < last)
    assert lengths.min() >= 0 and lengths.max() < CLEAN.auction_length
    assert lengths.max() > 0.8 * CLEAN.auction_length and lengths.min() < 0.1 * CLEAN.auction_length


def test_hot_items_and_sellers_are_hot() -> None:
    found = stream(generate(replace(CLEAN, hot_items=0.6, hot_sellers=0.4, auction_length=8_000), EVENTS))
    items = Counter(e.row["itemID"] for e in found["Bid"] if isinstance(e, Insert))
    sellers = Counter(e.row["sellerID"] for e in found["OpenAuction"] if isinstance(e, Insert))
    assert sum(count for _, count in items.most_common(12)) > 0.55 * items.total()
    assert sum(count for _, count in sellers.most_common(20)) > 0.35 * sellers.total()


def test_kinds_come_in_proportion_and_at_the_rate_asked_for() -> None:
    found = whole(CLEAN)
    counts = {name: history(elements).total() for name, elements in found.items()}
    assert counts["Person"] == pytest.approx(EVENTS / 53, abs=2)
    assert counts["OpenAuction"] == pytest.approx(3 * EVENTS / 53, abs=4)
    last = max(e.vs for elements in found.values() for e in elements if isinstance(e, Insert))
    assert last == pytest.approx(EVENTS / CLEAN.rate * 1000, rel=0.01)


def test_bursts_vary_the_rate_by_the_factor_asked_for() -> None:
    clock = Clock.of(replace(CLEAN, burst=3.0, burst_share=0.3))
    times = clock.times(np.arange(2 * clock.slots))
    assert np.all(np.diff(times) >= 0)
    per_tenth = np.histogram(times[: clock.slots], bins=30, range=(0, clock.length))[0]
    assert per_tenth[0] == pytest.approx(3.0 * clock.slots / 30, rel=0.05)
    assert per_tenth[-1] == pytest.approx(0.7 / 0.9 * clock.slots / 30, rel=0.05)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_clock_and_its_inverse_agree(name: str) -> None:
    clock = Clock.of(CONFIGS[name])
    slots = np.arange(3 * clock.slots) if clock.slots < 10**5 else np.arange(10**5)
    times = clock.times(slots)
    wanted = np.arange(times[0], times[-1] + 1)
    assert clock.slots_at(wanted).tolist() == np.searchsorted(times, wanted, "left").tolist()
    within = clock.slots_within(1_234)
    if within:
        assert (times[within:] - times[:-within]).max() <= 1_234


def test_batches_have_the_schema_and_plain_columns(config: NexmarkConfig) -> None:
    for epoch in generate(config, 5_000, epoch=1_000):
        assert tuple(epoch) == STREAMS
        for name, batch in epoch.items():
            assert batch.schema is SCHEMAS[name] and batch.source == name
            assert [column.type for column in batch.columns] == list(batch.schema.types)
            assert batch.op.dtype == np.uint8 and batch.vs.dtype == batch.ve.dtype == batch.vnew.dtype == np.int64
            assert {len(column) for column in batch.columns} == {len(batch)}
            assert set(np.unique(batch.op).tolist()) <= {INSERT, ADJUST, CTI}
            assert all(column.null_count == np.count_nonzero(batch.op == CTI) for column in batch.columns)
            assert all(isinstance(column, pa.Array) for column in batch.columns)


def test_the_default_is_two_days() -> None:
    found = next(generate(NexmarkConfig(), 10_000))
    assert len(found["Bid"]) > 9_000 and len(found["ClosedAuction"]) == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"late": -0.1}, "late is a share"),
        ({"rate": 0}, "rate is at least 1"),
        ({"bids": -1}, "bids is at least 0"),
        ({"burst": 0.5}, "at least as fast as the average"),
        ({"rate": 1, "burst_period": 1_000}, "make burst_period longer"),
        ({"rate": 10, "auction_length": 1_000}, "make auction_length longer"),
    ],
)
def test_an_impossible_configuration_says_what_is_wrong(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        NexmarkGenerator(NexmarkConfig(**wrong))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean", "troubled"])
def test_more_than_a_million_events_per_second(name: str) -> None:
    config = replace(CONFIGS[name], rate=100_000)
    events, best = 2_000_000, 0.0
    for _ in range(2):
        began = time.perf_counter()
        for _ in generate(config, events, epoch=100_000):
            pass
        best = max(best, events / (time.perf_counter() - began))
    assert best > 1e6, f"{best / 1e6:.2f} million events per second"
