"""OpenTelemetry's own SDK reads the figures of jobs: the same names, labels and totals as Prometheus is served."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from everwhen.core.time import INF
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.metrics import prometheus, serving
from everwhen.jobs.plan import job_plan
from everwhen.jobs.status import JobStatus

sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="left out: opentelemetry-sdk is not installed")

TEXT = """
    CREATE STREAM Bid (item INT, price INT, t INT) ORDERED BY t WITHIN 2 LATE ROWS DROP SOURCE file('{place}/bids.csv');
    CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 5) GROUP BY item;
    CREATE SINK final FROM Best INTO file('{place}/final.jsonl', form = 'append');
    CREATE SINK log FROM Best INTO changelog('{place}/log')"""


class Meters:
    """A provider of meters, and what its reader in memory has."""

    def __init__(self) -> None:
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        self.reader = InMemoryMetricReader()
        self.provider = sdk.MeterProvider(metric_readers=[self.reader])

    def read(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        data = self.reader.get_metrics_data()
        found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for each in [] if data is None else data.resource_metrics:
            for scope in each.scope_metrics:
                assert scope.scope.name == "everwhen"
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        label = metric.name, tuple(sorted(point.attributes.items()))
                        assert label not in found
                        found[label] = point.value
                    assert metric.description
                    counts = metric.name.endswith("_total")
                    assert counts == (type(metric.data).__name__ == "Sum")
                    assert not counts or metric.data.is_monotonic
        return found


def served(status: JobStatus) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The page of Prometheus, read."""
    found = {}
    for line in prometheus(status).splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups()  # type: ignore[union-attr]
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)
            found[name, tuple(sorted(pairs))] = min(float(value), float(INF))
    return found


def run(place: Path, meters: Meters, name: str, out: str, **options: Any) -> JobStatus:
    seen: list[JobStatus] = []
    text = TEXT.format(place=place).replace("/final", f"/{out}/final").replace("/log", f"/{out}/log")
    (place / out).mkdir(exist_ok=True)
    with serving(None, print, meters.provider) as watch:

        def both(status: JobStatus) -> None:
            seen.append(status)
            watch(status)

        LocalJob(job_plan(text), place / f"state {out}", name=name, batch=3, watch=both, **options).run()
    return seen[-1]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rows = [(1, 7), (2, 8), (9, 7), (3, 7), (10, 9), (20, 7)]
    lines = ["item,price,t", *(f"{item},{t},{t}" for t, item in rows)]
    (tmp_path / "bids.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_all_figures_are_those_of_prometheus(place: Path) -> None:
    meters = Meters()
    status = run(place, meters, "best.sql", "a", operators=True)
    found = meters.read()
    assert found == served(status)
    names = {name for name, _ in found}
    assert {
        "everwhen_source_rows_total", "everwhen_source_rows_per_second", "everwhen_source_late_total",
        "everwhen_sink_elements_total", "everwhen_sink_corrections_total", "everwhen_state_rows",
        "everwhen_epoch_seconds", "everwhen_epoch_seconds_total", "everwhen_epochs_total",
        "everwhen_operator_rows_in_total", "everwhen_source_promised", "everwhen_sink_final",
    } <= names  # fmt: skip
    job = ("job", "best.sql")
    assert found["everwhen_source_rows_total", (job, ("source", "Bid"))] == 6
    assert found["everwhen_source_late_total", (job, ("source", "Bid"))] == 1
    assert found["everwhen_epochs_total", (job,)] > 1


def test_totals_go_on_after_a_restart_and_jobs_are_told_apart(place: Path) -> None:
    meters = Meters()
    first = run(place, meters, "one.sql", "a")
    again = run(place, meters, "one.sql", "a")  # it was done: its totals are what they were
    other = run(place, meters, "two.sql", "b")
    assert first.sources["Bid"].rows == again.sources["Bid"].rows == 6
    assert first.sources["Bid"].late == again.sources["Bid"].late == 1
    found = meters.read()
    assert found == {**served(again), **served(other)}
    assert found["everwhen_restarts_total", (("job", "one.sql"),)] == 1
    assert not any("operator" in name for name, _ in found)  # on request
