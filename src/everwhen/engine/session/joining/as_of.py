"""What is known of the past of a port: as of which instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everwhen.core.time import NEVER
from everwhen.rows.changes import Changes


@dataclass(frozen=True, slots=True)
class AsOf:
    """What is known of a port: all that stands from the instant `since` on."""

    since: int
    changes: Changes


@dataclass(frozen=True, slots=True)
class DetachedSource:
    """What is remembered of a source that nobody reads any more."""

    cti: int = NEVER
    tau: int = NEVER
    max_end: int = NEVER
    promises: Any = None


def earliest(exact: int, *ways: AsOf | None) -> AsOf:
    """Of several ways to know the past the one that knows most of it; nothing is known before `exact`."""
    known = [AsOf(max(way.since, exact), way.changes) for way in ways if way is not None]
    return min(known, key=lambda past: past.since)
