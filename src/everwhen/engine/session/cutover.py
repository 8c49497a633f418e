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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everwhen.algebra import nodes as n
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, show
from everwhen.engine.session.network import Levels, Network
from everwhen.engine.session.output_port import Cutover, EmittedBatch, OutputKey, SharedOutput, Step, Subscription
from everwhen.errors import QueryError
from everwhen.operators.contract import Operator
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import ChangelogEncoder
from everwhen.operators.signed_bag import after, before
from everwhen.operators.stateless.linear import FilterOperator, MapOperator
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


def replace_plan(
    network: Network,
    old: OutputKey,
    tail: Subscription,
    steps: Sequence[Step],
    new: OutputKey,
    levels: Levels,
    at: int | None,
) -> Replaced:
    """Let a new plan take over from an old one.  QueryError: it cannot; then nothing has changed."""
    was = network.outlets[old]
    if was.cutover is not None:
        raise QueryError(
            f"the query is being replaced already, from {show(was.cutover.at)} on; that is done when everything before "
            "is promised"
        )
    known, said = network.said(was)
    outlet, past = network.join(new, levels)
    try:
        needed = max(past.since, known, was.encoder.cti, was.promised)
        if needed == INF:
            raise _impossible(was, past.since)
        if at is not None and at < needed:
            raise QueryError(
                f"the new query cannot take over at {at}: it can from {show(needed)} on, because "
                + _why(was, past.since, known, needed)
            )
        t = needed if at is None else at
    except BaseException:
        network.drop(new)
        raise
    through = lowered(steps, network.pool)
    told = _under(_passed(through, said), tail.since)
    held = None if was.filter is None else _passed(through, was.filter.waiting)
    outlet.by_rows(new[1])
    codec = outlet.encoder.codec
    outlet.encoder = ChangelogEncoder.going_on(
        codec, was.encoder.cti, told.take(told.hi > was.encoder.cti), new[1] is Emit.FINAL
    )
    outlet.since, outlet.cutover = was.since, Cutover(was.port, through, t)
    parts = [after(past.changes, t), after(told, t).negated()]
    if held is not None:
        parts.append(before(held, t))
    changes = netted(concat_all(codec, [_recoded(codec, part) for part in parts]))
    tau = max(network.tau(was.port), network.tau(outlet.port))
    emitted = EmittedBatch.of(outlet.encode(changes, tau, Frontier(was.encoder.cti)))
    return Replaced(t, past.since, emitted)


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


def _under(said: Changes, since: int) -> Changes:
    """Events under the starts by which a subscriber knows them who hears from `since` on."""
    left = said.take(said.hi > since)
    return Changes(left.codec, np.maximum(left.lo, since), left.hi, left.weight, left.rows)


def _recoded(codec: RowCodec, changes: Changes) -> Changes:
    return Changes(codec, changes.lo, changes.hi, changes.weight, changes.rows)


def _impossible(was: SharedOutput, valid_from: int) -> QueryError:
    if was.encoder.cti == INF:
        return QueryError("the query has come to its end: everything is promised, so nothing of it can change")
    if was.promised == INF:
        return QueryError(
            "the query has promised of some rows that they will never change (punctuation), so no other query can take "
            "over; register the new one beside it"
        )
    why = "it needs more of the past than is kept" if valid_from == INF else "what the old one said is not known"
    return QueryError(f"the new query cannot take over: {why}")


def _why(was: SharedOutput, valid_from: int, known: int, needed: int) -> str:
    if needed == was.encoder.cti:
        return "everything before is promised"
    if needed == was.promised:
        return "some rows are promised up to then"
    return "its answer is right from then on" if needed == valid_from else "what the old one said is known from then on"
