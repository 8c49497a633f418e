"""The checkpoint of a run that goes on: the state after an epoch of its output, and how far its inputs were then.

    <dir>/run.json     what is run
    <dir>/state-<n>    the state after epoch n of the output; the one before goes when it is there
    <dir>/lock         held while a run uses the directory

What came after epoch n stands in the manifests of the output (`follow.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everwhen.core.time import NEVER
from everwhen.engine.files.checkpoint import read_state, states_in, write_state
from everwhen.errors import StateError
from everwhen.storage.framed_file import CorruptFile


@dataclass(frozen=True)
class LiveState:
    """What a run had reached after an epoch: the state, the position of each input, the inputs that had ended, the
    largest end that was said, how many elements were read and said, what was promised, and from when on it is right."""

    epoch: int
    start: str
    state: Any
    positions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    largest_end: int = NEVER
    read: int = 0
    said: int = 0
    promise: int = NEVER
    since: int = NEVER


def save_live(place: Path, state: LiveState) -> None:
    write_state(place, state.epoch, {name: getattr(state, name) for name in _KINDS})


def newest_live(place: Path) -> LiveState | None:
    """The newest state; None if there is none yet.  Its run may go on meanwhile, and remove it."""
    for _ in range(10):
        states = states_in(place)
        if not states:
            return None
        try:
            return read_state(place, states[-1], _live)
        except StateError:
            if states_in(place)[-1:] == states[-1:]:
                raise
    return None


_KINDS = {
    "epoch": int, "start": str, "state": object, "positions": dict, "closed": tuple, "largest_end": int, "read": int,
    "said": int, "promise": int,
    "since": int,
}  # fmt: skip


def _live(found: Any) -> LiveState:
    if not isinstance(found, dict) or found.keys() != _KINDS.keys():
        raise CorruptFile("it holds no state of a run that goes on")
    if not all(isinstance(found[name], kind) for name, kind in _KINDS.items()):
        raise CorruptFile("it holds no state of a run that goes on")
    return LiveState(**found)
