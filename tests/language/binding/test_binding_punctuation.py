"""PUNCTUATE of CREATE STREAM and ORDER BY of a query: what they mean, and what is said where they are wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.errors import SqlError
from everwhen.language.program import program
from everwhen.punctuation.schemes import Bounds, ClusteredBy, Complete, Given, Scheme, SortedBy, Unique

COLUMNS = "sid VARCHAR, hour INT, temp REAL, ts TIMESTAMP, ok BOOLEAN, at TIMESTAMP"


def marked(text: str) -> tuple[str, int, int]:
    """The text without » and «, and where they stood."""
    return text.replace("»", "").replace("«", ""), text.index("»"), text.index("«") - 1


def declared(clause: str) -> tuple[Scheme, ...]:
    found = program(f"CREATE STREAM T ({COLUMNS}) ORDERED BY at {clause}; SELECT sid FROM T")
    (source,) = (node for node in walk(found.query.node) if isinstance(node, Source))
    return source.schemes


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("SORTED BY hour", SortedBy("hour")),
        ("sorted by HOUR asc", SortedBy("hour")),
        ("SORTED BY hour DESC WITHIN 2", SortedBy("hour", True, 2)),
        ("SORTED BY temp WITHIN 0.5", SortedBy("temp", False, 0.5)),
        ("SORTED BY ts WITHIN 5 MINUTES", SortedBy("ts", False, "5 MINUTES")),
        ("CLUSTERED BY sid", ClusteredBy("sid")),
        ("temp BETWEEN 20 AND 95", Bounds("temp", 20.0, 95.0)),
        ("hour BETWEEN -1 AND 23", Bounds("hour", -1, 23)),
        ("hour >= 0", Bounds("hour", 0, None)),
        ("temp <= 95.5", Bounds("temp", None, 95.5)),
        ("ts >= TIMESTAMP '2024-01-01 00:00:00'", Bounds("ts", datetime(2024, 1, 1), None)),
        ("ts <= '2024-01-01'", Bounds("ts", None, datetime(2024, 1, 1))),
        ('UNIQUE ("sid", hour)', Unique(("sid", "hour"))),
        ("COMPLETE hour FOR sid IN ('s1', 's2')", Complete(("hour",), "sid", ("s1", "s2"))),
        ("COMPLETE (ts, hour) FOR sid IN ('s1') EACH 60", Complete(("ts", "hour"), "sid", ("s1",), 60)),
        ("COMPLETE hour FOR ok IN (TRUE, FALSE)", Complete(("hour",), "ok", (True, False))),
        ("GIVEN sid", Given(("sid",))),
        ("GIVEN (HOUR, sid)", Given(("hour", "sid"))),
    ],
)
def test_what_a_scheme_means(text: str, scheme: Scheme) -> None:
    assert declared(f"PUNCTUATE ({text})") == (scheme,)


def test_the_clause_stands_among_the_others_in_any_order() -> None:
    both = (SortedBy("hour"), Unique(("sid",)))
    assert declared("INSERT ONLY PUNCTUATE (SORTED BY hour, UNIQUE (sid))") == both
    assert declared("PUNCTUATE (SORTED BY hour, UNIQUE (sid)) INSERT ONLY") == both
    assert declared("") == ()


def test_words_of_the_clause_are_names_elsewhere() -> None:
    columns = "complete INT, sorted INT, given INT"
    text = f"CREATE STREAM T ({columns}) PUNCTUATE (complete >= 0, sorted BETWEEN 1 AND 2, given >= 1)"
    found = program(f"{text}; SELECT complete, sorted, given FROM T")
    (source,) = (node for node in walk(found.query.node) if isinstance(node, Source))
    assert source.schemes == (Bounds("complete", 0, None), Bounds("sorted", 1, 2), Bounds("given", 1, None))


def test_text_and_python_say_the_same() -> None:
    stream = ew.source("T", {"sid": "string", "hour": "int64", "temp": "float64"}).punctuate(
        ew.punctuation.sorted_by("hour", within=1),
        ew.punctuation.clustered_by("sid"),
        ew.punctuation.bounds("temp", 20, 95),
        ew.punctuation.unique("sid", "hour"),
        ew.punctuation.complete("hour", "sid", ["s1", "s2"], each=60),
        ew.punctuation.given("hour", "sid"),
    )
    text = """CREATE STREAM T (sid VARCHAR, hour INT, temp DOUBLE) PUNCTUATE (SORTED BY hour WITHIN 1, CLUSTERED BY sid,
        temp BETWEEN 20 AND 95, UNIQUE (sid, hour), COMPLETE hour FOR sid IN ('s1', 's2') EACH 60, GIVEN (hour, sid));
        SELECT * FROM T"""
    sources = [
        node for plan in (stream.node, program(text).query.node) for node in walk(plan) if isinstance(node, Source)
    ]
    assert sources[0].schemes == sources[1].schemes
    assert "PUNCTUATE (SORTED BY hour WITHIN 1, CLUSTERED BY sid, temp BETWEEN 20.0 AND 95.0" in str(stream)


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("PUNCTUATE (SORTED BY »huor«)", "unknown column 'huor' in the stream T; did you mean 'hour'?"),
        ("PUNCTUATE (UNIQUE (sid, »x«))", "there is sid, hour, temp, ts, ok"),
        ("PUNCTUATE (GIVEN »huor«)", "unknown column 'huor'"),
        ("PUNCTUATE (»GIVEN (sid, sid)«)", "GIVEN in the stream T names sid twice"),
        ("PUNCTUATE (SORTED BY »at«)", "is the time of the stream"),
        ("PUNCTUATE (SORTED BY sid WITHIN »3«)", "only numbers and times have differences"),
        ("PUNCTUATE (SORTED BY ts WITHIN »5«)", "a length of time such as '5 minutes'"),
        ("PUNCTUATE (SORTED BY hour WITHIN »5 MINUTES«)", "is a number"),
        ("PUNCTUATE (SORTED BY hour WITHIN »1.5«)", "expected a whole number"),
        ("PUNCTUATE (SORTED BY hour WITHIN »-«1)", "expected a number"),
        ("PUNCTUATE (SORTED BY »ok«)", "which has no order"),
        ("PUNCTUATE (temp BETWEEN »'a'« AND 3)", "the lower bound of temp is of type double, not 'a'"),
        ("PUNCTUATE (temp BETWEEN 1 AND »'b'«)", "the upper bound of temp"),
        ("PUNCTUATE (»temp BETWEEN 9 AND 3«)", "the bounds of temp are empty: 9.0 is above 3.0"),
        ("PUNCTUATE (temp »>« 3)", "bounds are inclusive"),
        ("PUNCTUATE (temp <= »NULL«)", "a null has no place here"),
        ("PUNCTUATE (temp»)«", "expected BETWEEN"),
        ("PUNCTUATE (CLUSTERED »sid«)", "expected BETWEEN"),
        ("PUNCTUATE (»)«", "expected SORTED BY"),
        ("PUNCTUATE (SORTED BY hour »UNIQUE« (sid))", "expected ')' or ','"),
        ("PUNCTUATE (»UNIQUE (sid, sid)«)", "names sid twice"),
        ("PUNCTUATE (COMPLETE hour FOR sid IN ('a', »3«))", "a value of sid is of type string, not 3"),
        ("PUNCTUATE (COMPLETE hour FOR sid IN (»)«)", "expected a constant"),
        ("PUNCTUATE (»COMPLETE hour FOR sid IN ('a', 'a')«)", "'a' is twice"),
        ("PUNCTUATE (COMPLETE hour FOR sid IN ('a') EACH »0«)", "at least 1 row"),
        ("PUNCTUATE (COMPLETE hour FOR sid »=« 'a')", "expected IN"),
        ("PUNCTUATE (SORTED BY hour, »SORTED BY hour«)", "stands here twice"),
        ("PUNCTUATE (SORTED BY hour) »PUNCTUATE« (SORTED BY hour)", "at most once each"),
    ],
)
def test_what_is_wrong_is_shown_where_it_stands(clause: str, message: str) -> None:
    text, start, end = marked(f"CREATE STREAM T ({COLUMNS}) ORDERED BY at {clause}; SELECT sid FROM T")
    with pytest.raises(SqlError) as raised:
        program(text)
    assert message in raised.value.problem
    assert raised.value.start == start
    assert str(raised.value).splitlines()[-1].count("^") == end - start


def test_relations_are_not_punctuated() -> None:
    with pytest.raises(SqlError, match="is known whole before anything else comes"):
        program("CREATE RELATION R (a INT) PUNCTUATE (UNIQUE (a)); SELECT a FROM R")


# -- ORDER BY ----------------------------------------------------------------------------------------------------------

DECLARED = "CREATE STREAM T (sid VARCHAR, hour INT); "


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("SELECT sid, hour FROM T ORDER BY hour", (("hour", False),)),
        ("SELECT sid, hour AS h FROM T ORDER BY H DESC, sid ASC NULLS LAST", (("h", True), ("sid", False))),
        ("SELECT sid FROM T UNION SELECT sid FROM T ORDER BY sid CONSISTENCY STRONG", (("sid", False),)),
        ("WITH x AS (SELECT sid FROM T) SELECT * FROM x ORDER BY sid", (("sid", False),)),
    ],
)
def test_order_by_sorts_the_answer(text: str, by: Any) -> None:
    node = program(DECLARED + text).query.node
    assert node.by == by  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT sid FROM T ORDER BY »hour«", "unknown column 'hour' in the answer, which ORDER BY sorts"),
        ("SELECT sid FROM T ORDER BY »1«", "ORDER BY names columns of the answer"),
        ("SELECT sid FROM T ORDER BY T».«sid", "by their names"),
        ("SELECT sid FROM T ORDER BY UPPER»(«sid)", "by their names"),
        ("SELECT sid FROM T ORDER BY sid NULLS »FIRST«", "nulls come last"),
        ("SELECT sid FROM T ORDER BY »sid« CONSISTENCY MIDDLE", "write CONSISTENCY STRONG"),
        ("SELECT sid FROM T ORDER BY sid, »sid«", "names sid twice"),
        ("SELECT sid FROM (SELECT sid FROM T »ORDER« BY sid) x", "ORDER BY stands at the end of the query"),
        ("SELECT sid FROM T WHERE hour IN (SELECT hour FROM T »ORDER« BY hour)", "ORDER BY stands at the end"),
        ("(SELECT sid FROM T »ORDER« BY sid)", "ORDER BY stands at the end"),
        ("CREATE STREAM U AS SELECT sid FROM T »ORDER« BY sid; SELECT * FROM U", "ORDER BY stands at the end"),
    ],
)
def test_where_order_by_has_no_meaning(text: str, message: str) -> None:
    plain, start, _ = marked(DECLARED + text)
    with pytest.raises(SqlError) as raised:
        program(plain)
    assert message in raised.value.problem
    assert raised.value.start == start


def test_a_sorted_answer_over_text() -> None:
    query = ew.sql(DECLARED + "SELECT hour, COUNT(*) AS n FROM T GROUP BY hour ORDER BY n DESC CONSISTENCY STRONG")
    stream = [ew.Insert(0, 1, {"sid": "a", "hour": hour}) for hour in (1, 2, 2, 3, 3, 3)]
    found = [element.row for element in ew.run(query, {"T": stream}) if isinstance(element, ew.Insert)]
    assert found == [{"hour": 3, "n": 3}, {"hour": 2, "n": 2}, {"hour": 1, "n": 1}]
