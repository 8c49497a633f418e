"""What a NEXMark run looks like: how fast, how skewed, how bursty, how disordered.  Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everwhen.errors import QueryError

TICKS_PER_SECOND: Final = 1000
TWO_DAYS: Final = 2 * 24 * 3600 * TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class NexmarkConfig:
    """A configuration that exists can be generated.  The defaults are an ordered, correct, steady stream.

    >>> NexmarkConfig(late=0.05, lateness=2_000).late
    0.05
    >>> NexmarkConfig(late=1.5)
    Traceback (most recent call last):
    everwhen.errors.QueryError: NEXMark: late is a share between 0 and 1, not 1.5
    """

    seed: int = 7
    rate: int = 10_000  # events per second of application time, on average
    persons: int = 1  # how many people register ...
    auctions: int = 3  # ... how many auctions open, and close, ...
    bids: int = 46  # ... and how many bids are made, per cycle
    auction_length: int = TWO_DAYS  # no auction is open for longer
    hot_items: float = 0.5  # share of bids on the hot item
    hot_item_every: int = 100  # every so many items a new one is hot
    hot_sellers: float = 0.25  # share of auctions of the hot seller
    hot_seller_every: int = 20
    active_people: int = 1000  # sellers and bidders are among the last so many who registered
    burst: float = 1.0  # how many times as fast as on average a burst is
    burst_share: float = 0.3  # share of the events that come in bursts
    burst_period: int = 60_000  # ticks from one burst to the next
    late: float = 0.0  # share of elements that arrive late ...
    lateness: int = 2_000  # ... by at most so many ticks
    corrections: float = 0.0  # share of bids that are wrong at first
    duplicates: float = 0.0  # share of bids that come twice
    correction_delay: int = 5_000  # ticks within which both are put right
    cti_interval: int = 1_000  # ticks between two CTIs of a stream
    origin: int = 0  # the time of the first event

    def __post_init__(self) -> None:
        for name in ("late", "corrections", "duplicates", "hot_items", "hot_sellers"):
            share = getattr(self, name)
            if not 0.0 <= share <= 1.0:
                raise QueryError(f"NEXMark: {name} is a share between 0 and 1, not {share}")
        for name in (
            "rate",
            "persons",
            "auctions",
            "hot_item_every",
            "hot_seller_every",
            "active_people",
            "burst_period",
            "lateness",
            "correction_delay",
            "cti_interval",
        ):
            if getattr(self, name) < 1:
                raise QueryError(f"NEXMark: {name} is at least 1, not {getattr(self, name)}")
        if self.bids < 0:
            raise QueryError(f"NEXMark: bids is at least 0, not {self.bids}")
        if self.burst < 1.0 or not 0.0 < self.burst_share < 1.0:
            raise QueryError(
                f"NEXMark: a burst is at least as fast as the average and takes some of the events, "
                f"not burst={self.burst}, burst_share={self.burst_share}"
            )
