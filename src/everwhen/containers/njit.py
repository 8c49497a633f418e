"""Compiled loops over arrays that somebody else has made.

Numba counts references to arrays, also where a function that is written into a loop gets one: an atomic operation
each, which can cost more than what the function does.  A `loop` counts none, so it may not make arrays, nor give back
any; what it needs is handed in.  Numba does not promise the option: where there is none, references are counted.

A loop may run for long, so it gives up the interpreter's lock: signals are acted on meanwhile, and a worker that holds
state answers others.
"""

from __future__ import annotations

from typing import Any, Final

from numba import njit
from numba.core.options import DefaultOptions

_UNCOUNTED: Final[dict[str, Any]] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}


def loop(function: Any) -> Any:
    """Compile a function that makes no arrays."""
    return njit(cache=True, nogil=True, **_UNCOUNTED)(function)
