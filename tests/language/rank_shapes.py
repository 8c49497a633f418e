"""Query shapes with orders of rows: LIMIT, DISTINCT ON, OVER.  Orders name all columns, so DuckDB has no ties to break
but those of equal rows."""

from __future__ import annotations

from typing import Final

RANK_SHAPES: Final = {
    "limit": "SELECT k, v, s FROM {A5} a ORDER BY v DESC, k, s LIMIT 3",
    "limit by a hidden column": "SELECT s FROM {A5} a ORDER BY v + k NULLS FIRST, v, k, s LIMIT 2 OFFSET 1",
    "limit of groups": "SELECT k, SUM(v) AS t FROM {A5} a GROUP BY k ORDER BY COUNT(*) DESC, t, k NULLS LAST LIMIT 2",
    "limit of a union": "SELECT k, s FROM {A3} a UNION SELECT k, s FROM {B4} b ORDER BY 2 DESC, k LIMIT 3",
    "limit in a subquery": "SELECT k, w FROM {B4} b WHERE w IN (SELECT v FROM {A5} a ORDER BY v LIMIT 2)",
    "limited value": "SELECT w, (SELECT v FROM {A5} a ORDER BY v DESC LIMIT 1) AS m FROM {B4} b",
    "limit in from": "SELECT COUNT(*) AS n, k FROM (SELECT k, v, s FROM {A5} a ORDER BY v, k, s LIMIT 4) x GROUP BY k",
    "top two": "SELECT k, v, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, s) AS rn FROM {A5} "
    "a) x WHERE rn <= 2",
    "second and third": "SELECT v FROM (SELECT v, ROW_NUMBER() OVER (ORDER BY v, k, s) AS rn FROM {A5} a) x WHERE rn "
    "BETWEEN 2 AND 3",
    "best with ties": "SELECT k, v FROM (SELECT k, v, RANK() OVER (PARTITION BY s ORDER BY v DESC) AS r FROM {A5} a) x "
    "WHERE r = 1 AND k > 0",
    "dense ranks": "SELECT k, v, DENSE_RANK() OVER (ORDER BY v NULLS FIRST) AS d FROM {A5} a",
    "ranks of groups": "SELECT k, RANK() OVER (ORDER BY SUM(v) DESC) AS r FROM {A5} a GROUP BY k",
    "distinct on": "SELECT DISTINCT ON (k) k, v, s FROM {A5} a ORDER BY k, v DESC, s",
    "distinct on, limited": "SELECT DISTINCT ON (s) v, k FROM {A3} a ORDER BY s, v, k LIMIT 2",
    "sums over partitions": "SELECT k, v, SUM(v) OVER (PARTITION BY k) AS t, COUNT(*) OVER () AS n FROM {A5} a",
    "running sums": "SELECT k, v, SUM(v) OVER (PARTITION BY s ORDER BY v, k) AS t FROM {A5} a",
    "rows frames": "SELECT v, AVG(v) OVER (ORDER BY v, k, s ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m, MIN(k) "
    "OVER (ORDER BY v, k, s ROWS 2 PRECEDING) AS l FROM {A5} a",
    "range frames": "SELECT v, COUNT(*) OVER (ORDER BY v DESC RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS n "
    "FROM {A5} a",
    "lag and lead": "SELECT v, LAG(s, 1, 'none') OVER (ORDER BY v, k, s) AS l, LEAD(v, 2) OVER (ORDER BY v, k, s) AS r "
    "FROM {A5} a",
    "first and last values": "SELECT v, FIRST_VALUE(s) OVER (PARTITION BY k ORDER BY v, s) AS f, LAST_VALUE(s) OVER "
    "(PARTITION BY k ORDER BY v, s ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS l FROM {A5} a",
    "places": "SELECT v, NTILE(3) OVER (ORDER BY v, k, s) AS t, PERCENT_RANK() OVER (ORDER BY v) AS p, CUME_DIST() "
    "OVER (ORDER BY v) AS c FROM {A5} a",
    "filtered over": "SELECT v, SUM(v) FILTER (WHERE k > 1) OVER (PARTITION BY s) AS t FROM {A5} a",
    "over a difference": "SELECT v, v - LAG(v) OVER (ORDER BY v, k, s) AS d FROM {A5} a WHERE v IS NOT NULL",
}
