"""Promises and their patterns as plain data, and back: what snapshots hold of them.

    pattern   ("one of", values) | ("range", ge, gt, le, lt) | ("nothing",)
    promise   ({attribute: pattern}, t)

Values are those of Python, as they stand in a pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range


def pattern_state(pattern: AttributePattern) -> tuple[Any, ...]:
    """A pattern as plain data."""
    match pattern:
        case OneOf(values):
            return ("one of", tuple(values))
        case Range(ge, gt, le, lt):
            return ("range", ge, gt, le, lt)
    return ("nothing",)


def pattern_of(state: Iterable[Any]) -> AttributePattern:
    """The pattern of `pattern_state`."""
    kind, *rest = state
    match kind:
        case "one of":
            return OneOf(tuple(rest[0]))
        case "range":
            return Range(*rest)
        case "nothing":
            return Nothing()
    raise ValueError(f"{kind!r} is no kind of pattern")


def match_state(match: Mapping[str, AttributePattern]) -> dict[str, Any]:
    """The patterns of several attributes as plain data."""
    return {name: pattern_state(pattern) for name, pattern in match.items()}


def match_of(state: Mapping[str, Any]) -> dict[str, AttributePattern]:
    """The patterns of `match_state`."""
    return {name: pattern_of(pattern) for name, pattern in state.items()}


def promises_state(promises: Iterable[Punctuation]) -> list[tuple[dict[str, Any], int]]:
    """Promises as plain data."""
    return [(match_state(promise.match), promise.t) for promise in promises]


def promises_of(state: Iterable[Any]) -> list[Punctuation]:
    """The promises of `promises_state`."""
    return [Punctuation(match_of(match), t) for match, t in state]
