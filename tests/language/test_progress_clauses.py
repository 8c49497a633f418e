"""ORDERED BY … WITHIN, IDLE AFTER, LATE ROWS and Flink's WATERMARK: what they say, and what is nonsense."""

from __future__ import annotations

import pytest

from everwhen.algebra.nodes import Source, walk
from everwhen.core.source_policy import SourcePolicy
from everwhen.errors import SqlError
from everwhen.language.program import program

COLUMNS = "ts TIMESTAMP, x INT"


def declared(behind: str, columns: str = COLUMNS, tick: str = "1ms") -> Source:
    found = program(f"CREATE STREAM T ({columns}) {behind}; SELECT x FROM T", tick=tick)
    (source,) = (node for node in walk(found.query.node) if isinstance(node, Source))
    assert found.sources["T"].source.policy == source.policy
    assert found.sources["T"].policy is source.policy
    return source


def test_a_bound_of_the_disorder() -> None:
    source = declared("ORDERED BY ts WITHIN 30 MINUTES")
    assert source.policy == SourcePolicy(1_800_000, time="ts")
    assert source.chronons
    assert not source.insert_only
    assert declared("ORDERED BY ts WITHIN 7").policy.within == 7
    assert declared("ORDERED BY ts WITHIN 1 MINUTE", tick="1s").policy.within == 60
    assert declared("ORDERED BY ts WITHIN INTERVAL '2' HOUR").policy.within == 7_200_000


def test_idle_and_late_rows_in_any_order() -> None:
    wanted = SourcePolicy(1_000, 10.0, "drop", "ts")
    assert declared("ORDERED BY ts WITHIN 1 SECOND IDLE AFTER 10 SECONDS LATE ROWS DROP").policy == wanted
    assert declared("LATE ROWS DROP IDLE AFTER 10 SECONDS ORDERED BY ts WITHIN 1000").policy == wanted
    assert declared("ORDERED BY ts WITHIN 5 LATE ROWS ERROR INSERT ONLY").policy == SourcePolicy(5, time="ts")
    assert declared("ORDERED BY ts WITHIN 5 ARRIVES IN ORDER").policy.within == 5
    assert declared("ORDERED BY ts WITHIN 5 IDLE AFTER 250 MILLISECONDS").policy.idle == 0.25


def test_where_late_rows_are_moved_nothing_is_corrected() -> None:
    source = declared("ORDERED BY ts WITHIN 5 LATE ROWS ADJUST")
    assert (source.policy.late, source.insert_only) == ("adjust", True)


@pytest.mark.parametrize("watermark", ["ts - INTERVAL '30' MINUTE", "ts - INTERVAL '1800' SECOND", "ts - 30 MINUTES"])
def test_a_watermark_as_flink_writes_it_is_the_same(watermark: str) -> None:
    source = declared("", f"{COLUMNS}, WATERMARK FOR ts AS {watermark}")
    assert source.policy == declared("ORDERED BY ts WITHIN 30 MINUTES").policy
    assert source.chronons
    assert source.schema.names == ("x",)


def test_a_watermark_without_a_delay() -> None:
    assert declared("", f"WATERMARK FOR ts AS ts, {COLUMNS}").policy == SourcePolicy(0, time="ts")
    assert declared("LATE ROWS DROP", f"{COLUMNS}, WATERMARK FOR ts AS ts").policy == SourcePolicy(
        0, None, "drop", "ts"
    )
    assert declared("ORDERED BY ts", f"{COLUMNS}, WATERMARK FOR ts AS ts").policy.within == 0


def test_late_rows_of_a_stream_that_promises_by_ctis() -> None:
    assert declared("LATE ROWS DROP", "x INT").policy == SourcePolicy(late="drop")


@pytest.mark.parametrize(
    ("text", "says", "place"),
    [
        ("CREATE STREAM T (ts TIMESTAMP, x INT) WITHIN 3", "write ORDERED BY column WITHIN", "WITHIN 3"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts WITHIN 3 WITHIN 4", "a second WITHIN", "WITHIN"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts WITHIN 3 LATE ROWS DROP LATE ROWS DROP", "second LATE", "LATE"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts IDLE AFTER 3 s IDLE AFTER 3 s", "a second IDLE", "IDLE AFTER"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts WITHIN 3 LATE ROWS KEEP", "ERROR or DROP or ADJUST", "KEEP"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts LATE ROWS DROP", "derives none; write how", "LATE ROWS DROP"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts WITHIN 3 IDLE AFTER 3", "needs a unit: 10 SECONDS", "3"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts WITHIN 3 IDLE 3 s", "expected AFTER", "3"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts WITHIN 1 MONTH", "no fixed length", "MONTH"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY ts WITHIN 1 MICROSECOND", "not a whole number of ticks", "1"),
        ("CREATE STREAM T (ts TIMESTAMP) ORDERED BY nope WITHIN 1", "unknown column 'nope'", "nope"),
        ("CREATE RELATION T (x INT) LATE ROWS DROP", "are for streams", "LATE ROWS DROP"),
        ("CREATE STREAM T (ts TIMESTAMP, WATERMARK FOR ts AS NOW())", "a watermark is the column of the time", "NOW"),
        ("CREATE STREAM T (ts TIMESTAMP, WATERMARK FOR ts AS ts + 3)", "a watermark is the column of the time", "+"),
        ("CREATE STREAM T (ts TIMESTAMP, u INT, WATERMARK FOR ts AS u)", "a watermark is the column", "u"),
        ("CREATE STREAM T (ts TIMESTAMP, WATERMARK FOR u AS u)", "unknown column 'u'", "u"),
        ("CREATE STREAM T (ts INT, WATERMARK FOR ts AS ts, WATERMARK FOR ts AS ts)", "a second WATERMARK", "WATERMARK"),
        ("CREATE STREAM T (ts INT, u INT, WATERMARK FOR ts AS ts) ORDERED BY u", "one time", "WATERMARK FOR ts AS ts"),
        ("CREATE STREAM T (ts INT, WATERMARK FOR ts AS ts) WITHIN 3", "say the same; write one", "WITHIN 3"),
        ("CREATE STREAM T (ts, WATERMARK FOR ts AS ts) AS SELECT 1", "names alone", "(ts"),
    ],
)
def test_nonsense_is_refused_at_its_place(text: str, says: str, place: str) -> None:
    with pytest.raises(SqlError) as error:
        program(f"{text}; SELECT * FROM T")
    assert says in str(error.value)
    assert text[error.value.start :].startswith(place), text[error.value.start :]
