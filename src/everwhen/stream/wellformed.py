"""Well-formed elements: what an element must satisfy on its own, whatever came before it.

A lifetime starts at a finite time, is not empty, and ends at a finite time or never; an adjust moves the end to no
earlier than the start; a CTI stands at a finite time or at infinity.  Both file formats share these rules.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.core.time import INF, MAX_TIME, MIN_TIME, is_time, show
from everwhen.stream.element_batch import ADJUST, CTI, PUNCT

IN_RANGE: Final = f"finite times lie between {MIN_TIME} and {MAX_TIME}; a missing end is null"


def ill_formed(op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray) -> int | None:
    """The position of the first element that breaks a rule."""
    ok = well_formed(op, vs, ve, vnew)
    return None if ok.all() else int(np.argmin(ok))


def well_formed(op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray) -> np.ndarray:
    """Which elements keep the rules."""
    start_ok, end_ok = _finite(vs), _finite(ve) | (ve == INF)
    lived = start_ok & end_ok & (vs < ve)
    moved = lived & (_finite(vnew) | (vnew == INF)) & (vs <= vnew)
    return np.where(op == CTI, start_ok | (vs == INF), np.where(op == ADJUST, moved, (op == PUNCT) | lived))


def _finite(times: np.ndarray) -> np.ndarray:
    return (times >= MIN_TIME) & (times <= MAX_TIME)


def lifetime_problem(op: int, vs: int, ve: int, vnew: int) -> tuple[str, str]:
    """What is wrong with such an element and what to do; two empty texts if nothing is."""
    if op == PUNCT or (op == CTI and vs == INF):
        return "", ""
    times = (vs,) if op == CTI else (vs, ve, vnew) if op == ADJUST else (vs, ve)
    for i, t in enumerate(times):
        if not is_time(t) and (t != INF or i == 0):
            return f"the time {show(t)} is out of range", IN_RANGE
    if op == CTI:
        return "", ""
    if vs >= ve:
        return f"the lifetime [{vs}, {show(ve)}) is empty", '"ve" must be greater than "vs"; leave it out for vs + 1'
    if op == ADJUST and vnew < vs:
        return f'"vnew" is {vnew}, before the start {vs}', '"vnew" equal to "vs" removes the event'
    return "", ""
