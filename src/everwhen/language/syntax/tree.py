"""What a text says, as a tree: every construct of the language once, each with its place in the text.

The parser builds these nodes, the binder reads them; nothing here knows streams, columns or types.  Names are as
written.  `Name.quoted` tells which of them stood in quotation marks: only those are compared letter by letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from everwhen.algebra.patterns.pattern import Pattern
from everwhen.language.syntax.ranks import Limited, Over
from everwhen.language.syntax.tables import Lateral, TableFunction, Values
from everwhen.language.syntax.windows import Modifier
from everwhen.language.syntax.words import Ident, Length, Span

# -- expressions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """A column: `price`, `B.price`."""

    parts: tuple[Ident, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: int, float, str, bool, None, or Decimal; dates, timestamps and intervals are casts of text."""

    value: Any
    span: Span


@dataclass(frozen=True, slots=True)
class Duration:
    """`INTERVAL '5' MINUTE`, `INTERVAL 5 MINUTES`: a length of time as a value; months have no length of their own."""

    text: str  # such as "5 minutes"; empty if there are only months
    span: Span
    months: int = 0


Symbol = Literal[
    "+", "-", "*", "/", "//", "%", "||",
    "=", "<>", "<", "<=", ">", ">=",
    "and", "or", "not", "negate",
    "is_null", "not_null", "is_true", "is_false", "is_not_true", "is_not_false",
    "is_distinct", "is_not_distinct",
    "in", "between", "like", "ilike", "->", "->>",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator over operands; `in` has its list after the first, `between` low and high, `and`, `or` exactly two.

    NOT IN, NOT LIKE and the like are `not` over the operator.
    """

    symbol: Symbol
    operands: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """`name(args)`: scalar or aggregate, built in or the user's: the binder decides.

    `star` is COUNT(*); `distinct` is COUNT(DISTINCT x); `where` is the condition of FILTER (WHERE …); with `over` it is
    about the rows around each row; `order` are the expressions of ORDER BY in the call, or of WITHIN GROUP, and whether
    they descend.
    """

    name: str  # in lower case
    args: tuple[Expression, ...]
    span: Span
    star: bool = False
    distinct: bool = False
    where: Expression | None = None
    over: Over | None = None
    order: tuple[tuple[Expression, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """CASE: with an operand it is compared with each `when`."""

    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    span: Span


@dataclass(frozen=True, slots=True)
class TypeName:
    """A column type as written, in lower case with its parameters: `decimal(10, 2)`, `varchar`, `timestamp`."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class CastTo:
    """CAST(x AS type), x::type, DATE '…', TIMESTAMP '…'."""

    operand: Expression
    type: TypeName
    span: Span


@dataclass(frozen=True, slots=True)
class Row:
    """(a, b): only before IN and as what DISTINCT is of."""

    items: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Scalar:
    """A subquery that stands for a value."""

    query: Query
    span: Span


@dataclass(frozen=True, slots=True)
class Exists:
    query: Query
    span: Span


@dataclass(frozen=True, slots=True)
class Quantified:
    """`operand <op> ALL|ANY (query)`; IN is `= any`.  NOT IN is `not` over it."""

    operand: Expression  # a Row for (a, b) IN (SELECT x, y …)
    symbol: Literal["=", "<>", "<", "<=", ">", ">="]
    quantifier: Literal["all", "any"]
    query: Query
    span: Span


Expression = Name | Constant | Duration | Operator | Function | Case | CastTo | Row | Scalar | Exists | Quantified


# -- what stands in FROM -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamRef:
    """A stream or relation by name."""

    name: Ident
    alias: Ident | None
    modifiers: tuple[Modifier, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery in FROM, with a name for it and its columns if given."""

    query: Query
    alias: Ident | None
    columns: tuple[Ident, ...]
    modifiers: tuple[Modifier, ...]
    span: Span


Conversion = Literal["istream", "dstream", "rstream", "inserts", "deletes", "coalesce"]


@dataclass(frozen=True, slots=True)
class Converted:
    """ISTREAM(x), DSTREAM(x), RSTREAM(x), INSERTS(x), DELETES(x), COALESCE(x) in FROM; x is a stream or subquery."""

    kind: Conversion
    item: FromStream
    alias: Ident | None
    modifiers: tuple[Modifier, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class MergeInput:
    """A copy in LMERGE; `since`: from when on it is right, in ticks or as the text of a timestamp."""

    item: FromStream
    since: int | str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Merged:
    """LMERGE(a, b SINCE 40 WITH LEADER, LAZY): copies of one stream.  `words` are in upper case."""

    copies: tuple[MergeInput, ...]
    words: tuple[tuple[str, Span], ...]
    quorum: int | None
    alias: Ident | None
    modifiers: tuple[Modifier, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of a match, or the condition of a variable, with its name."""

    name: Ident
    expression: Expression


@dataclass(frozen=True, slots=True)
class Matched:
    """`item MATCH_RECOGNIZE (…)`; `order` has columns and whether they descend, `place` is that of the pattern."""

    item: FromStream
    partition: tuple[Name, ...]
    order: tuple[tuple[Name, bool], ...]
    measures: tuple[Measure, ...]
    pattern: Pattern
    place: Span
    within: Length | None
    define: tuple[Measure, ...]
    alias: Ident | None
    modifiers: tuple[Modifier, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Windowed:
    """TUMBLE(TABLE t, DESCRIPTOR(ts), size) and the like; `lengths` as written, `partition` of a session."""

    kind: Literal["tumble", "hop", "cumulate", "session"]
    item: FromStream
    time: Ident | None
    partition: tuple[Name, ...]
    lengths: tuple[Length, ...]
    alias: Ident | None
    modifiers: tuple[Modifier, ...]
    span: Span
    zone: Constant | None = None  # the zone whose days are meant


FromStream = StreamRef | Derived | Converted | Merged | Matched | Windowed | TableFunction | Lateral
"""One stream in FROM, not a join."""


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "cross"]


@dataclass(frozen=True, slots=True)
class JoinItem:
    """`left JOIN right ON …` or `USING (…)`; a comma is a cross join of its own in `Select.items_from`."""

    left: FromItem
    right: FromItem
    kind: JoinKind
    on: Expression | None
    using: tuple[Ident, ...]
    span: Span
    natural: bool = False  # USING all columns that both sides have
    asof: bool = False  # of the partners only the nearest in time
    match: Expression | None = None  # MATCH_CONDITION


FromItem = FromStream | JoinItem


# -- queries -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `B.*`."""

    qualifier: Ident | None
    span: Span


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the answer."""

    expression: Expression
    alias: Ident | None
    span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """SELECT … FROM … WHERE … GROUP BY … HAVING …; `group_by` may hold positions as Constants, as SQL has it; `on` is
    what DISTINCT ON names."""

    items: tuple[Star | Item, ...]
    distinct: bool
    sources: tuple[FromItem, ...]
    where: Expression | None
    group_by: tuple[Expression, ...]
    having: Expression | None
    span: Span
    on: tuple[Expression, ...] = ()
    sets: tuple[tuple[Expression, ...], ...] = ()  # GROUPING SETS: `group_by` then holds all that is in any


@dataclass(frozen=True, slots=True)
class SetQuery:
    """UNION, EXCEPT, INTERSECT, with ALL or without."""

    kind: Literal["union", "except", "intersect"]
    all: bool
    left: Query
    right: Query
    span: Span


@dataclass(frozen=True, slots=True)
class Cql:
    """CQL's conversion of a whole query: ISTREAM(SELECT …), SELECT ISTREAM(…) …"""

    kind: Literal["istream", "dstream", "rstream"]
    query: Query
    span: Span


@dataclass(frozen=True, slots=True)
class LoopClause:
    """MAX RECURSION LEVEL n MAX RECURSION ROWS n ROUNDS n PROGRESS HYBRID ACROSS PARTITIONS: how a recursive query
    runs; None where nothing is said."""

    max_level: int | None
    max_rows: int | None
    rounds: int | None
    progress: Literal["hybrid", "probing", "high water mark"] | None
    across: Literal[True] | None
    span: Span


@dataclass(frozen=True, slots=True)
class Common:
    """A named query of WITH."""

    name: Ident
    columns: tuple[Ident, ...]
    query: Query
    span: Span
    loop: LoopClause | None = None


@dataclass(frozen=True, slots=True)
class With:
    """WITH a AS (…), b AS (…) body; later ones may read earlier ones.  `recursive`: any may read any, and itself."""

    queries: tuple[Common, ...]
    body: Query
    span: Span
    recursive: bool = False


Query = Select | SetQuery | Cql | With | Limited | Values
