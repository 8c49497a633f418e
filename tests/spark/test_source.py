"""Rows become the elements the contract says, whatever the session's settings; wrong descriptions say so at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.errors import QueryError
from everwhen.spark.sources.normalise import CUT, _time, normalise, problems
from everwhen.spark.sources.source import CtiRows, Disorder, NoProgress, SparkSource, describe, resolve
from everwhen.stream.element_batch import ADJUST, CTI, INSERT

EPOCH = datetime(1970, 1, 1)


TYPES: dict[str, DataType] = {
    "long": LongType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "map": MapType(IntegerType(), IntegerType()),
}


def schema(text: str) -> StructType:
    """A schema from text, without a session."""
    pairs = [column.split() for column in text.split(",")]
    return StructType([StructField(name, TYPES[type_]) for name, type_ in pairs])


def elements(df: DataFrame, source: SparkSource | None = None) -> list[tuple[object, ...]]:
    return [tuple(row) for row in normalise(df, resolve(df.schema, "S", source)).collect()]


@contextmanager
def settings(spark: SparkSession, **conf: str) -> Iterator[None]:
    keys = {name.replace("_", "."): value for name, value in conf.items()}
    before = {key: spark.conf.get(key) for key in keys}
    for key, value in keys.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


# -- descriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"late": "adjust", "op": "op"}, "an adjust must name its event as it was"),
        ({"late": "ignore"}, "late is one of error, adjust, drop"),
        ({"idle": 0}, "greater than 0"),
        ({"idle": -1.5}, "greater than 0"),
        ({"idle": float("nan")}, "greater than 0"),
        ({"progress": CtiRows()}, "CtiRows needs op"),
        ({"vnew": "v"}, "without op there are no adjusts"),
        ({"end": "e", "lifetime": 5}, "give one of the two"),
        ({"lifetime": 0}, "one tick or more"),
        ({"lifetime": "0 s"}, "one tick or more"),
        ({"lifetime": "1 us"}, "not a whole number of ticks"),
        ({"progress": Disorder("3 us")}, "not a whole number of ticks"),
        ({"progress": Disorder(2**62)}, "more than times can express"),
        ({"tick": "0 s"}, "longer than nothing"),
        ({"tick": "5000w"}, "shorter than fifty years"),
        ({"tick": "soon"}, "cannot read the duration"),
        ({"end": "t"}, "two of time, end, op, vnew and match"),
        ({"columns": "abc"}, "a list of names"),
        ({"match": "m"}, "match is read where op is 'punct', and there is no op"),
    ],
)
def test_a_wrong_description_is_refused_when_built(given: dict[str, object], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        SparkSource("t", **given)  # type: ignore[arg-type]


def test_a_negative_disorder_is_refused() -> None:
    with pytest.raises(QueryError, match="0 or more"):
        Disorder(-1)


def test_what_a_description_promises() -> None:
    plain = SparkSource("t")
    assert plain.progress == NoProgress()
    assert plain.insert_only
    assert plain.chronons
    with_ops = SparkSource("t", op="o")
    assert with_ops.progress == CtiRows()
    assert not with_ops.insert_only
    assert not with_ops.chronons
    late = SparkSource("t", lifetime="1 min", progress=Disorder("5 s"), columns=["a"])
    assert late.disorder == 5000
    assert late.lifetime_ticks == 60_000
    assert not late.chronons
    assert late == SparkSource("t", lifetime="1 min", progress=Disorder("5 s"), columns=("a",))
    assert hash(late) == hash(SparkSource("t", lifetime="1 min", progress=Disorder("5 s"), columns=("a",)))


# -- against a schema ------------------------------------------------------------------------------------------------


def test_the_contracts_columns_are_found() -> None:
    found = resolve(schema("item long, op string, vs long, ve long, vnew long, price double"), "Bid")
    assert found.source == SparkSource("vs", end="ve", op="op", vnew="vnew")
    assert found.schema.names == ("item", "price")
    assert found.schema.types == (pa.int64(), pa.float64())
    assert describe(schema("vs long, vnew long"), "B") == SparkSource("vs")


def test_the_only_timestamp_is_found() -> None:
    found = resolve(schema("at timestamp, day date, who string"), "Log")
    assert found.source == SparkSource("at")
    assert found.schema.names == ("day", "who")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("a timestamp, b timestamp_ntz, c int", r"the timestamps a, b in \(a timestamp, b timestamp_ntz, c int\)"),
        ("a long, b date", r"no timestamp in \(a bigint, b date\).*SparkSource\(time=\.\.\.\)"),
    ],
)
def test_no_time_to_be_found(columns: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        resolve(schema(columns), "Log")


@pytest.mark.parametrize(
    ("columns", "source", "said"),
    [
        (
            "stamp long",
            SparkSource("stmp"),
            r"no column 'stmp' \(time\); did you mean 'stamp'\? There is",
        ),
        ("a long", SparkSource("a", end="zz"), r"no column 'zz' \(end\)\. There is"),
        ("a long", SparkSource("a", columns=["b"]), r"no column 'b' \(columns\)"),
        ("a string", SparkSource("a"), r"whole number of ticks, and the column 'a' is string.*to_timestamp\(a\)"),
        ("a double", SparkSource("a"), "the column 'a' is double"),
        ("a long, e timestamp", SparkSource("a", end="e"), "'a' is bigint but 'e' is timestamp.*cast one"),
        ("a long, o int, n date", SparkSource("a", op="o", vnew="n"), "'a' is bigint but 'n' is date"),
        ("a long, o double", SparkSource("a", op="o"), r"op is text \(insert, adjust, cti\).*'o' is double"),
        ("a long, x map", SparkSource("a"), "'x' is map<int,int>, which a payload cannot carry"),
    ],
)
def test_a_description_that_does_not_fit(columns: str, source: SparkSource, said: str) -> None:
    with pytest.raises(QueryError, match=f"source 'S': .*{said}"):
        resolve(schema(columns), "S", source)


def test_a_column_that_is_there_twice() -> None:
    with pytest.raises(QueryError, match=r"'a' .* is there twice"):
        resolve(schema("a long").add("a", LongType()), "S", SparkSource("a"))


# -- rows to elements ------------------------------------------------------------------------------------------------


def test_elements_of_the_contract(spark: SparkSession) -> None:
    rows = [
        ("insert", 1, 5, None, "a"),
        (None, 2, None, 9, "b"),
        ("adjust", 1, 5, 3, "a"),
        ("adjust", 1, 5, None, "a"),
        ("cti", 7, 99, 4, None),
        ("cti", None, None, None, None),
    ]
    df = spark.createDataFrame(rows, "op string, vs long, ve long, vnew long, x string")
    assert elements(df) == [
        (INSERT, 1, 5, 0, "a"),
        (INSERT, 2, INF, 0, "b"),
        (ADJUST, 1, 5, 3, "a"),
        (ADJUST, 1, 5, INF, "a"),
        (CTI, 7, 7, 0, None),
        (CTI, INF, INF, 0, None),
    ]
    frame = normalise(df, resolve(df.schema, "S"))
    assert frame.schema.simpleString() == "struct<op:tinyint,vs:bigint,ve:bigint,vnew:bigint,p0:string>"


def test_codes_lifetimes_and_chosen_columns(spark: SparkSession) -> None:
    df = spark.createDataFrame([(0, 1, "a", 2.5), (2, 4, None, None)], "o tinyint, t int, x string, `y.z` double")
    assert elements(df, SparkSource("t", op="o", lifetime=10, columns=["y.z", "t"])) == [
        (INSERT, 1, 11, 0, 2.5, 1),
        (CTI, 4, 4, 0, None, 4),
    ]


def test_names_that_differ_in_case_only(spark: SparkSession) -> None:
    with settings(spark, spark_sql_caseSensitive="true"):
        df = spark.createDataFrame([(1, 2)], "vs long, VS long")
    assert elements(df) == [(INSERT, 1, 2, 0, 2)]


STAMPS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1970, 1, 1, 0, 0, 0, 1),
    datetime(2024, 3, 31, 2, 30, 0, 123_456),  # an hour that Berlin does not have
    datetime(2024, 10, 27, 2, 30, 0, 999_999),  # and one that it has twice
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_timestamps_become_exact_ticks(spark: SparkSession, ansi: str, zone: str) -> None:
    lengths = {"1ns": 1, "100ns": 100, "300ns": 300, "1500ns": 1500, "1us": 1000, "7us": 7000, "1ms": 10**6}
    lengths |= {"1s": 10**9, "1h": 3600 * 10**9, "1w": 7 * 86400 * 10**9}
    aware = [stamp.replace(tzinfo=UTC) for stamp in STAMPS]
    rows = [*zip(aware, STAMPS, [stamp.date() for stamp in STAMPS], strict=True), (None, None, None)]
    with settings(spark, spark_sql_ansi_enabled=ansi, spark_sql_session_timeZone=zone):
        df = spark.createDataFrame(rows, "z timestamp, n timestamp_ntz, d date").coalesce(1)
        columns = [_time(F.col(f.name), f.dataType, length) for length in lengths.values() for f in df.schema.fields]
        found = [tuple(row) for row in df.select(*columns).collect()]
    for stamp, told in zip(STAMPS, found, strict=False):
        midnight = datetime.combine(stamp.date(), datetime.min.time())
        expected = []
        for length in lengths.values():
            for start in (stamp, stamp, midnight):
                ticks, rest = divmod((start - EPOCH) // timedelta(microseconds=1) * 1000, length)
                expected.append(CUT if rest else ticks if MIN_TIME <= ticks <= MAX_TIME else NEVER)
        assert told == tuple(expected)
    assert set(found[-1]) == {None}


def test_ends_of_timestamps(spark: SparkSession) -> None:
    rows = [(datetime(1970, 1, 2), date(1970, 1, 3)), (datetime(1970, 1, 2), None)]
    df = spark.createDataFrame(rows, "t timestamp_ntz, e date")
    day = 86_400_000
    assert elements(df, SparkSource("t", end="e")) == [(INSERT, day, 2 * day, 0), (INSERT, day, INF, 0)]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_problems_are_named_and_nothing_else(spark: SparkSession, ansi: str) -> None:
    rows = [
        (0, "insert", 1, 5, None, None),
        (1, "insert", MIN_TIME, MAX_TIME, None, None),
        (2, "adjust", 1, 5, 1, None),
        (3, "cti", None, None, None, None),
        (4, "cti", 7, 1, None, None),
        (5, "inserted", 1, 5, None, "unknown op in column 'op'"),
        (6, "punct", 1, 5, None, "unknown op"),
        (7, "insert", None, 5, None, "the time in column 'vs' is null"),
        (8, "adjust", None, 5, 5, "the time in column 'vs' is null"),
        (9, "insert", MIN_TIME - 1, 5, None, "the time in column 'vs' is out of range"),
        (10, "insert", INF, None, None, "the time in column 'vs' is out of range"),
        (11, "cti", MAX_TIME + 1, None, None, "the time in column 'vs' is out of range"),
        (12, "insert", 1, INF, None, "the end in column 've' is out of range"),
        (13, "insert", 5, 5, None, "the lifetime [5, 5) is empty"),
        (14, "adjust", 5, 4, 9, "the lifetime [5, 4) is empty"),
        (15, "adjust", 1, 5, 0, "the new end 0 is before the time 1"),
        (16, "adjust", 1, 5, NEVER, "the new end in column 'vnew' is out of range"),
    ]
    with settings(spark, spark_sql_ansi_enabled=ansi):
        df = spark.createDataFrame(rows, "n int, op string, vs long, ve long, vnew long, said string")
        resolved = resolve(df.schema, "S")
        told = normalise(df, resolved).withColumn("problem", problems(resolved)).collect()
    for row in told:
        assert (row.problem is None) == (row.p1 is None), row
        assert row.p1 is None or row.problem.startswith(row.p1)


def test_an_adjust_without_a_column_for_its_end(spark: SparkSession) -> None:
    df = spark.createDataFrame([("adjust", 1), ("insert", 1), ("insert", MAX_TIME)], "op string, vs long")
    resolved = resolve(df.schema, "S")
    told = [row.problem for row in normalise(df, resolved).withColumn("problem", problems(resolved)).collect()]
    assert "an adjust has no new end" in told[0]
    assert told[1] is None
    assert "the end, lifetime after the time" in told[2]


def test_a_time_between_two_ticks_is_a_problem_with_a_remedy(spark: SparkSession) -> None:
    moments = [datetime(2024, 5, 1, 12, 0, 0, micros, UTC) for micros in (123_000, 123_456)]
    df = spark.createDataFrame([(moment,) for moment in moments], "at timestamp").coalesce(1)
    for tick, bad in (("1ms", True), ("1us", False)):
        resolved = resolve(df.schema, "S", SparkSource("at", tick=tick))
        told = [row.problem for row in normalise(df, resolved).withColumn("problem", problems(resolved)).collect()]
        assert told[0] is None
        assert (told[1] is not None and "no whole number of ticks of 1ms" in told[1] and "1us" in told[1]) == bad


def test_the_payload_is_carried_as_it_is(spark: SparkSession) -> None:
    row = (1, True, 2.5, "ü", b"\x00", date(2020, 1, 2), datetime(2020, 1, 2, 3, 4, 5, 6), Decimal("1.50"))
    columns = "vs long, b boolean, f double, s string, y binary, d date, n timestamp_ntz, m decimal(10,2)"
    df = spark.createDataFrame([row], columns)
    resolved = resolve(df.schema, "S")
    assert resolved.schema.names == tuple("bfsydnm")
    assert elements(df)[0][4:] == row[1:]
