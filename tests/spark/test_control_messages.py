"""Control messages arrive as they were sent, and those of another version are refused.  So do errors of tasks."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import (
    EvaluationError,
    EverwhenError,
    InputError,
    QueryError,
    SinkError,
    SinkLostError,
    StateError,
    TimeRangeError,
)
from everwhen.spark.exchange.messages import (
    Failure,
    IngressNote,
    Message,
    PunctuationRows,
    RowsBehind,
    RowsLate,
    SourceProgress,
    StreamProgress,
    TaskNote,
    WrongRows,
    decode,
    encode,
    encode_in_jvm,
    kind_of,
    kinds_in,
    message_rows,
    messages_in,
)
from everwhen.spark.exchange.schema import VERSION, ExchangeSchema, check_log


def arrived(error: EverwhenError) -> EverwhenError:
    found = decode(kind_of(Failure), encode(Failure.of(error, 3)))
    assert isinstance(found, Failure) and found.stage == 3
    return found.raised()


@pytest.mark.parametrize(
    "error",
    [
        QueryError("no"), StateError("gone"), SinkError("full"), TimeRangeError("far"), EvaluationError("1/0"),
        EverwhenError("plain"), InputError("wrong"), InputError("wrong", source="S"),
        InputError("wrong", source="S", line=7, remedy="mend it"), WrongRows("2 rows", source="S"),
        RowsBehind("late", source="S"),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_arrives_as_it_was(error: EverwhenError) -> None:
    found = arrived(error)
    assert type(found) is type(error) and str(found) == str(error)
    if isinstance(error, InputError) and isinstance(found, InputError):
        assert (found.problem, found.source, found.line, found.remedy) == (
            error.problem,
            error.source,
            error.line,
            error.remedy,
        )


def test_a_kind_that_is_not_known_is_the_next_one_above() -> None:
    assert type(arrived(SinkLostError("gone"))) is SinkError
    assert type(Failure("SystemExit", "made up", 1).raised()) is EverwhenError
    assert str(Failure("InputError", "S: wrong", 1).raised()) == "S: wrong"


LAYOUT = ExchangeSchema.of([Schema.of([("k", pa.string()), ("x", pa.int64())])])
NOTE = TaskNote(
    1, 3, 10, 4, 2, 80, {"S": NEVER}, {"S": 9}, {"S": 1}, {"@0": 0}, {"out": INF}, {"out": ["part"]}, 5, -1, 77,
    ["file: why"], {"load": 0.25},
)  # fmt: skip
MESSAGES: list[Message] = [
    SourceProgress(0, NEVER, INF, 7, 2),
    RowsLate(1, -5, 3),
    StreamProgress(2, 1, 60, 65),
    NOTE,
    IngressNote(1, 8, {"S": {"late": 2}}, [], 0),
    Failure.of(InputError("wrong", source="S", line=7, remedy="mend it"), 2),
    PunctuationRows(5, -1, 12, 0, ["item"], {"seller": {"ge": "m"}}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was(message: Message) -> None:
    assert decode(kind_of(type(message)), encode(message)) == message


def test_messages_go_as_rows_to_partitions_and_are_found_among_rows() -> None:
    sent = MESSAGES[:3]
    rows = LAYOUT.rows(0, [pa.array([1], pa.int64())] * 4, Schema.of([("x", pa.int64())]), [pa.array([4], pa.int64())])
    table = pa.Table.from_batches([rows, message_rows(LAYOUT, [0, 2], sent)], LAYOUT.arrow)
    assert table.column("partition").to_pylist() == [None, 0, 0, 0, 2, 2, 2]
    assert messages_in(table) == [*sent, *sent]
    assert kinds_in(table).tolist() == [0, *([kind_of(type(each)) for each in sent] * 2)]
    assert sorted({kind_of(type(each)) for each in MESSAGES}) == list(range(-len(MESSAGES), 0))


@pytest.mark.parametrize("version", [VERSION + 1, 0, "x", None])
def test_a_message_of_another_version_is_refused(version: object) -> None:
    text = json.dumps(json.loads(encode(MESSAGES[0])) | {"v": version})
    with pytest.raises(StateError, match=f"a control message is of version {version} of the exchange, and everwhen"):
        decode(kind_of(SourceProgress), text)


def test_a_log_of_another_version_is_refused() -> None:
    table = pa.Table.from_batches([message_rows(LAYOUT, [0], MESSAGES[:1])], LAYOUT.arrow)
    assert check_log(table, "the log") is table
    for metadata in ({}, {"everwhen.exchange": "0"}, {"everwhen.exchange": "two"}):
        with pytest.raises(StateError, match="the log is of version"):
            check_log(table.replace_schema_metadata(metadata), "the log")


def test_the_jvm_writes_the_same_messages(spark: SparkSession) -> None:
    given = {"source": F.lit(0), "start": F.lit(NEVER), "cti": F.lit(INF), "rows": F.lit(7), "wrong": F.col("id")}
    (row,) = spark.range(2, 3).select(encode_in_jvm(SourceProgress, given).alias("text")).collect()
    assert decode(kind_of(SourceProgress), row["text"]) == MESSAGES[0]
    with pytest.raises(AssertionError, match="sauce"):
        encode_in_jvm(SourceProgress, {"sauce": F.lit(0)})
