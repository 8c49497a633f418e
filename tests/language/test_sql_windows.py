"""Windows as functions of tables: what they are called, which time they go by, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import everwhen as ew
from everwhen.errors import SqlError
from everwhen.testing import history_of

BIDS = "CREATE STREAM Bid (item INT, price INT, at TIMESTAMP) ORDERED BY at;"
ROWS = [ew.Insert(t, t + 1, {"item": t % 2, "price": t}) for t in (100, 900, 1200, 2500)]


def answer(text: str, tick: str = "1ms") -> list[tuple[Any, ...]]:
    said = history_of(list(ew.run(ew.sql(BIDS + text, tick=tick), {"Bid": ROWS})))
    return sorted((vs, ve, *map(str, row)) for vs, ve, row in said.events())


@pytest.mark.parametrize(
    "call",
    [
        "TUMBLE(TABLE Bid, DESCRIPTOR(at), INTERVAL '1' SECOND)",
        "TABLE(TUMBLE(TABLE Bid, DESCRIPTOR(at), INTERVAL '1' SECOND))",
        "TABLE(TUMBLE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(at), SIZE => INTERVAL '1' SECOND))",
        "TUMBLE(Bid, at, INTERVAL '1' SECOND)",
        "TUMBLE((SELECT * FROM Bid), 1 SECOND)",
        "TUMBLE(TABLE Bid, 1000) AS w",
    ],
)
def test_spellings_of_tumble(call: str) -> None:
    text = f"SELECT window_start, window_end, COUNT(*) AS n FROM {call} GROUP BY window_start, window_end"
    first, second, third = (f"1970-01-01 00:00:0{i}" for i in range(3))
    assert answer(text) == [
        (0, 1000, first, second, "2"),
        (1000, 2000, second, third, "1"),
        (2000, 3000, third, "1970-01-01 00:00:03", "1"),
    ]


@pytest.mark.parametrize(
    ("named", "placed"),
    [
        ("HOP(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(at), SIZE => 2 SECONDS, SLIDE => 1 SECOND)",
         "HOP(TABLE Bid, DESCRIPTOR(at), 1 SECOND, 2 SECONDS)"),
        ("CUMULATE(DATA => TABLE Bid, TIMECOL => DESCRIPTOR(at), STEP => 1 SECOND, SIZE => 2 SECONDS)",
         "CUMULATE(TABLE Bid, DESCRIPTOR(at), 1 SECOND, 2 SECONDS)"),
        ("SESSION(DATA => TABLE Bid PARTITION BY item, TIMECOL => DESCRIPTOR(at), GAP => 1 SECOND)",
         "SESSION(TABLE Bid PARTITION BY item, DESCRIPTOR(at), 1 SECOND)"),
    ],
)  # fmt: skip
def test_arguments_may_have_the_names_that_flink_gives_them(named: str, placed: str) -> None:
    text = "SELECT window_start, window_end, price FROM "
    assert answer(text + named) == answer(text + placed)


def test_a_list_is_also_declared_as_the_standard_does() -> None:
    declared = ew.sql("CREATE STREAM S (a INT ARRAY, b VARCHAR(3) ARRAY, c INT[]); SELECT a, b, c FROM S")
    assert [str(each) for each in declared.schema.types] == [
        "list<item: int64>",
        "list<item: string>",
        "list<item: int64>",
    ]


def test_without_timestamps_windows_are_in_ticks() -> None:
    query = ew.sql("CREATE STREAM S (x INT, t INT) ORDERED BY t; SELECT x, window_end FROM TUMBLE(TABLE S, 5)")
    said = history_of(list(ew.run(query, {"S": [ew.Insert(7, 8, {"x": 1})]})))
    assert list(said.events()) == [(5, 10, (1, 10))]


def test_session_of_several_columns() -> None:
    call = "SESSION(TABLE Bid PARTITION BY item, price, DESCRIPTOR(at), 1 SECOND)"
    text = f"SELECT item, COUNT(*) AS n FROM {call} GROUP BY item"
    assert answer(text)[0] == (100, 900, "0", "1")


def test_a_last_column_of_the_partition_without_the_time_is_written_with_its_stream() -> None:
    text = "SELECT item, COUNT(*) AS n FROM SESSION(TABLE Bid PARTITION BY item, Bid.price, 1 SECOND) GROUP BY item"
    assert answer(text)[0] == (100, 900, "0", "1")
    plain = "CREATE STREAM S (a INT, b INT); SELECT a FROM SESSION(TABLE S PARTITION BY a, b, 5)"
    with pytest.raises(SqlError, match=r"b is another column; leave it out, or write S\.b for a column of"):
        ew.sql(plain)
    assert ew.sql(plain.replace("a, b, 5", "a, S.b, 5")).schema.names == ("a",)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("TUMBLE(TABLE Bid, DESCRIPTOR(price), 5)", r"price is another column; DESCRIPTOR\(at\)"),
        ("HOP(TABLE Bid, DESCRIPTOR(at), 3, 5)", "a multiple of its slide"),
        ("CUMULATE(TABLE Bid, DESCRIPTOR(at), 5)", "CUMULATE takes a step and a size"),
        ("TUMBLE(TABLE Bid, DESCRIPTOR(at), 5, 1)", "takes a size, not 2 lengths; .* an offset is not part of"),
        ("HOP(TABLE Bid, SIZE => 5, SIZE => 1)", "HOP has an argument twice"),
        ("HOP(TABLE Bid, SIZE => 5, 1)", "name all lengths of HOP, or none"),
        ("TUMBLE(TABLE Bid PARTITION BY item, DESCRIPTOR(at), 5)", "leave PARTITION BY out"),
        ("SESSION(TABLE Bid PARTITION BY itme, DESCRIPTOR(at), 5)", "did you mean 'item'"),
        ("TUMBLE(TABLE Bid, DESCRIPTOR(at), 0)", "at least one tick"),
        ("HOP(TABLE Bid, DESCRIPTOR(at), 1, 5000)", "5000 windows"),
    ],
)
def test_what_is_refused(call: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        ew.sql(f"{BIDS} SELECT * FROM {call}")


def test_for_system_time_as_of_is_the_plain_join() -> None:
    rates = "CREATE VARYING RELATION Rate (code INT KEY, rate INT);"
    text = (
        rates + BIDS + "SELECT b.price, r.rate FROM Bid b JOIN Rate FOR SYSTEM_TIME AS OF b.at AS r ON b.item = r.code"
    )
    given = {
        "Bid": ROWS,
        "Rate": [ew.Insert(0, 1000, {"code": 0, "rate": 5}), ew.Insert(1000, 9000, {"code": 0, "rate": 6})],
    }
    said = history_of(list(ew.run(ew.sql(text), given)))
    assert [row for _, _, row in said.events()] == [(100, 5), (900, 5), (1200, 6), (2500, 6)]
