"""The fluent API: queries as chains of methods over immutable streams.

A `Stream` wraps a logical node; every method builds one or two nodes and returns a new stream; nothing runs here.

    >>> from everwhen.algebra.expressions.build import col
    >>> from everwhen.algebra.named_source import source
    >>> from everwhen.algebra.aggregates import calls as ew
    >>> bids = source("bids", {"item": "int64", "price": "float64"})
    >>> print(bids.range("10 minutes").group_by("item").agg(best=ew.max("price")).where(col("best") > 5))
    Filter best > 5
    └─ Aggregate by item: best = max(price)
       └─ Window range 600000
          └─ Source bids (item int64, price double)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, Literal, get_args

from everwhen.algebra import nodes
from everwhen.algebra.aggregates.calls import AggregateCall, Aggregation
from everwhen.algebra.expressions.build import Column, Expr, col, to_expr
from everwhen.algebra.ranks.fluent import RankMethods
from everwhen.algebra.shown import Shown
from everwhen.core.schema import Schema
from everwhen.core.time import INF, ticks
from everwhen.core.time_axis import TimeAxis
from everwhen.errors import QueryError
from everwhen.punctuation.schemes import Scheme

Duration = int | str
How = Literal["inner", "semi", "anti", "left", "right", "full"]
_HIDDEN: Final = r"_[0-9]+"
On = str | Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True, eq=False, repr=False)
class Stream(RankMethods, Shown):
    """A query: the stream that the logical `node` describes.

    `level` is the consistency of its CONSISTENCY clause, if it has one: a name, or the bounds B and M in ticks.  The
    level that a runtime is given overrides it.  `axis`: on which its answer tells times, if not on that of its sources.
    `asked`: the plan as it was asked, where `node` is that plan rewritten.

    >>> import everwhen as ew
    >>> bids = ew.source("Bid", {"item": "int64", "price": "float64"})
    >>> print(bids.where(ew.col("price") > 5).select("item"))
    Select item
    └─ Filter price > 5
       └─ Source Bid (item int64, price double)
    """

    node: nodes.Node
    level: Literal["strong", "middle", "weak"] | tuple[int | None, int | None] | None = None
    axis: TimeAxis | None = None
    asked: nodes.Node | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        nodes.require_sort_on_top(self.node)

    @property
    def schema(self) -> Schema:
        return self.node.schema

    # -- columns and rows ------------------------------------------------------------------------------------------

    def where(self, condition: Expr | bool) -> Stream:
        """The rows for which the condition is true."""
        return Stream(nodes.Filter(self.node, _condition(condition, "where()")))

    def select(self, *columns: str | Expr, **computed: Any) -> Stream:
        """Exactly these columns, plain ones first, then `name=expression`."""
        plain = [self._column(column, "select()") for column in columns]
        return self._map([*plain, *((name, to_expr(value)) for name, value in computed.items())])

    def with_columns(self, **computed: Any) -> Stream:
        """All columns, with some added or replaced; every expression reads the columns as they were."""
        changed = {name: to_expr(value) for name, value in computed.items()}
        kept = [(name, changed.pop(name, col(name))) for name in self.schema.names]
        return self._map([*kept, *changed.items()])

    def rename(self, **names: str) -> Stream:
        """The same columns under new names: `rename(old="new")`."""
        for old in names:
            self.schema.field(old, "rename()")
        return self._map([(names.get(name, name), col(name)) for name in self.schema.names])

    def drop(self, *columns: str) -> Stream:
        """All columns but these."""
        for column in columns:
            self.schema.field(column, "drop()")
        kept = [(name, col(name)) for name in self.schema.names if name not in columns]
        return self._map(kept)

    def _map(self, columns: Sequence[tuple[str, Expr]]) -> Stream:
        return Stream(nodes.Map(self.node, tuple(columns)))

    def _column(self, column: str | Expr, where: str) -> tuple[str, Expr]:
        if isinstance(column, Column):
            column = column.name
        if not isinstance(column, str):
            raise QueryError(f"{where} takes column names, or name=expression; {column!r} has no name")
        return self.schema.field(column, where).name, col(column)

    # -- sets ------------------------------------------------------------------------------------------------------

    def union(self, other: Stream) -> Stream:
        """The rows of both; multiplicities add up."""
        return Stream(nodes.Union(self.node, _node(other, "union")))

    def distinct(self) -> Stream:
        """Every row once."""
        return Stream(nodes.Distinct(self.node))

    def difference(self, other: Stream) -> Stream:
        """Each row as many times as here minus there (SQL's EXCEPT ALL)."""
        return self._set(other, "difference")

    def strict_difference(self, other: Stream) -> Stream:
        """The rows that are not there at all, as many times as here."""
        return self._set(other, "strict_difference")

    def except_(self, other: Stream) -> Stream:
        """SQL's EXCEPT: the rows that are not there, each once."""
        return self.strict_difference(other).distinct()

    def intersect(self, other: Stream) -> Stream:
        """Each row as many times as in both (SQL's INTERSECT ALL)."""
        return self._set(other, "intersect")

    def max_union(self, other: Stream) -> Stream:
        """Each row as many times as in the one that has it more often."""
        return self._set(other, "max_union")

    def _set(self, other: Stream, kind: nodes.SetKind) -> Stream:
        return Stream(nodes.SetOperation(self.node, _node(other, kind), kind))

    # -- joins -----------------------------------------------------------------------------------------------------

    def join(self, other: Stream, on: On = None, where: Expr | None = None, how: How = "inner") -> Stream:
        """Pairs of rows alive at the same instant, with equal `on` columns, for which `where` is true.

        `on="k"` or `on=["k", …]` names columns of both sides; for inner and left joins the result has them once.
        `on={"left": "right"}` keeps both.  A right column whose name is taken gets the suffix `_right`,
        also in `where`.
        """
        if how not in get_args(How):
            raise QueryError(f"how={how!r} is no join; there are {', '.join(get_args(How))}")
        right = _node(other, "join")
        pairs = _key_pairs(on)
        condition = None if where is None else _condition(where, "join(where=…)")
        if not pairs and condition is None:
            raise QueryError("a join needs on=… or where=…; for all pairs use product()")
        if how == "right":
            return self._right_join(right, pairs, condition)
        keys = tuple(pairs), tuple(pairs.values())
        joined = nodes.Join(self.node, right, *keys, condition, how)
        using = not isinstance(on, Mapping)
        if not (using and pairs and how in ("inner", "left")):
            return Stream(joined)
        names = joined.pair_schema.names
        split = len(self.schema)
        dropped = {names[split + right.schema.index(key)] for key in pairs}
        return Stream(joined).drop(*dropped)

    def _right_join(self, right: nodes.Node, pairs: Mapping[str, str], where: Expr | None) -> Stream:
        """A left join with the sides exchanged; columns are then put back in order and renamed."""
        keys = tuple(pairs), tuple(pairs.values())
        as_written = nodes.Join(self.node, right, *keys, where)  # checks keys and condition in the user's terms
        swapped = nodes.Join(right, self.node).pair_schema.names
        width = len(right.schema)
        mirrored = (*swapped[width:], *swapped[:width])
        renamed = {name: col(other) for name, other in zip(as_written.schema.names, mirrored, strict=True)}
        condition = None if where is None else where.substitute(renamed)
        joined = nodes.Join(right, self.node, keys[1], keys[0], condition, "left")
        return Stream(joined)._map(list(renamed.items()))

    def product(self, other: Stream) -> Stream:
        """All pairs of rows alive at the same instant."""
        return Stream(nodes.Join(self.node, _node(other, "product")))

    # -- groups ----------------------------------------------------------------------------------------------------

    def group_by(self, *keys: str | Expr, **computed: Any) -> GroupBy:
        """Groups by columns, and by `name=expression`; goes on with `.agg(…)`."""
        plain = [self._column(key, "group_by()") for key in keys]
        found = (*plain, *((name, to_expr(value)) for name, value in computed.items()))
        if not found:
            raise QueryError("group_by() needs a key; without keys use aggregate()")
        return GroupBy(self, found)

    def aggregate(self, **aggregations: AggregateCall) -> Stream:
        """One row over everything alive, where anything is."""
        return GroupBy(self, ()).agg(**aggregations)

    def partition(self, by: str | Expr, values: Iterable[Any]) -> tuple[Stream, ...]:
        """The thesis's grouping (8.7): one substream per value of `by`, in the order given; None selects nulls."""
        key = col(by) if isinstance(by, str) else to_expr(by)
        return tuple(self.where(key.is_null() if value is None else key == value) for value in values)

    # -- windows and lifetimes -------------------------------------------------------------------------------------

    def range(self, size: Duration, slide: Duration = 1) -> Stream:
        """At t, what was alive during the last `size`; with `slide`, as of the last multiple of it."""
        return Stream(nodes.TimeWindow(self.node, ticks(size), ticks(slide)))

    def now(self) -> Stream:
        """What is alive at t: the stream itself."""
        return Stream(nodes.TimeWindow(self.node, 1))

    def unbounded(self) -> Stream:
        """Everything that has been alive up to t."""
        return Stream(nodes.TimeWindow(self.node, INF))

    def rows(self, n: int, slide: int = 1, partition_by: str | Sequence[str] = ()) -> Stream:
        """The last `n` rows, per value of the `partition_by` columns if given."""
        return Stream(nodes.RowsWindow(self.node, n, slide, _names(partition_by)))

    def granularity(self, granule: Duration) -> Stream:
        """Snapshots change only at multiples of the granule."""
        return Stream(nodes.Granularity(self.node, ticks(granule)))

    def istream(self) -> Stream:
        """CQL: what came at t."""
        return Stream(nodes.RelationToStream(self.node, "istream"))

    def dstream(self) -> Stream:
        """CQL: what went at t."""
        return Stream(nodes.RelationToStream(self.node, "dstream"))

    def rstream(self) -> Stream:
        """CQL: all that is alive at t."""
        return Stream(nodes.RelationToStream(self.node, "rstream"))

    def split(self, length: Duration) -> Stream:
        """Lifetimes cut into pieces of at most `length`."""
        return Stream(nodes.Split(self.node, ticks(length)))

    def coalesce(self, longest: Duration | None = None) -> Stream:
        """Equal rows with adjacent lifetimes merged, up to `longest`; events get fixed boundaries again."""
        return Stream(nodes.Coalesce(self.node, None if longest is None else ticks(longest)))

    def lifetime(self, hop: Duration = 1, shift: Duration = 0, length: Duration | None = None) -> Stream:
        """Start at vs rounded down to `hop`, plus `shift`; live for `length` (INF: for ever; None: to ve + shift)."""
        new_length = None if length is None else ticks(length)
        return Stream(nodes.AlterLifetime(self.node, ticks(hop), ticks(shift), new_length))

    def inserts(self) -> Stream:
        """CEDR: every event from its start on, for ever."""
        return self.lifetime(length=INF)

    def deletes(self) -> Stream:
        """CEDR: every event from its end on, for ever."""
        return Stream(nodes.Deletes(self.node))

    # -- punctuation and order -------------------------------------------------------------------------------------

    def punctuate(self, *schemes: Scheme) -> Stream:
        """The same stream with the punctuation that follows from schemes, such as `ew.punctuation.sorted_by("hour")`.

        On a source every element is checked as it comes in, and the error names its file and line; elsewhere rows are
        checked against what earlier epochs have promised.
        """
        for scheme in schemes:
            if not isinstance(scheme, Scheme):
                raise QueryError(f"punctuate() takes schemes such as ew.punctuation.sorted_by('hour'), not {scheme!r}")
        if isinstance(self.node, nodes.Source) and schemes:
            return Stream(replace(self.node, schemes=(*self.node.schemes, *schemes)))
        return Stream(nodes.Punctuate(self.node, schemes))

    def sort(self, *columns: str, descending: str | Sequence[str] = ()) -> Stream:
        """The rows of the answer in the order of these columns, nulls last; `descending` names descending ones.

        It must be the last step and needs consistency STRONG: a row is emitted when no row can come before it any more.
        """
        falling = _names(descending)
        for column in falling:
            if column not in columns:
                raise QueryError(f"descending={column!r} is none of the columns to sort by: {', '.join(columns)}")
        return Stream(nodes.Sort(self.node, tuple((column, column in falling) for column in columns)))


@dataclass(frozen=True, eq=False)
class GroupBy:
    """A stream with grouping keys, waiting for `.agg(…)`."""

    stream: Stream
    keys: tuple[tuple[str, Expr], ...]

    def agg(self, **aggregations: AggregateCall) -> Stream:
        """One row per group: the keys, then `name=aggregate`, such as `agg(total=ew.sum("price"), n=ew.count())`."""
        for name, call in aggregations.items():
            if not isinstance(call, AggregateCall):
                raise QueryError(f"{name}={call!r} is no aggregate; write for example {name}=ew.sum('price')")
        if not aggregations and not self.keys:
            raise QueryError("aggregate() needs at least one aggregate, for example n=ew.count()")
        node = self.stream.node
        exprs = [expr for _, expr in self.keys] + [arg for call in aggregations.values() for arg in call.args]
        if all(isinstance(expr, Column) for expr in exprs) and all(_is_itself(key) for key in self.keys):
            columns = {name: tuple(str(arg) for arg in call.args) for name, call in aggregations.items()}
        else:
            node, columns = self._computed(aggregations)
        found = tuple(
            Aggregation(name, call.function, columns[name], call.parameters) for name, call in aggregations.items()
        )
        try:
            return Stream(nodes.Aggregate(node, tuple(name for name, _ in self.keys), found))
        except QueryError as bad:
            if node is self.stream.node:
                raise
            raise QueryError(_as_written(str(bad), node)) from None

    def _computed(self, calls: Mapping[str, AggregateCall]) -> tuple[nodes.Map, dict[str, tuple[str, ...]]]:
        """A Map below the aggregation: the keys, and the arguments under names that nothing else has."""
        computed: list[tuple[str, Expr]] = list(self.keys)
        columns: dict[str, tuple[str, ...]] = {}
        for name, call in calls.items():
            columns[name] = tuple(self._place(arg, computed) for arg in call.args)
        return nodes.Map(self.stream.node, tuple(computed)), columns

    def _place(self, arg: Expr, computed: list[tuple[str, Expr]]) -> str:
        """The column that holds the argument, added if there is none yet."""
        for name, expr in computed:
            if expr.equals(arg):
                return name
        placed = {name for name, _ in computed}
        if isinstance(arg, Column) and arg.name not in placed:
            name = arg.name
        else:
            taken = placed | set(self.stream.schema.names)
            name = next(hidden for i in count(1) if (hidden := f"_{i}") not in taken)
        computed.append((name, arg))
        return name


def _as_written(problem: str, computed: nodes.Node) -> str:
    """A message about columns that have no name of their own, with what they are instead."""
    assert isinstance(computed, nodes.Map)
    written = {name: str(expr) for name, expr in computed.columns if re.fullmatch(_HIDDEN, name)}
    return re.sub(rf"\b{_HIDDEN}\b", lambda found: written.get(found[0], found[0]), problem)


def _is_itself(key: tuple[str, Expr]) -> bool:
    return isinstance(key[1], Column) and key[1].name == key[0]


def _node(stream: Stream, where: str) -> nodes.Node:
    if not isinstance(stream, Stream):
        raise QueryError(f"{where} needs another stream, not {stream!r}")
    return stream.node


def _condition(given: Expr | bool, where: str) -> Expr:
    if not isinstance(given, Expr | bool):
        raise QueryError(f"{where} takes a condition such as col('price') > 5, not {given!r}")
    return to_expr(given)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _key_pairs(on: On) -> dict[str, str]:
    if on is None or isinstance(on, Mapping):
        return dict(on or {})
    return {name: name for name in _names(on)}


def node_of(query: Stream | nodes.Node) -> nodes.Node:
    """The plan of a query."""
    if isinstance(query, Stream):
        return query.node
    if isinstance(query, nodes.Node):
        return query
    text = "; a text becomes one with ew.sql(text, streams…)" if isinstance(query, str) else ""
    raise QueryError(f"a query is a stream, as ew.source and ew.sql make it, and not {query!r}{text}")
