"""A condition on a number, computed in two ways: what the plans of `plan_switching.py` differ by.

A module of its own, because the processes of the plans must find the functions.  What a call costs is slept, not
computed, so that it is the same whatever else the machine does.  Sleeping for microseconds is inexact: what calls cost
is added up and slept off when it is some milliseconds, and what was slept too long counts for the next calls.
"""

from __future__ import annotations

import time
from typing import Final

VALUES: Final = 400
CHEAP: Final = 140e-6
DEAR: Final = 18 * CHEAP
"""Seconds for a row."""
_AT_ONCE: Final = 0.002

_owed = 0.0


def good_from_below(x: int) -> bool:
    """Cheap for small numbers."""
    _spend(CHEAP if x < VALUES // 2 else DEAR)
    return x % 4 == 0


def good_from_above(x: int) -> bool:
    """The same, and cheap for large numbers."""
    _spend(DEAR if x < VALUES // 2 else CHEAP)
    return x % 4 == 0


def _spend(seconds: float) -> None:
    global _owed
    _owed += seconds
    if _owed >= _AT_ONCE:
        began = time.perf_counter()
        time.sleep(_owed)
        _owed -= time.perf_counter() - began
