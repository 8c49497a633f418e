"""How much is tried: examples per case of a property, and pairs of cases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

LEAST = 3


def examples_per_case(divisor: int, least: int = LEAST) -> int:
    """The profile's number of examples, divided; at least `least`, however few the profile asks for."""
    return max(least, settings().max_examples // divisor)


def sampled_pairs(cases: Iterable[Any], others: Iterable[Any], each: int = 1) -> list[Any]:
    """All pairs of two kinds of cases, for `parametrize`.  Each of the first kind has `each` of the second, which take
    turns; the rest is slow.

    For properties of plans and policies beside `test_operators_oracle.py`, which always tries all pairs.
    """
    listed = list(others)
    return [
        pytest.param(
            case,
            other,
            id=f"{case}-{getattr(other, 'value', other)}",
            marks=[] if (j - i) % len(listed) < each else [pytest.mark.slow],
        )
        for i, case in enumerate(cases)
        for j, other in enumerate(listed)
    ]
