"""How kept rows lie in memory, and the tables that loops over them take."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

LO: Final = 0
HI: Final = 1
DISTANCE: Final = 2
"""Of matches that begin here: how many places behind the row has been looked."""
OPEN: Final = 3
"""Up to when they may go on with rows that come behind all others."""
BACK: Final = 4
"""How many places before the row the one before has been found."""
BACK_OPEN: Final = 5
"""From when on there is none before it."""
DIRTY: Final = 6
"""Whether matches that begin here are to be looked for anew."""
BITS: Final = 7
"""Per variable whether the row alone meets its condition."""
NULLS: Final = 8
"""Per computed slot whether it is null."""
ROW: Final = 9
"""The row begins here; computed slots stand behind it."""

PLACES_PER_WORD: Final = 62

# why a loop has stopped
DONE: Final = 0
NO_ROOM: Final = 1
TOO_MANY: Final = 2
OVERFLOW: Final = 3
NO_RANKS: Final = 4
NOT_THERE: Final = 5


class Order(NamedTuple):
    """How rows are ordered: per column its word, the word and the bit of its null, how it compares, whether it falls,
    and whether nulls come first."""

    columns: np.ndarray
    ranks: np.ndarray
    ranks_at: np.ndarray
    """Per type that is compared by rank, where its ranks begin; -1: they are not known."""


class States(NamedTuple):
    """The automaton, in bits: per place those that follow (the last: before the first row), per variable its places,
    those at which a match may end, those from which it may go on."""

    follow: np.ndarray
    labels: np.ndarray
    accepting: np.ndarray
    going: np.ndarray


class Machine(NamedTuple):
    """Conditions and registers."""

    code: np.ndarray
    code_at: np.ndarray
    constants: np.ndarray
    floats: np.ndarray
    nulls: np.ndarray
    slots: np.ndarray
    """Per slot its word, the word and the bit of its null."""
    registers: np.ndarray
    """Per register its kind, variable, slot, word and order."""
    initial: np.ndarray
    carried: int
    looks_back: int
    firsts: int
    """The variables with which a match may begin, in bits."""


class Scratch(NamedTuple):
    """Room for what a search needs: configurations (two sets) and the search's stack, each also as floats; the stack of
    values; the least start behind each place, the largest end before it."""

    configurations: np.ndarray
    floats: np.ndarray
    stack: np.ndarray
    values: np.ndarray
    value_floats: np.ndarray
    value_nulls: np.ndarray
    reach: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Task(NamedTuple):
    """A search: where the run begins and how long it is, the place of the first row, its key, the instant from which on
    it is searched, and the instants between which matches are asked for."""

    start: int
    length: int
    place: int
    key: int
    floor: int
    low: int
    high: int
