"""The figures of jobs as observable instruments of OpenTelemetry's meter `everwhen`.

They are called as at the endpoint of Prometheus, so a dashboard reads both: `everwhen_source_rows_total`, with the same
labels as attributes.  Counters are totals, never what came in the last epoch.  An instrument is made once for a meter
provider, and reads the newest status of every job of this process.  Without the package nothing is done, and without a
provider its instruments cost nothing.  It has no infinity: where everything is promised, that is the largest tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from everwhen.core.time import INF
from everwhen.jobs.figures import figures
from everwhen.jobs.status import JobStatus

Watch = Callable[[JobStatus], None]
_EVERYTHING: Final = float(INF)


class _Jobs:
    """The instruments of one provider: the newest status of each job, by name."""

    def __init__(self, metrics: Any, meter: Any) -> None:
        self._metrics, self._meter = metrics, meter
        self._newest: dict[str, JobStatus] = {}
        self._made: set[str] = set()

    def watch(self, status: JobStatus) -> None:
        """Tell how a job is."""
        self._newest[status.job] = status
        for each in figures(status):
            if each.values and each.name not in self._made:
                self._made.add(each.name)
                meter = self._meter
                make = meter.create_observable_counter if each.kind == "counter" else meter.create_observable_gauge
                make(f"everwhen_{each.name}", callbacks=[self._reader(each.name)], description=each.help)

    def _reader(self, name: str) -> Callable[[Any], list[Any]]:
        def read(_: Any) -> list[Any]:
            of_all = (each for status in self._newest.values() for each in figures(status) if each.name == name)
            values = ((labels, min(value, _EVERYTHING)) for each in of_all for labels, value in each.values)
            return [self._metrics.Observation(value, labels) for labels, value in values]

        return read


_KNOWN: Final[WeakKeyDictionary[Any, _Jobs]] = WeakKeyDictionary()


def observing(provider: Any = None) -> Watch:
    """A function that is told the status of a job.  `provider`: of meters; by default that of this process."""
    try:
        from opentelemetry import metrics  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return lambda _: None
    of = metrics.get_meter_provider() if provider is None else provider
    if of not in _KNOWN:
        _KNOWN[of] = _Jobs(metrics, metrics.get_meter("everwhen", meter_provider=of))
    return _KNOWN[of].watch
