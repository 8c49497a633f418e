"""The column of ORDERED BY in queries: what it is, who gives way to whom, and that nobody pays for it unasked."""

from __future__ import annotations

import datetime as dt
import random

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.errors import SqlError

T = "CREATE STREAM T (ts TIMESTAMP, k INT, v INT) ORDERED BY ts; "
A = "CREATE STREAM A (at INT, k INT, v INT) ORDERED BY at; "
B = "CREATE STREAM B (at INT, k INT, w INT); "
C = "CREATE STREAM C (at INT, k INT, w INT) ORDERED BY at; "


def events(count: int = 40, seed: int = 0) -> list[ew.Element]:
    """Late and removed events."""
    draw = random.Random(seed)
    made: list[ew.Element] = []
    for i in range(count):
        t = max(0, i + draw.randint(-5, 0))
        row = {"k": draw.randint(0, 2), "v": draw.randint(0, 9)}
        made.append(ew.Insert(t, t + 1, row))
        if draw.random() < 0.2:
            made.append(ew.Adjust(t, t + 1, t, row))
    return made


def alive(elements: list[ew.Element]) -> list[tuple[int, dict[str, int]]]:
    """Starts and rows of the events that were not removed."""
    kept: list[tuple[int, dict[str, int]]] = []
    for each in elements:
        if isinstance(each, ew.Insert):
            kept.append((each.vs, dict(each.row)))
        elif isinstance(each, ew.Adjust):
            kept.remove((each.vs, dict(each.row)))
    return kept


def at(t: int, answer: list[ew.Element]) -> list[tuple[object, ...]]:
    """The rows that are alive at an instant."""
    return sorted(tuple(e.row.values()) for e in answer if isinstance(e, ew.Insert) and e.vs <= t < e.ve)


@pytest.mark.parametrize("level", [ew.STRONG, ew.MIDDLE], ids=["strong", "middle"])
def test_the_column_is_where_the_row_started_below_every_window(level: ew.Consistency) -> None:
    came = events()
    query = ew.sql(A + "SELECT at, k, v FROM A WINDOW(RANGE 5)")
    expected = [ew.Insert(s, s + 5, {"at": s, **row}) for s, row in alive(came)]
    ew.testing.assert_same_history(ew.run(query, {"A": came}, consistency=level), expected)


def test_it_is_a_timestamp_where_the_stream_has_timestamps() -> None:
    query = ew.sql(T + "SELECT ts FROM T WHERE ts >= TIMESTAMP '1970-01-01 00:00:05'")
    assert str(query.schema) == "(ts timestamp[us])"
    came = [ew.Insert(t, t + 1, {"k": 1, "v": 1}) for t in (4_999, 5_001)]
    rows = [e.row for e in ew.run(query, {"T": came}) if isinstance(e, ew.Insert)]
    assert rows == [{"ts": dt.datetime(1970, 1, 1, 0, 0, 5, 1_000)}]


def test_ranks_go_by_time() -> None:
    came = events(20, seed=4)
    text = "SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at DESC, v) AS n FROM A WINDOW(RANGE UNBOUNDED)"
    last = "SELECT k, v FROM (" + text + ") r WHERE n = 1"
    answer = list(ew.run(ew.sql(A + last), {"A": came}, consistency=ew.STRONG))
    for t in (5, 12, 30):
        newest = {}
        for s, row in sorted(alive(came), key=lambda e: (e[0], -e[1]["v"])):
            if s <= t:
                newest[row["k"]] = row["v"]
        assert at(t, answer) == sorted(newest.items())


def test_joins_compare_times_of_both_sides() -> None:
    query = ew.sql(
        A + C + "SELECT a.at, c.at AS later, w FROM A WINDOW(RANGE 9) a JOIN C c ON a.k = c.k AND a.at < c.at"
    )
    inputs = {
        "A": [ew.Insert(2, 3, {"k": 1, "v": 0}), ew.Insert(6, 7, {"k": 1, "v": 0})],
        "C": [ew.Insert(6, 7, {"k": 1, "w": 5}), ew.Insert(8, 9, {"k": 2, "w": 6})],
    }
    answer = [e for e in ew.run(query, inputs) if isinstance(e, ew.Insert)]
    assert [tuple(e.row.values()) for e in answer] == [(2, 6, 5)]
    assert ew.sql(A + C + "SELECT v, w FROM A JOIN C USING (at)").schema.names == ("v", "w")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM A WHERE at > 3", ("k", "v")),
        ("SELECT A.*, at FROM A", ("k", "v", "at")),
        ("SELECT * FROM A NATURAL JOIN C WHERE A.at > 3", ("k", "v", "w")),
        ("SELECT k FROM A GROUP BY k HAVING MAX(at) > 3", ("k",)),
        ("SELECT at FROM TABLE(TUMBLE(TABLE A, DESCRIPTOR(at), 5))", ("at",)),
    ],
)
def test_a_star_leaves_it_out(text: str, names: tuple[str, ...]) -> None:
    assert ew.sql(A + C + text).schema.names == names


def test_a_declared_column_comes_first() -> None:
    query = ew.sql(A + B + "SELECT at, A.at AS time FROM A, B WINDOW(RANGE 9)")
    inputs = {"A": [ew.Insert(4, 5, {"k": 1, "v": 0})], "B": [ew.Insert(4, 5, {"at": 77, "k": 1, "w": 5})]}
    (row,) = (e.row for e in ew.run(query, inputs) if isinstance(e, ew.Insert))
    assert row == {"at": 77, "time": 4}


def test_two_times_of_one_name_are_told_apart() -> None:
    with pytest.raises(SqlError, match=r"at could be that of A or C; write for example A\.at"):
        ew.sql(A + C + "SELECT at FROM A, C")


def test_behind_a_star_it_is_gone_and_the_error_says_so() -> None:
    with pytest.raises(SqlError, match=r"unknown column 'at'; .* at is the time of A, which \* leaves out: name it"):
        ew.sql(A + "SELECT at FROM (SELECT * FROM A) x")


def test_nobody_pays_who_does_not_read_it() -> None:
    plain = ew.sql(A + "SELECT k FROM A")
    tumbled = ew.sql(A + "SELECT k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE A, DESCRIPTOR(at), 5)) GROUP BY k")
    assert not any(isinstance(node, n.Stamp) for node in n.walk(plain.node))
    stamps = [node for node in n.walk(tumbled.node) if isinstance(node, n.Stamp)]
    assert len(stamps) <= 1, "at most the window's own"


def test_only_the_place_that_reads_it_is_stamped() -> None:
    """Were the other one stamped, its rows would be new at every instant."""
    came = {"A": [ew.Insert(t, t + 1, {"k": 1, "v": 1}) for t in range(4)]}
    alone = ew.sql(A + "SELECT k FROM ISTREAM(A) x")
    beside = ew.sql(A + "SELECT x.k FROM ISTREAM(A) x, A y WHERE y.at < 9")
    ew.testing.assert_same_history(ew.run(beside, came), ew.run(alone, came))
    assert sum(isinstance(node, n.Stamp) for node in n.walk(beside.node)) == 1


def test_in_a_session_with_a_query_that_joins_late() -> None:
    session = ew.SqlSession()
    session.execute(A)
    text = "SELECT at, v FROM A WINDOW(RANGE 10)"
    session.start("early", text)
    schema = session.schema_of("A")
    said: dict[str, list[ew.Element]] = {"early": [], "late": []}
    for t in range(12):
        if t == 6:
            session.start("late", text)
        batch = ew.ElementBatch.of([ew.Insert(t, t + 1, {"k": 1, "v": t}), ew.Cti(t - 2)], schema)
        for name, output in session.push({"A": batch}).items():
            said[name] += output.elements()
    for t in range(6, 12):
        expected = [(s, s) for s in range(max(0, t - 9), t + 1)]
        assert at(t, said["early"]) == at(t, said["late"]) == expected
