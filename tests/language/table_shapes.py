"""Query shapes with tables that are made in the text: VALUES, UNNEST, series, LATERAL, ASOF, and subqueries in ON.

Constant rows begin at 0, and DuckDB's are always there: where they stand alone, the relation R says when that is."""

from __future__ import annotations

from typing import Final

TABLE_SHAPES: Final = {
    "values in from": "SELECT x, y FROM (VALUES (1, 'a'), (2, NULL)) AS t(x, y) WHERE EXISTS (SELECT 1 FROM {R} r)",
    "values joined": "SELECT a.v, t.y FROM {A5} a JOIN (VALUES (0, 'none'), (1, 'one'), (1, 'uno')) AS t(x, y) ON "
    "a.k = t.x",
    "values, outer join": "SELECT t.x, a.v FROM (VALUES (1), (3), (NULL)) AS t(x) LEFT JOIN {A5} a ON a.k = t.x "
    "WHERE EXISTS (SELECT 1 FROM {R} r)",
    "values in a union": "SELECT k, s FROM {A5} a UNION SELECT x, y FROM (VALUES (1, 'a'), (9, 'z')) AS t(x, y) "
    "WHERE EXISTS (SELECT 1 FROM {R} r)",
    "values in an except": "SELECT k FROM {A5} a EXCEPT ALL VALUES (1), (1), (NULL)",
    "values in a list": "SELECT k, v FROM {A5} a WHERE k IN (VALUES (1), (2), (NULL)) OR v NOT IN (VALUES (0), (1))",
    "values, rows in them": "SELECT k, s FROM {A5} a WHERE (k, s) IN (VALUES (1, 'a'), (2, 'b'))",
    "values grouped": "SELECT t.y, COUNT(a.k) AS n, SUM(a.v) AS m FROM {A5} a JOIN (VALUES (0, 'low'), (1, 'low'), "
    "(2, 'high')) AS t(x, y) ON a.k = t.x GROUP BY t.y",
    "values named by with": "WITH names(x, y) AS (VALUES (0, 'zero'), (1, 'one')) SELECT a.v, n.y, m.y AS z FROM "
    "{A5} a JOIN names n ON n.x = a.k LEFT JOIN names m ON m.x = a.v",
    "constant select": "SELECT k, v FROM {A5} a UNION ALL SELECT 7, 8 WHERE EXISTS (SELECT 1 FROM {R} r)",
    "unnest": "SELECT a.v, t.x FROM {A5} a, UNNEST([a.k, a.v, 9]) AS t(x)",
    "unnest, grouped": "SELECT t.x, COUNT(*) AS n FROM {A5} a CROSS JOIN UNNEST([a.k, a.v]) AS t(x) GROUP BY t.x",
    "unnest, kept": "SELECT a.k, t.x FROM {A5} a LEFT JOIN UNNEST(CASE WHEN a.k > 1 THEN [a.k, a.v] END) AS t(x) ON "
    "TRUE",
    "unnest with places": "SELECT a.k, t.x, t.o FROM {A5} a, UNNEST([a.s, 'z', NULL]) WITH ORDINALITY AS t(x, o) "
    "WHERE t.o <> 2",
    "unnest twice": "SELECT x, y FROM {A3} a, UNNEST([a.k, 1]) AS t(x), UNNEST([x, a.v]) AS u(y) WHERE x = y",
    "unnest of an aggregate": "SELECT g.s, t.x FROM (SELECT s, array_agg(v ORDER BY v) FILTER (WHERE v IS NOT NULL) "
    "AS l FROM {A5} a GROUP BY s) g, UNNEST(g.l) AS t(x)",
    "unnest joined": "SELECT a.v, x, b.w FROM {A3} a, UNNEST([a.k, a.v]) AS t(x) JOIN {B4} b ON b.k = t.x",
    "unnest in exists": "SELECT a.k, a.v FROM {A5} a WHERE EXISTS (SELECT 1 FROM UNNEST([a.v, 2]) AS t(x) WHERE t.x "
    "> a.k)",
    "series": "SELECT a.v, i FROM {A5} a, generate_series(1, a.v) AS g(i)",
    "series down": "SELECT a.v, i FROM {A5} a, generate_series(a.v, a.k, -1) AS g(i)",
    "range": "SELECT i, COUNT(*) AS n FROM {A5} a, range(a.k, 5, 2) AS g(i) GROUP BY i",
    "lateral": "SELECT a.k, a.v, t.w FROM {A5} a, LATERAL (SELECT b.w FROM {B4} b WHERE b.k = a.k AND b.w > a.v) AS t",
    "lateral, best": "SELECT a.k, a.v, t.w FROM {A5} a LEFT JOIN LATERAL (SELECT b.w FROM {B4} b WHERE b.w < a.v "
    "ORDER BY b.w DESC LIMIT 1) AS t ON TRUE",
    "lateral count": "SELECT a.k, a.v, t.n FROM {A5} a CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM {B4} b WHERE "
    "b.w >= a.v) AS t",
    "asof": "SELECT a.k, a.v, q.w, q.s FROM {A5} a ASOF JOIN (SELECT k, w, MIN(s) AS s FROM {B4} b GROUP BY k, w) q "
    "ON a.k = q.k AND a.v >= q.w",
    "asof left": "SELECT a.k, a.v, q.w FROM {A5} a ASOF LEFT JOIN (SELECT k, w, MIN(s) AS s FROM {B4} b GROUP BY k, "
    "w) q ON a.k = q.k AND a.v > q.w",
    "asof forward": "SELECT a.k, a.v, q.w FROM {A5} a ASOF LEFT JOIN (SELECT k, w, MIN(s) AS s FROM {B4} b GROUP BY "
    "k, w) q ON a.k = q.k AND a.v <= q.w",
    "asof without keys": "SELECT a.k, a.v, q.w FROM {A5} a ASOF JOIN (SELECT w, COUNT(*) AS n FROM {B4} b GROUP BY "
    "w) q ON a.v >= q.w",
    "asof of groups": "SELECT g.k, g.m, q.w FROM (SELECT k, MAX(v) AS m FROM {A5} a GROUP BY k) g ASOF LEFT JOIN "
    "(SELECT k, w, MIN(s) AS s FROM {B4} b GROUP BY k, w) q ON g.k = q.k AND g.m >= q.w",
    "subquery in on": "SELECT a.v, b.w FROM {A5} a JOIN {B4} b ON a.k = b.k AND b.w = (SELECT MAX(w) FROM {B4} c)",
    "subquery in on, left": "SELECT a.v, b.w FROM {A5} a LEFT JOIN {B4} b ON a.k = b.k AND b.w IN (SELECT v FROM "
    "{A3} c)",
    "subquery in on, of the left": "SELECT a.v, b.w FROM {A5} a LEFT JOIN {B4} b ON a.k = b.k AND EXISTS (SELECT 1 "
    "FROM {A3} c WHERE c.v = a.v)",
    "subquery in on, right": "SELECT a.v, b.w FROM {A5} a RIGHT JOIN {B4} b ON a.k = b.k AND a.v IN (SELECT v FROM "
    "{A3} c)",
    "subquery in on, of both": "SELECT a.v, b.w FROM {A5} a LEFT JOIN {B4} b ON a.k = b.k AND a.v + b.w > (SELECT "
    "MIN(v) FROM {A3} c)",
}
