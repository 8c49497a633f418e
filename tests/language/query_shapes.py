"""Query shapes for the suites that compare the language with DuckDB, snapshot by snapshot.

`{…}` stands for a windowed stream of `TABLES`: in a query of ours it is the stream with its window, in DuckDB's a table
that holds the windowed snapshot of the instant at hand.  A shape marked with `*` is an aggregate without groups, which
says nothing over an empty snapshot; DuckDB is then asked with HAVING COUNT(*) > 0.
"""

from __future__ import annotations

from typing import Final

from language.rank_shapes import RANK_SHAPES
from language.table_shapes import TABLE_SHAPES

TABLES: Final = {
    "A": "A",
    "B": "B",
    "A1": "A WINDOW(NOW)",
    "A5": "A WINDOW(RANGE 5)",
    "A3": "A [RANGE 3]",
    "B4": "B WINDOW(RANGE 4)",
    "B2": "B WINDOW(RANGE 2 SLIDE 2)",
    "As": "A WINDOW(RANGE 6 SLIDE 3)",
    "Ag": "A WINDOW(RANGE 4) GRANULARITY(3)",
    "Ar": "A WINDOW(ROWS 3)",
    "Ap": "A WINDOW(PARTITION BY k ROWS 2)",
    "Bi": "ISTREAM(B)",
    "Bd": "DSTREAM(B)",
    "R": "R",
}

SHAPES: Final = {
    # rows and columns
    "all columns": "SELECT * FROM {A5} a",
    "a column twice": "SELECT k, k + 1 AS k1, s FROM {A} a",
    "arithmetic": "SELECT k * 2 - v AS x, v / 2 AS y, v % 3 AS z, -v AS n FROM {A5} a",
    "integer division": "SELECT v // 2 AS x FROM {A5} a WHERE v >= 0",
    "case": "SELECT CASE WHEN v > 2 THEN 'high' WHEN v > 0 THEN s ELSE 'low' END AS c FROM {A5} a",
    "case with operand": "SELECT CASE k WHEN 0 THEN 'zero' WHEN 1 THEN 'one' END AS c FROM {A5} a",
    "casts": "SELECT CAST(k AS VARCHAR) AS t, CAST(v AS DOUBLE) AS d, k::VARCHAR || s AS c FROM {A5} a",
    "functions": "SELECT upper(s) AS u, length(s) AS l, abs(v - 3) AS a, coalesce(k, -1) AS c, greatest(k, v) AS g "
    "FROM {A5} a",
    "nullif and least": "SELECT nullif(k, v) AS x, least(k, v, 1) AS y FROM {A3} a",
    "where": "SELECT s, v FROM {A5} a WHERE v > 1 AND (k = 1 OR s = 'b')",
    "three-valued logic": "SELECT k, v FROM {A5} a WHERE NOT (v > 1 OR k = 2)",
    "null tests": "SELECT * FROM {A5} a WHERE k IS NULL OR s IS NOT NULL AND v IS NULL",
    "is true": "SELECT (v > 1) IS TRUE AS t, (v > 1) IS NOT FALSE AS f FROM {A5} a",
    "distinct from": "SELECT k, v FROM {A5} a WHERE k IS DISTINCT FROM v",
    "not distinct from": "SELECT k, v FROM {A5} a WHERE k IS NOT DISTINCT FROM v",
    "between and in": "SELECT v FROM {A5} a WHERE v BETWEEN 1 AND 3 AND k IN (0, 1, 2)",
    "not in a list with null": "SELECT v FROM {A5} a WHERE k NOT IN (1, NULL)",
    "in computed values": "SELECT v FROM {A5} a WHERE k IN (v, v + 1)",
    "like": "SELECT s FROM {A5} a WHERE s LIKE 'a%' OR s NOT LIKE '%b'",
    "distinct": "SELECT DISTINCT k, s FROM {A5} a",
    "distinct of an expression": "SELECT DISTINCT v % 2 AS p FROM {A5} a",
    # windows
    "now": "SELECT k, COUNT(*) AS n FROM {A1} a GROUP BY k",
    "slide": "SELECT k, SUM(v) AS t FROM {As} a GROUP BY k",
    "granularity": "SELECT k, COUNT(v) AS n FROM {Ag} a GROUP BY k",
    "rows": "SELECT k, v FROM {Ar} a WHERE v > 0",
    "partitioned rows": "SELECT k, SUM(v) AS t FROM {Ap} a GROUP BY k",
    "istream": "SELECT k, w FROM {Bi} b WHERE w > 0",
    "dstream": "SELECT k, COUNT(*) AS n FROM {Bd} b GROUP BY k",
    # groups
    "group": "SELECT k, COUNT(*) AS n, SUM(v) AS t, MIN(v) AS lo, MAX(s) AS hi, AVG(v) AS m FROM {A5} a GROUP BY k",
    "group by two": "SELECT s, k, COUNT(v) AS n FROM {A5} a GROUP BY k, s",
    "group by an expression": "SELECT v % 2 AS p, COUNT(*) AS n FROM {A5} a GROUP BY v % 2",
    "group by position and alias": "SELECT v % 2 AS p, k, COUNT(*) AS n FROM {A5} a GROUP BY p, 2",
    "group without aggregates": "SELECT k FROM {A5} a GROUP BY k",
    "expressions over aggregates": "SELECT k + 1 AS k1, SUM(v) - COUNT(*) AS x FROM {A5} a GROUP BY k",
    "having": "SELECT k, COUNT(*) AS n FROM {A5} a GROUP BY k HAVING COUNT(*) > 1 AND MIN(v) < 3",
    "having on a key": "SELECT k, MAX(v) AS m FROM {A5} a GROUP BY k HAVING k > 0",
    "count distinct": "SELECT k, COUNT(DISTINCT v) AS n, SUM(DISTINCT v) AS t FROM {A5} a GROUP BY k",
    "only distinct aggregates": "SELECT s, SUM(DISTINCT v) AS t, AVG(DISTINCT k) AS m FROM {A5} a GROUP BY s",
    "filter clause": "SELECT k, COUNT(*) FILTER (WHERE v > 1) AS n, SUM(v) FILTER (WHERE s = 'a') AS t "
    "FROM {A5} a GROUP BY k",
    "aggregate of an expression": "SELECT k, SUM(v * 2 + 1) AS t, MAX(CASE WHEN v > 1 THEN s END) AS m "
    "FROM {A5} a GROUP BY k",
    "variance and median": "SELECT k, stddev_pop(v) AS d, median(v) AS m FROM {A5} a GROUP BY k",
    "*ungrouped": "SELECT COUNT(*) AS n, SUM(v) AS t, AVG(k) AS m FROM {A5} a",
    "*ungrouped filtered": "SELECT MAX(v) AS m, COUNT(DISTINCT s) AS n FROM {A5} a WHERE k > 0",
    # joins
    "comma join": "SELECT a.k, a.v, b.w FROM {A5} a, {B4} b WHERE a.k = b.k",
    "inner join": "SELECT a.v, b.w FROM {A5} a JOIN {B4} b ON a.k = b.k AND a.v < b.w",
    "theta join": "SELECT a.v, b.w FROM {A3} a JOIN {B} b ON a.v < b.w",
    "join on an expression": "SELECT a.v, b.w FROM {A3} a JOIN {B4} b ON a.k + 1 = b.k",
    "join using": "SELECT k, v, w FROM {A5} a JOIN {B4} b USING (k)",
    "cross join": "SELECT a.v, b.w FROM {A} a CROSS JOIN {B} b",
    "left join": "SELECT a.k, a.v, b.w FROM {A5} a LEFT JOIN {B4} b ON a.k = b.k",
    "left join, more conditions": "SELECT a.k, b.w FROM {A5} a LEFT JOIN {B4} b ON a.k = b.k AND b.w > 1 AND a.v > 0",
    "left join, then where": "SELECT a.k, b.w FROM {A5} a LEFT JOIN {B4} b ON a.k = b.k WHERE b.w > 0",
    "rows without a partner": "SELECT a.k, a.v FROM {A5} a LEFT JOIN {B4} b ON a.k = b.k WHERE b.k IS NULL",
    "right join": "SELECT a.v, b.k, b.w FROM {A3} a RIGHT JOIN {B4} b ON a.k = b.k",
    "full join": "SELECT a.k AS x, b.k AS y, a.v, b.w FROM {A3} a FULL JOIN {B4} b ON a.k = b.k",
    "full join using": "SELECT k, v, w FROM {A3} a FULL JOIN {B4} b USING (k)",
    "semi join": "SELECT a.k, a.v FROM {A5} a SEMI JOIN {B4} b ON a.k = b.k",
    "anti join": "SELECT a.k, a.v FROM {A5} a ANTI JOIN {B4} b ON a.k = b.k",
    "three streams": "SELECT a.v, b.w, c.s FROM {A3} a, {B4} b, {A5} c WHERE a.k = b.k AND b.k = c.k AND c.v > 1",
    "self join": "SELECT x.v AS v1, y.v AS v2 FROM {A3} x JOIN {A3} y ON x.k = y.k AND x.v < y.v",
    "join then group": "SELECT a.k, SUM(b.w) AS t, COUNT(*) AS n FROM {A5} a JOIN {B4} b ON a.k = b.k GROUP BY a.k",
    "relation": "SELECT a.v, r.label FROM {A5} a JOIN {R} r ON a.k = r.k",
    "relation, left": "SELECT a.v, r.label FROM {A5} a LEFT JOIN {R} r ON a.k = r.k",
    # sets
    "union all": "SELECT k, v FROM {A3} a UNION ALL SELECT k, w FROM {B4} b",
    "union": "SELECT k, v FROM {A3} a UNION SELECT k, w FROM {B4} b",
    "except": "SELECT k, v FROM {A5} a EXCEPT SELECT k, w FROM {B4} b",
    "except all": "SELECT k FROM {A5} a EXCEPT ALL SELECT k FROM {B4} b",
    "intersect": "SELECT k FROM {A5} a INTERSECT SELECT k FROM {B4} b",
    "intersect all": "SELECT k FROM {A5} a INTERSECT ALL SELECT k FROM {B4} b",
    "sets of different types": "SELECT k, v FROM {A3} a UNION ALL SELECT k, w / 2 FROM {B} b",
    "precedence of sets": "SELECT k FROM {A3} a UNION ALL SELECT k FROM {B} b INTERSECT SELECT v FROM {A5} c",
    # subqueries in FROM, WITH
    "derived": "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM {A5} a GROUP BY k) c GROUP BY n",
    "derived with names": "SELECT x + y AS z FROM (SELECT k, v FROM {A5} a WHERE v > 0) c(x, y)",
    "with": "WITH c AS (SELECT k, MAX(v) AS m FROM {A5} a GROUP BY k) SELECT c.k, b.w FROM c, {B4} b "
    "WHERE c.k = b.k AND c.m > b.w",
    "with twice": "WITH c AS (SELECT k, v FROM {A5} a WHERE v > 0), d AS (SELECT k, COUNT(*) AS n FROM c GROUP BY k) "
    "SELECT c.v, d.n FROM c JOIN d ON c.k = d.k",
    # subqueries in conditions and columns
    "scalar": "SELECT k, v FROM {A5} a WHERE v = (SELECT MAX(v) FROM {A5} c)",
    "scalar in select": "SELECT v, (SELECT COUNT(*) FROM {B4} b) AS n FROM {A3} a",
    "scalar over nothing": "SELECT v, (SELECT SUM(w) FROM {B} b WHERE w > 99) AS t FROM {A3} a",
    "correlated scalar": "SELECT v, (SELECT MAX(w) FROM {B4} b WHERE b.k = a.k) AS m FROM {A3} a",
    "correlated count": "SELECT v, (SELECT COUNT(*) FROM {B4} b WHERE b.k = a.k) AS m FROM {A3} a",
    "correlated by inequality": "SELECT v, (SELECT COUNT(*) FROM {B4} b WHERE b.w < a.v) AS m FROM {A3} a",
    "correlated in both": "SELECT k, v FROM {A3} a WHERE v > (SELECT MIN(w) + a.k FROM {B4} b WHERE b.k = a.k)",
    "scalar with having": "SELECT v, (SELECT MAX(w) FROM {B4} b WHERE b.k = a.k HAVING COUNT(*) > 1) AS m FROM {A3} a",
    "exists": "SELECT k, v FROM {A5} a WHERE EXISTS (SELECT 1 FROM {B4} b WHERE b.k = a.k)",
    "not exists": "SELECT k, v FROM {A5} a WHERE NOT EXISTS (SELECT * FROM {B4} b WHERE b.k = a.k AND b.w > a.v)",
    "exists, uncorrelated": "SELECT v FROM {A3} a WHERE EXISTS (SELECT 1 FROM {B} b WHERE w > 2)",
    "exists of nulls": "SELECT k FROM {A3} a WHERE EXISTS (SELECT 1 FROM {B4} b WHERE b.k IS NOT DISTINCT FROM a.k)",
    "exists as a value": "SELECT v, EXISTS (SELECT 1 FROM {B4} b WHERE b.k = a.k) AS e FROM {A3} a",
    "exists or": "SELECT v FROM {A3} a WHERE v > 2 OR EXISTS (SELECT 1 FROM {B4} b WHERE b.k = a.k)",
    "in": "SELECT k, v FROM {A5} a WHERE k IN (SELECT k FROM {B4} b)",
    "in, correlated": "SELECT k, v FROM {A5} a WHERE v IN (SELECT w FROM {B4} b WHERE b.k = a.k)",
    "not in": "SELECT k, v FROM {A5} a WHERE k NOT IN (SELECT k FROM {B4} b)",
    "not in, no nulls": "SELECT k, v FROM {A5} a WHERE k NOT IN (SELECT k FROM {B4} b WHERE k IS NOT NULL)",
    "not in, correlated": "SELECT k, v FROM {A3} a WHERE v NOT IN (SELECT w FROM {B4} b WHERE b.k = a.k)",
    "in as a value": "SELECT v, k IN (SELECT k FROM {B4} b) AS e FROM {A3} a",
    "not in as a value": "SELECT v, k NOT IN (SELECT w FROM {B4} b) AS e FROM {A3} a",
    "row in": "SELECT v FROM {A5} a WHERE (k, v) IN (SELECT k, w FROM {B4} b)",
    "greater than all": "SELECT v FROM {A3} a WHERE v > ALL (SELECT w FROM {B4} b)",
    "at least any": "SELECT v FROM {A3} a WHERE v >= ANY (SELECT w FROM {B4} b)",
    "less than all, correlated": "SELECT v FROM {A3} a WHERE v < ALL (SELECT w FROM {B4} b WHERE b.k = a.k)",
    "equal to all": "SELECT v FROM {A3} a WHERE k = ALL (SELECT k FROM {B} b)",
    "unlike any": "SELECT v FROM {A3} a WHERE k <> ANY (SELECT k FROM {B4} b)",
    "all as a value": "SELECT v, v > ALL (SELECT w FROM {B4} b) AS x, v <= ANY (SELECT w FROM {B4} b) AS y FROM {A3} a",
    "hot items": "SELECT k FROM (SELECT k, COUNT(*) AS n FROM {A5} a GROUP BY k) c "
    "WHERE n >= ALL (SELECT COUNT(*) FROM {A5} d GROUP BY k)",
    "subquery in having": "SELECT k, COUNT(*) AS n FROM {A5} a GROUP BY k "
    "HAVING COUNT(*) >= (SELECT COUNT(*) FROM {B4} b WHERE b.k = a.k)",
    "subquery in a subquery": "SELECT v FROM {A3} a WHERE k IN (SELECT k FROM {B4} b WHERE b.w > "
    "(SELECT MIN(v) FROM {A5} c WHERE c.k = b.k))",
    "two levels up": "SELECT v FROM {A3} a WHERE EXISTS (SELECT 1 FROM {B4} b WHERE b.k = a.k AND EXISTS "
    "(SELECT 1 FROM {A5} c WHERE c.v = b.w AND c.k = a.k))",
    "set in a subquery": "SELECT v FROM {A3} a WHERE v IN (SELECT w FROM {B4} b WHERE b.k = a.k "
    "UNION SELECT 0 FROM {B} c)",
    "grouped subquery": "SELECT v FROM {A3} a WHERE v IN (SELECT COUNT(*) FROM {B4} b WHERE b.k >= a.k GROUP BY b.k)",
    "distinct subquery": "SELECT v FROM {A3} a WHERE v < ALL (SELECT DISTINCT w FROM {B4} b WHERE b.s = a.s)",
    # more of the kind that optimisers get wrong
    "a column of nulls": "SELECT NULL AS x, 1 AS y FROM {A} a",
    "where null": "SELECT k FROM {A5} a WHERE NULL",
    "a union with nulls": "SELECT k, NULL AS z FROM {A3} a UNION ALL SELECT k, w FROM {B} b",
    "count of null": "SELECT k, COUNT(NULL) AS n FROM {A5} a GROUP BY k",
    "a constant beside groups": "SELECT 1 AS one, COUNT(*) AS n FROM {A5} a GROUP BY k",
    "having without showing it": "SELECT k FROM {A5} a GROUP BY k HAVING COUNT(*) > 1",
    "exists in case": "SELECT CASE WHEN EXISTS (SELECT 1 FROM {B4} b WHERE b.k = a.k) THEN 'y' ELSE 'n' END AS e "
    "FROM {A3} a",
    "in nulls": "SELECT k FROM {A3} a WHERE k IN (SELECT NULL FROM {B} b)",
    "not in nulls": "SELECT k FROM {A3} a WHERE k NOT IN (SELECT CAST(NULL AS BIGINT) FROM {B} b)",
    "a subquery on the left": "SELECT v FROM {A3} a WHERE (SELECT COUNT(*) FROM {B4} b WHERE b.k = a.k) > 1",
    "two scalar subqueries": "SELECT v, (SELECT MIN(w) FROM {B4} b) + (SELECT MAX(w) FROM {B4} b WHERE b.k = "
    "a.k) AS s FROM {A3} a",
    "not over in and": "SELECT v FROM {A3} a WHERE NOT (k IN (SELECT k FROM {B4} b) AND v > 1)",
    "not in or": "SELECT v FROM {A3} a WHERE k NOT IN (SELECT k FROM {B4} b) OR v = 1",
    "a subquery below groups": "SELECT k, SUM(v) AS s FROM {A5} a WHERE v > (SELECT AVG(w) FROM {B4} b) GROUP BY k",
    "a subquery inside an aggregate": "SELECT k, SUM(v + (SELECT COUNT(*) FROM {B} b)) AS s FROM {A5} a GROUP BY k",
    "left join with a subquery": "SELECT a.k, c.n FROM {A3} a LEFT JOIN (SELECT k, COUNT(*) AS n FROM {B4} b "
    "GROUP BY k) c ON a.k = c.k",
    "left join of nulls": "SELECT a.k, b.w FROM {A3} a LEFT JOIN {B4} b ON a.k IS NOT DISTINCT FROM b.k",
    "join with or": "SELECT a.v, b.w FROM {A3} a JOIN {B4} b ON a.k = b.k OR a.v = b.w",
    "left join with or": "SELECT a.v, b.w FROM {A3} a LEFT JOIN {B4} b ON a.k = b.k OR a.v = b.w",
    "full join, any condition": "SELECT a.v, b.w FROM {A3} a FULL JOIN {B} b ON a.v < b.w",
    "left joins in a row": "SELECT a.v, b.w, c.v AS cv FROM {A3} a LEFT JOIN {B4} b ON a.k=b.k LEFT JOIN {A5} c "
    "ON b.w = c.v",
    "three levels in from": "SELECT x.m FROM (SELECT k, MAX(n) AS m FROM (SELECT k, s, COUNT(*) AS n FROM {A5} a "
    "GROUP BY k, s) y GROUP BY k) x WHERE x.m > 1",
    "groups over a union": "SELECT k, COUNT(*) AS n FROM (SELECT k FROM {A3} a UNION SELECT k FROM {B4} b) u "
    "GROUP BY k",
    "except in a subquery": "SELECT k FROM {A5} a WHERE k IN (SELECT k FROM {B4} b EXCEPT SELECT v FROM {A3} c)",
    "scalar in a correlated scalar": "SELECT k, (SELECT SUM(w) FROM {B4} b WHERE b.k = a.k AND b.w >= (SELECT "
    "MIN(v) FROM {A5} c WHERE c.k = a.k)) AS x FROM {A3} a",
    "exists with groups": "SELECT k FROM {A3} a WHERE EXISTS (SELECT b.k FROM {B4} b WHERE b.w = a.v GROUP BY "
    "b.k HAVING COUNT(*) > 1)",
    "correlated to a group": "SELECT a.k, COUNT(*) AS n, (SELECT COUNT(*) FROM {B4} b WHERE b.k = a.k) AS m FROM "
    "{A5} a GROUP BY a.k",
    "between subqueries": "SELECT v FROM {A3} a WHERE v BETWEEN (SELECT MIN(w) FROM {B4} b) AND (SELECT MAX(w) "
    "FROM {B4} b)",
    "coalesce of a subquery": "SELECT COALESCE((SELECT MAX(w) FROM {B} b WHERE b.k = a.k), -1) AS m FROM {A3} a",
    "ungrouped having": "SELECT SUM(DISTINCT v) AS s, COUNT(*) AS n FROM {A5} a HAVING COUNT(*) > 0",
    "in, computed": "SELECT v FROM {A3} a WHERE v + 1 IN (SELECT w FROM {B4} b)",
    "correlated by an expression": "SELECT v FROM {A3} a WHERE EXISTS (SELECT 1 FROM {B4} b WHERE b.k + 1 = a.k)",
    "correlated by nulls": "SELECT v FROM {A3} a WHERE EXISTS (SELECT 1 FROM {B4} b WHERE a.k IS NULL AND b.k IS NULL)",
    "correlated count distinct": "SELECT v, (SELECT COUNT(DISTINCT w) FROM {B4} b WHERE b.k = a.k) AS c FROM {A3} a",
    "correlated sum distinct": "SELECT v, (SELECT SUM(DISTINCT w) FROM {B4} b WHERE b.k <= a.k) AS c FROM {A3} a",
    "all of nothing": "SELECT v FROM {A3} a WHERE v > ALL (SELECT w FROM {B} b WHERE w > 99)",
    "any, correlated": "SELECT v FROM {A3} a WHERE v = ANY (SELECT w FROM {B4} b WHERE b.s = a.s)",
    "not all, correlated": "SELECT v FROM {A3} a WHERE NOT v > ALL (SELECT w FROM {B4} b WHERE b.k = a.k)",
    "semi join using": "SELECT * FROM {A3} a SEMI JOIN {B4} b USING (k)",
    "right join using": "SELECT k, v, w FROM {A3} a RIGHT JOIN {B4} b USING (k)",
    "a star of one side": "SELECT a.*, b.w FROM {A3} a JOIN {B4} b ON a.k = b.k",
    "group by case": "SELECT CASE WHEN v > 1 THEN 'x' ELSE s END AS g, COUNT(*) AS n FROM {A5} a GROUP BY CASE "
    "WHEN v > 1 THEN 'x' ELSE s END",
    "extremes of text": "SELECT k, MIN(s) AS m, MAX(s || 'x') AS n FROM {A5} a GROUP BY k",
    "ilike": "SELECT s FROM {A5} a WHERE s ILIKE 'A%'",
    "concatenation": "SELECT s || 'z' AS c FROM {A5} a",
    "cast of a condition": "SELECT CAST(v > 1 AS INT) AS b FROM {A5} a",
    "not between": "SELECT v FROM {A5} a WHERE v NOT BETWEEN 1 AND 2",
    "rows window in a join": "SELECT a.v, b.w FROM {Ar} a JOIN {B4} b ON a.k = b.k",
    **RANK_SHAPES,
    **TABLE_SHAPES,
    # what other systems have
    "natural join": "SELECT k, s, v, w FROM {A3} a NATURAL JOIN {B4} b",
    "natural left join": "SELECT k, s, v, w FROM {A3} a NATURAL LEFT JOIN {B4} b",
    "subquery in on": "SELECT a.v, b.w FROM {A3} a JOIN {B4} b ON a.k = b.k AND a.v IN (SELECT w FROM {B} c)",
    "subquery in on of a left join": "SELECT a.v, b.w FROM {A3} a LEFT JOIN {B4} b ON a.k = b.k AND EXISTS (SELECT 1 "
    "FROM {A5} c WHERE c.v = b.w)",
    "rollup": "SELECT k, s, COUNT(*) AS n, SUM(v) AS t, GROUPING(s) AS g FROM {A5} a GROUP BY ROLLUP (k, s) HAVING "
    "COUNT(*) > 0",
    "cube": "SELECT k, s, COUNT(DISTINCT v) AS n FROM {A5} a GROUP BY CUBE (k, s) HAVING COUNT(*) > 0",
    "grouping sets": "SELECT k, v % 2 AS p, MAX(s) AS m FROM {A5} a GROUP BY GROUPING SETS ((k), (v % 2), ()) HAVING "
    "COUNT(*) > 0",
    "conditions of groups": "SELECT k, bool_and(v > 1) AS a, bool_or(v > 1) AS b, COALESCE(count_if(v > 1), 0) AS c "
    "FROM {A5} a GROUP BY k",
    "bits": "SELECT k, bit_and(v) AS a, bit_or(v - 2) AS b, bit_xor(v) AS x FROM {A5} a GROUP BY k",
    "within group": "SELECT k, percentile_cont(0.3) WITHIN GROUP (ORDER BY v) AS c, percentile_disc(0.6) WITHIN GROUP "
    "(ORDER BY v DESC) AS d FROM {A5} a GROUP BY k",
    "string_agg": "SELECT k, string_agg(s, '+' ORDER BY s DESC) AS t FROM {A5} a GROUP BY k",
}
