"""VALUES, UNNEST, LATERAL, ASOF, structures, TIME, Spark's windows and days of a zone: what they mean as plans, what is
said where they are wrong.  Whether answers are right says DuckDB (`test_sql_duckdb`, shapes in `table_shapes`)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.expressions.build import col, function, lit
from everwhen.algebra.nodes import Rank, Unnest, Values, walk
from everwhen.errors import EvaluationError, QueryError, SqlError
from everwhen.plan.stages.stages import cut
from state_files import through_file

DECLARED = """CREATE STREAM Bid (item INT, price REAL, tags TEXT[], at TIMESTAMP) ORDERED BY at;
CREATE STREAM Shop (id INT, place STRUCT<city TEXT, geo ROW(x INT, y INT)>, opens TIME, at INT) ORDERED BY at;
"""


def said(text: str, **inputs: Any) -> list[str]:
    query = ew.sql(DECLARED + text, tick="1s")
    return [str(each) for each in ew.run(query, inputs, ew.STRONG)][:-1]


def shops() -> list[ew.Insert]:
    rows = [
        {"id": 1, "place": {"city": "Bern", "geo": {"x": 1, "y": 2}}, "opens": time(8, 30)},
        {"id": 2, "place": {"city": "Bern", "geo": None}, "opens": time(10)},
        {"id": 3, "place": None, "opens": None},
    ]
    return [ew.Insert(0, 1, row) for row in rows]


# -- constants ---------------------------------------------------------------------------------------------------------


def test_constants_are_one_node_with_the_common_type_of_each_column() -> None:
    query = ew.sql("VALUES (1, 'a', NULL), (2.5, NULL, DATE '2024-02-29')")
    (node,) = [each for each in walk(query.node) if isinstance(each, Values)]
    assert [str(each) for each in node.schema.types] == ["double", "string", "date32[day]"]
    assert node.schema.names == ("column1", "column2", "column3")


def test_equal_constants_are_computed_once() -> None:
    query = ew.sql("SELECT a.x, b.x AS y FROM (VALUES (1), (2)) AS a(x) JOIN (VALUES (1), (2)) AS b(x) ON a.x < b.x")
    assert len({id(each) for each in walk(query.node) if isinstance(each, Values)}) == 1
    assert said("SELECT a.x, b.x AS y FROM (VALUES (1), (2)) AS a(x) JOIN (VALUES (1), (2)) AS b(x) ON a.x < b.x") == [
        "insert [0, ∞) x=1 y=2"
    ]


def test_a_recursion_may_begin_with_constants() -> None:
    text = "WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT SUM(n) AS t FROM r"
    assert said(text) == ["insert [0, ∞) t=6"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("VALUES ((SELECT MAX(item) FROM Bid))", "VALUES has constants"),
        ("VALUES (item)", "unknown column 'item'"),
        ("SELECT x FROM (VALUES (1)) AS t(x, y)", "2 names for a query of 1 columns"),
        ("SELECT item FROM Bid, UNNEST(tags, item) AS t(x)", "UNNEST needs a list"),
        ("SELECT item FROM Bid, UNNEST(tags) AS t(x, y)", "1 columns here, not 2"),
        ("SELECT item FROM Bid, UNNEST(tags) AS t(x) WINDOW(RANGE 5)", "a window stands behind its stream"),
        ("SELECT item FROM Bid RIGHT JOIN UNNEST(tags) AS t(x) ON TRUE", "CROSS, INNER or LEFT"),
        ("SELECT item FROM Bid, generate_series(item) AS t(x)", "where it begins"),
        ("SELECT id FROM Shop, generate_series(opens, opens) AS t(x)", "needs a step"),
        ("SELECT a.item FROM Bid a ASOF JOIN Bid b ON a.item >= b.item AND a.price >= b.price", "there are 2"),
        ("SELECT a.item FROM Bid a ASOF FULL JOIN Bid b ON a.item >= b.item", "ASOF"),
        ("SELECT place.street FROM Shop", "no field 'street'; there is city, geo"),
        ("SELECT place FROM Shop WHERE place = place", "can be compared"),
        ("SELECT STRUCT(id AS a, id AS A) FROM Shop", "two fields of one name"),
        ("SELECT id FROM Shop WHERE opens > 'noon'", "'noon' cannot be cast to time64"),
        ("SELECT window.start FROM Bid GROUP BY window(at)", "window takes the column"),
        ("SELECT window.start FROM Bid GROUP BY window(price, '1 hour')", "price is another column"),
        ("SELECT * FROM TUMBLE(TABLE Bid, DESCRIPTOR(at), INTERVAL '1' HOUR, 'Europe/Berlin')", "INTERVAL '1' DAY"),
        ("SELECT * FROM TUMBLE(TABLE Bid, DESCRIPTOR(at), INTERVAL '1' DAY, 'Mars')", "no time zone 'Mars'"),
        ("SELECT * FROM TUMBLE(TABLE Shop, DESCRIPTOR(at), INTERVAL '1' DAY, 'UTC')", "ordered by timestamps"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        ew.sql(DECLARED + text, tick="1s")
    assert message in str(caught.value)


def test_constants_alone_run_in_process_only() -> None:
    with pytest.raises(QueryError, match="reads no stream"):
        cut({"out": ew.sql("VALUES (1)").node}, {}, lambda expr, schema: False)


# -- rows of rows ------------------------------------------------------------------------------------------------------


def test_conditions_on_the_rows_themselves_are_tested_before_they_are_multiplied() -> None:
    query = ew.sql(DECLARED + "SELECT item, x FROM Bid, UNNEST(tags) AS t(x) WHERE item > 3 AND x = 'a'")
    (unnest,) = [each for each in walk(query.node) if isinstance(each, Unnest)]
    assert type(unnest.input).__name__ in ("Filter", "Map") and "item > 3" in query.explain()
    assert query.explain().index("Unnest") < query.explain().index("item > 3")


def test_a_left_row_that_is_unique_is_ranked_at_once() -> None:
    text = "CREATE STREAM A (k INT KEY, t INT); CREATE STREAM B (k INT, t INT); "
    text += "SELECT A.k, B.t FROM A ASOF JOIN B ON A.k = B.k AND A.t >= B.t AND A.t + B.t > 3"
    ranks = [each for each in walk(ew.sql(text).node) if isinstance(each, Rank)]
    assert [rank.limit for rank in ranks] == [1] and "Distinct" not in ew.sql(text).explain()


def test_snowflake_s_and_duckdb_s_spellings_are_one() -> None:
    rows = {
        "A": [ew.Insert(0, 9, {"k": 1, "t": t}) for t in (3, 5)],
        "B": [ew.Insert(0, 9, {"k": 1, "t": t}) for t in (2, 4, 6)],
    }
    declared = "CREATE STREAM A (k INT, t INT); CREATE STREAM B (k INT, t INT);"
    texts = (
        "SELECT A.t, B.t AS u FROM A ASOF JOIN B ON A.k = B.k AND A.t >= B.t",
        "SELECT A.t, B.t AS u FROM A ASOF JOIN B MATCH_CONDITION (A.t >= B.t) ON A.k = B.k",
        "SELECT A.t, B.t AS u FROM A ASOF JOIN B USING (k, t)",
    )
    answers = [[str(e) for e in ew.run(ew.sql(declared + text), rows, ew.STRONG)] for text in texts]
    assert answers[0] == ["insert [0, 9) t=3 u=2", "insert [0, 9) t=5 u=4", "cti ∞"]
    assert answers[1] == answers[0] and answers[2] == answers[0]


def test_a_late_partner_corrects_the_answer() -> None:
    a, b = (ew.source(name, {"t": "int64"}) for name in "AB")
    runtime = ew.Session(emit="all")
    runtime.register("out", ew.sql("SELECT A.t, B.t AS u FROM A ASOF JOIN B ON A.t >= B.t", a, b))

    def push(**given: list[Any]) -> list[str]:
        batches = {name: ew.ElementBatch.of(part, a.schema) for name, part in given.items()}
        return [str(e) for e in runtime.push(batches)["out"].elements()]

    assert push(A=[ew.Insert(0, 9, {"t": 5})], B=[ew.Insert(0, 9, {"t": 1})]) == ["insert [0, 9) t=5 u=1"]
    assert sorted(push(B=[ew.Insert(2, 6, {"t": 4})])) == [
        "adjust [0, 9 -> 2) t=5 u=1",
        "insert [2, 6) t=5 u=4",
        "insert [6, 9) t=5 u=1",
    ]


# -- structures, times of the day --------------------------------------------------------------------------------------


def test_structures_are_made_read_grouped_and_unnested() -> None:
    assert said("SELECT s.place.geo.x, place.city FROM Shop s", Shop=shops()) == [
        "insert [0, 1) x=1 city='Bern'",
        "insert [0, 1) x=null city='Bern'",
        "insert [0, 1) x=null city=null",
    ]
    assert said("SELECT place.city, COUNT(*) AS n FROM Shop GROUP BY place.city", Shop=shops()) == [
        "insert [0, 1) city='Bern' n=2",
        "insert [0, 1) city=null n=1",
    ]
    text = "SELECT e.x.id, e.x.f2 FROM Shop, UNNEST([STRUCT(id, place.city AS f2), ROW(7, 'x')]) AS e(x) WHERE id = 1"
    with pytest.raises(SqlError):  # structures of other fields are other types
        said(text, Shop=shops())
    assert said(text.replace("ROW(7, 'x')", "STRUCT(7 AS id, 'x' AS f2)"), Shop=shops()) == [
        "insert [0, 1) id=1 f2='Bern'",
        "insert [0, 1) id=7 f2='x'",
    ]


def test_structures_in_files_and_through_a_restart(tmp_path: Any) -> None:
    query = ew.sql(DECLARED + "SELECT DISTINCT place, opens FROM Shop", tick="1s")
    file = tmp_path / "shops.jsonl"
    file.write_text(
        '{"id":1,"place":{"city":"Bern","geo":{"x":1,"y":2},"more":0},"opens":"08:30:00","at":3}\n'
        '{"id":2,"place":null,"opens":null,"at":4}\n'
    )
    answer = ew.run(query, {"Shop": str(file)}).to_arrow()
    assert answer.column("place").to_pylist() == [{"city": "Bern", "geo": {"x": 1, "y": 2}}, None]
    assert answer.column("opens").to_pylist() == [time(8, 30), None]
    session = ew.Session(emit="all")
    session.register("out", query)
    schema = next(each for each in walk(query.node) if not each.inputs).schema
    session.push({"Shop": ew.ElementBatch.of(shops(), schema)})
    again = ew.Session(emit="all")
    again.restore(through_file(session.snapshot()), {"out": query})
    gone = [ew.Adjust(0, 1, 0, each.row) for each in shops()]
    found = [str(e) for e in again.push({"Shop": ew.ElementBatch.of(gone, schema)})["out"].elements()]
    assert sorted(each.split(" p")[0] for each in found) == ["adjust [0, 1 -> 0)"] * 3


def test_times_of_the_day() -> None:
    assert said("SELECT id FROM Shop WHERE opens > '09:00' AND opens < TIME '12:00:00'", Shop=shops()) == [
        "insert [0, 1) id=2"
    ]
    text = "SELECT MIN(opens) AS o, MAX(EXTRACT(HOUR FROM opens)) AS h, MIN(CAST(opens AS TEXT)) AS t FROM Shop"
    assert said(text, Shop=shops()) == ["insert [0, 1) o='08:30:00' h=10 t='08:30:00'"]


@pytest.mark.parametrize("text", ["12:30", "12:30:15", "00:00:00.5", "23:59:59.999999"])
def test_casts_to_times_by_columns_and_by_values_agree(text: str) -> None:
    cast = col("t").cast(pa.time64("us"))
    assert cast.evaluate({"t": pa.array([text, None])}, 2).to_pylist() == [cast.value({"t": text}), None]
    back = cast.cast(pa.string())
    assert back.evaluate({"t": pa.array([text])}, 1).to_pylist() == [back.value({"t": text})]
    whole = col("t").cast(pa.timestamp("us")).cast(pa.time64("us"))
    assert whole.value({"t": f"2024-02-29 {text}"}) == cast.value({"t": text})


@pytest.mark.parametrize("text", ["24:00:00", "7:05", "12:60", "12:30:15+02:00", ""])
def test_what_is_no_time_of_the_day(text: str) -> None:
    with pytest.raises(EvaluationError, match="cannot be cast to time64"):
        col("t").cast(pa.time64("us")).evaluate({"t": pa.array([text])}, 1)


# -- windows -----------------------------------------------------------------------------------------------------------


def test_spark_s_windows_are_tumble_and_hop() -> None:
    declared = "CREATE STREAM B (item INT, ts INT) ORDERED BY ts;"
    rows = {"B": [ew.Insert(t, t + 1, {"item": item}) for t, item in ((1, 1), (4, 1), (12, 2))]}
    theirs = "SELECT window.start, window.end, item, COUNT(*) AS n FROM B GROUP BY window(ts, '10 seconds'), item"
    ours = (
        "SELECT window_start AS start, window_end AS end_, item, COUNT(*) AS n "
        "FROM TUMBLE(TABLE B, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, item"
    )
    answers = [
        [
            tuple(e.row.values())
            for e in ew.run(ew.sql(declared + text, tick="1s"), rows, ew.STRONG)
            if hasattr(e, "row")
        ]
        for text in (theirs, ours)
    ]
    assert answers[0] == answers[1] == [(0, 10, 1, 2), (10, 20, 2, 1)]
    hops = "SELECT window, COUNT(*) AS n FROM B b GROUP BY window(b.ts, '10 seconds', INTERVAL '5' SECONDS) "
    hops += "HAVING COUNT(*) > 1"
    found = [str(e) for e in ew.run(ew.sql(declared + hops, tick="1s"), rows, ew.STRONG)]
    assert found == [
        "insert [-5, 5) window={start: -5, end: 5} n=2",
        "insert [0, 10) window={start: 0, end: 10} n=2",
        "cti ∞",
    ]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata", "+02:00"])
def test_days_of_a_zone_begin_and_end_at_its_midnights(zone: str) -> None:
    """Rows every half hour around the days on which clocks are set, late ones too: each day has its own rows only."""
    moments = [
        start + timedelta(minutes=30 * at)
        for start in (datetime(2018, 11, 2, 12), datetime(2024, 3, 29, 12), datetime(2024, 10, 25, 12))
        for at in range(180)
    ]
    query = ew.sql(
        DECLARED
        + "SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE Bid, DESCRIPTOR(at), INTERVAL '1' DAY, "
        f"'{zone}') GROUP BY window_start, window_end",
        tick="1s",
    )
    seconds = [int(moment.replace(tzinfo=UTC).timestamp()) for moment in moments]
    rows = [ew.Insert(t, t + 1, {"item": 1, "price": 1.0, "tags": None}) for t in (*seconds[::2], *seconds[1::2])]
    found = [e for e in ew.run(query, {"Bid": rows}, ew.STRONG) if isinstance(e, ew.Insert)]
    clock = ZoneInfo("Etc/GMT-2") if zone == "+02:00" else ZoneInfo(zone)
    expected = Counter(moment.replace(tzinfo=UTC).astimezone(clock).date() for moment in moments)
    assert {e.row["window_start"].replace(tzinfo=UTC).astimezone(clock).date(): e.row["n"] for e in found} == expected
    for e in found:
        begin, end = (e.row[name].replace(tzinfo=UTC) for name in ("window_start", "window_end"))
        assert (e.vs, e.ve) == (begin.timestamp(), end.timestamp())
        before = (begin - timedelta(seconds=1)).astimezone(clock).date()
        assert before < begin.astimezone(clock).date() < end.astimezone(clock).date()


def test_days_as_groups() -> None:
    """Midnight in Berlin is two hours before that of UTC in summer, one in winter."""
    day = function("date_trunc", "day", function("from_utc_timestamp", col("t"), "Europe/Berlin"))
    moments = pa.array([datetime(2024, 7, 1, 22), datetime(2024, 7, 1, 21, 59), datetime(2024, 1, 1, 22, 59)])
    days = [each.day for each in day.evaluate({"t": moments.cast(pa.timestamp("us"))}, 3).to_pylist()]
    assert days == [2, 1, 1]


# -- by columns --------------------------------------------------------------------------------------------------------


def test_lists_by_columns_and_by_values_agree() -> None:
    lists: list[Any] = [[1, None, 3], [], None, [3], [2, 2]]
    column = {"l": pa.array(lists, pa.list_(pa.int64())), "i": pa.array([-1, 1, 1, 0, 3])}
    for expr in (
        function("element_at", col("l"), col("i")),
        function("element_at", col("l"), lit(-1)),
        function("array_contains", col("l"), lit(3)),
        function("array_contains", col("l"), col("i")),
        function("array", col("i"), lit(7)),
    ):
        found = expr.evaluate(column, 5).to_pylist()
        wanted = [expr.value({"l": each, "i": i}) for each, i in zip(lists, column["i"].to_pylist(), strict=True)]
        assert found == wanted, str(expr)


@pytest.mark.parametrize("pattern", ["%Y-%m-%d", "%d.%m.%Y %H:%M", "%Y%m%d %H%M%S", "%j %Y", "%Y-%m-%d %I %p"])
def test_times_by_a_format_by_columns_and_by_values_agree(pattern: str) -> None:
    moments = [datetime(2024, 2, 29, 13, 5), datetime(1969, 12, 31, 23, 59, 59), datetime(2000, 1, 1)]
    texts = [each.strftime(pattern) for each in moments]
    odd = [text.replace("-0", "-") for text in texts]  # single digits are read as well
    read = function("_read_time", col("t"), lit(pattern))
    given = [*texts, *odd, None]
    assert read.evaluate({"t": pa.array(given)}, len(given)).to_pylist() == [
        None if each is None else read.value({"t": each}) for each in given
    ]
    with pytest.raises(EvaluationError, match="is no time in the format"):
        read.evaluate({"t": pa.array([*texts, "x"])}, 4)


def test_clocks_by_columns_and_by_values_agree() -> None:
    moments = [datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 2, 30), datetime(2024, 7, 1), None]
    for zone in ("Europe/Berlin", "+02:30", "UTC", "America/Sao_Paulo"):
        for name in ("to_utc_timestamp", "from_utc_timestamp"):
            expr = function(name, col("t"), lit(zone))
            found = expr.evaluate({"t": pa.array(moments, pa.timestamp("us"))}, 4).to_pylist()
            assert found == [None if each is None else expr.value({"t": each}) for each in moments], (zone, name)
