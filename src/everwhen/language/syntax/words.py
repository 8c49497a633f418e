"""The smallest parts of a tree: places in the text, single names, lengths of time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` (exclusive) of the text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ident:
    """A single name."""

    text: str
    quoted: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Length:
    """`10 MINUTES`, or with no unit a number of ticks (RANGE) or rows (ROWS)."""

    number: str  # digits, maybe with a point
    unit: str | None
    span: Span
