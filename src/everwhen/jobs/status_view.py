"""The status of a job in a few lines, for people."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from everwhen.core.time import show
from everwhen.core.time_axis import TimeAxis, tick_length, times_shown
from everwhen.jobs.status import Found


def status_text(found: Found) -> str:
    """How the job is, how its sources and sinks are."""
    with times_shown(axis_of(found.status)):
        return _text(found)


def axis_of(status: Mapping[str, Any]) -> TimeAxis:
    """How the times of a job are shown; one of an earlier version does not tell, and has numbers."""
    return TimeAxis(tick_length(status.get("tick", "1ms")), bool(status.get("dated")))


def _text(found: Found) -> str:
    s = found.status
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(s["started"]))
    lines = [f"{s['job']}: {found.state} ({s['engine']}), process {s['pid']} on {s['host']}, since {since}"]
    lines.append(
        f"  epochs {s['epochs']:,}, the last one {s['epoch_seconds']:.3f} s, the slowest "
        f"{s['slowest_epoch_seconds']:.3f} s; state {_rows(s['state_rows'])}, {_bytes(s['state_bytes'])}; "
        f"started {'once' if not s['restarts'] else str(s['restarts'] + 1) + ' times'}"
    )
    for name, each in s["sources"].items():
        lines.append(f"  source {name} ({each['connector']}): {_source(each)}")
    for name, each in s["sinks"].items():
        lines.append(f"  sink {name} ({each['connector']}, {each['form']}): {_sink(each)}")
    if s["waiting"] and found.state == "running":
        lines.append(f"  {s['waiting']}")
    if s["error"]:
        lines.append(f"  {s['error']}")
    return "\n".join(lines)


def _source(each: Mapping[str, Any]) -> str:
    parts = [f"{_rows(each['rows'])}, {each['rows_per_second']:,.0f} per second", _promised(each["promised"])]
    if each["lag"] is not None:
        parts.append(f"{each['lag']:,} {each['lag_unit'] or 'rows'} behind")
    if each["late"]:
        parts.append(f"{each['late']:,} late")
    return ", ".join([*parts, *(["ended"] if each["ended"] else [])])


def _sink(each: Mapping[str, Any]) -> str:
    parts = [f"{_count(each['elements'], 'element')}, {each['elements_per_second']:,.0f} per second"]
    parts.append(f"{each['corrections']:,} of them {'a correction' if each['corrections'] == 1 else 'corrections'}")
    if each["written"] is not None:
        waiting = each["waiting_rows"]
        parts.append(
            f"{_count(each['written'], 'change')} of rows written, {_rows(waiting)} wait{'s' * (waiting == 1)}"
        )
    return ", ".join([*parts, f"final {_instant(each['final'])}"])


def _promised(t: Any) -> str:
    return "nothing promised" if t is None else "everything promised" if t == "inf" else f"promised up to {show(t)}"


def _instant(t: Any) -> str:
    return "nothing" if t is None else "everything" if t == "inf" else f"up to {show(t)}"


def _rows(count: int) -> str:
    return _count(count, "row")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _bytes(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
