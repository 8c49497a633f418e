"""The figures of a job: what Prometheus and OpenTelemetry are told, by the same names."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from everwhen.jobs.status import JobStatus


class Figure(NamedTuple):
    """One figure: its name without the prefix, what kind it is, what it tells, and its values by label."""

    name: str
    kind: str
    help: str
    values: list[tuple[dict[str, str], float]]


def figures(status: JobStatus) -> list[Figure]:
    """All figures of a job."""
    job = {"job": status.job}
    plain = [
        Figure("up", "gauge", "1 while the job runs", [(job, float(status.state == "running"))]),
        Figure("epochs_total", "counter", "Epochs done", [(job, status.epochs)]),
        Figure("epoch_seconds", "gauge", "How long the last epoch took", [(job, status.epoch_seconds)]),
        Figure("epoch_seconds_total", "counter", "How long all epochs took since this start", [(job, status.worked)]),
        Figure("epoch_seconds_max", "gauge", "How long the slowest epoch took", [(job, status.slowest_epoch_seconds)]),
        Figure("checkpoint_epoch", "gauge", "The epoch of the last checkpoint", [(job, status.checkpoint_epoch)]),
        Figure("restarts_total", "counter", "How often the job was started again", [(job, status.restarts)]),
        Figure("state_rows", "gauge", "Rows that operators keep", [(job, status.state_rows)]),
        Figure("state_bytes", "gauge", "Bytes that operators keep", [(job, status.state_bytes)]),
    ]
    sources = {name: {**job, "source": name} for name in status.sources}
    sinks = {name: {**job, "sink": name} for name in status.sinks}

    def of(side: str, field: str) -> list[tuple[dict[str, str], float]]:
        named: Any = status.sources if side == "source" else status.sinks
        labels = sources if side == "source" else sinks
        found = ((labels[name], getattr(each, field)) for name, each in named.items())
        return [(label, _number(value)) for label, value in found if value is not None]

    def each_operator(field: str) -> list[tuple[dict[str, str], float]]:
        named = ((f"{number} {each.name}", each) for number, each in enumerate(status.operators))
        return [({**job, "operator": name}, float(getattr(each, field))) for name, each in named]

    return [
        *plain,
        Figure("operator_rows_in_total", "counter", "Rows that came to an operator", each_operator("rows_in")),
        Figure("operator_rows_out_total", "counter", "Rows that it gave", each_operator("rows_out")),
        Figure("operator_state_rows", "gauge", "Rows that it keeps", each_operator("state_rows")),
        Figure("operator_state_bytes", "gauge", "Bytes that it keeps", each_operator("state_bytes")),
        Figure("source_rows_total", "counter", "Elements taken of a source", of("source", "rows")),
        Figure("source_rows_per_second", "gauge", "Elements per second", of("source", "rows_per_second")),
        Figure("source_lag", "gauge", "What is there and was not taken yet", of("source", "lag")),
        Figure("source_late_total", "counter", "Elements that came too late", of("source", "late")),
        Figure("source_promised", "gauge", "Up to when a source has promised, in ticks", of("source", "promised")),
        Figure("sink_elements_total", "counter", "Elements said to a sink", of("sink", "elements")),
        Figure("sink_elements_per_second", "gauge", "Elements per second", of("sink", "elements_per_second")),
        Figure("sink_corrections_total", "counter", "Corrections among them", of("sink", "corrections")),
        Figure("sink_written_total", "counter", "Changes of rows written", of("sink", "written")),
        Figure("sink_waiting_rows", "gauge", "Rows that wait to be final, or to go", of("sink", "waiting_rows")),
        Figure("sink_final", "gauge", "Up to when an answer is final, in ticks", of("sink", "final")),
    ]


def _number(value: Any) -> float:
    return math.inf if value == "inf" else float(value)
