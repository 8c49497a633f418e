"""Logical nodes.  A node that exists is valid; it knows its inputs and its schema.

Standard operators are snapshot-reducible (Krämer, ch. 8): their meaning is the relational operator applied to the
snapshot at every instant.  Windows, granularity and the CQL operators change lifetimes.  `AlterLifetime` and
`Deletes` (CEDR) depend on event boundaries, so they stand on sources or on a canonical level form (`Coalesce`).
The meaning of each is written down once, in `everwhen.reference`.  Nodes that change lifetimes are defined in
`lifetime_nodes`, and named here with all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import pyarrow as pa

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.complement import complement
from everwhen.algebra.expressions.build import Expr
from everwhen.algebra.lifetime_nodes import AlterLifetime as AlterLifetime
from everwhen.algebra.lifetime_nodes import Coalesce as Coalesce
from everwhen.algebra.lifetime_nodes import Deletes as Deletes
from everwhen.algebra.lifetime_nodes import Granularity as Granularity
from everwhen.algebra.lifetime_nodes import RelationToStream as RelationToStream
from everwhen.algebra.lifetime_nodes import RowsWindow as RowsWindow
from everwhen.algebra.lifetime_nodes import Span as Span
from everwhen.algebra.lifetime_nodes import Split as Split
from everwhen.algebra.lifetime_nodes import Stamp as Stamp
from everwhen.algebra.lifetime_nodes import TimeWindow as TimeWindow
from everwhen.algebra.merge_node import LMerge as LMerge
from everwhen.algebra.node import Node as Node
from everwhen.algebra.node import SameColumns
from everwhen.algebra.node import over as over
from everwhen.algebra.node import rebuilt as rebuilt
from everwhen.algebra.node import walk as walk
from everwhen.algebra.patterns.match_recognize import MatchRecognize as MatchRecognize
from everwhen.algebra.ranks.over import Over as Over
from everwhen.algebra.ranks.rank import Ordering as Ordering
from everwhen.algebra.ranks.rank import Rank as Rank
from everwhen.algebra.ranks.rank import RankKind as RankKind
from everwhen.algebra.recursion_nodes import Fixpoint as Fixpoint
from everwhen.algebra.recursion_nodes import FixpointKind as FixpointKind
from everwhen.algebra.recursion_nodes import LoopToken as LoopToken
from everwhen.algebra.recursion_nodes import LoopTurn as LoopTurn
from everwhen.algebra.recursion_nodes import Recursion as Recursion
from everwhen.algebra.recursion_nodes import reads_recursion as reads_recursion
from everwhen.algebra.table_nodes import Unnest as Unnest
from everwhen.algebra.table_nodes import Values as Values
from everwhen.core.kinds import is_orderable
from everwhen.core.punctuation import Punctuation
from everwhen.core.row_times import NO_TIMES, RowTimes
from everwhen.core.schema import Field, Schema
from everwhen.core.source_policy import NO_POLICY, SourcePolicy
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import QueryError
from everwhen.punctuation.schemes import Scheme, Selection, bound

SetKind = Literal["difference", "strict_difference", "intersect", "max_union"]
SourceKind = Literal["stream", "constant", "temporal", "varying"]
Arrival = Literal["any", "in order", "strictly"]
JoinKind = Literal["inner", "semi", "anti", "left", "full"]


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A named input and what it declares.

    Checked as elements come in: `insert_only` (no adjust will come, so the guard keeps nothing) and `chronons` (every
    lifetime is one tick; an adjust can only remove), and `arrives` (starts of inserts never go down, or always go up).
    Trusted, not checked: `ordered` (no element is late) and `keys`.
    A key of a stream or a constant relation says that no two events of the whole history agree on its columns, nulls
    counted as equal; a key of a temporal or time-varying relation says so of the rows alive at any one instant.
    `schemes` say which promises about attributes follow from the rows; a row that breaks one is refused.  `policy` says
    how it makes progress, and what becomes of late rows; where these are moved, nothing is ever corrected.

    `kind` says how the input lives: an endless `stream`; a `constant` relation, finite and alive for ever; a
    `temporal` one, finite, with lifetimes of its own; a `varying` one, which is corrected as time goes on.  `axis`:
    how its data tell times.
    """

    name: str
    columns: Schema
    insert_only: bool = False
    chronons: bool = False
    keys: tuple[tuple[str, ...], ...] = ()
    ordered: bool = False
    kind: SourceKind = "stream"
    schemes: tuple[Scheme, ...] = ()
    arrives: Arrival = "any"
    policy: SourcePolicy = NO_POLICY
    axis: TimeAxis = TICKS
    times: RowTimes = NO_TIMES
    """Which columns of its rows, beside these, tell their times: how files and tables of it are read."""

    def __post_init__(self) -> None:
        if self.policy.says_something and self.is_finite:
            raise QueryError(
                f"the {self.kind} relation {self.name!r} is known whole before anything else comes, so it promises "
                "nothing and no row of it is late; WITHIN, IDLE AFTER and LATE ROWS are for streams"
            )
        if self.policy.late == "adjust":
            object.__setattr__(self, "insert_only", True)  # an adjust must name its event as it was
        if self.arrives not in get_args(Arrival):
            raise QueryError(f"arrives={self.arrives!r} is no order; there are {', '.join(get_args(Arrival))}")
        if self.arrives != "any" and self.is_finite:
            raise QueryError(
                f"the {self.kind} relation {self.name!r} is known whole before anything else comes, so no order is "
                "checked; ARRIVES IN ORDER is for streams"
            )
        object.__setattr__(self, "schemes", bound(self.schemes, self.columns, f"the source {self.name!r}"))
        for key in self.keys:
            self.columns.select(key, f"the key ({', '.join(key)}) of source {self.name!r}")
        if self.chronons and self.kind == "constant":
            raise QueryError(f"the constant relation {self.name!r} lives for ever: its rows cannot live one tick")
        if self.schemes and self.is_finite:
            raise QueryError(
                f"the {self.kind} relation {self.name!r} is known whole before anything else comes: there is nothing "
                "to promise; PUNCTUATE is for streams"
            )

    @cached_property
    def schema(self) -> Schema:
        return self.columns

    @property
    def is_finite(self) -> bool:
        """Whether it is a relation that is known whole before anything else comes: its rows are never late."""
        return self.kind in ("constant", "temporal")

    @property
    def in_order(self) -> bool:
        """Whether no insert starts before one that came earlier: as declared and checked, or as trusted."""
        return self.ordered or self.arrives != "any"

    @property
    def keeps_events(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Exchange(Node):
    """What another stage of the same plan hands over, already checked: `whole` events, or segments.

    Plans that users build have none; cutting a plan into stages puts them in.
    """

    name: str
    columns: Schema
    whole: bool = False

    @cached_property
    def schema(self) -> Schema:
        return self.columns

    @property
    def keeps_events(self) -> bool:
        return self.whole


@dataclass(frozen=True, eq=False)
class Filter(SameColumns):
    """σ: rows for which the predicate is true (neither false nor null)."""

    predicate: Expr

    def __post_init__(self) -> None:
        found = self.predicate.bind(self.input.schema)
        if not pa.types.is_boolean(found):
            raise QueryError(f"a filter needs a condition; {self.predicate} is of type {found}")

    @property
    def keeps_events(self) -> bool:
        return self.input.keeps_events


@dataclass(frozen=True, eq=False)
class Map(Node):
    """μ: each output column is an expression over the input's columns."""

    input: Node
    columns: tuple[tuple[str, Expr], ...]

    def __post_init__(self) -> None:
        _ = self.schema

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(name, expr.bind(self.input.schema)) for name, expr in self.columns))

    @property
    def keeps_events(self) -> bool:
        return self.input.keeps_events


@dataclass(frozen=True, eq=False)
class Union(Node):
    """∪: multiplicities add up."""

    left: Node
    right: Node

    def __post_init__(self) -> None:
        _require_same_types("union", self.left, self.right)

    @cached_property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def keeps_events(self) -> bool:
        return self.left.keeps_events and self.right.keeps_events


@dataclass(frozen=True, eq=False)
class Join(Node):
    """⋈: pairs alive at the same instant with equal keys (nulls never equal, unless `null_safe`) for which `residual`
    is true.

    `left_keys` and `right_keys` name columns; `residual` is an expression over `pair_schema`.  No keys and no
    residual is the product.  `semi` and `anti` keep the left rows (with their multiplicity) that have, or have not,
    a partner; `left` and `full` add rows padded with nulls.
    """

    left: Node
    right: Node
    left_keys: tuple[str, ...] = ()
    right_keys: tuple[str, ...] = ()
    residual: Expr | None = None
    kind: JoinKind = "inner"
    null_safe: bool = False

    def __post_init__(self) -> None:
        if len(self.left_keys) != len(self.right_keys):
            raise QueryError(
                f"a join needs as many keys on the left as on the right, not {self.left_keys} and {self.right_keys}"
            )
        for a, b in zip(self.left_keys, self.right_keys, strict=True):
            left = self.left.schema.field(a, "the left side of the join")
            right = self.right.schema.field(b, "the right side of the join")
            if left.type != right.type:
                raise QueryError(
                    f"join keys must be of one type: {left} on the left, {right} on the right; cast one of them"
                )
        if self.residual is not None:
            found = self.residual.bind(self.pair_schema)
            if not pa.types.is_boolean(found):
                raise QueryError(f"a join condition must be true or false; {self.residual} is of type {found}")

    @cached_property
    def pair_schema(self) -> Schema:
        """Both sides' columns; a right column whose name is taken gets the suffix `_right`."""
        return self.pair_names(self.left.schema, self.right.schema)

    @staticmethod
    def pair_names(left: Schema, right: Schema) -> Schema:
        """The schema of pairs of rows."""
        taken = set(left.names)
        fields = list(left.fields)
        for field in right.fields:
            name = field.name
            while name in taken:
                name += "_right"
            taken.add(name)
            fields.append(Field(name, field.type))
        return Schema(tuple(fields))

    @cached_property
    def schema(self) -> Schema:
        return self.left.schema if self.kind in ("semi", "anti") else self.pair_schema


@dataclass(frozen=True, eq=False)
class Distinct(SameColumns):
    """δ: every multiplicity becomes one."""


@dataclass(frozen=True, eq=False)
class SetOperation(Node):
    """Multiplicities m, n become: difference max(m-n, 0); strict_difference m if n = 0 else 0; intersect min;
    max_union max."""

    left: Node
    right: Node
    kind: SetKind

    def __post_init__(self) -> None:
        _require_same_types(self.kind, self.left, self.right)

    @cached_property
    def schema(self) -> Schema:
        return self.left.schema


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """γ, α: one row per group alive, key columns first.  No keys: one row where anything is alive at all."""

    input: Node
    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]

    def __post_init__(self) -> None:
        _ = self.schema

    @cached_property
    def schema(self) -> Schema:
        keys = self.input.schema.select(self.keys, "the grouping")
        found = tuple(Field(a.name, a.result_type(self.input.schema)) for a in self.aggregations)
        return Schema(keys.fields + found)


@dataclass(frozen=True, eq=False)
class Punctuate(SameColumns):
    """Tucker's punctuate operator (6.2): the same stream, with the promises that follow from the schemes.

    Inside a plan the rows of one epoch have no order; a scheme's order is that of the epochs.
    """

    schemes: tuple[Scheme, ...]

    def __post_init__(self) -> None:
        if not self.schemes:
            raise QueryError("punctuate() needs a scheme, such as ew.punctuation.sorted_by('hour')")
        schemes = tuple(Selection(self._complement()) if each == Selection() else each for each in self.schemes)
        object.__setattr__(self, "schemes", bound(schemes, self.input.schema, "punctuate()"))

    def _complement(self) -> tuple[Punctuation, ...] | None:
        """What the filter below promises, found while it is there: rewriting may move it."""
        if not isinstance(self.input, Filter):
            return None
        found = complement(self.input.predicate, self.input.schema)
        if not found:
            raise QueryError(
                f"selection() can tell nothing of the condition {self.input.predicate}: promises follow from "
                "comparisons of a column with constants, IN, BETWEEN, IS NULL, with AND, OR and NOT"
            )
        return tuple(found)

    @property
    def keeps_events(self) -> bool:
        return self.input.keeps_events


@dataclass(frozen=True, eq=False)
class Sort(SameColumns):
    """The answer's rows in the order of some columns, nulls last, instead of that of time (semantics, 19).

    It stands at the top of a plan only, because inside nothing has an order: the history is the input's.
    """

    by: tuple[tuple[str, bool], ...]
    """Columns and whether they descend."""

    def __post_init__(self) -> None:
        if not self.by:
            raise QueryError("a sort needs a column")
        for at, (column, _) in enumerate(self.by):
            field = self.input.schema.field(column, "the sort")
            if not is_orderable(field.type):
                raise QueryError(f"rows cannot be sorted by {field}: its values have no order")
            if column in [name for name, _ in self.by[:at]]:
                raise QueryError(f"the sort names {column} twice")


def sources_of(*roots: Node) -> dict[str, Source]:
    """The sources of plans, by their names."""
    return {each.name: each for each in walk(*roots) if isinstance(each, Source)}


def _require_same_types(what: str, left: Node, right: Node) -> None:
    if not left.schema.same_types(right.schema):
        raise QueryError(f"{what} needs the same column types on both sides: {left.schema} against {right.schema}")


def require_sort_on_top(root: Node) -> None:
    """Refuse a plan in which something stands over a sort."""
    for node in walk(*root.inputs):
        if isinstance(node, Sort):
            raise QueryError(
                "a sorted stream cannot be read further: rows have an order only where they leave the plan; sort last"
            )
