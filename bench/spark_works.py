"""What Everwhen on Spark is measured on, beside Spark's own operators.

    python bench/spark_works.py WORK SYSTEM FOLDER

Both systems read the same Parquet files, one file of a million rows per epoch, on `local[2]` with two buckets (two
shuffle partitions), and give their results to nobody (`noop` there, `DiscardSink` here).  The first epochs
start processes, load kernels and are run by a JVM that has compiled little yet, on both sides; the rate is that of the
epochs after them.  Spark's own sums are in update mode with the RocksDB state store and a watermark; they drop what is
later than that, while ours are corrected.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import everwhen as ew
from everwhen.algebra.builder import Stream
from everwhen.sinks import DiscardSink
from everwhen.spark.api.run_bounded import run
from everwhen.spark.api.session import session
from everwhen.spark.api.start import start
from everwhen.spark.driver.epoch_runner import EpochReport
from everwhen.spark.sources.source import Disorder, SparkSource
from measure import percentile, report

ROWS = 1_000_000
EPOCHS = 9
WARM = 3
SUM_EPOCHS, SUM_WARM = 24, 12  # as long as either side still becomes faster from epoch to epoch
JOIN_EPOCHS, JOIN_WARM = 6, 2  # one of Spark's own takes many seconds
KEYS = 1_000
SPAN = 600_000  # milliseconds of application time in an epoch
LATE, LATENESS = 0.20, 30_000
COLUMNS = {"key": "string", "value": "int64"}
SCHEMA = "time timestamp, key string, value bigint"
SOURCE = SparkSource("time", progress=Disorder("30s"))


def write(folder: Path, *, rows: int = ROWS, epochs: int = EPOCHS, keys: int = KEYS, seed: int = 7) -> Path:
    """The files, once: times in order but for the late ones."""
    done = folder / "_done"
    if done.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    names = pa.array([f"key-{k:06d}" for k in range(keys)])
    for epoch in range(epochs):
        times = (np.arange(rows) * SPAN) // rows + epoch * SPAN + 1_700_000_000_000
        late = rng.random(rows) < LATE
        times = times - late * rng.integers(0, LATENESS, rows)
        table = pa.table(
            {
                "time": pa.array(times, pa.timestamp("ms", "UTC")),
                "key": pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, keys, rows)), names).cast(pa.string()),
                "value": pa.array(rng.integers(0, 1_000, rows)),
            }
        )
        target = folder / f"{epoch:04d}.parquet"
        pq.write_table(table, target)
        os.utime(target, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
    done.touch()
    return folder


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def small_session() -> SparkSession:
    return session(
        "local[2]",
        "everwhen-bench",
        **{
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "4g",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
        },
    )


# -- running ------------------------------------------------------------------------------------------------------


def ours(query: Stream, inputs: dict[str, DataFrame], buckets: int = 2, **described: SparkSource) -> list[EpochReport]:
    """All epochs of a query of ours."""
    with tempfile.TemporaryDirectory() as checkpoint:
        sources = {name: described.get(name, SOURCE) for name in inputs}
        handle = start(
            query,
            inputs,
            sink=DiscardSink(),
            checkpoint=checkpoint,
            sources=sources,
            trigger="available",
            buckets=buckets,
        )
        handle.await_termination()
        whole = {p["batchId"]: p["durationMs"]["triggerExecution"] / 1e3 for p in handle.stream.recentProgress}
        return [replace(report, seconds=whole.get(report.epoch, report.seconds)) for report in handle.recent]


def native(frame: DataFrame, mode: str) -> list[float]:
    """Seconds per epoch of a query of Spark's own."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [p["durationMs"]["triggerExecution"] / 1e3 for p in query.recentProgress if p["numInputRows"] > 0]


def rated(
    work: str, system: str, seconds: Sequence[float], rows: int = ROWS, warm: int = WARM, **extra: object
) -> None:
    steady = seconds[warm:]
    report(
        work,
        system,
        rows * len(steady),
        sum(steady),
        latency_p50_ms=round(1e3 * percentile(steady, 0.5), 2),
        latency_p99_ms=round(1e3 * percentile(steady, 0.99), 2),
        epochs=[round(s, 3) for s in seconds],
        **extra,
    )


def sums(system: str, folder: Path) -> None:
    """Sums per key over windows of 60 s, tumbling and by 10 s."""
    spark = small_session()
    files = write(folder / "spark_sums", epochs=SUM_EPOCHS)
    for name, slide in (("spark_tumbling_sum", 60), ("spark_sliding_sum", 10)):
        frame = stream(spark, files)
        if system == "spark-native":
            window = F.window("time", "60 seconds", f"{slide} seconds")
            grouped = frame.withWatermark("time", "30 seconds").groupBy(window, "key").agg(F.sum("value"))
            rated(name, system, native(grouped, "update"), warm=SUM_WARM)
        else:
            query = ew.source("S", COLUMNS).range("60s", f"{slide}s").group_by("key").agg(value=ew.sum("value"))
            reports = ours(query, {"S": frame})
            note = f"{reports[-1].state_rows:,} rows of state"
            rated(name, system, [r.seconds for r in reports], warm=SUM_WARM, note=note)
    spark.stop()


def join(system: str, folder: Path) -> None:
    """An interval join: rows of two streams with equal keys at most ten seconds apart, 100,000 rows each per epoch."""
    spark = small_session()
    rows = 100_000
    sides = [
        write(folder / f"spark_join_{side}", rows=rows, keys=10_000, epochs=JOIN_EPOCHS, seed=at)
        for at, side in enumerate(("l", "r"))
    ]
    left, right = (stream(spark, side) for side in sides)
    if system == "spark-native":
        a = left.withWatermark("time", "30 seconds").select(
            F.col("time").alias("t1"), F.col("key").alias("k1"), "value"
        )
        b = right.withWatermark("time", "30 seconds").select(F.col("time").alias("t2"), F.col("key").alias("k2"))
        near = F.expr("k1 = k2 AND t2 >= t1 - interval 10 seconds AND t2 <= t1 + interval 10 seconds")
        rated("spark_join", system, native(a.join(b, near), "append"), 2 * rows, JOIN_WARM)
    else:
        lives = SparkSource("time", lifetime="10s", progress=Disorder("30s"))
        query = ew.source("L", COLUMNS).join(ew.source("R", COLUMNS), on="key")
        reports = ours(query, {"L": left, "R": right}, L=lives, R=lives)
        rated("spark_join", system, [r.seconds for r in reports], 2 * rows, JOIN_WARM)
    spark.stop()


def scale(system: str, folder: Path) -> None:
    """Four times the keys and rows per epoch; and the state of a bucket in 2, 4 and 8 buckets."""
    spark = small_session()
    took = {}
    for factor in (1, 4):
        files = write(folder / f"spark_scale_{factor}", rows=250_000 * factor, keys=25_000 * factor, epochs=7)
        query = ew.source("S", COLUMNS).range("60s", "10s").group_by("key").agg(value=ew.median("value"))
        seconds = [r.seconds for r in ours(query, {"S": stream(spark, files)})]
        took[factor] = sum(seconds[WARM:])
        rated("spark_scale", system, seconds, 250_000 * factor, case=f"{factor}x")
    files = write(folder / "spark_scale_1", rows=250_000, keys=25_000, epochs=7)
    for buckets in (2, 4, 8):
        query = ew.source("S", COLUMNS).range("60s", "10s").group_by("key").agg(value=ew.median("value"))
        last = ours(query, {"S": stream(spark, files)}, buckets)[-1]
        most = max(note["state_bytes"] for note in last.buckets)
        report(
            "spark_scale", system, 0, 1.0, case=f"{buckets} buckets", note=f"{most / 1e6:.1f} MB in the largest bucket"
        )
    sys.stdout.write(f"4x the keys and rows take {took[4] / took[1]:.2f} times as long\n")
    spark.stop()


def state(system: str, folder: Path) -> None:
    """What state costs an epoch at a million live rows: loading, logging and snapshots beside the whole."""
    spark = small_session()
    rows = 250_000
    files = write(folder / "spark_state", rows=rows, keys=200_000, epochs=14)
    lives = SparkSource("time", lifetime="2400s", progress=Disorder("30s"))
    query = ew.source("S", COLUMNS).group_by("key").agg(value=ew.median("value"))
    reports = ours(query, {"S": stream(spark, files)}, S=lives)
    steady = reports[6:]
    parts = [max(note["seconds"]["load"] + note["seconds"]["state"] for note in r.buckets) for r in steady]
    share = sum(parts) / sum(r.seconds for r in steady)
    note = f"{steady[-1].state_rows:,} rows of state; {100 * share:.1f} % of the epoch for it"
    report("spark_state", system, rows * len(steady), sum(r.seconds for r in steady), note=note, share=round(share, 4))
    spark.stop()


def epochs(system: str, folder: Path) -> None:
    """What an epoch of 1,000 rows takes, through one stage with state and through two."""
    spark = small_session()
    files = write(folder / "spark_epochs", rows=1_000, keys=100, epochs=40)
    one = ew.source("S", COLUMNS).range("60s").group_by("key").agg(value=ew.sum("value"))
    for stages, query in ((1, one), (2, one.group_by("value").agg(n=ew.count()))):
        seconds = [report.seconds for report in ours(query, {"S": stream(spark, files)})]
        rated("spark_epochs", system, seconds, 1_000, len(seconds) // 2, case=f"{stages} stage{'s' * (stages > 1)}")
    spark.stop()


def bounded(system: str, folder: Path) -> None:
    """Twenty million rows in one bounded run; the memory of the largest Python worker."""
    spark = small_session()
    rows = 20_000_000
    frame = spark.range(rows).select(
        (F.col("id") * 30).alias("vs"),
        F.concat(F.lit("key-"), (F.xxhash64("id") % 1000).cast("string")).alias("key"),
        (F.col("id") % 1000).alias("value"),
    )
    query = ew.source("S", COLUMNS).range(60_000, 10_000).group_by("key").agg(value=ew.median("value"))
    peak = WorkerPeak(os.getpid())
    began = time.perf_counter()
    with peak:
        found = run(query, {"S": frame}, sources={"S": SparkSource("vs")}, form="history").count()
    seconds = time.perf_counter() - began
    if not peak.megabytes:
        raise SystemExit("no Python worker was seen")
    note = f"{found:,} results; largest Python worker {peak.megabytes:,.0f} MB"
    report("spark_bounded", system, rows, seconds, note=note, worker_mb=round(peak.megabytes))
    spark.stop()


_WORKER = re.compile(rb"\0-m\0(pyspark|everwhen\.runtime\.spark)\.daemon\0")
"""A worker has the command line of the daemon it was forked from; Java has the name of ours among its settings."""


class WorkerPeak:
    """The largest memory of any Python process below this one, while it is watched."""

    def __init__(self, root: int) -> None:
        self.megabytes = 0.0
        self._root = root
        self._stop = False

    def __enter__(self) -> None:
        import threading

        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop:
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
                    worker = _WORKER.search((status.parent / "cmdline").read_bytes())
                except OSError:
                    continue  # it has just ended
                if worker and "VmHWM" in lines:
                    self.megabytes = max(self.megabytes, int(lines["VmHWM"].split()[0]) / 1024)
            time.sleep(0.2)


WORKS: dict[str, Callable[[str, Path], None]] = {
    "spark_sums": sums,
    "spark_join": join,
    "spark_state": state,
    "spark_epochs": epochs,
    "spark_scale": scale,
    "spark_bounded": bounded,
}

if __name__ == "__main__":
    WORKS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
