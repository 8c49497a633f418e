"""A windowed count over late rows: Spark Structured Streaming alone, and Everwhen, over the same files in the same run.

    python bench/versus_spark.py SYSTEM FOLDER

Rows per key and minute.  An epoch has 50,000 rows of one minute; a fifth of the rows is late by up to 30 s, one in a
hundred by up to 10 minutes.  Spark is asked as its users ask it: with a watermark of 30 s, which fits nearly all rows,
in append mode; with one of 10 minutes, which fits all, in append mode; and with that one in update mode.  Everwhen is
told that rows are late by at most 10 minutes, answers at once, corrects what late rows change, and marks what is final.

All write their answer to Parquet files, epoch by epoch.  `local[2]`, two partitions, RocksDB for Spark's own state.
The first epochs do not count.  Rows per second of processor time count all processes, the JVM's and Python's.  What was
lost is what is missing from the sum of all counts, once everything is final; Spark's own counter of dropped rows stands
beside it.  The last two epochs have a row each, hours later, that closes all windows.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import everwhen as ew
from everwhen.formats.changelog.reading import finished, header_of, open_folder, read_part
from everwhen.sinks import ChangelogSink
from measure import percentile, report

ROWS, EPOCHS, WARM, KEYS = 50_000, 24, 8, 1_000
MINUTE = 60_000
ORIGIN = 1_700_000_040_000  # the beginning of a minute
LATE, LATENESS = 0.20, 30_000
VERY_LATE, VERY = 0.01, 600_000
DDL = "time timestamp, key string"
QUERY = """
CREATE STREAM S (time TIMESTAMP, key TEXT) ORDERED BY time WITHIN 10 MINUTES;
SELECT key, window_start, COUNT(*) AS n FROM TUMBLE(TABLE S, DESCRIPTOR(time), INTERVAL '1' MINUTE)
GROUP BY key, window_start, window_end
"""
END = "end"  # the key of the rows that close all windows


def written(folder: Path) -> Path:
    """The files, once."""
    if (folder / "_done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    names = pa.array([f"key-{k:06d}" for k in range(KEYS)])
    for epoch in range(EPOCHS + 2):
        if epoch < EPOCHS:
            times = ORIGIN + epoch * MINUTE + np.arange(ROWS) * MINUTE // ROWS
            drawn = rng.random(ROWS)
            times = times - np.where(drawn < LATE, rng.integers(0, LATENESS, ROWS), 0)
            times = np.maximum(times - np.where(drawn > 1 - VERY_LATE, rng.integers(0, VERY, ROWS), 0), ORIGIN)
            keys = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, KEYS, ROWS)), names).cast(pa.string())
        else:
            times, keys = np.array([ORIGIN + (epoch + 60) * 60 * MINUTE]), pa.array([END])
        target = folder / f"{epoch:04d}.parquet"
        pq.write_table(pa.table({"time": pa.array(times, pa.timestamp("ms", "UTC")), "key": keys}), target)
        os.utime(target, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
    (folder / "_done").touch()
    return folder


def right(folder: Path) -> pa.Table:
    """The counts of what is in the files."""
    return duckdb.sql(f"""
        SELECT key, epoch_ms(time)::BIGINT // {MINUTE} * {MINUTE} AS start, count(*) AS n
        FROM read_parquet('{folder}/*.parquet') WHERE key <> '{END}' GROUP BY ALL""").to_arrow_table()


class Processor:
    """How much time of the processor this process and all that it has started have used, at every moment."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.samples.append((time.time(), tree_seconds(os.getpid())))

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> float:
        """Seconds of the processor between two moments."""
        at, used = (np.array(column) for column in zip(*self.samples, strict=True))
        return float(np.interp(end, at, used) - np.interp(begin, at, used))


def tree_seconds(process: int) -> float:
    """Seconds of the processor of a process and of those that it has started."""
    ticks = os.sysconf("SC_CLK_TCK")
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        number = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(number)
        used[number] = sum(map(int, fields[11:15])) / ticks  # its own, and of those that have ended
    total, todo = 0.0, [process]
    while todo:
        one = todo.pop()
        total += used.get(one, 0.0)
        todo += children.get(one, [])
    return total


def steady_part(progress: Sequence[Any]) -> tuple[float, float]:
    """When the epochs that count began, and when they ended."""
    moments = [datetime.fromisoformat(p["timestamp"]).timestamp() for p in progress]
    return moments[WARM], moments[EPOCHS]


def told(
    system: str, case: str, seconds: Sequence[float], worked: float, said: pa.Table, folder: Path, **extra: object
) -> None:
    """`said`: the columns key, start (of the window, in milliseconds), n, and in which epoch it came first."""
    wanted = right(folder)
    lost, wrong = duckdb.sql("""
        SELECT sum(w.n - coalesce(s.n, 0))::BIGINT, count(*) FILTER (WHERE s.n IS DISTINCT FROM w.n)
        FROM wanted w LEFT JOIN said s USING (key, start)""").fetchall()[0]
    (delay,) = duckdb.sql(f"SELECT median(epoch - (start - {ORIGIN}) // {MINUTE}) FROM said").fetchall()[0]
    steady = seconds[WARM:EPOCHS]
    notes = [
        case,
        f"{lost:,} of {ROWS * EPOCHS:,} rows lost",
        f"{wrong:,} of {wanted.num_rows:,} counts wrong",
        f"a minute is answered {delay:.0f} epochs after its own",
        f"{ROWS * len(steady) / worked:,.0f} rows/s of processor time",
    ]
    report(
        "versus_spark", system, ROWS * len(steady), sum(steady), case=case, lost=lost, wrong=wrong, delay=delay,
        per_processor_s=round(ROWS * len(steady) / worked),
        latency_p50_ms=round(1e3 * percentile(steady, 0.5), 2), latency_p99_ms=round(1e3 * percentile(steady, 0.99), 2),
        note="; ".join(notes), **extra,
    )  # fmt: skip


def answer_of(folder: str) -> pa.Table:
    """What our changelog says in the end, and in which epoch each minute was answered first."""
    place, header = open_folder(folder), header_of(folder)
    parts = [(m.epoch, name) for m in finished(place) for name in m.parts]
    found = [(epoch, each) for epoch, name in parts for each in read_part(place, name, epoch, header, 1 << 20)]
    batches = [batch for _, batch in found]
    first: dict[tuple[str, int], int] = {}
    for epoch, batch in found:
        for key, start in zip(*(batch.columns[i].to_pylist() for i in (0, 1)), strict=True):
            if key is not None:
                first.setdefault((key, start), epoch)
    table = ew.Answer(batches).to_arrow(times="ticks")
    rows = table.filter(pa.compute.not_equal(table["key"], END))
    pairs = zip(rows["key"].to_pylist(), rows["window_start"].to_pylist(), strict=True)
    return pa.table(
        {
            "key": rows["key"], "start": rows["window_start"].cast(pa.timestamp("ms")).cast(pa.int64()),
            "n": rows["n"], "epoch": pa.array([first[pair] for pair in pairs]),
        }
    )  # fmt: skip


def in_process(folder: Path) -> None:
    query = ew.sql(QUERY)
    files = sorted(folder.glob("*.parquet"))
    for given in (files[:3], files):
        tables = pa.concat_tables(map(pq.read_table, given))
        with tempfile.TemporaryDirectory() as out:
            sink, seconds, marks = ChangelogSink(f"{out}/answer"), [], []
            sink.prepare(query.schema)
            epochs = ew.run_batches(query, {"S": tables}, batch=ROWS)
            for epoch in range(len(given) + 2):
                began = time.perf_counter()
                marks.append(time.process_time())
                batch = next(epochs, None)
                if batch is None:
                    break
                sink.commit(epoch, batch)
                seconds.append(time.perf_counter() - began)
            if given is files:
                worked = marks[EPOCHS] - marks[WARM]
                told("everwhen-local", "within 10 min", seconds, worked, answer_of(f"{out}/answer"), folder)


def on_spark(folder: Path) -> None:
    from spark_works import small_session

    spark = small_session()
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))
    processor = Processor()
    with tempfile.TemporaryDirectory() as place:
        handle = ew.spark.start(
            ew.sql(QUERY), {"S": frame}, sink=f"{place}/answer", checkpoint=f"{place}/state", trigger="available",
            buckets=2,
        )  # fmt: skip
        handle.await_termination()
        processor.end()
        progress = [p for p in handle.stream.recentProgress if p["numInputRows"] > 0]
        seconds = [p["durationMs"]["triggerExecution"] / 1e3 for p in progress]
        worked = processor.between(*steady_part(progress))
        told("everwhen-spark", "within 10 min", seconds, worked, answer_of(f"{place}/answer"), folder)
    spark.stop()


def spark_alone(folder: Path) -> None:
    from pyspark.sql import functions as F

    from spark_works import small_session

    spark, processor = small_session(), Processor()
    for bound, mode in (("30 seconds", "append"), ("10 minutes", "append"), ("10 minutes", "update")):
        frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))
        counted = frame.withWatermark("time", bound).groupBy(F.window("time", "1 minute"), "key").count()
        plain = counted.select("key", F.unix_millis("window.start").alias("start"), F.col("count").alias("n"))
        with tempfile.TemporaryDirectory() as place:

            def write(rows: object, epoch: int, place: str = place) -> None:
                rows.write.parquet(f"{place}/answer/epoch={epoch}")  # type: ignore[attr-defined]

            writer = plain.writeStream.outputMode(mode).foreachBatch(write)
            query = writer.option("checkpointLocation", f"{place}/state").trigger(availableNow=True).start()
            query.awaitTermination()
            dropped = sum(o["numRowsDroppedByWatermark"] for p in query.recentProgress for o in p["stateOperators"])
            progress = [p for p in query.recentProgress if p["numInputRows"] > 0]
            seconds = [p["durationMs"]["triggerExecution"] / 1e3 for p in progress]
            worked = processor.between(*steady_part(progress))
            said = duckdb.sql(f"""
                SELECT key, start, arg_max(n, epoch) AS n, min(epoch) AS epoch
                FROM read_parquet('{place}/answer/*/*.parquet', hive_partitioning = true)
                WHERE key <> '{END}' GROUP BY ALL""").to_arrow_table()
            told("spark-native", f"{mode} mode, watermark {bound}", seconds, worked, said, folder, dropped=dropped)
    spark.stop()


if __name__ == "__main__":
    system, inputs = sys.argv[1:3]
    files = written(Path(inputs) / "versus_spark")
    {"everwhen-local": in_process, "everwhen-spark": on_spark, "spark-native": spark_alone}[system](files)
