"""The rows of a few instants, under random changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from everwhen.core.time import INF
from everwhen.reference.order import Row, canonical_row, row_order
from operators.stepping import Said, Segment

LAST = 12
"""The instant that stands for all later ones, too."""
Content = list[Counter[Row]]


def come(content: Content, lo: int, hi: int, weight: int, row: Row) -> Segment:
    """The segment, whose sum is taken down; an end behind the last instant is none."""
    for t in range(lo, hi):
        content[t][row] += weight
    return lo, INF if hi > LAST else hi, weight, *row


def random_change(rng: random.Random, content: Content, row_of: Callable[[random.Random], Row]) -> Segment:
    """A row that comes, for a short while or for long, or part of one that goes."""
    lo = rng.randrange(LAST + 1)
    standing = [row for row, n in content[lo].items() if n]
    if standing and rng.random() < 0.4:
        row = rng.choice(sorted(standing, key=row_order))
        hi = lo + 1
        while hi <= LAST and content[hi][row] and rng.random() < 0.8:
            hi += 1
        while lo > 0 and content[lo - 1][row] and rng.random() < 0.5:
            lo -= 1
        return come(content, lo, hi, -1, row)
    hi = rng.choice((lo + 1, rng.randrange(lo, LAST + 1) + 1, LAST + 1))
    return come(content, lo, hi, rng.choice((1, 1, 1, 2)), row_of(rng))


def add(answer: Content, said: Said) -> None:
    for (lo, hi, *row), weight in said.items():
        for t in range(lo, min(hi, LAST + 1)):
            answer[t][canonical_row(row)] += weight


def nothing() -> Content:
    return [Counter() for _ in range(LAST + 1)]
