"""The figures of a job for Prometheus, in its text format, over HTTP; and for whoever else watches it.

    GET /metrics    everwhen_source_rows_total{job="best.sql",source="Bid"} 1042 …
    GET /status     the status as JSON

Only the standard library is used.  It listens on this machine unless a host is given.  Nothing can be changed through
it.  OpenTelemetry has the same figures by the same names (`telemetry.py`).
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from everwhen.errors import QueryError
from everwhen.jobs.figures import figures
from everwhen.jobs.status import JobStatus
from everwhen.jobs.telemetry import Watch, observing

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


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
def serving(where: str | None, tell: Callable[[str], None], provider: Any = None) -> Iterator[Watch]:
    """A function that is told the status, and while it is, the figures can be asked for.  `provider`: of meters of
    OpenTelemetry; by default the one of this process, if there is one."""
    observe = observing(provider)
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
