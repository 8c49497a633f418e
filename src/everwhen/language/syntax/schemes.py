"""What PUNCTUATE says, as a tree: one node for each scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everwhen.language.syntax.words import Ident, Length, Span


@dataclass(frozen=True, slots=True)
class Given:
    """A constant of PUNCTUATE: a number, a text, TRUE or FALSE."""

    value: Any
    span: Span


@dataclass(frozen=True, slots=True)
class SchemeSorted:
    """SORTED BY column [DESC] [WITHIN distance]."""

    column: Ident
    descending: bool
    within: Given | Length | None
    span: Span


@dataclass(frozen=True, slots=True)
class SchemeClustered:
    """CLUSTERED BY column."""

    column: Ident
    span: Span


@dataclass(frozen=True, slots=True)
class SchemeBounds:
    """column BETWEEN low AND high, column >= low, column <= high."""

    column: Ident
    low: Given | None
    high: Given | None
    span: Span


@dataclass(frozen=True, slots=True)
class SchemeUnique:
    """UNIQUE (columns)."""

    columns: tuple[Ident, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SchemeComplete:
    """COMPLETE group FOR unit IN (units) [EACH rows]."""

    group: tuple[Ident, ...]
    unit: Ident
    units: tuple[Given, ...]
    each: Given | None
    span: Span


@dataclass(frozen=True, slots=True)
class SchemeGiven:
    """GIVEN column, GIVEN (columns)."""

    columns: tuple[Ident, ...]
    span: Span


SchemeSyntax = SchemeSorted | SchemeClustered | SchemeBounds | SchemeUnique | SchemeComplete | SchemeGiven
