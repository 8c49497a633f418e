"""What changes the lifetimes of a stream, as written behind it: windows, granularity, lifetimes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everwhen.language.syntax.words import Length, Span

if TYPE_CHECKING:
    from everwhen.language.syntax.tree import Name


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """WINDOW(RANGE …): `size` None is UNBOUNDED.  WINDOW(NOW) is `size` of one tick: Length("1", None)."""

    size: Length | None
    slide: Length | None
    span: Span


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """WINDOW([PARTITION BY …] ROWS n): `rows` None is UNBOUNDED."""

    rows: Length | None
    slide: Length | None
    partition: tuple[Name, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Lifetime:
    """CEDR: LIFETIME(HOP d ALIGN d SHIFT d LENGTH d): each may be left out; `unbounded` is LENGTH UNBOUNDED."""

    hop: Length | None
    shift: Length | None
    length: Length | None
    unbounded: bool
    align: Length | None
    span: Span


@dataclass(frozen=True, slots=True)
class Granularity:
    granule: Length
    span: Span


Modifier = RangeWindow | RowsWindow | Lifetime | Granularity
"""Applied from left to right, as written behind the stream; at most one of each kind."""
