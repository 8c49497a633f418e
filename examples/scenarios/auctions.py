"""The auction (Tucker, 1.1 and 1.3): items for sale, bids that raise their prices, and the closing price of each.

No window and no CTI: as in the paper, rows have no time, they live on [0, ∞).  An item comes once (UNIQUE), so its bids
need not be kept for another one; a punctuation among the bids closes its auction.  Then the price is final, and nothing
of the item is kept any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.schema import Schema
from everwhen.stream.element_batch import ElementBatch
from scenarios.embedding import embedded

AUCTION: Final = """CREATE STREAM Auction (item BIGINT, seller VARCHAR) INSERT ONLY PUNCTUATE (UNIQUE (item));
CREATE STREAM Bid (item BIGINT, increase BIGINT) INSERT ONLY PUNCTUATE (GIVEN item);
SELECT A.item, SUM(B.increase) AS price
FROM Auction A, Bid B
WHERE A.item = B.item
GROUP BY A.item
CONSISTENCY STRONG"""
_ITEMS: Final = Schema.of([("item", pa.int64()), ("seller", pa.string())])
_BIDS: Final = Schema.of([("item", pa.int64()), ("increase", pa.int64())])


@dataclass
class Auctions:
    """Epochs of `batch` bids on items of which about `at_once` are open, with about `each` bids per item.

    An item begins with an increase from nothing, so each has a price.  `prices` are the closing prices so far.  In the
    end all auctions close; in a `steady` stream every epoch is as the others: it closes one item per `each` bids.
    """

    bids: int
    at_once: int = 1_000
    each: int = 100
    batch: int = 10_000
    seed: int = 7
    steady: bool = False
    prices: dict[int, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[dict[str, ElementBatch]]:
        random = np.random.default_rng(self.seed)
        open_: np.ndarray = np.empty(0, np.int64)
        sums: np.ndarray = np.empty(0, np.int64)
        items = 0
        for first in range(0, self.bids, self.batch):
            n = min(self.batch, self.bids - first)
            more = n // self.each
            begun = more if items else self.at_once + more * self.steady
            fresh = np.arange(items, items + max(begun, 1))
            items += len(fresh)
            sellers = pa.array([f"seller {i % 97}" for i in fresh.tolist()])
            opened = embedded(_ITEMS, np.zeros(len(fresh), np.int64), [pa.array(fresh), sellers])
            open_, sums = np.concatenate([open_, fresh]), np.concatenate([sums, np.zeros(len(fresh), np.int64)])
            on = random.integers(0, len(open_), n)
            on[: len(fresh)] = np.arange(len(open_) - len(fresh), len(open_))[:n]
            increase = random.integers(1, 100, n)
            np.add.at(sums, on, increase)
            last = first + n >= self.bids and not self.steady
            gone = np.arange(len(open_)) if last else random.permutation(len(open_))[: len(open_) - self.at_once]
            closed = open_[gone]
            promises = [(n, Punctuation({"item": OneOf((item,))})) for item in closed.tolist()]
            self.prices.update(zip(closed.tolist(), sums[gone].tolist(), strict=True))
            stays = np.ones(len(open_), np.bool_)
            stays[gone] = False
            bids = [pa.array(open_[on]), pa.array(increase)]
            yield {"Auction": opened, "Bid": embedded(_BIDS, np.zeros(n, np.int64), bids, promises)}
            open_, sums = open_[stays], sums[stays]
