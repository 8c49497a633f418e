"""What users of other systems write, and the language has not: the message says what to write instead."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.errors import SqlError

DECLARED = "CREATE STREAM Bid (ts TIMESTAMP, item INT, price INT, url TEXT) ORDERED BY ts;"

REFUSED = {
    # an unknown function is told before its arguments are found wrong
    "SELECT item, KURTOSIS(price) AS x FROM Bid GROUP BY item": "unknown function KURTOSIS",
    "SELECT item, CORR(price, price) AS x FROM Bid GROUP BY item": r"it follows from sums: SUM\(x \* y\)",
    "SELECT item, FIRST_VALUE(price) AS x FROM Bid GROUP BY item": r"of a group write FIRST\(x, t\) or LAST\(x, t\)",
    "SELECT TIMESTAMPDIFF(SECOND, ts, ts) AS x FROM Bid": r"a difference in seconds is EXTRACT\(EPOCH FROM b - a\)",
    "SELECT DAYOFWEEK(ts) AS x FROM Bid": r"counts from Monday.*; from Sunday it is DAY_OF_WEEK\(t\) % 7 \+ 1",
    "SELECT TIME_BUCKET(INTERVAL '5' MINUTE, ts) AS x FROM Bid": r"windows of time are FROM TUMBLE\(s, DESCRIPTOR",
    "SELECT DATE(ts) AS x FROM Bid": r"unknown function DATE; write CAST\(t AS DATE\)",
    "SELECT EXPLODE(SPLIT(url, '/')) AS x FROM Bid": r"CROSS JOIN UNNEST\(list\) AS t\(x\)",
    "SELECT x FROM Bid LATERAL VIEW EXPLODE(SPLIT(url, '/')) t AS x": r"CROSS JOIN UNNEST\(list\) AS t\(x\)",
    "SELECT item FROM Bid GROUP BY item, TUMBLE(ts, INTERVAL '1' MINUTE)": r"FROM TUMBLE\(s, DESCRIPTOR\(t\)",
    "SELECT HOP_START(ts, INTERVAL '1' MINUTE) AS x FROM Bid": "HOP is a function of a table",
    "SELECT item FROM TUMBLE(DATA => TABLE Bid, SISE => 1)": "the arguments of TUMBLE are DATA, TIMECOL, SIZE",
    "SELECT CURRENT_TIMESTAMP AS x FROM Bid": "there is no CURRENT_TIMESTAMP: a query has no clock",
    "SELECT item FROM Bid WHERE mz_now() < ts": r"WINDOW\(RANGE 5 MINUTES\)",
    "SELECT RANDOM() AS x FROM Bid": "an answer is a function of the streams alone",
    "SELECT item FROM Bid WHERE url ~ 'a'": r"write REGEXP_MATCHES\(text, regex\)",
    "SELECT item, COUNT(*) AS n FROM Bid GROUP BY item EMIT CHANGES": "EMIT is not part of the language",
    "CREATE MATERIALIZED VIEW v AS SELECT item FROM Bid": "write CREATE STREAM name AS SELECT",
    "CREATE TABLE t (a INT)": "CREATE TABLE is not part of the language; write CREATE STREAM name",
    "SET x = 1; SELECT item FROM Bid": "SET is not part of the language",
    "DESCRIBE Bid": r"\\streams and \\queries in the shell",
}


@pytest.mark.parametrize("text", REFUSED)
def test_the_message_says_what_to_write(text: str) -> None:
    with pytest.raises(SqlError, match=REFUSED[text]):
        ew.sql(f"{DECLARED} {text}")


def test_a_column_may_have_the_name_of_a_clock() -> None:
    query = ew.sql('CREATE STREAM S (current_date INT, "now" INT); SELECT current_date, "now" FROM S')
    assert query.schema.names == ("current_date", "now")


WRITTEN = {
    "SPLIT_INDEX('a/b/c', '/', 1)": "b",
    "SPLIT_INDEX('a//c', '/', 1)": "",
    "SPLIT_INDEX('a/b', '/', 2)": None,
    "SPLIT_INDEX('a/b', '/', -1)": None,
}


@pytest.mark.parametrize("text", WRITTEN)
def test_flinks_parts_are_counted_from_0(text: str) -> None:
    answer = ew.run(ew.sql(f"SELECT {text} AS x"), {})
    assert answer.to_arrow().column("x").to_pylist() == [WRITTEN[text]]
