"""What the loops of a sweep are given and hand on: arrays and numbers that belong together, as named tuples.

Compiled code takes a tuple apart at no cost.  Those that Python gives are made once per step, not once per key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Edges(NamedTuple):
    """New edges: those of a key stand together, in the order of time."""

    offsets: np.ndarray
    """Where the edges of each key begin, and behind the last where they end; empty: no key has any."""
    time: np.ndarray
    """When each edge is."""
    delta: np.ndarray
    """What is added to the lanes from then on."""
    open: np.ndarray
    """By how many there are more open segments from then on."""
    first: np.ndarray
    """Per key the first time at which something changes."""
    last: np.ndarray
    """Per key the last time at which something changes; ∞ if something lasts for ever."""


class Lanes(NamedTuple):
    """The lanes of an edge: integers, then floats of two words, then evaluated ones."""

    integers: int
    """How many are integers; where nothing is alive all of them are zero."""
    added: int
    """How many words are added up: integers and floats."""
    total: int
    """How many words there are: also the evaluated ones."""
    tests: int
    """Of so many first lanes the answer reads only whether they are positive."""
    prune: bool
    """Whether an edge at which nothing changes is dropped."""


class Clip(NamedTuple):
    """What the emission policy lets a step say (`operators/clip.py`), and what it let the steps before say."""

    mode: int
    """Which clip it is."""
    tau_before: int
    """τ, or θ, up to now."""
    promise_before: int
    """The CTI up to now."""
    tau: int
    """τ, or θ, from now on."""
    promise: int
    """The CTI from now on."""
    floors_before: np.ndarray
    """What had been promised of each key alone; empty: nothing of any."""
    floors: np.ndarray
    """What is promised of each key alone; empty: nothing of any."""


class Old(NamedTuple):
    """Edges as they were before a merge."""

    edges: np.ndarray
    """Copies of the edges from the first one that matters, key by key."""
    at: np.ndarray
    """Where the edges of each key begin, and behind the last where they end."""
    frontier: np.ndarray
    """How far each key had been said."""


class Report(NamedTuple):
    """Where the pieces that changed are written, with room for all, and how many are there already."""

    taken: np.ndarray
    """Pieces that are taken back: the number of the key, lo, hi and the lanes."""
    said: np.ndarray
    """Pieces that are said, in the same form."""
    n_taken: int
    """How many pieces are taken back already."""
    n_said: int
    """How many pieces are said already."""
    visited: int
    """The number of the first key."""
    dead: np.ndarray
    """Gets which keys are empty for good."""


class View(NamedTuple):
    """The run of a key as it may be said."""

    edges: np.ndarray
    """Where its edges stand, among others."""
    at: int
    """The position of the last edge at or before the first change."""
    end: int
    """The position behind the last edge."""
    frontier: int
    """Nothing at or after it is said."""
    limit: int
    """Edges after it do not count."""


class Entered(NamedTuple):
    """What a lifetime has added to a count and a sum."""

    stop: int
    """The end of the lifetime."""
    to_count: int
    """What it adds to the first lane."""
    to_sum: int
    """What it adds to the second lane."""
