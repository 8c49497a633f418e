"""The statements of a program, as they were written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from everwhen.language.syntax.schemes import (
    SchemeSyntax,
)
from everwhen.language.syntax.tree import (
    Query,
    TypeName,
)
from everwhen.language.syntax.words import Ident, Length, Span


@dataclass(frozen=True, slots=True)
class ColumnDef:
    name: Ident
    type: TypeName
    key: bool = False  # `itemID INT KEY` (also PRIMARY KEY, UNIQUE)


@dataclass(frozen=True, slots=True)
class OptionWritten:
    """An argument of a connector; `name` is "" if it has none."""

    name: str
    value: Any
    span: Span


@dataclass(frozen=True, slots=True)
class ProgressSyntax:
    """WITHIN d, IDLE AFTER d, LATE ROWS …: how a source makes progress, and what becomes of late rows."""

    within: Length | None = None
    idle: Length | None = None
    late: Literal["error", "drop", "adjust"] | None = None
    span: Span = field(default_factory=lambda: Span(0, 0))


@dataclass(frozen=True, slots=True)
class SourceCall:
    """SOURCE name('argument', option = value, …): the function that connects to the data."""

    name: str
    written: tuple[OptionWritten, ...]
    span: Span

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments without a name."""
        return tuple(each.value for each in self.written if not each.name)


@dataclass(frozen=True, slots=True)
class CreateSource:
    """CREATE STREAM or RELATION with a schema.

    `ordered_by` names the column that holds the start of a row's lifetime, `period` the two that hold start and end;
    those columns are not part of the stream (thesis, remark 7.1).  `insert_only` is INSERT ONLY: nothing is corrected.
    `arrives` is ARRIVES IN ORDER [STRICTLY].
    """

    kind: Literal["stream", "constant", "temporal", "varying"]
    name: Ident
    columns: tuple[ColumnDef, ...]
    keys: tuple[tuple[Ident, ...], ...]
    source: SourceCall | None
    ordered_by: Ident | None
    period: tuple[Ident, Ident] | None
    insert_only: bool
    or_replace: bool
    span: Span
    punctuate: tuple[SchemeSyntax, ...] = ()
    arrives: Literal["any", "in order", "strictly"] = "any"
    progress: ProgressSyntax | None = None


@dataclass(frozen=True, slots=True)
class CreateDerived:
    """CREATE STREAM name [(columns)] AS query."""

    name: Ident
    columns: tuple[Ident, ...]
    query: Query
    or_replace: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP STREAM | RELATION | SINK [IF EXISTS] name."""

    name: Ident
    if_exists: bool
    span: Span
    sink: bool = False


@dataclass(frozen=True, slots=True)
class Consistency:
    """CONSISTENCY STRONG | MIDDLE | WEAK, or CONSISTENCY (BLOCK d, REMEMBER d)."""

    level: Literal["strong", "middle", "weak"] | None
    block: Length | None
    remember: Length | None
    span: Span


@dataclass(frozen=True, slots=True)
class OrderItem:
    """A column of ORDER BY."""

    name: Ident
    descending: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Ask:
    """A query to be answered."""

    query: Query
    consistency: Consistency | None
    span: Span
    order: tuple[OrderItem, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterQuery:
    """ALTER QUERY name AS query: a running query becomes another one."""

    name: Ident
    query: Query
    span: Span


@dataclass(frozen=True, slots=True)
class CreateSink:
    """CREATE SINK name [FROM stream] INTO connector(…) [AS query]."""

    name: Ident
    stream: Ident | None
    into: SourceCall
    query: Ask | None
    span: Span


@dataclass(frozen=True, slots=True)
class InsertInto:
    """INSERT INTO sink query."""

    sink: Ident
    query: Ask
    span: Span


Statement = CreateSource | CreateDerived | Drop | Ask | AlterQuery | CreateSink | InsertInto
