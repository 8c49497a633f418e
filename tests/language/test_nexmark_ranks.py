"""NEXMark q9, q18 and q19 with ROW_NUMBER, as they are written for other systems, over late and corrected bids.

DuckDB says at instants what is right, on the rows alive then; its orders name all columns, as our ties do."""

from __future__ import annotations

import random
from collections import Counter
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.stream.history import History
from everwhen.testing import assert_valid, history_of, reorder

DECLARED = """\
CREATE STREAM auction (id BIGINT, item TEXT, seller BIGINT, opened BIGINT, expires BIGINT);
CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, date_time BIGINT);
"""
AUCTION = ew.Schema.of(
    [("id", pa.int64()), ("item", pa.string()), ("seller", pa.int64()), ("opened", pa.int64()), ("expires", pa.int64())]
)
BID = ew.Schema.of(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("date_time", pa.int64()),
    ]
)
OTHERS = "auction, bidder, price, channel, date_time"

QUERIES = {
    "q9": """
        SELECT id, item, seller, opened, expires, auction, bidder, price, date_time FROM (
          SELECT A.id, A.item, A.seller, A.opened, A.expires, B.auction, B.bidder, B.price, B.date_time,
            ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time ASC{ties}) AS rownum
          FROM auction A, bid B WHERE A.id = B.auction AND B.date_time BETWEEN A.opened AND A.expires
        ) x WHERE rownum <= 1""",
    "q18": """
        SELECT auction, bidder, price, channel, date_time FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC{ties}) AS rank_number
          FROM bid) x WHERE rank_number <= 1""",
    "q19": """
        SELECT * FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC{ties}) AS rank_number
          FROM bid) x WHERE rank_number <= 10""",
}
TIES = {"q9": ", B.bidder, B.channel", "q18": ", price, channel", "q19": ", bidder, channel, date_time"}


def histories(seed: int, bids: int) -> dict[str, History]:
    """Auctions, and bids from their time on; some rows end, some come twice."""
    rng = random.Random(seed)
    auctions: Counter[tuple[Any, ...]] = Counter()
    for i in range(6):
        opened = rng.randrange(0, 20)
        auctions[opened, INF, (i, rng.choice(("pen", "ink")), rng.randrange(3), opened, opened + 60)] += 1
    found: Counter[tuple[Any, ...]] = Counter()
    for _ in range(bids):
        t = rng.randrange(0, 90)
        end = INF if rng.random() < 0.7 else t + rng.randrange(1, 40)
        row = (rng.randrange(6), rng.randrange(4), rng.randrange(1, 30), rng.choice(("a", "b")), t)
        found[t, end, row] += rng.choice((1, 1, 1, 2))
    return {
        "auction": History(AUCTION, MappingProxyType(dict(auctions))),
        "bid": History(BID, MappingProxyType(dict(found))),
    }


def snapshot(history: History, t: int) -> pa.Table:
    rows = [row for row, n in history.snapshot(t).items() for _ in range(n)]
    fields = history.schema.fields
    return pa.table({f.name: pa.array([row[i] for row in rows], f.type) for i, f in enumerate(fields)})


@pytest.mark.parametrize("level", ["STRONG", "MIDDLE"])
@pytest.mark.parametrize("name", QUERIES)
def test_nexmark_queries_with_row_number(name: str, level: str) -> None:
    query = ew.sql(DECLARED + QUERIES[name].format(ties=""))
    given = histories(7, 300)
    rng = random.Random(3)
    reads = ["auction", "bid"] if name == "q9" else ["bid"]
    inputs = {each: list(reorder(given[each], rng, disorder=8, corrections=0.3, wrong=0.3)) for each in reads}
    said = list(ew.run(query, inputs, consistency=getattr(ew, level), batch=40))
    assert_valid(said)
    answer = history_of(said)
    connection = duckdb.connect(config={"threads": 1})
    for t in (0, 5, 19, 20, 33, 50, 61, 77, 89, 90, 200):
        for each in reads:
            connection.register(each, snapshot(given[each], t))
        expected = Counter(connection.execute(QUERIES[name].format(ties=TIES[name])).fetchall())
        assert answer.snapshot(t) == expected, f"{name} at {t}"
