"""The figures of a job for Prometheus, in its text format, over HTTP; and for OpenTelemetry where that is installed.

    GET /metrics    everwhen_source_rows_total{job="best.sql",source="Bid"} 1042 …
    GET /status     the status as JSON

Only the standard library is used.  It listens on this machine unless a host is given.  Nothing can be changed through
it.  With `opentelemetry` installed and a meter provider set up, the same figures are observable instruments there.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from everwhen.errors import QueryError
from everwhen.jobs.status import JobStatus

Watch = Callable[[JobStatus], None]
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


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


def prometheus(status: JobStatus) -> str:
    """The figures in Prometheus' text format.

    >>> status = JobStatus("running", "local", 'a"b.sql', 1, "here", 0.0, 0.0, 3, 0.5, 0.5, 2, 0, 10, 400)
    >>> print(prometheus(status).splitlines()[2])
    everwhen_up{job="a\\"b.sql"} 1
    """
    lines: list[str] = []
    for figure in figures(status):
        if figure.values:
            lines.append(f"# HELP everwhen_{figure.name} {figure.help}")
            lines.append(f"# TYPE everwhen_{figure.name} {figure.kind}")
            lines += [f"everwhen_{figure.name}{{{_labels(each)}}} {_shown(value)}" for each, value in figure.values]
    return "\n".join(lines) + "\n"


def _number(value: Any) -> float:
    return math.inf if value == "inf" else float(value)


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _shown(value: float) -> str:
    return "+Inf" if value == math.inf else str(int(value)) if value == int(value) else repr(value)


class _Handler(BaseHTTPRequestHandler):
    """Two pages, to be read only."""

    server: _Server

    def do_GET(self) -> None:
        status = self.server.status
        page = self.path.split("?")[0]
        if page not in ("/metrics", "/status"):
            self._send(404, "text/plain; charset=utf-8", "there are /metrics and /status\n")
        elif status is None:
            self._send(503, "text/plain; charset=utf-8", "the job has not started yet\n")
        elif page == "/metrics":
            self._send(200, _TYPE, prometheus(status))
        else:
            self._send(200, "application/json", json.dumps(status.to_plain()))

    def _send(self, code: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Who asks is no news."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    status: JobStatus | None = None


@contextmanager
def serving(where: str | None, tell: Callable[[str], None]) -> Iterator[Watch]:
    """A function that is told the status, and while it is, the figures can be asked for."""
    observe = _open_telemetry()
    if where is None:
        yield observe
        return
    host, _, port = where.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise QueryError(f"--metrics is a port, or host:port, not {where!r}")
    address = host.strip("[]") or "127.0.0.1"
    try:
        server = _Server((address, int(port)), _Handler)
    except OSError as bad:
        raise QueryError(f"--metrics: {address}:{port} cannot be used: {bad.strerror or bad}") from None
    tell(f"metrics at http://{address}:{server.server_address[1]}/metrics")
    threading.Thread(target=server.serve_forever, name="everwhen-metrics", daemon=True).start()

    def watch(status: JobStatus) -> None:
        server.status = status
        observe(status)

    try:
        yield watch
    finally:
        server.shutdown()
        server.server_close()


def _open_telemetry() -> Watch:
    """Observable instruments of the meter `everwhen`; nothing if the package is not there."""
    try:
        from opentelemetry import metrics  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return lambda _: None
    newest: list[JobStatus] = []
    made: set[str] = set()
    meter: Any = metrics.get_meter("everwhen")

    def reader(name: str) -> Callable[[Any], list[Any]]:
        def read(_: Any) -> list[Any]:
            found = next((each for each in figures(newest[-1]) if each.name == name), None) if newest else None
            return [] if found is None else [metrics.Observation(value, labels) for labels, value in found.values]

        return read

    def watch(status: JobStatus) -> None:
        newest[:] = [status]
        for each in figures(status):
            if each.values and each.name not in made:
                made.add(each.name)
                make = meter.create_observable_counter if each.kind == "counter" else meter.create_observable_gauge
                make(
                    f"everwhen.{each.name.removesuffix('_total')}", callbacks=[reader(each.name)], description=each.help
                )

    return watch
