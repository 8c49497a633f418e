"""Orders of rows: ORDER BY with LIMIT, DISTINCT ON, OVER."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from everwhen.language.syntax.words import Span

if TYPE_CHECKING:
    from everwhen.language.syntax.tree import Expression, Query


@dataclass(frozen=True, slots=True)
class SortKey:
    """An expression of ORDER BY; nulls come last unless it says NULLS FIRST."""

    expression: Expression
    descending: bool
    nulls_first: bool
    span: Span


@dataclass(frozen=True, slots=True)
class FrameBound:
    """`3 PRECEDING`, `CURRENT ROW` (offset 0), `UNBOUNDED FOLLOWING` (offset None)."""

    offset: Expression | None
    following: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Frame:
    """ROWS | RANGE BETWEEN start AND end."""

    unit: Literal["rows", "range"]
    start: FrameBound
    end: FrameBound
    span: Span


@dataclass(frozen=True, slots=True)
class Over:
    """OVER (PARTITION BY … ORDER BY … ROWS …)."""

    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    frame: Frame | None
    span: Span


@dataclass(frozen=True, slots=True)
class Limited:
    """`query ORDER BY … LIMIT n OFFSET m`; `limit` None: all.  `ties`: rows equal to the last one stay.

    ORDER BY without a limit stands here only behind DISTINCT ON."""

    query: Query
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int
    ties: bool
    span: Span
