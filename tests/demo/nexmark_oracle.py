"""NEXMark's queries in DuckDB's SQL over what happened.

`EVENTS`: the answer as rows with the lifetimes `vs`, `ve`.  `AT`: the answer at the instant `$t`.  `CHANGES`: the
answers of `AT` as rows with lifetimes, each from the event that brings it to the next one: so every instant is judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import duckdb

from everwhen.core.time import INF
from everwhen.demo.nexmark.suite.streams import SuiteStreams
from everwhen.stream.element_batch import ADJUST, INSERT, ElementBatch

_DAY = "strftime(date_time, '%Y-%m-%d')"
_RANKS = """count(*), count(*) FILTER (WHERE price < 10000),
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000), count(*) FILTER (WHERE price >= 1000000)"""
_DISTINCT = ", ".join(
    f"count(DISTINCT {column}){condition}"
    for column in ("bidder", "auction")
    for condition in (
        "",
        " FILTER (WHERE price < 10000)",
        " FILTER (WHERE price >= 10000 AND price < 1000000)",
        " FILTER (WHERE price >= 1000000)",
    )
)
_ORDER = "price DESC, bidder, channel, url, date_time, extra"  # among equal prices by the other columns
_MOMENT = "make_timestamp({} * 1000)"
_HITS = """CREATE VIEW hit AS SELECT b.*, a.category, a.seller FROM bid b
  JOIN auction a ON b.auction = a.id AND a.vs <= b.vs AND b.vs < a.ve"""

EVENTS = {
    "q0": "SELECT vs, ve, auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT vs, ve, auction, bidder, 0.908::DOUBLE * price, date_time, extra FROM bid",
    "q2": "SELECT vs, ve, auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT greatest(a.vs, p.vs) AS vs, least(a.ve, p.ve) AS ve, p.name, p.city, p.state, a.id
      FROM auction a JOIN person p ON a.seller = p.id
      WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA') AND greatest(a.vs, p.vs) < least(a.ve, p.ve)""",
    "q5": f"""SELECT ws, ws + 10000, auction, num, {_MOMENT.format("ws")}, {_MOMENT.format("(ws + 10000)")} FROM (
      SELECT auction, ws, count(*) AS num
      FROM (SELECT auction, vs // 2000 * 2000 - k * 2000 AS ws FROM bid, range(5) r(k)) GROUP BY ALL
      ) QUALIFY num = max(num) OVER (PARTITION BY ws)""",
    "q7": """SELECT vs // 10000 * 10000 AS ws, vs // 10000 * 10000 + 10000, auction, price, bidder, date_time FROM bid
      QUALIFY price = max(price) OVER (PARTITION BY vs // 10000)""",
    "q8": """SELECT DISTINCT p.vs // 10000 * 10000, p.vs // 10000 * 10000 + 10000, p.id, p.name, p.vs // 10000 * 10000
      FROM person p JOIN auction a ON p.id = a.seller AND p.vs // 10000 = a.vs // 10000""",
    "q10": """SELECT vs, ve, auction, bidder, price, date_time, extra, strftime(date_time, '%Y-%m-%d'),
      strftime(date_time, '%H:%M') FROM bid""",
    "q11": f"""SELECT min(vs), max(vs) + 10000, bidder, count(*), {_MOMENT.format("min(vs)")},
        {_MOMENT.format("(max(vs) + 10000)")}
      FROM (SELECT bidder, vs, sum(new) OVER (PARTITION BY bidder ORDER BY vs) AS session FROM (
        SELECT bidder, vs, coalesce(vs - lag(vs) OVER (PARTITION BY bidder ORDER BY vs) > 10000, false)::INT AS new
        FROM bid))
      GROUP BY bidder, session""",
    "q12": f"""SELECT ws, ws + 10000, bidder, count(*), {_MOMENT.format("ws")}, {_MOMENT.format("(ws + 10000)")}
      FROM (SELECT bidder, vs // 10000 * 10000 AS ws FROM bid) GROUP BY bidder, ws""",
    "q13": """SELECT b.vs, b.ve, b.auction, b.bidder, b.price, b.date_time, s.value
      FROM bid b JOIN side s ON b.auction % 10000 = s.key""",
    "q14": """SELECT vs, ve, auction, bidder, 0.908::DOUBLE * price,
      CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
           WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
      date_time, extra, length(extra) - length(replace(extra, 'c', ''))
      FROM bid WHERE 0.908::DOUBLE * price > 1000000 AND 0.908::DOUBLE * price < 50000000""",
    "q20": """SELECT b.vs, b.ve, b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra, a.item_name,
      a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category, a.extra
      FROM bid b JOIN auction a ON b.auction = a.id AND b.vs >= a.vs AND b.vs < a.ve WHERE a.category = 10""",
    "q21": """SELECT vs, ve, auction, bidder, price, channel,
      CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END
      FROM bid WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
        OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT vs, ve, auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
      split_part(url, '/', 6) FROM bid""",
    "q23": """SELECT b.vs, b.ve, b.auction, b.bidder, b.price, a.item_name, a.category, p.name, p.city
      FROM bid b JOIN auction a ON b.auction = a.id AND b.vs >= a.vs AND b.vs < a.ve
      JOIN person p ON a.seller = p.id AND p.vs <= b.vs""",
}

AT = {
    "q4": """SELECT category, avg(final) FROM (
      SELECT auction, category, max(price) AS final FROM hit WHERE vs <= $t GROUP BY ALL) GROUP BY category""",
    "q6": """SELECT seller, avg(price) FROM (
      SELECT * FROM (SELECT a.id, a.seller, a.ve, max(h.price) AS price FROM auction a JOIN hit h ON h.auction = a.id
        WHERE a.ve <= $t GROUP BY ALL)
      QUALIFY row_number() OVER (PARTITION BY seller ORDER BY ve DESC, id DESC) <= 10) GROUP BY seller""",
    "q9": """SELECT auction, bidder, price, date_time FROM hit WHERE vs <= $t
      QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) = 1""",
    "q15": f"SELECT {_DAY}, {_RANKS}, {_DISTINCT} FROM bid WHERE vs <= $t GROUP BY {_DAY}",
    "q16": f"""SELECT channel, {_DAY}, max(strftime(date_time, '%H:%M')), {_RANKS}, {_DISTINCT}
      FROM bid WHERE vs <= $t GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_DAY}, {_RANKS}, min(price), max(price), avg(price), sum(price)::BIGINT
      FROM bid WHERE vs <= $t GROUP BY auction, {_DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, date_time, extra FROM bid WHERE vs <= $t
      QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY vs DESC) = 1""",
    "q19": f"""SELECT auction, bidder, price, channel, url, date_time, extra,
        row_number() OVER (PARTITION BY auction ORDER BY {_ORDER}) AS place
      FROM bid WHERE vs <= $t QUALIFY place <= 10""",
}

_FIRST = "max(price) OVER (PARTITION BY auction ORDER BY vs ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
_RUNNING = re.sub(r"(count\((?:\*|DISTINCT \w+)\)(?: FILTER \(WHERE [^)]*\))?)", r"\1 OVER w", f"{_RANKS}, {_DISTINCT}")
_COUNTED = _RUNNING.split(", count(DISTINCT")[0]
_NEXT = "lead(vs, 1, {infinity}) OVER (PARTITION BY {key} ORDER BY vs)"


def _until(*key: str) -> str:
    return _NEXT.format(infinity=INF, key=", ".join(key))


CHANGES = {
    "q4": f"""SELECT vs, {_until("category")}, category, final FROM (
      SELECT category, vs, sum(more) OVER w / sum(new) OVER w AS final FROM (
        SELECT category, vs, price - coalesce(best, 0) AS more, (best IS NULL)::INT AS new
        FROM (SELECT *, {_FIRST} AS best FROM hit) WHERE best IS NULL OR price > best)
      WINDOW w AS (PARTITION BY category ORDER BY vs))""",
    "q6": f"""SELECT vs, ve, seller, price FROM (
      SELECT seller, vs, avg(price) OVER (w ROWS 9 PRECEDING) AS price, lead(vs, 1, {INF}) OVER w AS ve FROM (
        SELECT a.id, a.seller, a.ve AS vs, max(h.price) AS price
        FROM auction a JOIN hit h ON h.auction = a.id GROUP BY ALL)
      WINDOW w AS (PARTITION BY seller ORDER BY vs, id)) WHERE vs < ve""",
    "q9": f"""SELECT vs, {_until("auction")}, auction, bidder, price, date_time
      FROM (SELECT *, {_FIRST} AS best FROM hit) WHERE best IS NULL OR price > best""",
    "q15": f"""SELECT vs, {_until("day")}, day, {_RUNNING} FROM (SELECT *, {_DAY} AS day FROM bid)
      WINDOW w AS (PARTITION BY day ORDER BY vs)""",
    "q16": f"""SELECT vs, {_until("channel", "day")}, channel, day, max(strftime(date_time, '%H:%M')) OVER w, {_RUNNING}
      FROM (SELECT *, {_DAY} AS day FROM bid) WINDOW w AS (PARTITION BY channel, day ORDER BY vs)""",
    "q17": f"""SELECT vs, {_until("auction", "day")}, auction, day, {_COUNTED}, min(price) OVER w, max(price) OVER w,
        avg(price) OVER w, (sum(price) OVER w)::BIGINT
      FROM (SELECT *, {_DAY} AS day FROM bid) WINDOW w AS (PARTITION BY auction, day ORDER BY vs)""",
    "q18": f"SELECT vs, {_until('bidder', 'auction')}, auction, bidder, price, channel, url, date_time, extra FROM bid",
    "q19": f"""WITH
        o AS (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY {_ORDER}) AS place FROM bid),
        p AS (SELECT b.vs AS id, b.vs, 1 + count(c.vs) AS n FROM o b
          LEFT JOIN o c ON c.auction = b.auction AND c.place < b.place AND c.vs < b.vs GROUP BY b.vs),
        q AS (FROM p UNION ALL
          SELECT b.vs AS id, c.vs, p.n + row_number() OVER (PARTITION BY b.vs ORDER BY c.vs) AS n
          FROM o b JOIN o c ON c.auction = b.auction AND c.place < b.place AND c.vs > b.vs JOIN p ON p.id = b.vs)
      SELECT q.vs, q.ve, auction, bidder, price, channel, url, date_time, extra, n
      FROM (SELECT *, {_until("id")} AS ve FROM q) q JOIN bid ON bid.vs = q.id WHERE n <= 10""",
}


class Oracle:
    """DuckDB over what happened."""

    def __init__(self, streams: SuiteStreams) -> None:
        self.connection = duckdb.connect()
        for name, table in streams.tables().items():
            self.connection.register(name.lower(), table)
        self.connection.execute(_HITS)

    def at(self, name: str, t: int) -> Counter[tuple[Any, ...]]:
        if name in AT:
            return Counter(map(plain, self.connection.execute(AT[name], {"t": t}).fetchall()))
        rows = self.connection.execute(EVENTS[name]).fetchall()
        return Counter(plain(row[2:]) for row in rows if row[0] <= t < row[1])

    def edges(self, name: str) -> dict[tuple[Any, ...], int]:
        """The whole answer as what begins and ends when."""
        found: Counter[tuple[Any, ...]] = Counter()
        for vs, ve, *row in self.connection.execute((EVENTS | CHANGES)[name]).fetchall():
            values = plain(tuple(row))
            found[(vs, *values)] += 1
            found[(ve, *values)] -= 1
        return {edge: times for edge, times in found.items() if times}


def edges(batches: Iterable[ElementBatch]) -> dict[tuple[Any, ...], int]:
    """What begins and ends when, all corrections applied: equal for two streams if their snapshots are, everywhere."""
    found: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        times = zip(batch.op.tolist(), batch.vs.tolist(), batch.ve.tolist(), batch.vnew.tolist(), rows, strict=True)
        for op, vs, ve, vnew, row in times:
            if op > ADJUST:
                continue
            begin, end = (vs, ve) if op == INSERT else (ve, vnew)
            values = plain(row)
            found[(begin, *values)] += 1
            found[(end, *values)] -= 1
    return {edge: times for edge, times in found.items() if times}


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values that can be compared: the last digits of floats depend on the order of additions."""
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.12g}")
    return str(value) if isinstance(value, datetime) else value
