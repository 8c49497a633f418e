"""What the tasks of an epoch have told the driver, added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from everwhen.plan.stages.model import StagePlan


def fed(notes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many rows each source had in an epoch; several buckets tell of the same rows."""
    fed: dict[str, int] = {}
    for note in notes:
        for name, rows in note["fed"].items():
            fed[name] = max(fed.get(name, 0), rows)
    return fed


def parts(notes: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    found = [note for note in notes if note["parts"].get(name)]
    return [part for note in sorted(found, key=lambda note: note["bucket"]) for part in note["parts"][name]]


def left_out(plan: StagePlan, notes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many adjusts of each source were left out because their events are not there."""
    streams: dict[str, int] = {}
    for note in notes:
        for name, rows in note["left_out"].items():
            streams[name] = streams.get(name, 0) + rows
    found: dict[str, int] = {}
    for name, rows in streams.items():
        feed = plan.stream(name).feed
        if rows and feed is not None:  # several streams of a source tell of the same rows
            found[feed.source.name] = max(found.get(feed.source.name, 0), rows)
    return found
