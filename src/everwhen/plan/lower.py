"""Lowering: logical nodes to a graph of operators, shared nodes once.

A node can be asked for in two forms.  *Segments* are what almost all operators take.  *Events* (whole events, taken
back and said again) are what AlterLifetime, Deletes and the sink of a plan that only filters and maps take, because
there the boundaries of events matter.  `Net` leads from the second to the first.

Derived operators are composed here from basic ones, as in the thesis (8.1.9): a semi-join is a join with the distinct
partners, an anti-join what the semi-join leaves, an outer join both sides' rest padded with nulls; Istream and Dstream
are differences of a stream and itself a tick later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates import Aggregation
from everwhen.algebra.explain import describe
from everwhen.algebra.expr import Call, Column, Expr, col, lit
from everwhen.algebra.groups_read import GroupsRead, read_once
from everwhen.algebra.properties import properties
from everwhen.errors import QueryError
from everwhen.model.pool import Pool
from everwhen.model.rows import RowCodec
from everwhen.model.schema import Schema
from everwhen.operators.aggregate import AggregateOperator
from everwhen.operators.base import EVERYTHING, Emit, Operator, Policy
from everwhen.operators.chain import Chain, EventChain
from everwhen.operators.chronons import ChrononsOperator
from everwhen.operators.counts import CountsOperator
from everwhen.operators.group_chain import GroupChain
from everwhen.operators.group_join import GroupJoinOperator
from everwhen.operators.hold import HoldOperator, InOrderOperator
from everwhen.operators.join import JoinOperator
from everwhen.operators.level import CoalesceOperator
from everwhen.operators.linear import (
    AlterLifetimeOperator,
    ChopOperator,
    DeletesOperator,
    FilterOperator,
    GranularityOperator,
    MapOperator,
    ShiftOperator,
    TimeWindowOperator,
    UnionOperator,
)
from everwhen.operators.net import NetOperator
from everwhen.operators.punctuate import PunctuateOperator
from everwhen.operators.rows import RowsOperator
from everwhen.operators.sort import SortedChain, SortOperator
from everwhen.plan.join_condition import comparison_of, mirrored
from everwhen.plan.physical import Form, Handed, PhysicalPlan, PlacedOperator, Port, Sink
from everwhen.plan.properties import (
    ahead,
    clipped_by,
    disjoint,
    grouped,
    in_pieces,
    instants,
    left_open,
    moves,
    one_row_per_group,
    passed_on,
    settled,
    whole,
)


def lower(
    queries: Mapping[str, n.Node],
    emit: Emit,
    pool: Pool | None = None,
    handed: Mapping[str, n.Node] | None = None,
    facing: frozenset[str] = frozenset(),
) -> PhysicalPlan:
    """Operators for named queries; nodes that queries share are computed once.

    `handed` are nodes whose changes another stage takes: whole events where the node keeps them, else segments; those
    named in `facing` meet nothing but a sink there.
    """
    lowering = Lowering(emit, pool or Pool())
    sinks = tuple(lowering.sink(name, node) for name, node in queries.items())
    given = tuple(lowering.hand(name, node, name in facing) for name, node in (handed or {}).items())
    return PhysicalPlan(
        lowering.pool, lowering.sources, lowering.codecs, tuple(lowering.operators.values()), sinks, given
    )


@dataclass
class Lowering:
    """Lowering that can go on: more queries may come later and share what stands, and operators may go.

    Operators are numbered in the order in which they were placed; inputs stand before their users.
    """

    emit: Emit
    pool: Pool
    sources: dict[str, n.Source] = field(default_factory=dict)
    codecs: dict[str, RowCodec] = field(default_factory=dict)
    operators: dict[int, PlacedOperator] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _placed: dict[tuple[int, str, bool], tuple[n.Node, Port]] = field(default_factory=dict)

    # -- placing ------------------------------------------------------------------------------------------------

    def sink(self, name: str, node: n.Node) -> Sink:
        codec = self.codec(node.schema)
        if isinstance(node, n.Sort):
            return self._sorted(name, node, codec)
        if self.emit is Emit.FINAL:
            if isinstance(node, n.Coalesce):
                return Sink(name, self.lower(node, "events"), EventChain(codec))
            port = self.lower(node, "segments", top=True)
            if not settled(node):
                port = self.place("hold", HoldOperator(codec), port)
            return Sink(name, port, self._chain(node, codec, ordered=True))
        if self._clips_last(node):
            return Sink(name, self._clipped_last(node), Chain(codec, disjoint=True, ordered=False))
        if node.keeps_events:
            return Sink(name, self.lower(node, "events", top=True), EventChain(codec))
        # groups end at different times, so only a single one can be said in order
        chain = self._chain(node, codec, ordered=not grouped(node))
        port = self.lower(node, "segments", top=True)
        if self.emit is Emit.ENDED and ahead(node):
            port = self.place("in order", InOrderOperator(codec, self.policy(node, True)), port)
        return Sink(name, port, chain)

    def _sorted(self, name: str, node: n.Sort, codec: RowCodec) -> Sink:
        """A row that is said has its place for good, so only what is final can be said in order; sort holds it back
        itself."""
        if self.emit is not Emit.FINAL:
            raise QueryError(
                f"ORDER BY (sort) needs what is said to be final, and `{self.emit.value}` corrects it later; ask for "
                "consistency STRONG (CONSISTENCY STRONG, --consistency strong)"
            )
        port = self.lower(node.input, "segments", top=True)
        return Sink(name, self.place("sort", SortOperator(node.by, codec), port), SortedChain(codec))

    def hand(self, name: str, node: n.Node, top: bool) -> Handed:
        if top and not node.keeps_events and self._clips_last(node):
            return Handed(name, self._clipped_last(node), self.codec(node.schema))
        port = self.lower(node, "events" if node.keeps_events else "segments", top)
        return Handed(name, port, self.codec(node.schema))

    def _clips_last(self, node: n.Node) -> bool:
        """Whether `ended` is clipped at the output, because no operator in the plan can clip the whole answer."""
        return self.emit is Emit.ENDED and not (whole(node) or passed_on(node)) and clipped_by(node) is None

    def _clipped_last(self, node: n.Node) -> Port:
        return self._clipped(self.lower(node, "segments"), self.codec(node.schema), self.policy(node, True))

    def _chain(self, node: n.Node, codec: RowCodec, ordered: bool) -> Chain | GroupChain:
        return GroupChain(codec, ordered) if one_row_per_group(node) else Chain(codec, disjoint(node), ordered)

    def codec(self, schema: Schema) -> RowCodec:
        return RowCodec(schema, self.pool)

    def place(self, name: str, operator: Operator, *inputs: Port) -> Port:
        number = next(self._numbers)
        self.operators[number] = PlacedOperator(name, operator, inputs)
        return Port(operator=number)

    def keep(self, operators: Collection[int], sources: Collection[str]) -> None:
        """Forget all other operators and sources: what would need them is placed anew."""
        self.operators = {number: self.operators[number] for number in self.operators if number in operators}
        self.sources = {name: node for name, node in self.sources.items() if name in sources}
        self.codecs = {name: codec for name, codec in self.codecs.items() if name in sources}
        for key, (_, port) in list(self._placed.items()):
            if not (port.source in sources if port.source else port.operator in operators):
                del self._placed[key]

    def policy(self, node: n.Node, top: bool) -> Policy:
        """In `current`, only what faces the sink says an open piece without an end: operators above need to know how
        far it reaches.  In `ended`, only what faces the sink clips: to an operator above, what is not yet said would
        look like an end."""
        if self.emit is Emit.ENDED:
            return Policy(Emit.ENDED, moves=moves(node)) if top else EVERYTHING
        return Policy(self.emit, open_end=top)

    def lower(self, node: n.Node, form: Form, top: bool = False, about: Collection[str] | None = None) -> Port:
        """The port of a node.  `about`: the columns of which promises are of use above (None: all)."""
        if self.emit is Emit.ENDED:
            top = top and clipped_by(node) is not None
        else:
            top = top and self.emit is Emit.CURRENT and left_open(node)  # else both ways are the same
        key = (id(node), form, top)
        if key not in self._placed:
            # the node is kept with its place: another one may not get its id
            self._placed[key] = node, self._events(node, top) if form == "events" else self._segments(node, top)
        port = self._placed[key][1]
        if isinstance(node, n.Join) and node.kind == "inner":
            join = self.operators[port.operator].operator
            assert isinstance(join, JoinOperator), "an inner join is one operator"
            join.heard(node.schema.names if about is None else about)
        return port

    # -- events -------------------------------------------------------------------------------------------------

    def _events(self, node: n.Node, top: bool) -> Port:
        codec = self.codec(node.schema)
        match node:
            case n.Source():
                return self._source(node, "events")
            case n.Exchange():
                return self._exchange(node, "events")
            case n.Filter(input, predicate):
                return self.place("filter", FilterOperator(predicate, codec), self.lower(input, "events", top))
            case n.Map(input, columns):
                operator = MapOperator(columns, self.codec(input.schema), codec)
                return self.place("map", operator, self.lower(input, "events", top))
            case n.Union(left, right):
                union = UnionOperator(codec, second=right.schema)
                return self.place("union", union, self.lower(left, "events"), self.lower(right, "events"))
            case n.AlterLifetime(input, hop, shift, length):
                altered = AlterLifetimeOperator(hop, shift, length, codec, pieces=in_pieces(input))
                return self.place("alter lifetime", altered, self.lower(input, "events"))
            case n.Deletes(input):
                return self.place("deletes", DeletesOperator(codec), self.lower(input, "events"))
            case n.Punctuate(input, schemes):
                return self.place("punctuate", PunctuateOperator(schemes, codec), self.lower(input, "events", top))
            case n.Coalesce(input, longest):
                levels = CoalesceOperator(longest, codec, self.policy(node, top))
                return self.place("coalesce", levels, self.lower(input, "segments"))
        raise AssertionError(f"{type(node).__name__} has no event form")

    def _source(self, node: n.Source, form: Form) -> Port:
        known = self.sources.setdefault(node.name, node)
        if known is not node and known.columns != node.columns:
            raise QueryError(f"the source {node.name!r} is used with two schemas: {known.columns} and {node.columns}")
        if (known.insert_only, known.chronons, known.schemes) != (node.insert_only, node.chronons, node.schemes):
            raise QueryError(
                f"the source {node.name!r} is declared in two ways, {describe(known)!r} and {describe(node)!r}; "
                "declare it once and use that for all queries"
            )
        if node.name not in self.codecs:
            self.codecs[node.name] = self.codec(node.schema)
        return Port(source=node.name, form=form)

    def _exchange(self, node: n.Exchange, form: Form) -> Port:
        self.codecs.setdefault(node.name, self.codec(node.schema))
        return Port(source=node.name, form=form)

    # -- segments -----------------------------------------------------------------------------------------------

    def _segments(self, node: n.Node, top: bool) -> Port:
        codec = self.codec(node.schema)
        policy = self.policy(node, top)
        match node:
            case n.Source():
                return self._source(node, "segments")
            case n.Exchange(whole=False):
                return self._exchange(node, "segments")
            case n.Exchange() | n.AlterLifetime() | n.Deletes() | n.Coalesce():
                return self.place("net", NetOperator(codec), self.lower(node, "events"))
            case n.Filter(input, predicate):
                return self.place("filter", FilterOperator(predicate, codec), self.lower(input, "segments", top))
            case n.Punctuate(input, schemes):
                return self.place("punctuate", PunctuateOperator(schemes, codec), self.lower(input, "segments", top))
            case n.Map(input, columns):
                operator = MapOperator(columns, self.codec(input.schema), codec)
                copied = [expr.name for _, expr in columns if isinstance(expr, Column)]
                return self.place("map", operator, self.lower(input, "segments", top, copied))
            case n.Union(left, right):
                ports = self.lower(left, "segments", top), self.lower(right, "segments", top)
                return self.place("union", UnionOperator(codec, second=right.schema), *ports)
            case n.TimeWindow(input, 1, 1) | n.Granularity(input, 1):  # the identity (thesis, remark 12.1)
                return self.lower(input, "segments")
            case n.TimeWindow(input, size, slide):
                return self.place("window", TimeWindowOperator(size, slide, codec), self.lower(input, "segments"))
            case n.Granularity(input, granule):
                return self.place("granularity", GranularityOperator(granule, codec), self.lower(input, "segments"))
            case n.Distinct(input):
                return self.place("distinct", CountsOperator("distinct", codec, policy), self.lower(input, "segments"))
            case n.SetOperation(left, right, kind):
                ports = self.lower(left, "segments"), self.lower(right, "segments")
                counts = CountsOperator(kind, codec, policy, right.schema)
                return self.place(kind.replace("_", " "), counts, *ports)
            case n.Aggregate(input, keys, aggregations):
                groups = AggregateOperator(keys, aggregations, self.codec(input.schema), codec, policy)
                return self.place("aggregate", groups, self.lower(input, "segments", about=keys))
            case n.RelationToStream(input, kind):
                if kind == "rstream":
                    return self._instants("rstream", input, codec)
                return self._change(self.lower(input, "segments"), kind, codec, policy)
            case n.Split(input, length):
                if length == 1:
                    return self._instants("split", input, codec)
                return self.place("split", ChopOperator(length, codec), self.lower(input, "segments"))
            case n.RowsWindow(input, rows, slide, partition):
                port = self._instants("chronons", input, codec)
                name = "rows window (split left out: chronon)" if instants(input) else "rows window"
                return self.place(name, RowsOperator(rows, slide, partition, codec, policy), port)
            case n.Join():
                return self._join(node, policy)
        raise AssertionError(f"no operator for {type(node).__name__}")

    def _clipped(self, port: Port, codec: RowCodec, policy: Policy) -> Port:
        return self.place("clip", CountsOperator("clip", codec, policy), port)

    def _instants(self, name: str, node: n.Node, codec: RowCodec) -> Port:
        """The node in lifetimes of one tick (thesis, 12.3.3): as it is, or cut.

        Lifetimes in general are cut as the present reaches them, and the rest is kept.  What came from chronons has no
        future: equal rows of neighbouring instants may have been put together, and are cut apart without memory.
        """
        port = self.lower(node, "segments")
        if instants(node):
            return port
        if properties(node).chronon:
            return self.place(f"{name} (of chronons)", ChopOperator(1, codec), port)
        # what is cut into instants is never said beyond the present, clipped again above or not
        return self.place(name, ChrononsOperator(codec, Policy(self.emit, moves=moves(node))), port)

    def _change(self, port: Port, kind: str, codec: RowCodec, policy: Policy) -> Port:
        """Istream and Dstream."""
        before = self.place("a tick ago", ShiftOperator(1, codec), port)
        sides = (port, before) if kind == "istream" else (before, port)
        return self.place(kind, CountsOperator("difference", codec, policy), *sides)

    # -- joins --------------------------------------------------------------------------------------------------

    def _join(self, node: n.Join, policy: Policy) -> Port:
        found = read_once(node)
        if found is not None and (id(found.groups), "segments", False) not in self._placed:
            return self._group_join(node, found)
        left, right = self.lower(node.left, "segments"), self.lower(node.right, "segments")
        if node.kind == "semi":
            return self._semi(node, left, right)
        if node.kind == "anti":
            return self._anti(node, left, right, policy)
        inner = self._inner(node, left, right)
        if node.kind == "inner":
            return inner
        codec = self.codec(node.schema)
        lonely = self._anti(node, left, right, policy)
        port = self.place("union", UnionOperator(codec), inner, self._padded(node, lonely, 0))
        if node.kind == "left":
            return port
        lonely = self._anti(mirrored(node), right, left, policy)
        return self.place("union", UnionOperator(codec), port, self._padded(node, lonely, 1))

    def _inner(self, node: n.Join, left: Port, right: Port) -> Port:
        codecs = (self.codec(node.left.schema), self.codec(node.right.schema), self.codec(node.pair_schema))
        operator = JoinOperator(*codecs, node.left_keys, node.right_keys, node.residual, node.null_safe)
        return self.place(f"join ({operator.area})", operator, left, right)

    def _group_join(self, node: n.Join, found: GroupsRead) -> Port:
        """Groups that are read at single instants, each once."""
        groups, reads = found.groups, found.reads
        rows, asked = self.codec(groups.input.schema), self.codec(reads.schema)
        said, pairs = self.codec(groups.schema), self.codec(node.pair_schema)
        operator = GroupJoinOperator(
            rows, asked, said, pairs, groups.aggregations, groups.keys, found.keys, found.read_keys,
            null_safe=node.null_safe, groups_first=found.groups_first,
        )  # fmt: skip
        ports = self.lower(groups.input, "segments"), self._instants("chronons", reads, asked)
        port = self.place(f"group join ({operator.area})", operator, *ports)
        return port if node.kind == "inner" else self._project(pairs, said, groups.schema.names, port)

    def _semi(self, node: n.Join, left: Port, right: Port) -> Port:
        """Left rows with a partner: S1 ⋈ δ(π(S2)) on the keys, or on whole rows S1 ⋈ δ(π1(S1 ⋈ S2)).

        Where the condition is one inequality, S1 is compared with the largest (or smallest) partner alone.  Where
        neither keys nor condition look at the partner, all that counts is whether there is one: a single row says so.
        """
        mine = self.codec(node.left.schema)
        comparison = comparison_of(node)
        if comparison is not None:
            return self._semi_extreme(node, comparison, left, right)
        if node.residual is None or node.residual.columns() <= set(node.left.schema.names):
            looked_at: list[tuple[str, Expr]] = [(key, col(key)) for key in dict.fromkeys(node.right_keys)]
            looked_at = looked_at or [("there", lit(True))]
            keys = self.codec(n.Map(node.right, tuple(looked_at)).schema)
            port = self.place("project", MapOperator(looked_at, self.codec(node.right.schema), keys), right)
            partners = port
            if not properties(node.right).unique_on(node.right_keys):
                partners = self.place("distinct", CountsOperator("distinct", keys, EVERYTHING), port)
            pairs = self.codec(n.Join.pair_names(mine.schema, keys.schema))
            both = node.left_keys, node.right_keys
            operator = JoinOperator(mine, keys, pairs, *both, node.residual, node.null_safe)
        else:
            found = self._inner(node, left, right)
            port = self._project(self.codec(node.pair_schema), mine, node.left.schema.names, found)
            partners = self.place("distinct", CountsOperator("distinct", mine, EVERYTHING), port)
            pairs = self.codec(n.Join.pair_names(mine.schema, mine.schema))
            names = node.left.schema.names
            operator = JoinOperator(mine, mine, pairs, names, names, null_safe=True)
        port = self.place("semi-join", operator, left, partners)
        return self._project(pairs, mine, mine.schema.names, port)

    def _semi_extreme(self, node: n.Join, comparison: tuple[str, str, str], left: Port, right: Port) -> Port:
        """`a < b` holds for some b exactly if it holds for the largest one, which is one row per key and instant."""
        mine, theirs = self.codec(node.left.schema), self.codec(node.right.schema)
        column, operator, other = comparison
        name = "extreme"
        while name in node.right_keys:
            name += "_"
        extreme = Aggregation(name, "max" if operator in ("<", "<=") else "min", (other,))
        schema = n.Aggregate(node.right, node.right_keys, (extreme,)).schema
        best = self.codec(schema)
        groups = AggregateOperator(node.right_keys, (extreme,), theirs, best, EVERYTHING)
        partners = self.place(extreme.function, groups, right)
        pairs = self.codec(n.Join.pair_names(mine.schema, schema))
        condition = Call(operator, (col(column), col(pairs.schema.names[-1])))
        join = JoinOperator(mine, best, pairs, node.left_keys, node.right_keys, condition, node.null_safe)
        port = self.place(f"semi-join ({join.area})", join, left, partners)
        return self._project(pairs, mine, mine.schema.names, port)

    def _anti(self, node: n.Join, left: Port, right: Port, policy: Policy) -> Port:
        codec = self.codec(node.left.schema)
        partnered = self._semi(node, left, right)
        rest = self.place("minus", UnionOperator(codec, sign=-1), left, partnered)
        return self._clipped(rest, codec, replace(policy, open_end=False))

    def _project(self, source: RowCodec, target: RowCodec, names: tuple[str, ...], port: Port) -> Port:
        columns = [(name, col(name)) for name in names]
        return self.place("project", MapOperator(columns, source, target), port)

    def _padded(self, node: n.Join, port: Port, side: int) -> Port:
        """Rows of one side beside nulls for the other."""
        columns: list[tuple[str, Expr]] = []
        own = node.left.schema if side == 0 else node.right.schema
        first = 0 if side == 0 else len(node.left.schema)
        for j, target in enumerate(node.pair_schema.fields):
            mine = first <= j < first + len(own)
            columns.append((target.name, col(own.names[j - first]) if mine else lit(None, target.type)))
        return self.place("pad", MapOperator(columns, self.codec(own), self.codec(node.pair_schema)), port)
