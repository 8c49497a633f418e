"""DuckDB: the same answers in one shot, from a table of the corrected history, materialised into a table.

It is a bulk peer: it sees all events at once, sorted by nobody, and answers once.  `checksum` is the sum over result
rows of a value times its duration, which the streaming side computes from its changes: equal checksums, equal answers.
Threads are DuckDB's default (all cores); `seconds_1_thread` is the same with one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import RUNS, report

JOIN = """
SELECT key, l.value AS a, r.value AS b, greatest(l.vs, r.vs) AS vs, least(l.ve, r.ve) AS ve
FROM lefts l JOIN rights r USING (key) WHERE l.vs < r.ve AND r.vs < l.ve
"""

# The sum per key at every instant: edges, running totals, the pieces between neighbouring edges.
EDGES = """
WITH edges AS (SELECT key, vs AS t, value AS d, 1 AS n FROM events
               UNION ALL SELECT key, vs + {w}, -value, -1 FROM events),
steps AS (SELECT key, t, sum(d) AS d, sum(n) AS n FROM edges GROUP BY key, t),
swept AS (SELECT key, t AS vs, lead(t) OVER k AS ve, sum(d) OVER k AS total, sum(n) OVER k AS n
          FROM steps WINDOW k AS (PARTITION BY key ORDER BY t))
SELECT key, CAST(total AS BIGINT) AS value, vs, ve FROM swept WHERE n > 0
"""

TUMBLING = """
SELECT key, CAST(sum(value) AS BIGINT) AS value, vs // 60 * 60 AS vs, vs // 60 * 60 + 60 AS ve
FROM events GROUP BY key, vs // 60
"""

DISTINCT = """
WITH marked AS (SELECT key, vs, vs + 60 AS ve, max(vs + 60) OVER (PARTITION BY key ORDER BY vs
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM events),
islands AS (SELECT key, vs, ve, sum(CASE WHEN before >= vs THEN 0 ELSE 1 END)
            OVER (PARTITION BY key ORDER BY vs ROWS UNBOUNDED PRECEDING) AS island FROM marked)
SELECT key, 1 AS value, min(vs) AS vs, max(ve) AS ve FROM islands GROUP BY key, island
"""

DIFFERENCE = """
WITH edges AS (SELECT key, vs AS t, 1 AS d FROM lefts UNION ALL SELECT key, ve, -1 FROM lefts
               UNION ALL SELECT key, vs, -1 FROM rights UNION ALL SELECT key, ve, 1 FROM rights),
steps AS (SELECT key, t, sum(d) AS d FROM edges GROUP BY key, t),
swept AS (SELECT key, t AS vs, lead(t) OVER k AS ve, sum(d) OVER k AS n
          FROM steps WINDOW k AS (PARTITION BY key ORDER BY t))
SELECT key, CAST(n AS BIGINT) AS value, vs, ve FROM swept WHERE n > 0
"""

# At the starts of events only: DuckDB has no frame that also moves when an event ends.
MIN_MAX = """
SELECT key, vs, min(value) OVER w AS lo, max(value) OVER w AS hi FROM events
WINDOW w AS (PARTITION BY key ORDER BY vs RANGE BETWEEN 59 PRECEDING AND CURRENT ROW)
"""

# How long each value of a key is there, then how many are.
COUNT_DISTINCT = """
WITH marked AS (SELECT key, value, vs, vs + 60 AS ve, max(vs + 60) OVER (PARTITION BY key, value ORDER BY vs
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM events),
islands AS (SELECT key, value, vs, ve, sum(CASE WHEN before >= vs THEN 0 ELSE 1 END)
            OVER (PARTITION BY key, value ORDER BY vs ROWS UNBOUNDED PRECEDING) AS island FROM marked),
lives AS (SELECT key, min(vs) AS vs, max(ve) AS ve FROM islands GROUP BY key, value, island),
edges AS (SELECT key, vs AS t, 1 AS d FROM lives UNION ALL SELECT key, ve, -1 FROM lives),
steps AS (SELECT key, t, sum(d) AS d FROM edges GROUP BY key, t),
swept AS (SELECT key, t AS vs, lead(t) OVER k AS ve, sum(d) OVER k AS n
          FROM steps WINDOW k AS (PARTITION BY key ORDER BY t))
SELECT key, CAST(n AS BIGINT) AS value, vs, ve FROM swept WHERE n > 0
"""

# At the starts of events only, as MIN_MAX.
MEDIAN = """
SELECT key, vs, median(value) OVER w AS value FROM events
WINDOW w AS (PARTITION BY key ORDER BY vs RANGE BETWEEN 59 PRECEDING AND CURRENT ROW)
"""

FILTER_MAP = """
SELECT key, value * 2 + 1 AS value, vs, vs + 1 AS ve FROM events WHERE value >= 500 AND key <> 'key-000001'
"""

# work -> tables with their files, the query, whether its checksum is comparable
WORKS = {
    "filter_map": ({"events": "events"}, FILTER_MAP, True),
    "tumbling_sum": ({"events": "events"}, TUMBLING, True),
    "sliding_sum": ({"events": "events"}, EDGES.format(w=60), True),
    "sliding_sum_100k": ({"events": "events_100k"}, EDGES.format(w=60_000_000), True),
    "min_max": ({"events": "events"}, MIN_MAX, False),
    "count_distinct": ({"events": "events"}, COUNT_DISTINCT, True),
    "median": ({"events": "events"}, MEDIAN, False),
    "distinct": ({"events": "events"}, DISTINCT, True),
    "difference": ({"lefts": "left", "rights": "right"}, DIFFERENCE, True),
    "interval_join": ({"lefts": "left", "rights": "right"}, JOIN, True),
}


def timed(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    connection.execute("DROP TABLE IF EXISTS result")
    began = time.perf_counter()
    connection.execute(f"CREATE TABLE result AS {query}")
    return time.perf_counter() - began


def main(work: str, directory: Path) -> None:
    files, query, comparable = WORKS[work]
    connection = duckdb.connect()
    events = 0
    for name, file in files.items():
        path = directory / f"{file}.parquet"
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet(?)", [str(path)])
        events += (connection.execute(f"SELECT count(*) FROM {name}").fetchone() or (0,))[0]
    seconds = min(timed(connection, query) for _ in range(RUNS))
    connection.execute("SET threads = 1")
    alone = timed(connection, query)
    weight = "(a + b)" if work == "interval_join" else "value"
    results, checksum = connection.execute(
        f"SELECT count(*), {f'sum({weight} * (ve - vs))' if comparable else 'NULL'} FROM result"
    ).fetchone() or (0, None)
    report(
        work,
        "duckdb",
        events,
        seconds,
        results=results,
        checksum=None if checksum is None else int(checksum),
        seconds_1_thread=round(alone, 4),
        note="one shot, all cores",
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
