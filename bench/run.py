"""`make bench`: our throughput, memory and latency beside the peers', measured in the same run.

    python bench/run.py [--pathway] [WORK …]

Each measurement is a process of its own, so that its peak memory is its own; short ones are the best of four
runs in it, and memory that is freed stays with the process (`KEPT`).
A peer that is not there is installed into a virtualenv under .cache/peers; one that can't be had is named and left out.
Pathway takes more than a gigabyte, so it is installed only when asked for (`make bench ARGS=--pathway`).  Results go to
bench/out/latest.json, pictures to bench/out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from consistency_report import told
from ffp_report import told_of_ffp
from lmerge_report import told_of_lmerge, told_of_plans
from measure import MARK
from migration_report import told_of_migration
from punctuation_report import told_of_punctuation

KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}
"""What a process frees it keeps, whichever system it is: on a virtual machine the first touch of a page can cost a
hundred times what it costs on bare metal, and a stream that has run for a minute touches few."""
COMPILED = {"EVERWHEN_COMPILE": "eager"}
"""The warm-up compiles every loop that it runs; none is interpreted."""

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
INPUTS = ROOT / ".cache" / "bench"
PEERS = ROOT / ".cache" / "peers"
OUT = BENCH / "out" / "latest.json"
TIMEOUT = 120  # seconds for one measurement
SPARK_TIMEOUT = 900
LONG_WORKS = (
    "triangle",
    "complexity",
    "consistency",
    "punctuation",
    "lmerge",
    "fast_forward",
    "plan_switching",
    "metadata",
    "migration",
    "ffp",
    "nexmark_suite",
    "top_n",
    "neighbours",
    "patterns",
    "follow",
    "versus_spark",
)
OWN_HOME = {"bytewax": "bytewax==0.21.1", "pathway": "pathway==0.33.0"}
OWN_PROGRAM = {
    "closing_price": ("sql_works.py", "closing_price"),
    "shared_queries": ("sql_works.py", "shared_queries"),
    "triangle": ("triangle.py",),
    "complexity": ("complexity.py",),
    "consistency": ("consistency_cost.py",),
    "punctuation_match": ("punctuation_match.py",),
    "punctuation": ("punctuation.py",),
    "lmerge": ("lmerge.py",),
    "fast_forward": ("fast_forward.py",),
    "plan_switching": ("plan_switching.py",),
    "metadata": ("metadata.py",),
    "migration": ("migration.py",),
    "ffp": ("ffp.py",),
    "nexmark_suite": ("nexmark_suite.py", "100000", "10000"),
    "top_n": ("top_n.py",),
    "neighbours": ("neighbours.py",),
    "patterns": ("patterns.py",),
    "follow": ("follow.py",),
    "versus_spark": ("versus_spark.py",),
}
DIFFERENT = "DIFFERENT ANSWER"

Row = dict[str, Any]
console = Console(width=None if sys.stdout.isatty() else 150)


def say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Measurement:
    """One process: the system, what it is called with, and the prepared inputs that it reads."""

    system: str
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def ours(*emits: str) -> tuple[Measurement, ...]:
    return tuple(Measurement("everwhen-local", (emit,)) for emit in (emits or ("current",)))


def peers(*systems: str, needs: tuple[str, ...] = ("events",)) -> tuple[Measurement, ...]:
    return tuple(Measurement(system, needs=("inserts",) if system in OWN_HOME else needs) for system in systems)


SIDES = ("left", "right")
WORKS: dict[str, tuple[Measurement, ...]] = {
    "filter_map": ours() + peers("bytewax", "duckdb", "numpy"),
    "tumbling_sum": ours("current", "ended", "final") + peers("bytewax", "pathway", "duckdb", "numpy"),
    "sliding_sum": ours("current", "ended", "final") + peers("bytewax", "pathway", "duckdb", "numpy"),
    "sliding_sum_100k": (
        *ours(),
        Measurement("bytewax", needs=("inserts_100k",)),
        *peers("duckdb", "numpy", needs=("events_100k",)),
    ),
    "min_max": ours() + peers("bytewax", "duckdb"),
    "count_distinct": ours() + peers("duckdb"),
    "median": ours() + peers("duckdb"),
    "distinct": ours() + peers("duckdb"),
    "difference": ours() + peers("duckdb", needs=SIDES),
    "interval_join": ours() + peers("duckdb", needs=SIDES),
    "single_element": ours(),
    "idle_keys": tuple(Measurement("everwhen-local", ("current", idle)) for idle in ("0", "100000", "1000000")),
    "nexmark": tuple(Measurement("everwhen-local", ("current", f"q{i}")) for i in range(1, 10)),
    "closing_price": tuple(
        Measurement("everwhen-local", (f"{mix}{keys}",))
        for mix in ("", "in order and right, ", "a tenth of the bids, ")
        for keys in ("no keys", "keys")
    ),
    "shared_queries": tuple(Measurement("everwhen-local", (number,)) for number in ("1", "10", "100")),
    "triangle": tuple(Measurement("everwhen-local", (name,)) for name in ("machines", "web", "stocks")),
    "complexity": tuple(
        Measurement("everwhen-local", case)
        for case in (
            *(("n", name) for name in ("total", "total, no promises", "per key", "per key, no promises", "join")),
            *(("n", name) for name in ("min and max", "min and max, no promises")),
            *(("n", name) for name in ("values", "values, no promises", "values of all, no promises")),
            *(("disorder", name) for name in ("total", "per key", "join")),
        )
    ),
    "consistency": tuple(
        Measurement("everwhen-local", (name,))
        for name in ("tumbling_sum", "tumbling_sum, insert only", "sliding_sum", "live_sum", "interval_join")
    ),
    "punctuation_match": tuple(
        Measurement("everwhen-local", (kind,)) for kind in ("consecutive", "random", "dense", "text")
    ),
    "punctuation": tuple(
        Measurement("everwhen-local", case)
        for case in (
            *(("state", rate) for rate in ("0", "1")),
            ("rates",),
            *(("cost", name) for name in ("warehouse", "filter", "tumbling_sum", "auction", "auction_steady")),
            ("auction", "10000000"),
        )
    ),
    "lmerge": tuple(
        Measurement("everwhen-local", (case,))
        for case in ("kernels", "disorder", "lag", "stables", "cleanse", "bursts", "congestion", "long", "wanted")
    ),
    "metadata": tuple(
        Measurement("everwhen-local", (query, size))
        for query in ("filter", "sums", "join", "wide")
        for size in ("10000", "1")
    ),
    "fast_forward": tuple(
        Measurement("everwhen-local", case)
        for case in (
            *(("skip", name) for name in ("source", "sums", "distinct", "udf")),
            *(("lag", *each) for each in (("FIRST", "source"), ("LEADER", "source"), ("LEADER", "sums"))),
        )
    ),
    "plan_switching": (Measurement("everwhen-local"),),
    "migration": tuple(Measurement("everwhen-local", (case,)) for case in ("figures", "after", "million")),
    "ffp": tuple(
        Measurement("everwhen-local", case)
        for case in (
            *((case,) for case in ("disorder", "idle", "lulls", "w", "flying", "reach")),
            *(("memory", links) for links in ("2000000", "10000000")),
        )
    ),
    "spark_sums": tuple(Measurement(system) for system in ("everwhen-spark", "spark-native")),
    "spark_join": tuple(Measurement(system) for system in ("everwhen-spark", "spark-native")),
    "spark_state": (Measurement("everwhen-spark"),),
    "spark_epochs": (Measurement("everwhen-spark"),),
    "spark_scale": (Measurement("everwhen-spark"),),
    "spark_bounded": (Measurement("everwhen-spark"),),
    "memory": tuple(Measurement("everwhen-local", ("current", events)) for events in ("2000000", "10000000")),
    "nexmark_suite": tuple(Measurement("everwhen-local", (f"q{i}",)) for i in range(24)),
    "top_n": tuple(Measurement("everwhen-local", (bids,)) for bids in ("40000", "158000")),
    "neighbours": tuple(Measurement("everwhen-local", (rows,)) for rows in ("2000", "8000")),
    "patterns": (Measurement("everwhen-local"),),
    "follow": tuple(Measurement("everwhen-local", (case,)) for case in ("latency", "memory")),
    "versus_spark": tuple(
        Measurement(system, (system, str(INPUTS))) for system in ("everwhen-spark", "spark-native", "everwhen-local")
    ),
}


class Unavailable(Exception):
    """A peer cannot be had here; the text says why."""


def quietly(command: list[str], timeout: int) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout)


def peer_python(peer: str) -> str:
    """The interpreter of the peer's own virtualenv, made on first use."""
    home = PEERS / peer
    python, stamp = home / "bin" / "python", home / ".installed"
    if not stamp.exists():
        say(f"  installing {OWN_HOME[peer]} into a virtualenv of its own")
        try:
            quietly([sys.executable, "-m", "venv", "--clear", str(home)], timeout=120)
            quietly([str(python), "-m", "pip", "install", "--only-binary", ":all:", OWN_HOME[peer]], timeout=600)
        except (subprocess.SubprocessError, OSError) as error:
            shutil.rmtree(home, ignore_errors=True)
            words = str(getattr(error, "stderr", "") or error).strip().splitlines()
            raise Unavailable(words[-1] if words else "it could not be installed") from error
        stamp.touch()
    return str(python)


def command(work: str, measurement: Measurement) -> list[str]:
    match measurement.system:
        case _ if work in OWN_PROGRAM:
            program, *words = OWN_PROGRAM[work]
            return [sys.executable, str(BENCH / program), *words, *measurement.arguments]
        case "everwhen-local":
            return [sys.executable, str(BENCH / "works.py"), work, *measurement.arguments]
        case "everwhen-spark" | "spark-native":
            return [sys.executable, str(BENCH / "spark_works.py"), work, measurement.system, str(INPUTS)]
        case peer:
            python = peer_python(peer) if peer in OWN_HOME else sys.executable
            return [python, str(BENCH / "peers" / f"{peer}_work.py"), work, str(INPUTS)]


def measure(work: str, measurement: Measurement) -> list[Row]:
    """Run one measurement and read what it reports."""
    limit = SPARK_TIMEOUT if work.startswith("spark") or work in LONG_WORKS else TIMEOUT
    done = subprocess.run(
        command(work, measurement),
        capture_output=True,
        text=True,
        timeout=limit,
        cwd=ROOT,
        env={**os.environ, **KEPT, **COMPILED},
    )
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise RuntimeError(words[-1] if words else f"ended with status {done.returncode}")
    lines = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    return [json.loads(line) for line in lines]


def prepare(works: list[str]) -> None:
    """Write what the peers read, outside of any measurement."""
    needed = sorted({name for work in works for measurement in WORKS[work] for name in measurement.needs})
    if needed:
        say(f"making the peers' inputs: {', '.join(needed)}")
        subprocess.run([sys.executable, str(BENCH / "data.py"), str(INPUTS), *needed], check=True, cwd=ROOT)


def rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1e6:,.2f} M" if value >= 1e5 else f"{value:,.0f}"


def latency(row: Row) -> str:
    for unit in ("ms", "us"):
        if f"latency_p50_{unit}" in row:
            return f"{row[f'latency_p50_{unit}']:,.2f} / {row[f'latency_p99_{unit}']:,.2f} {unit}"
    return ""


def agreement(row: Row, rows: list[Row]) -> str:
    """Whether a system that saw the same history gave the same answer as we did first."""
    ours = (other for other in rows if other["work"] == row["work"] and other["system"].startswith("everwhen"))
    first = next(ours, row)
    mine, theirs = first.get("checksum"), row.get("checksum")
    if mine is None or theirs is None or row is first:
        return ""
    return "same answer" if mine == theirs % 2**64 else DIFFERENT


def show(rows: list[Row]) -> None:
    table = Table(title="Everwhen beside its peers (events/s: more is better)", title_justify="left")
    table.add_column("work", no_wrap=True)
    table.add_column("system", no_wrap=True)
    table.add_column("events/s", justify="right", no_wrap=True)
    table.add_column("ours / it", justify="right", no_wrap=True)
    table.add_column("peak MB", justify="right", no_wrap=True)
    table.add_column("latency p50 / p99", justify="right", no_wrap=True)
    table.add_column("remarks")
    for work in dict.fromkeys(row["work"] for row in rows):
        mine = [row for row in rows if row["work"] == work]
        own = next((row for row in mine if row["system"].startswith("everwhen")), None)
        for i, row in enumerate(mine):
            is_peer = own is not None and not row["system"].startswith("everwhen") and row["events_per_s"]
            ratio = f"{own['events_per_s'] / row['events_per_s']:,.2f} x" if own is not None and is_peer else ""
            remarks = "; ".join(filter(None, [row.get("note", ""), agreement(row, rows)]))
            table.add_row(
                work if i == 0 else "",
                row["system"],
                rate(row["events_per_s"]),
                ratio,
                f"{row['peak_rss_mb']:,.0f}",
                latency(row),
                remarks,
                end_section=i == len(mine) - 1,
            )
    console.print(table)
    summary(rows)


def summary(rows: list[Row]) -> None:
    """The two figures that are ratios of our own rows."""
    peaks = {row["case"]: row["peak_rss_mb"] for row in rows if row["work"] == "memory"}
    if len(peaks) == 2:
        small, large = sorted(peaks)
        say(f"memory: peak at {large:,} events / at {small:,}: {peaks[large] / peaks[small]:.2f}")
    costs = {row["case"]: row["ns_per_event"] for row in rows if row["work"] == "idle_keys"}
    if costs.get(0):
        for idle in sorted(costs.keys() - {0}):
            ratio = costs[idle] / costs[0]
            say(f"idle keys: an event beside {idle:,} idle keys costs {ratio:.2f} times as much")


def main(works: list[str], pathway: bool) -> int:
    unknown = [work for work in works if work not in WORKS]
    if unknown:
        say(f"unknown work {', '.join(unknown)}; there are {', '.join(WORKS)}")
        return 2
    chosen = works or list(WORKS)
    absent: dict[str, str] = {}
    used = {measurement.system for work in chosen for measurement in WORKS[work]}
    if "pathway" in used and not pathway and not (PEERS / "pathway" / ".installed").exists():
        absent["pathway"] = "large; ask for it with make bench ARGS=--pathway"
    began = time.perf_counter()
    prepare(chosen)
    rows: list[Row] = []
    failed: list[str] = []
    for work in chosen:
        for measurement in WORKS[work]:
            system = measurement.system
            if system in absent:
                continue
            label = " ".join((work, system, *measurement.arguments))
            try:
                found = measure(work, measurement)
            except Unavailable as why:
                absent[system] = str(why)
                say(f"  {system} can't be had here: {why}")
                continue
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failed.append(label)
                say(f"  {label}: failed: {error}")
                continue
            for row in found:
                rows.append(row)
                say(f"  {label}: {rate(row['events_per_s'])} events/s, {row['peak_rss_mb']:,.0f} MB")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    show(rows)
    tellers = (told, told_of_punctuation, told_of_lmerge, told_of_plans, told_of_migration, told_of_ffp)
    for each in (each for tell in tellers for each in tell(rows, OUT.parent)):
        console.print(each) if isinstance(each, Table) else say(each)
    for system, why in absent.items():
        say(f"left out: {system} ({why})")
    say(f"{len(rows)} measurements in {time.perf_counter() - began:,.0f} s -> {OUT.relative_to(ROOT)}")
    wrong = list(dict.fromkeys(row["work"] for row in rows if agreement(row, rows) == DIFFERENT))
    if failed:
        say(f"failed: {', '.join(failed)}")
    if wrong:
        say(f"answers differ: {', '.join(wrong)}")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main([word for word in given if word != "--pathway"], "--pathway" in given))
