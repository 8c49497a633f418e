"""Figures for Prometheus: the text, the pages, the address."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request

import pytest

from everwhen.errors import QueryError
from everwhen.jobs.metrics import prometheus, serving
from everwhen.jobs.status import JobStatus, OperatorStatus, SinkStatus, SourceStatus

STATUS = JobStatus(
    "running", "local", 'a"b\n.sql', 1, "here", 0.0, 0.0, 3, 0.5, 0.75, 2, 1, 10, 400,
    {"Bid": SourceStatus("file", 42, 1.5, None, "", None, 2, False),
     "Ask": SourceStatus("kafka", 7, 0.0, 9, "rows", 60, 0, False)},
    {"best": SinkStatus("file", "append", 5, 0.0, 1, 4, "inf", None, 3)},
    operators=[OperatorStatus("max", 9, 8, 7, 6, None)],
)  # fmt: skip


def test_each_figure_has_help_type_and_labels_and_what_is_not_known_is_left_out():
    lines = prometheus(STATUS).splitlines()
    assert 'everwhen_up{job="a\\"b\\n.sql"} 1' in lines
    assert 'everwhen_source_rows_total{job="a\\"b\\n.sql",source="Bid"} 42' in lines
    assert 'everwhen_source_lag{job="a\\"b\\n.sql",source="Ask"} 9' in lines
    assert not any("everwhen_source_lag" in text and 'source="Bid"' in text for text in lines)
    assert 'everwhen_source_promised{job="a\\"b\\n.sql",source="Ask"} 60' in lines
    assert 'everwhen_sink_final{job="a\\"b\\n.sql",sink="best"} +Inf' in lines
    assert 'everwhen_operator_rows_in_total{job="a\\"b\\n.sql",operator="0 max"} 9' in lines
    assert "everwhen_epoch_seconds_max" in " ".join(lines) and "everwhen_epoch_seconds_total" in " ".join(lines)
    names = [text.split()[2] for text in lines if text.startswith("# TYPE")]
    assert len(names) == len(set(names))
    for name in names:
        kind = next(text for text in lines if text.startswith(f"# TYPE {name} ")).split()[3]
        assert (kind == "counter") == name.endswith("_total")
        assert any(text.startswith(f"# HELP {name} ") for text in lines)


def asked(address: str, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{address}{page}", timeout=10) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as bad:
        with bad:
            return bad.code, bad.read().decode()


def test_two_pages_on_this_machine_only():
    told: list[str] = []
    with serving("0", told.append) as watch:
        address = told[0].removeprefix("metrics at ").removesuffix("/metrics")
        assert "//127.0.0.1:" in address
        assert asked(address, "/metrics")[0] == 503
        watch(STATUS)
        assert asked(address, "/metrics") == (200, prometheus(STATUS))
        assert json.loads(asked(address, "/status")[1])["sources"]["Ask"]["lag"] == 9
        assert asked(address, "/etc")[0] == 404
        port = address.rpartition(":")[2]
        with pytest.raises(QueryError, match="cannot be used"), serving(port, told.append):
            pass
    with pytest.raises(urllib.error.URLError):
        asked(address, "/metrics")


@pytest.mark.parametrize("where", ["x", "99999", "host:", ":"])
def test_what_is_no_port_is_refused(where):
    with pytest.raises(QueryError, match="--metrics is a port"), serving(where, print):
        pass


def test_without_the_package_nothing_is_done(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with serving(None, print) as watch:
        watch(STATUS)
