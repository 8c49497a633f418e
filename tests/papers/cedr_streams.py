"""Random streams as the CEDR papers have them: retractions only shorten, and every event has a payload of its own.

Payloads are powers of sixteen, so that a sum tells which events contribute, and how often.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import MappingProxyType

from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import reorder

S = ew.source("S", {"x": "int64"})
COUNT_AND_SUM = S.aggregate(n=ew.count(), s=ew.sum("x"))
Lifetime = tuple[int, int]


def lifetimes(most: int = 7, latest: int = 12) -> st.SearchStrategy[list[Lifetime]]:
    """Lifetimes within a short time, some without end."""
    start, length = st.integers(-2, latest - 1), st.integers(0, latest)
    lifetime = st.tuples(start, length).map(lambda drawn: (drawn[0], drawn[0] + drawn[1] if drawn[1] else INF))
    return st.lists(lifetime, max_size=most)


def shrinking(drawn: Sequence[Lifetime], rng: random.Random, close: bool = True) -> list[Element]:
    """A late and corrected stream of these events, some of which are removed again, with CTIs where they are legal."""
    events = {(vs, ve, (16**i,)): 1 for i, (vs, ve) in enumerate(drawn)}
    history = History(S.schema, MappingProxyType(events))
    disorder, corrections = rng.choice((0, 2, 8, None)), rng.choice((0.0, 0.5, 0.8))
    made = reorder(
        history, rng, disorder=disorder, corrections=corrections, wrong=0.0, ctis=0.0, close=False, shrink_only=True
    )
    removals = [Adjust(vs, ve, vs, {"x": x}) for vs, ve, (x,) in events if rng.random() < rng.choice((0.0, 0.4))]
    for removal in removals:
        last = max(at for at, e in enumerate(made) if isinstance(e, Insert | Adjust) and e.row == removal.row)
        made.insert(rng.randint(last + 1, len(made)), removal)
    return with_ctis(made, rng, rng.choice((0.0, 0.3, 1.0)), close)


def ordered(drawn: Sequence[Lifetime], rng: random.Random, retractions: float) -> list[Element]:
    """An ordered stream: inserts and at most one retraction each, by sync time, with CTIs in between."""
    elements: list[Insert | Adjust] = []
    for i, (vs, ve) in enumerate(drawn):
        row = {"x": 16**i}
        elements.append(Insert(vs, ve, row))
        if rng.random() < retractions:
            elements.append(Adjust(vs, ve, rng.randint(vs, min(ve, vs + 6) - 1), row))
    return with_ctis(sorted(elements, key=_place), rng, 0.3, close=True, late=False)


def _place(element: Insert | Adjust) -> tuple[int, bool]:
    """By sync time; a removal comes behind the insert at the same instant."""
    return element.sync, isinstance(element, Adjust)


def with_ctis(
    elements: Sequence[Element], rng: random.Random, chance: float, close: bool, late: bool = True
) -> list[Element]:
    """CTIs in between, each beyond the one before, none contradicted; `late`: they may lag behind what is promised."""
    found: list[Element] = []
    said = before = NEVER
    for at, element in enumerate(elements):
        limit = min(each.sync for each in elements[at:] if isinstance(each, Insert | Adjust))
        if rng.random() < chance:
            t = limit - (rng.randint(0, 3) if late else 0)
            if t > said and (late or t >= before):
                found.append(Cti(t))
                said = t
        found.append(element)
        assert isinstance(element, Insert | Adjust)
        before = element.sync
    return [*found, Cti(INF)] if close else found
