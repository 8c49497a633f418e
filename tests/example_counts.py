"""How many examples Hypothesis tries per case where a property is tested for many cases (plans, policies, engines)."""

from __future__ import annotations

from hypothesis import settings

LEAST = 5


def examples_per_case(divisor: int, least: int = LEAST) -> int:
    """The profile's number of examples, divided; at least `least`, however few the profile asks for."""
    return max(least, settings().max_examples // divisor)
