"""Progress and late rows on Spark as the query's SQL declares them; and what a new user met there (P1, P8)."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.cli.program import main
from everwhen.core.consistency import STRONG
from everwhen.formats.parquet import read_elements
from everwhen.sinks import MemorySink
from everwhen.spark.api.handle import Handle
from everwhen.spark.driver.epoch_log import EpochState
from everwhen.spark.driver.late_rows import LateWarnings
from everwhen.spark.sources.declared import declared_source
from everwhen.spark.sources.source import CtiRows, Disorder, NoProgress, SparkSource
from spark.test_bad_input import PLAIN, begin, finish, write
from spark.test_late_totals import source as resolved

DDL = "t bigint, k string, x bigint"
SQL = (
    "CREATE STREAM S (t INT, k TEXT, x INT) ORDERED BY t {}; "
    "SELECT k, SUM(x) AS total FROM S WINDOW(RANGE 5) GROUP BY k"
)
EPOCHS = [[(10, "a", 1), (9, "b", 1)], [(14, "a", 1), (3, "a", 5), (8, "b", 7)], [(30, "b", 2)]]


def node(behind: str) -> Source:
    (found,) = (each for each in walk(ew.sql(SQL.format(behind)).node) if isinstance(each, Source))
    return found


def test_a_declaration_describes_the_frame() -> None:
    frame = StructType().add("T", "long").add("k", "string").add("x", "long").add("more", "string")
    said = declared_source(node("WITHIN 2 IDLE AFTER 3 SECONDS LATE ROWS DROP"), frame, None)
    assert said == SparkSource("T", columns=("k", "x"), progress=Disorder(2), idle=3.0, late="drop")
    assert declared_source(node(""), frame, None) == SparkSource("T", columns=("k", "x"))
    assert declared_source(ew.source("S", {"x": "int64"}).node, frame, None) is None  # type: ignore[arg-type]


def test_what_is_said_by_hand_goes_before_it() -> None:
    frame = StructType().add("t", "long").add("k", "string").add("x", "long")
    own = SparkSource("t", progress=Disorder(9), idle=1.0, late="adjust")
    assert declared_source(node("WITHIN 2 IDLE AFTER 3 SECONDS LATE ROWS DROP"), frame, own) == own
    said = declared_source(node("WITHIN 2 LATE ROWS DROP"), frame, SparkSource("t"))
    assert said is not None
    assert (said.progress, said.late) == (Disorder(2), "drop")
    elements = StructType().add("op", "string").add("vs", "long").add("x", "long")
    source = ew.source("S", {"x": "int64"}, late="drop").node
    assert isinstance(source, Source)
    found = declared_source(source, elements, None)
    assert found is not None
    assert (found.time, found.progress, found.late) == ("vs", CtiRows(), "drop")
    assert SparkSource("t").progress == NoProgress()


def run(spark: SparkSession, place: Path, behind: str, **options: Any) -> tuple[Handle, list[str]]:
    for at, rows in enumerate(options.pop("epochs", EPOCHS)):
        write(place / "S", at, rows, PLAIN)
    sink = MemorySink()
    handle = finish(begin(spark, place, sink, ew.sql(SQL.format(behind)), ddl=DDL, **options))
    return handle, [str(each) for each in sink.elements()]


@pytest.fixture(scope="module")
def dropped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Handle, list[str]]:
    """A query that drops late rows, when it has ended."""
    return run(spark, tmp_path_factory.mktemp("dropped"), "WITHIN 2 LATE ROWS DROP", emit="final")


@pytest.mark.parametrize("policy", ["DROP", "ADJUST"])
def test_the_same_sql_gives_the_same_answer_in_process_and_on_spark(
    spark: SparkSession, tmp_path: Path, dropped: tuple[Handle, list[str]], policy: str
) -> None:
    behind = f"WITHIN 2 LATE ROWS {policy}"
    handle, said = dropped if policy == "DROP" else run(spark, tmp_path, behind, emit="final")
    query = ew.sql(SQL.format(behind))
    runtime = ew.LocalRuntime(query, "final")
    local: list[str] = []
    for rows in EPOCHS:
        elements = [ew.Insert(t, t + 1, {"k": k, "x": x}) for t, k, x in rows]
        schema = runtime.schema_of("S")
        local += map(str, runtime.push({"S": ew.ElementBatch.of(elements, schema)})["out"].elements())
    assert sorted(said) == sorted(local)
    assert handle.late == {"S": 1}
    assert runtime.late["S"].late == 1


def test_p1_waiting_names_who_has_promised_nothing_and_what_to_write(spark: SparkSession, tmp_path: Path) -> None:
    handle, said = run(spark, tmp_path, "", consistency=STRONG, epochs=EPOCHS[:1])
    assert said == []
    assert handle.waits_for() == (
        "S has promised nothing yet, so nothing is final and STRONG says nothing; let it promise: ORDERED BY column "
        "WITHIN 30 MINUTES behind CREATE STREAM S (…), sources={'S': SparkSource(…, progress=Disorder('30 minutes'))}, "
        "or rows with op = 'cti'"
    )


@pytest.mark.parametrize("told", ["timestamp", "ticks"])
def test_p3_progress_and_late_rows_are_timestamps_where_the_source_has_them(
    spark: SparkSession, tmp_path: Path, told: str
) -> None:
    """Also where the frame has ticks, as that of a connector has, and the text declares timestamps."""
    ticks = told == "ticks"
    moments = pa.schema([
        ("vs" if ticks else "t", pa.int64() if ticks else pa.timestamp("us", "UTC")), ("k", pa.string()),
        ("x", pa.int64()),
    ])  # fmt: skip
    late, first = datetime(2015, 2, 26, 21, 42, 13, tzinfo=UTC), datetime(2015, 2, 26, 21, 42, 53, tzinfo=UTC)
    for at, moment in enumerate((first, late)):
        write(tmp_path / "S", at, [(int(moment.timestamp() * 1000) if ticks else moment, "a", 1)], moments)
    text = SQL.format("WITHIN 2 SECONDS LATE ROWS DROP").replace("t INT", "t TIMESTAMP")
    ddl = "vs bigint, k string, x bigint" if ticks else "t timestamp, k string, x bigint"
    handle = finish(begin(spark, tmp_path, MemorySink(), ew.sql(text), ddl=ddl))
    found = handle.progress
    assert found is not None and found.progress["S"] == 1424986971000
    if not ticks:
        assert str(found.progress) == "{'S': 2015-02-26 21:42:51}" and "14249" not in f"{found}"
    (kept,) = late_rows_below(Path(handle.late_rows("S")))
    assert str(kept) == "insert [1424986933000, 1424986933001) k='a' x=1"
    (row,) = spark.read.parquet(handle.late_rows("S")).select("vs").collect()
    assert row.vs.astimezone(UTC) == late


def late_rows_below(place: Path) -> list[ew.Element]:
    """As any program reads them: times become ticks again."""
    files = sorted(place.glob("epoch=*/*.parquet"))
    return [each for file in files for batch in read_elements(file, tick=10**6) for each in batch.elements()]


def test_p8_kept_rows_can_be_read_again(spark: SparkSession, dropped: tuple[Handle, list[str]]) -> None:
    handle, _ = dropped
    kept = spark.read.parquet(handle.late_rows("S")).select("op", "vs", "ve", "vnew", "k", "x").collect()
    assert [tuple(row) for row in kept] == [("insert", 3, 4, None, "a", 5)]


def test_p8_the_total_is_of_the_query(dropped: tuple[Handle, list[str]]) -> None:
    handle, _ = dropped
    assert handle.progress is not None
    assert (dict(handle.progress.late), handle.late) == ({}, {"S": 1})


def test_p8_an_epoch_full_of_late_rows_is_told_however_many_were_on_time(caplog: pytest.LogCaptureFixture) -> None:
    warnings = LateWarnings({"S": resolved("drop")}, lambda name: f"late/{name}")
    known = EpochState(rows={"S": 10_000_000}, late={"S": 8_306})
    with caplog.at_level(logging.WARNING):
        warnings.look(known, {"S": 1_000_000}, {"S": 99})
        assert caplog.records == []
        warnings.look(known, {"S": 16_612}, {"S": 8_306})
    assert "8,306 of 10,000,000 rows" in caplog.text


def test_the_command_line_does_it_on_spark_as_in_process(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"t": t, "k": k, "x": x} for epoch in EPOCHS for t, k, x in epoch]
    file, query = tmp_path / "s.jsonl", tmp_path / "q.sql"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    query.write_text(SQL.format("WITHIN 2 LATE ROWS DROP"))
    found = {}
    for engine in ("local", "spark"):
        out, kept = tmp_path / f"{engine}.jsonl", tmp_path / f"{engine}.late.jsonl"
        arguments = ["run", str(query), "--in", f"S={file}", "--engine", engine, "--out", str(out), "--batch", "2"]
        assert main([*arguments, "--late-rows", str(kept), "--consistency", "strong"]) == 0
        said = capsys.readouterr().err
        told = (
            "S: 2 of 6 rows (33 %) came behind what the stream had promised: 2 dropped; those that were dropped are in"
        )
        assert f"{told} {kept}" in said
        found[engine] = sorted(out.read_text().splitlines()), kept.read_text()
    assert found["local"] == found["spark"]
