"""Cutover: a running query becomes another one from an instant on, without a gap and without doubling anything.

Old plan P, new plan P', an instant t.  The answer is what P says before t and what P' says from t on.  P' joins as any
query does and is exact from an instant v on (`network.py`); t is not before v, nor before what the output has promised.

*Why nothing is missing or doubled.*  Every change of P is cut at t and so is every change of P': each instant belongs
to one of the two.  What P has said of instants from t on is taken back, and what P' says there is said; both in one
step, netted, so equal rows cancel at every instant, however the two plans cut lifetimes.  It touches only instants
from t on, and the output has promised nothing of these: it is legal.

*Progress.*  Up to t it is that of P, from there on that of P'.  When P has promised everything before t, all of that is
out, and what only P needs is dropped.  The emission filter stands behind the cut, so what P held back beyond t is gone
with it, and what it held back before t goes on when it may.

*Plans of one meaning* (migration).  Where t lies ahead of the present, P' does not tell the ends that it would tell had
it always run: in `current` a piece that is open now is said without an end, and P' sees it begin at t.  So while both
mean the same, P alone speaks, what P' says from t on is kept, and the switch comes when the promise p of P has reached
t, at T = p.  Before T nothing can change and P has said it; from T on P' is exact.  By then both have seen the present
pass, so what they say differs only where their outermost operators tell different ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everwhen.algebra import nodes as n
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER, show
from everwhen.engine.node import OperatorNode, cut
from everwhen.engine.output_port import OutputPort
from everwhen.engine.session.joining.as_of import AsOf
from everwhen.engine.session.joining.gradual import GradualCutover
from everwhen.engine.session.joining.loading import Loading, loading_of
from everwhen.engine.session.joining.pace import Pace
from everwhen.engine.session.joining.row_parts import RowParts
from everwhen.engine.session.network import Levels, Network
from everwhen.engine.session.output_port import Cutover, EmittedBatch, OutputKey, SharedOutput, Step, Subscription
from everwhen.errors import QueryError
from everwhen.operators.contract import Operator
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import ChangelogEncoder
from everwhen.operators.signed_bag import SignedBag, after
from everwhen.operators.sort.sort import SortedChangelogEncoder
from everwhen.operators.stateless.columns import MapOperator
from everwhen.operators.stateless.linear import FilterOperator
from everwhen.plan.physical import PlacedOperator, Port
from everwhen.rows.changes import Changes, concat_all
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner


@dataclass(frozen=True, slots=True)
class Replaced:
    """How a query began to be replaced: from when on the new plan counts, from when on it knows its answer, and what is
    emitted at once."""

    at: int
    valid_from: int
    said: EmittedBatch


@dataclass(frozen=True, slots=True)
class Migration:
    """How a query goes over to another plan: the new one counts from the instant `at` on, and knows its answer from
    `valid_from` on.  `done`: the old plan has gone already; else both run until everything before `at` is promised.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> runtime = ew.LocalRuntime(s.where(ew.col("x") > 1).where(ew.col("x") > 2))
    >>> _ = runtime.push({"S": ew.ElementBatch.of([ew.Insert(0, 9, {"x": 3}), ew.Cti(5)], s.schema)})
    >>> runtime.migrate(s.where(ew.col("x") > 2))
    Migration(at=5, valid_from=5, done=True)
    """

    at: int
    valid_from: int
    done: bool


@dataclass(frozen=True, slots=True)
class Takeover:
    """Where a query leaves the network, with its own tail and last filters, and where its new plan will."""

    old: OutputKey
    tail: Subscription
    steps: Sequence[Step]
    new: OutputKey
    levels: Levels


def replace_plans(
    network: Network, takeovers: Sequence[Takeover], at: int | None, silently: bool = False
) -> list[Replaced]:
    """Let new plans take over from old ones at one instant.  `silently`: they mean the same.  QueryError: one of them
    cannot; then nothing has changed."""
    for each in takeovers:
        was = network.outlets[each.old]
        if was.cutover is not None:
            ends = "with the next epoch" if was.encoder.cti >= was.cutover.at else "when everything before is promised"
            raise QueryError(
                f"the query is being replaced already, from {show(was.cutover.at)} on; that is done {ends}"
            )
    joined: list[tuple[SharedOutput, AsOf, Loading | None]] = []
    try:
        for each in takeovers:
            slowly = join_gradually(network, each.new, each.levels) if len(takeovers) == 1 else None
            joined.append((*network.join(each.new, each.levels), None) if slowly is None else slowly)
        when = at
        if when is None and len(takeovers) > 1:
            left = [network.outlets[each.old] for each in takeovers]
            together = zip(left, joined, strict=True)
            when = max(
                _needed(was, past, known, _final_until(was, each.new[1], said))
                for each, (was, (_, past, _)) in zip(takeovers, together, strict=True)
                for known, said in [network.said(was)]
            )
        return [
            take_over(
                network, network.outlets[each.old], outlet, past, each.new[1], when,
                lowered(each.steps, network.pool), each.tail.since, silently, loading,
            )
            for each, (outlet, past, loading) in zip(takeovers, joined, strict=True)
        ]  # fmt: skip
    except BaseException:
        for each in takeovers[: len(joined)]:
            network.drop(each.new)
        raise


def _own_encoder(was: OutputPort, through: Sequence[Operator]) -> ChangelogEncoder | None:
    """An encoder by rows that nobody else hears: it goes on itself."""
    alone = not through and not (isinstance(was, SharedOutput) and len(was.subscriptions) > 1)
    return was.encoder if alone and type(was.encoder) is ChangelogEncoder else None


def _needed(was: OutputPort, past: AsOf, known: int, final: int) -> int:
    """The earliest instant at which a plan that has joined can take over; what the old one said is known from `known`
    on, and final up to `final`."""
    needed = max(past.since, known, was.encoder.cti, was.promised, final)
    if needed == INF:
        raise _impossible(was, past.since)
    return needed


def _final_until(was: OutputPort, emit: Emit, said: Changes) -> int:
    """In `final` what was said stands: until when that reaches."""
    return int(said.hi.max(initial=NEVER)) if emit is Emit.FINAL and was.ahead == NEVER else NEVER


def take_over(
    network: Network,
    was: OutputPort,
    outlet: SharedOutput,
    past: AsOf,
    emit: Emit,
    at: int | None,
    through: tuple[Operator, ...] = (),
    since: int = NEVER,
    silently: bool = False,
    loading: Loading | None = None,
) -> Replaced:
    """Let a new output, whose plan has joined with a past, go on for an old one.  `through`: the last filters of the
    old query, which is known from `since` on.  `silently`: both mean the same, so the old one speaks until its promise
    has come so far.  QueryError: it cannot; the old one is as it was."""
    if any(isinstance(each.encoder, SortedChangelogEncoder) for each in (was, outlet)):
        raise QueryError(
            "a query with ORDER BY cannot take over, nor be taken over from: a row that is said has its place among "
            "all others; start the new query beside the old one"
        )
    mine = _own_encoder(was, through) if loading is not None else None
    if mine is None:
        known, said = network.said(was)
    else:
        known, said = max(was.since, network.running(was.port).exact, mine.known_from), network.nothing(was.port)
    # In `final` operators may say rows of a group that is closed before their output can promise it.  Where both plans
    # mean the same, what only the old one has said yet waits in the filter for the new one to say it.
    ahead = was.ahead if silently else INF
    final = NEVER if silently else _final_until(was, emit, said if mine is None else mine.standing()[1])
    needed = _needed(was, past, known, final)
    if at is not None and at < needed:
        raise QueryError(
            f"the new query cannot take over at {at}: it can from {show(needed)} on, because "
            + _why(was, past.since, known, needed)
        )
    t = needed if at is None else at
    if mine is not None:
        since = NEVER  # whatever it has said, it goes on
    told = cut(_passed(through, said), since)
    held = None if was.filter is None else cut(_passed(through, was.filter.waiting), since)
    outlet.by_rows(emit, ahead)
    codec = outlet.encoder.codec
    if mine is None:
        outlet.encoder = ChangelogEncoder.going_on(
            codec, was.encoder.cti, told.take(told.hi > was.encoder.cti), emit is Emit.FINAL
        )
    else:
        outlet.encoder = mine
        mine.takes_all(emit is Emit.FINAL)
    outlet.since, tau = max(was.since, since), max(network.tau(was.port), network.tau(outlet.port))
    if loading is not None:  # the old plan speaks until the new one has caught up
        outlet.cutover = GradualCutover(was.port, through, t, loading=loading, outlet=outlet, silently=silently)
        waiting = _recoded(codec, after(told, INF) if held is None else held)
        return Replaced(t, past.since, EmittedBatch.of(outlet.encode(waiting, tau, Frontier(was.encoder.cti))))
    silently = silently and t > was.encoder.cti
    new = SignedBag(codec) if silently else None
    outlet.cutover = Cutover(was.port, through, t, new)
    parts = [] if held is None else [_recoded(codec, held)]
    if new is not None:
        new.add(after(past.changes, t))
    else:  # what both say stays as it is, in one piece
        others = [_recoded(codec, past.changes), _recoded(codec, told).negated(), *(each.negated() for each in parts)]
        parts.append(netted(after(concat_all(codec, others), t)))
    changes = concat_all(codec, parts)
    emitted = EmittedBatch.of(outlet.encode(changes, tau, Frontier(was.encoder.cti)))
    return Replaced(t, past.since, emitted)


def join_gradually(network: Network, exit: OutputKey, levels: Levels) -> tuple[SharedOutput, AsOf, Loading] | None:
    """Let a plan join whose operators are given the past in slices: its outlet, from when on it will be exact, and what
    loads it.  None: it is little, or it cannot join so."""
    if levels.keys() - network.ingress.inputs.keys() or not is_much(network):
        return None
    running = set(network.flow.nodes)
    outlet = network.outlet(exit, None)
    new = {number: placed for number, placed in network.operators.items() if number not in running}
    loading = load_gradually(network, new, outlet)
    if loading is None:
        return None
    network.outlets[exit] = outlet
    return outlet, AsOf(outlet.since, network.nothing(outlet.port)), loading


def is_much(network: Network) -> bool:
    """Whether so much is kept that a plan may have to join in slices."""
    return network.flow.state_size().rows >= 2 * network.slice_rows


def load_gradually(network: Network, new: Mapping[int, PlacedOperator], outlet: SharedOutput) -> Loading | None:
    """Let new operators run that are given the past in slices, and say from when on their outlet is exact; what loads
    them.  None: it is little, or they cannot join so; then nothing has changed."""
    rows = network.slice_rows
    pasts: dict[Port, AsOf] = {}
    nodes: dict[int, OperatorNode] = {}
    for number, placed in new.items():
        known = [
            nodes[port.operator].exact if port.operator in nodes else network.past_of(port, pasts).since
            for port in placed.inputs
        ]
        since = max(known, default=INF)
        exact = INF if since == INF else network.exact_after(placed, since)
        if exact == INF or placed.operator.merges:
            return None
        nodes[number] = OperatorNode.of(number, placed, network.clock())
        nodes[number].since, nodes[number].exact, nodes[number].loading = since, exact, True
    read = {port for node in nodes.values() for port in node.placed.inputs if port.operator not in nodes}
    past = {port: pasts[port] for port in read}
    total = sum(len(each.changes) for each in past.values())
    if outlet.port.operator not in nodes or total < 2 * rows:
        return None
    for node in nodes.values():
        network.flow.add(node)
    now = {port: (network.frontier(port), network.tau(port)) for port in read}
    flow = network.flow
    network.pace = Pace(lambda: sum(node.rows_in + node.rows_out for node in flow.nodes.values()))
    outlet.since = nodes[outlet.port.operator].exact
    return loading_of(
        list(nodes.values()), past, now, outlet.port, RowParts(outlet.encoder.codec, 4 * total // rows), rows,
        network.pace, network.flow.step_one, network.exact_after,
    )  # fmt: skip


def lowered(steps: Sequence[Step], pool: Interner) -> tuple[Operator, ...]:
    """The last filters and projections of a query as operators."""
    found: list[Operator] = []
    for step in steps:
        codec = RowCodec(step.schema, pool)
        if isinstance(step, n.Filter):
            found.append(FilterOperator(step.predicate, codec))
        else:
            found.append(MapOperator(step.columns, RowCodec(step.input.schema, pool), codec))
    return tuple(found)


def _passed(through: Sequence[Operator], changes: Changes) -> Changes:
    for operator in through:
        changes = operator.step([changes], [Frontier(INF)], INF).changes
    return changes


def _recoded(codec: RowCodec, changes: Changes) -> Changes:
    return Changes(codec, changes.lo, changes.hi, changes.weight, changes.rows)


def _impossible(was: OutputPort, valid_from: int) -> QueryError:
    if was.encoder.cti == INF:
        return QueryError("the query has come to its end: everything is promised, so nothing of it can change")
    if was.promised == INF:
        return QueryError(
            "the query has promised of some rows that they will never change (punctuation), so no other query can take "
            "over; register the new one beside it"
        )
    why = "it needs more of the past than is kept" if valid_from == INF else "what the old one said is not known"
    return QueryError(f"the new query cannot take over: {why}")


def _why(was: OutputPort, valid_from: int, known: int, needed: int) -> str:
    if needed == was.encoder.cti:
        return "everything before is promised"
    if needed == was.promised:
        return "some rows are promised up to then"
    if needed not in (valid_from, known):
        return "rows were said to be final up to then"
    return "its answer is right from then on" if needed == valid_from else "what the old one said is known from then on"
