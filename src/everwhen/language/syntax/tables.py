"""Tables that are made in the text: VALUES, UNNEST and series, LATERAL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from everwhen.language.syntax.words import Ident, Span

if TYPE_CHECKING:
    from everwhen.language.syntax.tree import Expression, Query
    from everwhen.language.syntax.windows import Modifier


@dataclass(frozen=True, slots=True)
class Values:
    """VALUES (1, 'a'), (2, 'b'): constant rows."""

    rows: tuple[tuple[Expression, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class TableFunction:
    """UNNEST(list), generate_series(a, b, step), range(a, b, step) in FROM; `ordinality`: WITH ORDINALITY."""

    name: Literal["unnest", "generate_series", "range"]
    args: tuple[Expression, ...]
    ordinality: bool
    alias: Ident | None
    columns: tuple[Ident, ...]
    modifiers: tuple[Modifier, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Lateral:
    """LATERAL (SELECT …): a subquery in FROM that may read what stands before it."""

    query: Query
    alias: Ident | None
    columns: tuple[Ident, ...]
    modifiers: tuple[Modifier, ...]
    span: Span
