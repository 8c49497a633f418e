"""What a user meets when something is wrong: a message in one line that names the place and the remedy, and no loss."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import everwhen as ew
from everwhen.errors import EverwhenError, InputError, QueryError, SinkError, StateError
from everwhen.sinks import CallbackSink, ChangelogSink, MemorySink, PostgresSink, read_changelog
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.start import start
from everwhen.spark.sources.source import Disorder, SparkSource
from everwhen.spark.worker.stage_program import StageProgram
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_same_history

PATIENCE = 300.0
S = ew.source("S", {"k": "string", "x": "int64"})
T = ew.source("T", {"k": "string", "x": "int64"})
TOTALS = S.group_by("k").agg(total=ew.sum("x"))
ELEMENTS = pa.schema(
    [("op", pa.string()), *((name, pa.int64()) for name in ("vs", "ve", "vnew")), ("k", pa.string()), ("x", pa.int64())]
)
DDL = "op string, vs bigint, ve bigint, vnew bigint, k string, x bigint"

Row = tuple[Any, ...]


def write(place: Path, epoch: int, rows: Sequence[Row], schema: pa.Schema = ELEMENTS) -> None:
    """One epoch's file; written again, it takes the place of the one before.  It appears whole: Spark, which may be
    looking, would take one that is still empty for all there is."""
    place.mkdir(parents=True, exist_ok=True)
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    aside = place / f".{epoch:06d}.part"
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), aside)
    os.utime(aside, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
    aside.replace(place / f"{epoch:06d}.parquet")


def read(spark: SparkSession, place: Path, ddl: str = DDL) -> DataFrame:
    place.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(place))


def begin(spark: SparkSession, place: Path, sink: Any, query: Any = TOTALS, **options: Any) -> Handle:
    inputs = options.pop("inputs", None) or {"S": read(spark, place / "S", options.pop("ddl", DDL))}
    settings = {"checkpoint": place / "checkpoint", "trigger": "available", "buckets": 2} | options
    return start(query, inputs, sink=sink, **settings)


def finish(handle: Handle) -> Handle:
    assert handle.await_termination(PATIENCE)
    assert handle.status == "stopped" and handle.last_error is None
    return handle


def failure(handle: Handle, kind: type[EverwhenError] = InputError) -> str:
    """The message with which a query ends, which is the same wherever one looks."""
    with pytest.raises(EverwhenError) as caught:
        handle.await_termination(PATIENCE)
    text = str(caught.value)
    assert type(caught.value) is kind, text
    assert caught.value.__cause__ is None or kind is SinkError
    assert handle.status == f"failed: {text}" and str(handle.last_error) == text
    assert "\n" not in text and "py4j" not in text.lower() and "Traceback" not in text
    return text


def same(sink: MemorySink, rows: Mapping[str, Sequence[tuple[int, int, int]]]) -> None:
    """The totals of the keys, each as (start, end, total)."""
    events = [ew.Insert(vs, ve, {"k": k, "total": t}) for k, pieces in rows.items() for vs, ve, t in pieces]
    assert_same_history(sink.history(), History.of(events, TOTALS.schema))


# -- before anything runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        (DDL.replace("x bigint", "x string"), "the query reads 'x' as int64, and the frame has it as string; cast"),
        (DDL.replace(", x bigint", ", y bigint"), "unknown column 'x' in the frame of 'S'; there is"),
        (DDL.replace("vs bigint", "vs string"), r"time is a timestamp, a date or a whole number of ticks.*cast it"),
        (DDL.replace("op string", "op double"), r"source 'S': op is text \(insert, adjust, cti\) or its code"),
        ("k string, x bigint", "source 'S': which column is the time"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_named_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, ddl: str, message: str
) -> None:
    with pytest.raises(QueryError, match=message):
        begin(spark, tmp_path, tmp_path / "out", ddl=ddl)
    assert not (tmp_path / "checkpoint").exists() and not (tmp_path / "out").exists()


def test_inputs_and_sinks_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    frame = read(spark, tmp_path / "S")
    with pytest.raises(QueryError, match="no input for T; the query reads S, T"):
        begin(spark, tmp_path, MemorySink(), S.union(T), inputs={"S": frame})
    with pytest.raises(QueryError, match="does not read the input 'U'; it reads S"):
        begin(spark, tmp_path, MemorySink(), inputs={"S": frame, "U": frame})
    with pytest.raises(QueryError, match=r"'S' is not a streaming DataFrame; read it with spark.readStream"):
        begin(spark, tmp_path, MemorySink(), inputs={"S": spark.range(3)})
    with pytest.raises(QueryError, match="several queries cannot share one sink"):
        begin(spark, tmp_path, MemorySink(), {"a": S, "b": TOTALS})
    with pytest.raises(QueryError, match=r"a sink is one of everwhen.sinks, a path, or a function, not int"):
        begin(spark, tmp_path, 7)
    for trigger in ("often", {"availableNow": True}):
        with pytest.raises(QueryError, match=r"start: trigger=.*; write trigger='5 seconds' for an epoch every 5 sec"):
            begin(spark, tmp_path, MemorySink(), trigger=trigger)


def test_places_that_cannot_be_used(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        StateError, match=r"file.*cannot use it as a checkpoint: a file stands where a directory should be"
    ):
        begin(spark, tmp_path, MemorySink(), checkpoint=tmp_path / "file")
    with pytest.raises(SinkError, match=r"file/out: cannot prepare the changelog: .* \(choose another place\)"):
        begin(spark, tmp_path, tmp_path / "file" / "out")
    with pytest.raises(
        SinkError, match=r"PostgreSQL table public.totals: cannot prepare the table.*is the server running"
    ):
        begin(spark, tmp_path, PostgresSink("host=127.0.0.1 port=1 connect_timeout=2", "totals"))


def test_a_checkpoint_of_another_query_or_none(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "S", 0, [("insert", 1, 5, None, "a", 2), ("cti", 3, None, None, None, None)])
    sink = MemorySink()
    finish(begin(spark, tmp_path, sink))
    with pytest.raises(
        QueryError, match=r"holds the state of another query(.|\n)*before: .*sum\(x\)(.|\n)*now   : .*max\(x\)"
    ):
        begin(spark, tmp_path, MemorySink(), S.group_by("k").agg(total=ew.max("x")))
    with pytest.raises(QueryError, match="emit: current before, final now"):
        begin(spark, tmp_path, MemorySink(), emit="final")
    home = tmp_path / "checkpoint" / "everwhen"
    about = home / "query.json"
    whole = about.read_text()
    for text in (whole[:20], "[]", "{}", ""):
        about.write_text(text)
        with pytest.raises(
            StateError, match=r"query\.json is damaged: .*; restore the file, or start the query with a new"
        ):
            begin(spark, tmp_path, sink)
    about.write_text(whole)
    # what is known of the last epoch
    write(tmp_path / "S", 1, [("insert", 4, 6, None, "a", 1), ("cti", None, None, None, None, None)])
    known = home / "epochs" / "000000000000.done"
    kept = known.read_text()
    for text in (kept[:9], "{}"):
        known.write_text(text)
        with pytest.raises(StateError, match=r"000000000000\.done is damaged: .*restore the file"):
            begin(spark, tmp_path, sink)
    known.write_text(kept)
    finish(begin(spark, tmp_path, sink))
    same(sink, {"a": [(1, 4, 2), (4, 5, 3), (5, 6, 1)]})


# -- rows ------------------------------------------------------------------------------------------------------------

GOOD: list[Row] = [("insert", 1, 9, None, k, 2) for k in "abcd"] + [("cti", 2, None, None, None, None)]
END: Row = ("cti", None, None, None, None, None)


WRONG: dict[str, tuple[Row, str]] = {
    "null": (("insert", None, 9, None, "a", 1),
        "S: the time in column 'vs' is null (only a cti may stand at infinity)"),
    "empty": (("insert", 5, 5, None, "a", 1), "S: the lifetime [5, 5) is empty (the end must be after the time)"),
    "backwards": (("insert", 5, 3, None, "a", 1), "S: the lifetime [5, 3) is empty (the end must be after the time)"),
    "op": (("upsert", 5, 9, None, "a", 1), "S: unknown op in column 'op' (on Spark there are insert, adjust, cti)"),
    "before": (("adjust", 1, 9, 0, "a", 2),
        "S: the new end 0 is before the time 1 (the time itself removes the event)"),
    "unknown": (("adjust", 1, 8, 5, "a", 2),
        "S: an adjust of an event that is not there: [1, 8); row {'k': 'a', 'x': 2} "
        "(an adjust names the event's start, its present end and its whole row)"),
    "late": (("insert", 1, 9, None, "a", 1), "S: 1 row came behind the promise of their source, the earliest at 1 "
        "(widen the bound of its disorder, or choose late='drop' or late='adjust')"),
}  # fmt: skip


def test_a_wrong_row_stops_the_query_and_once_repaired_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """One wrong row after the other in the second epoch of one query; those that are found in a scan, in a task and by
    the driver stop it again as it is."""
    sink = MemorySink()
    write(tmp_path / "S", 0, GOOD)
    write(tmp_path / "S", 2, [END])
    for kind, (bad, message) in WRONG.items():
        write(tmp_path / "S", 1, [("insert", 3, 9, None, k, 1) for k in "abcd"] + [bad])
        told = failure(begin(spark, tmp_path, sink))
        assert told.startswith(message)
        assert sink.committed() == 0
        if kind in ("null", "unknown", "late"):
            assert failure(begin(spark, tmp_path, sink)) == told, "started again as it is, it says the same"
    # repaired: what belongs to other partitions is other than before, too
    write(tmp_path / "S", 1, [("insert", 4, 9, None, k, 3) for k in "abcde"])
    finish(begin(spark, tmp_path, sink))
    assert sorted(sink.epochs) == [0, 1, 2]
    same(sink, {k: [(1, 4, 2), (4, 9, 5)] for k in "abcd"} | {"e": [(4, 9, 3)]})


def test_a_number_that_spark_cannot_hold(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "S", 0, [("insert", 1, 2, None, "a", 2**63 - 1), ("insert", 1, 2, None, "a", 1)])
    handle = begin(
        spark, tmp_path, MemorySink(), sources={"S": SparkSource("vs", columns=["k", "x"], progress=Disorder(0))}
    )
    assert failure(handle, EverwhenError) == "the query failed: the sum of 'x' leaves the 64-bit range"


def test_a_failure_that_nobody_expects(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unlucky(StageProgram):
        def step(self, *given: Any) -> Any:
            raise RuntimeError("out of luck")

    write(tmp_path / "S", 0, GOOD)
    monkeypatch.setattr("everwhen.spark.driver.plan_jobs.StageProgram", Unlucky)
    message = failure(begin(spark, tmp_path, MemorySink()), EverwhenError)
    assert message == "the query failed: RuntimeError: out of luck"


PLAIN = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])


def late_run(spark: SparkSession, place: Path, policy: Any) -> tuple[Handle, MemorySink]:
    """The promise after the first epoch is 8, and of the second one row comes too late."""
    write(place / "S", 0, [(10, "a", 1), (9, "b", 1)], PLAIN)
    write(place / "S", 1, [(11, "a", 1), (3, "a", 5), (8, "b", 7)], PLAIN)
    sink = MemorySink()
    source = SparkSource("t", progress=Disorder(2), late=policy)
    return begin(spark, place, sink, ddl="t bigint, k string, x bigint", sources={"S": source}), sink


def test_late_rows_dropped_are_counted_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    handle, sink = late_run(spark, tmp_path, "drop")
    finish(handle)
    assert [dict(report.late) for report in handle.recent] == [{}, {"S": 1}]
    kept = spark.read.parquet(handle.late_rows("S"))
    assert [row.asDict() for row in kept.select("epoch", "vs", "ve", "k", "x").collect()] == [
        {"epoch": 1, "vs": 3, "ve": 4, "k": "a", "x": 5}
    ]
    same(sink, {"a": [(10, ew.INF, 1)], "b": [(8, 9, 7), (9, 10, 1)]})


def test_late_rows_of_a_stream_with_any_name_stay_in_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """The name once led out of the checkpoint, and what stood there was overwritten."""
    name, place = "../../../outside", tmp_path / "job"
    write(place / "S", 0, [(10, "a", 1), (9, "b", 1)], PLAIN)
    write(place / "S", 1, [(11, "a", 1), (3, "a", 5)], PLAIN)
    mine = tmp_path / "outside" / "epoch=1" / "mine"
    (place / "outside" / "epoch=1").mkdir(parents=True)
    mine.parent.mkdir(parents=True)
    kept = [mine, place / "outside" / "epoch=1" / "mine"]
    for file in kept:
        file.write_text("mine")
    query = ew.source(name, {"k": "string", "x": "int64"}).group_by("k").agg(total=ew.sum("x"))
    frame = read(spark, place / "S", "t bigint, k string, x bigint")
    sources = {name: SparkSource("t", progress=Disorder(2), late="drop")}
    handle = finish(begin(spark, place, MemorySink(), query, inputs={name: frame}, sources=sources))
    assert [dict(report.late) for report in handle.recent] == [{}, {name: 1}]
    where = Path(handle.late_rows(name))
    assert where.resolve().parent == (place / "checkpoint" / "everwhen" / "late").resolve()
    assert spark.read.parquet(str(where)).count() == 1
    assert [file.read_text() for file in kept] == ["mine", "mine"]


def test_late_rows_moved_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    handle, sink = late_run(spark, tmp_path, "adjust")
    finish(handle)
    assert [dict(report.late) for report in handle.recent] == [{}, {"S": 1}]
    assert spark.read.parquet(handle.late_rows("S")).count() == 0
    same(sink, {"a": [(8, 9, 5), (10, ew.INF, 1)], "b": [(8, 9, 7), (9, 10, 1)]})


def test_an_adjust_of_an_event_that_was_dropped_is_left_out_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "S", 0, [("insert", 1, 9, None, "a", 2), ("cti", 5, None, None, None, None)])
    write(tmp_path / "S", 1, [("insert", 3, 9, None, "a", 4), ("insert", 3, 9, None, "b", 4)])
    write(
        tmp_path / "S", 2, [("adjust", 3, 9, 7, "a", 4), ("adjust", 1, 9, 8, "a", 2), ("adjust", 3, 9, 6, "b", 4), END]
    )
    sink = MemorySink()
    source = SparkSource("vs", end="ve", op="op", vnew="vnew", late="drop")
    handle = finish(begin(spark, tmp_path, sink, sources={"S": source}))
    assert [dict(report.late) for report in handle.recent] == [{}, {"S": 2}, {"S": 2}]
    same(sink, {"a": [(1, 8, 2)]})


# -- sinks -----------------------------------------------------------------------------------------------------------


class Moody:
    """A function that fails so many times on an epoch before it takes it."""

    def __init__(self, failures: Mapping[int, int]) -> None:
        self.left = dict(failures)
        self.taken: list[tuple[int, ElementBatch]] = []

    def __call__(self, epoch: int, batch: ElementBatch) -> None:
        if self.left.get(epoch, 0):
            self.left[epoch] -= 1
            raise ConnectionError("the other side is not there")
        self.taken.append((epoch, batch))


def impatient(handle: Handle) -> Handle:
    handle._runner.patience = (0.01, 0.01, 0.01, 0.01)
    return handle


FIVE = {"a": [(0, 1, 1), (1, 5, 2), (5, 6, 1)]}


def five_epochs(place: Path) -> None:
    for at in range(5):
        last = [END] if at == 4 else []
        write(place / "S", at, [("insert", at, at + 2, None, "a", 1), ("cti", at, None, None, None, None), *last])


def check_taken(taken: Sequence[tuple[int, ElementBatch]]) -> None:
    assert [epoch for epoch, _ in taken] == list(range(5))
    sink = MemorySink()
    sink.prepare(TOTALS.schema)
    for epoch, batch in taken:
        sink.commit(epoch, batch)
    same(sink, FIVE)


def test_a_sink_that_fails_for_three_epochs_and_then_works(spark: SparkSession, tmp_path: Path) -> None:
    five_epochs(tmp_path)
    moody = Moody({1: 3, 2: 1, 3: 4})
    finish(impatient(begin(spark, tmp_path, CallbackSink(moody))))
    check_taken(moody.taken)


def test_a_sink_that_keeps_failing_stops_the_query_which_then_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    five_epochs(tmp_path)
    moody = Moody({2: 8})
    message = failure(impatient(begin(spark, tmp_path, moody)), SinkError)
    assert message.startswith("the sink of 'out' has not taken epoch 2 in 5 attempts: the sink function ")
    assert (
        "failed on epoch 2: ConnectionError: the other side is not there. Nothing is lost: start the query again"
        in message
    )
    finish(impatient(begin(spark, tmp_path, moody)))
    check_taken(moody.taken)


def test_a_changelog_whose_disk_fails_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    five_epochs(tmp_path)
    publish = ChangelogSink._publish
    failures = [OSError(28, "No space left on device")] * 7

    def failing(sink: ChangelogSink, epoch: int, names: list[str]) -> None:
        if epoch == 3 and failures:
            raise failures.pop()
        publish(sink, epoch, names)

    monkeypatch.setattr(ChangelogSink, "_publish", failing)
    place = tmp_path / "out"
    assert "No space left" in failure(impatient(begin(spark, tmp_path, place)), SinkError)
    assert ChangelogSink(place).committed() == 2
    finish(impatient(begin(spark, tmp_path, place)))
    assert sorted(path.name for path in (place / "_epochs").iterdir()) == [f"{epoch}.json" for epoch in range(5)]
    sink = MemorySink()
    sink.prepare(TOTALS.schema)
    for at, batch in enumerate(read_changelog(place)):
        sink.commit(at, batch)
    same(sink, FIVE)


# -- who is waited for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle", [None, 0.05])
def test_a_silent_source_holds_the_answer_back_unless_it_may_be_idle(
    spark: SparkSession, tmp_path: Path, idle: float | None
) -> None:
    for at in range(3):
        write(tmp_path / "S", at, [("insert", at, at + 2, None, "a", 1), ("cti", at, None, None, None, None)])
    sources = {"T": SparkSource("vs", end="ve", op="op", vnew="vnew", idle=idle)}
    inputs = {name: read(spark, tmp_path / name) for name in "ST"}
    sink = MemorySink()
    query = S.union(T).group_by("k").agg(total=ew.sum("x"))
    handle = begin(spark, tmp_path, sink, query, inputs=inputs, sources=sources, emit="final")
    time.sleep(0.1)
    finish(handle)
    promises = [element for element in sink.elements() if isinstance(element, ew.Cti)]
    if idle is None:
        assert handle.waits_for().startswith("T has promised nothing yet, so nothing is final and STRONG says nothing")
        assert not promises and not list(sink.elements())
    else:
        assert handle.progress is not None and handle.progress.idle == {"T"}
        assert promises[-1] == ew.Cti(2)
        assert_same_history(sink.history().at(1), [ew.Insert(1, 2, {"k": "a", "total": 2})])


def test_being_stopped_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    five_epochs(tmp_path)
    sink = MemorySink()
    handle = begin(spark, tmp_path, sink, trigger=None)
    handle.process_available()
    write(tmp_path / "S", 5, [END])
    handle.stop()
    assert handle.status == "stopped" and handle.last_error is None
    check_taken([(epoch, batch) for epoch, batch in sorted(sink.epochs.items()) if epoch < 5])


def test_waiting_for_what_is_available_tells_of_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "S", 0, [("upsert", 1, 2, None, "a", 1)])
    handle = begin(spark, tmp_path, MemorySink(), trigger=None)
    with pytest.raises(InputError, match="unknown op in column 'op'"):
        handle.process_available()
