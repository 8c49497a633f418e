"""Random histories and ways to say them, for tests of merges and cutovers."""

from __future__ import annotations

import random
from collections import Counter

from everwhen.stream.element import Adjust, Cti, Element, Insert

LAST = 70
"""No event ends later."""
Event = tuple[int, int, dict]


def history(rng: random.Random) -> list[Event]:
    found = []
    for _ in range(rng.randint(3, 14)):
        vs = rng.randint(0, 40)
        found.append((vs, vs + rng.randint(1, 15), {"k": rng.randint(0, 2), "v": rng.randint(0, 1)}))
    return found


def copy_of(events: list[Event], rng: random.Random, since: int = -100) -> list[Element]:
    """A way to say the events from an instant on: out of order, with wrong ends, with promises that hold."""
    placed: list[tuple[float, int, Insert | Adjust]] = []
    for number, (vs, ve, row) in enumerate(events):
        vs = max(vs, since)
        if ve <= vs:
            continue
        due = vs + 8 * rng.random()
        end = rng.randint(vs + 1, vs + 20) if rng.random() < 0.4 else ve
        placed.append((due, number, Insert(vs, end, row)))
        if end != ve:
            placed.append((max(due + 0.01, min(end, ve) + 8 * rng.random() - 8), number, Adjust(vs, end, ve, row)))
    elements: list[Insert | Adjust] = [each[2] for each in sorted(placed, key=lambda each: each[:2])]
    said: list[Element] = []
    last = since
    for at in range(len(elements) + 1):
        limit = min((each.sync for each in elements[at:]), default=LAST)
        if limit > last and rng.random() < 0.5:
            said.append(Cti(limit))
            last = limit
        said += elements[at : at + 1]
    return said


def snapshots(elements: list[Element]) -> list[Counter]:
    """What is alive at 0, 1, …"""
    found: list[Counter] = [Counter() for _ in range(LAST)]
    for each in elements:
        if isinstance(each, Insert):
            _count(found, each.vs, each.ve, each.row, 1)
        elif isinstance(each, Adjust):
            _count(found, each.vs, each.ve, each.row, -1)
            _count(found, each.vs, each.vnew, each.row, 1)
    return [Counter({row: n for row, n in now.items() if n}) for now in found]


def _count(found: list[Counter], vs: int, ve: int, row: dict, n: int) -> None:
    for t in range(max(vs, 0), min(ve, LAST)):
        found[t][tuple(row.items())] += n
