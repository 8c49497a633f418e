"""Lowering: logical nodes to a graph of operators, shared nodes once.

Nodes can be asked for in two forms: *segments*, which almost all operators take, and *events* (whole ones), for
AlterLifetime, Deletes and the sink of a plan that only filters and maps.  Derived operators are composed (8.1.9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from everwhen.algebra import nodes as n
from everwhen.algebra.properties.derive import properties
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.operators.contract import EVERYTHING, Operator, Policy
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.merge.in_order import InOrderMergeOperator
from everwhen.operators.merge.inputs import MergeOperator
from everwhen.operators.merge.lmerge import LMergeOperator
from everwhen.operators.net import NetOperator
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.emit_filter import EmitFilter
from everwhen.operators.output.group_changelog import GroupChangelogEncoder
from everwhen.operators.pattern.match import MatchOperator
from everwhen.operators.rank.over import OverOperator
from everwhen.operators.rank.rank import RankOperator
from everwhen.operators.sort.sort import SortedChangelogEncoder, SortOperator
from everwhen.operators.stateless.linear import (
    MOST_LEVELS,
    AlterLifetimeOperator,
    ChopOperator,
    DeletesOperator,
    GranularityOperator,
    ShiftOperator,
    TimeWindowOperator,
)
from everwhen.operators.sweep.aggregate import AggregateOperator
from everwhen.operators.sweep.multiplicity import CountsOperator
from everwhen.operators.windows.chronons import ChrononsOperator, Counted
from everwhen.operators.windows.coalesce import CoalesceOperator
from everwhen.operators.windows.rows_window import RowsOperator
from everwhen.operators.windows.stamps import SpanOperator, StampOperator
from everwhen.plan.lower_joins import lower_join
from everwhen.plan.lower_linear import lower_linear
from everwhen.plan.lower_loop import loop_operator, turn_operator
from everwhen.plan.merge_kernel import merge_kernel
from everwhen.plan.names import what_it_computes
from everwhen.plan.physical import Form, Handed, PhysicalPlan, PlacedOperator, Port, Sink
from everwhen.plan.properties import (
    ahead,
    clipped_by,
    disjoint,
    grouped,
    heeds_policy,
    in_pieces,
    instants,
    left_open,
    moves,
    one_row_per_group,
    passed_on,
    require_alike,
    settled,
    whole,
)
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner


def lower(
    queries: Mapping[str, n.Node],
    emit: Emit,
    pool: Interner | None = None,
    handed: Mapping[str, n.Node] | None = None,
    facing: frozenset[str] = frozenset(),
    circulating: frozenset[str] = frozenset(),
    first: bool = True,
) -> PhysicalPlan:
    """Operators for named queries; nodes that queries share are computed once.

    `handed` are nodes whose changes another stage takes: whole events where the node keeps them, else segments; those
    named in `facing` meet nothing but a sink there.  `circulating` are exchanges that lie on a loop: what goes round is
    neither clipped nor held back.  `first`: whether this is the first partition, which has rows that only one has.
    """
    lowering = Lowering(emit, pool or Interner(), circulating=circulating, first=first)
    sinks = tuple(lowering.sink(name, node) for name, node in queries.items())
    given = tuple(lowering.hand(name, node, name in facing) for name, node in (handed or {}).items())
    return PhysicalPlan(
        lowering.pool, lowering.sources, lowering.codecs, tuple(lowering.operators.values()), sinks, given
    )


PlaceKey = tuple[int, str, bool, frozenset[int]]
"""Of which node, in which form, facing the sink or not, and which nodes of its plan, if any, tell more than they else
would because their ends are told in columns above: the topmost, as all below them do."""


@dataclass
class Lowering:
    """Lowering that can go on: more queries may come later and share what stands, and operators may go.

    Operators are numbered in the order in which they were placed; inputs stand before their users.
    """

    emit: Emit
    pool: Interner
    sources: dict[str, n.Source] = field(default_factory=dict)
    codecs: dict[str, RowCodec] = field(default_factory=dict)
    operators: dict[int, PlacedOperator] = field(default_factory=dict)
    circulating: frozenset[str] = frozenset()
    first: bool = True
    _numbers: Iterator[int] = field(default_factory=count)
    _placed: dict[PlaceKey, tuple[n.Node, Port]] = field(default_factory=dict)
    _told: dict[int, frozenset[int]] = field(default_factory=dict)  # by nodes of the plan that is lowered: see PlaceKey
    _at: tuple[n.Node, str, bool] | None = None  # the node that is being lowered, in which form

    # -- placing ------------------------------------------------------------------------------------------------

    def sink(self, name: str, node: n.Node) -> Sink:
        codec = self.codec(node.schema)
        self._begin(node)
        if isinstance(node, n.Sort):
            return self._sorted(name, node, codec)
        if self.emit is Emit.FINAL:
            if isinstance(node, n.Coalesce):
                return Sink(name, self.lower(node, "events"), EventChangelogEncoder(codec))
            port = self.lower(node, "segments", top=True)
            filter = None if settled(node) else EmitFilter(codec, Emit.FINAL)
            return Sink(name, port, self._encoder(node, codec, ordered=True), filter)
        if self._clips_last(node):
            return Sink(name, self._clipped_last(node), ChangelogEncoder(codec, disjoint=True, ordered=False))
        if node.keeps_events:
            return Sink(name, self.lower(node, "events", top=True), EventChangelogEncoder(codec))
        # groups end at different times, so only a single one can be said in order
        encoder = self._encoder(node, codec, ordered=not grouped(node))
        waits = self.emit is Emit.ENDED and ahead(node)
        filter = EmitFilter(codec, Emit.ENDED, self.policy(node, True)) if waits else None
        return Sink(name, self.lower(node, "segments", top=True), encoder, filter)

    def _sorted(self, name: str, node: n.Sort, codec: RowCodec) -> Sink:
        """A row that is said has its place for good, so only what is final can be said in order; sort holds it back
        itself."""
        if self.emit is not Emit.FINAL:
            raise QueryError(
                f"ORDER BY (sort) needs what is said to be final, and `{self.emit.value}` corrects it later; ask for "
                "consistency STRONG (CONSISTENCY STRONG, --consistency strong)"
            )
        port = self.lower(node.input, "segments", top=True)
        return Sink(name, self.place("sort", SortOperator(node.by, codec), port), SortedChangelogEncoder(codec))

    def _begin(self, root: n.Node) -> None:
        self._at = root, "sink", True
        self._told = {}
        if self.emit in (Emit.ALL, Emit.ENDED):  # below the sink all is said anyway
            return
        stamped = [each.input for each in n.walk(root) if isinstance(each, n.Stamp) and each.end is not None]
        told = {id(each) for each in n.walk(*stamped)}
        for each in n.walk(root) if told else ():
            below = frozenset[int]().union(*(self._told[id(child)] for child in each.inputs))
            self._told[id(each)] = frozenset([id(each)]) if id(each) in told and heeds_policy(each) else below

    def hand(self, name: str, node: n.Node, top: bool) -> Handed:
        self._begin(node)
        if top and not node.keeps_events and self._clips_last(node):
            return Handed(name, self._clipped_last(node), self.codec(node.schema))
        port = self.lower(node, "events" if node.keeps_events else "segments", top)
        return Handed(name, port, self.codec(node.schema))

    def _clips_last(self, node: n.Node) -> bool:
        """Whether `ended` is clipped at the output, because no operator in the plan can clip the whole answer."""
        return self.emit is Emit.ENDED and not (whole(node) or passed_on(node)) and clipped_by(node) is None

    def _clipped_last(self, node: n.Node) -> Port:
        codec = self.codec(node.schema)
        clip = partial(self.clipped, codec=codec, policy=self.policy(node, True))
        return self._once(node, "sink", True, lambda: clip(self.lower(node, "segments")))

    def _encoder(self, node: n.Node, codec: RowCodec, ordered: bool) -> ChangelogEncoder | GroupChangelogEncoder:
        return (
            GroupChangelogEncoder(codec, ordered)
            if one_row_per_group(node)
            else ChangelogEncoder(codec, disjoint(node), ordered)
        )

    def codec(self, schema: Schema) -> RowCodec:
        return RowCodec(schema, self.pool)

    def place(self, name: str, operator: Operator, *inputs: Port) -> Port:
        assert self._at is not None, "operators are placed for a node"
        node, form, top = self._at
        feeds = [f"{p.form} {p.source or self.operators[p.operator].what}" for p in inputs]
        what = what_it_computes(name, node, (form, top, self.policy(node, top)), feeds)
        port = Port(operator=next(self._numbers))
        self.operators[port.operator] = PlacedOperator(name, operator, inputs, what, node)
        return port

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
        if not top and id(node) in self._told.get(id(node), ()):  # an end that is clipped would be told as the end
            return EVERYTHING
        if self.circulating and any(isinstance(x, n.Exchange) and x.name in self.circulating for x in n.walk(node)):
            return EVERYTHING
        if self.emit is Emit.ENDED:
            return Policy(Emit.ENDED, moves=moves(node)) if top else EVERYTHING
        return Policy(self.emit, open_end=top)

    def _key(self, node: n.Node, form: str, top: bool) -> tuple[int, str, bool, frozenset[int]]:
        return id(node), form, top, self._told.get(id(node), frozenset[int]())

    def _once(self, node: n.Node, form: str, top: bool, place: Callable[[], Port]) -> Port:
        """The port of what is placed for a node in a form, which is placed when it is first asked for."""
        key = self._key(node, form, top)
        if key not in self._placed:
            outer, self._at = self._at, (node, form, top)
            self._placed[key] = node, place()  # the node is kept with its place: another one may not get its id
            self._at = outer
        return self._placed[key][1]

    def lower(self, node: n.Node, form: Form, top: bool = False, about: Collection[str] | None = None) -> Port:
        """The port of a node.  `about`: the columns of which promises are of use above (None: all)."""
        told_apart = {Emit.ENDED: lambda: clipped_by(node) is not None, Emit.CURRENT: lambda: left_open(node)}
        top = top and self.emit in told_apart and told_apart[self.emit]()  # else both ways are the same
        key = self._key(node, form, top)
        if key not in self._placed:  # as in `_once`; frames are few, because plans may be deep
            outer, self._at = self._at, (node, form, top)
            self._placed[key] = node, self._events(node, top) if form == "events" else self._segments(node, top)
            self._at = outer
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
            case n.Values() | n.Filter() | n.Map() | n.Unnest() | n.Union() | n.Punctuate():
                return lower_linear(self, node, "events", top)
            case n.LMerge(copies):
                return self._lmerge(node, [self.lower(each, "events") for each in copies], True)
            case n.AlterLifetime(input, hop, shift, length):
                altered = AlterLifetimeOperator(hop, shift, length, codec, pieces=in_pieces(input))
                return self.place("alter lifetime", altered, self.lower(input, "events"))
            case n.Deletes(input):
                return self.place("deletes", DeletesOperator(codec), self.lower(input, "events"))
            case n.Stamp(input, _, end):
                lasts = input.length if isinstance(input, n.AlterLifetime) else None
                stamp = StampOperator(self.codec(input.schema), codec, end is not None, lasts)
                return self.place("stamp", stamp, self.lower(input, "events"))
            case n.Coalesce(input, longest):
                levels = CoalesceOperator(longest, codec, self.policy(node, top))
                return self.place("coalesce", levels, self.lower(input, "segments"))
        raise AssertionError(f"{type(node).__name__} has no event form")

    def _source(self, node: n.Source, form: Form) -> Port:
        require_alike(self.sources.setdefault(node.name, node), node)
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
            case n.Exchange() | n.AlterLifetime() | n.Deletes() | n.Coalesce() | n.Stamp():
                return self.place("net", NetOperator(codec), self.lower(node, "events"))
            case n.Values() | n.Filter() | n.Map() | n.Unnest() | n.Union() | n.Punctuate():
                return lower_linear(self, node, "segments", top)
            case n.LMerge(copies):
                return self._lmerge(node, [self.lower(each, "segments") for each in copies], False)
            case n.TimeWindow(input, 1, 1) | n.Granularity(input, 1):  # the identity (thesis, remark 12.1)
                return self.lower(input, "segments")
            case n.TimeWindow(input, size, slide):
                return self.place("window", TimeWindowOperator(size, slide, codec), self.lower(input, "segments"))
            case n.Span(input, start, end):
                span = SpanOperator(codec, start, end)
                return self.place("span", span, self.lower(input, "segments"))
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
                    return self.instants("rstream", input, codec)
                return self._change(self.lower(input, "segments"), kind, codec, policy)
            case n.Split(input, length):
                if length == 1:
                    return self.instants("split", input, codec)
                return self.place("split", ChopOperator(length, codec), self.lower(input, "segments"))
            case n.RowsWindow(input, rows, slide, partition):
                port = self.instants("chronons", input, codec, Counted(rows, slide, partition))
                name = "rows window (split left out: chronon)" if instants(input) else "rows window"
                return self.place(name, RowsOperator(rows, slide, partition, codec, policy), port)
            case n.MatchRecognize(input):
                matches = MatchOperator(node, self.codec(input.schema), codec)
                return self.place("match", matches, self.lower(input, "segments", about=node.partition))
            case n.Rank(input):
                rank = RankOperator(node, self.codec(input.schema), codec)
                return self.place("rank", rank, self.lower(input, "segments", about=node.partition))
            case n.Over(input):
                over = OverOperator(node, self.codec(input.schema), codec)
                return self.place("over", over, self.lower(input, "segments", about=node.partition))
            case n.Join():
                return lower_join(self, node, policy)
            case n.LoopTurn():
                turned = [self.lower(each, "segments") for each in node.inputs]
                return self.place("turn", turn_operator(node, self.pool), *turned)
            case n.Fixpoint(kind="union all"):
                return self._loop(node)
            case n.Fixpoint():
                loop = self._loop(node)
                return self.clipped(loop, codec, policy) if self.emit is Emit.CURRENT else loop
        raise AssertionError(f"no operator for {type(node).__name__}")

    def _lmerge(self, node: n.LMerge, ports: list[Port], events: bool) -> Port:
        kernel, codec = merge_kernel(node), self.codec(node.schema)
        merge: MergeOperator
        if kernel.name in ("R0", "R1", "R2"):
            merge = InOrderMergeOperator(codec, node.since, node.policy, kernel.name, kernel.instants, node.names)
        else:
            merge = LMergeOperator(codec, node.since, node.policy, events, node.names)
            merge.kernel = kernel.name
        return self.place("lmerge", merge, *ports)

    def _loop(self, node: n.Fixpoint) -> Port:
        """The loop itself, which says all it knows: once for all, in whatever form, whose ends are told alike."""

        def placed() -> Port:
            operator, plan = loop_operator(node, self.pool, _lower_body)
            return self.place("fixpoint", operator, *[self.lower(each, "segments") for each in plan.externals])

        return self._once(node, "loop", False, placed)

    def clipped(self, port: Port, codec: RowCodec, policy: Policy) -> Port:
        return self.place("clip", CountsOperator("clip", codec, policy), port)

    def instants(self, name: str, node: n.Node, codec: RowCodec, counted: Counted | None = None) -> Port:
        """The node in lifetimes of one tick (thesis, 12.3.3): as it is, or cut.

        Lifetimes in general are cut as the present reaches them, and the rest is kept.  What came from chronons has no
        future: equal rows of neighbouring instants may have been put together, and are cut apart without memory.
        """
        port = self.lower(node, "segments")
        if instants(node):
            return port
        if properties(node).chronon:
            return self.place(f"{name} (of chronons)", ChopOperator(1, codec, MOST_LEVELS), port)
        # what is cut into instants is never said beyond the present, clipped again above or not
        return self.place(name, ChrononsOperator(codec, Policy(self.emit, moves=moves(node)), counted), port)

    def _change(self, port: Port, kind: str, codec: RowCodec, policy: Policy) -> Port:
        """Istream and Dstream."""
        before = self.place("a tick ago", ShiftOperator(1, codec), port)
        sides = (port, before) if kind == "istream" else (before, port)
        return self.place(kind, CountsOperator("difference", codec, policy), *sides)


def _lower_body(body: n.Node, pool: Interner) -> PhysicalPlan:
    """What goes round a loop is neither clipped nor held back."""
    return lower({}, Emit.ALL, pool, handed={"step": body})
