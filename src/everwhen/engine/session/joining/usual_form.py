"""After a cutover: the output of a query that was replaced becomes what a new query of its plan would have.

While a plan takes over, the output counts in rows, because the two plans cut lifetimes differently and know different
groups.  That costs more than an encoder that is made for the plan.  When the old plan has gone, and the events that are
said are such as the usual encoder would know, it goes on with them.  No element is said because of it.

* An encoder of rows stays, and nets no more than the plan needs.
* An encoder of groups needs the group of each event.  A row that stands belongs to one group, if the row names it.
* An encoder of events keeps nothing, so what is said must be the source's own events, with their own starts: events
  that were cut at the cutover must have ended first.
* The filter goes where operators say no more than the policy does, once nothing waits in it.  In `ended` a plan of
  events keeps it: a new one would say them as they come.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from everwhen.algebra.node import Node
from everwhen.containers.key_table import KeyTable
from everwhen.core.emit import Emit
from everwhen.engine.output_port import OutputPort
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.group_changelog import GroupChangelogEncoder
from everwhen.operators.signed_bag import after
from everwhen.plan.lower import Lowering
from everwhen.plan.physical import Sink
from everwhen.rows.changes import Changes, concat

_LONGEST = 1023


def put_off(patience: int) -> int:
    """How many epochs to wait before the next try, after so many: looking at all that stands costs as much."""
    return min(2 * patience + 1, _LONGEST)


def to_usual_form(output: OutputPort, sink: Sink, recalled: Callable[[], Changes | None]) -> bool:
    """Let an output by rows go on as a new output of its plan (`sink`) would, if it can.

    `recalled` tells what the plan has said at its port that stands, with its groups; that takes as long as there is of
    it, and an encoder of rows has no need of it.
    """
    encoder = output.encoder
    if not isinstance(encoder, ChangelogEncoder) or sink.port != output.port:
        return False
    if output.filter is not None and not _unfiltered(output, sink):
        return False
    usual = sink.encoder
    if isinstance(usual, ChangelogEncoder):
        encoder.takes_as(usual)
        usual = encoder
    elif not _taken_up(usual, encoder, output.since, recalled()):
        return False
    usual.cti = encoder.cti
    output.encoder, output.nets = usual, False
    if sink.filter is None:
        output.filter = None
    return True


def _taken_up(
    usual: GroupChangelogEncoder | EventChangelogEncoder,
    encoder: ChangelogEncoder,
    since: int,
    standing: Changes | None,
) -> bool:
    """Whether the usual encoder could take up what is said."""
    _, said = encoder.standing()
    said = said.take(said.hi > encoder.cti)
    if standing is None:
        return False
    if isinstance(usual, GroupChangelogEncoder):
        return _group_events(usual, encoder.cti, said, standing)
    return _same(said, standing, encoder.cti) and not bool((said.lo < since).any())


def usual_sink(lowering: Lowering, node: Node) -> Sink:
    """How a plan that is placed would leave if it were new.  Nothing is placed because of it."""
    operators, placed = dict(lowering.operators), dict(lowering._placed)
    sink = lowering.sink("", node)
    lowering.operators, lowering._placed = operators, placed
    return sink


def rename(lowering: Lowering, old: Node, new: Node) -> bool:
    """Let another node, equal to one that is placed, stand for it; whether it could: it is not placed itself."""
    placed = lowering._placed
    if any(found is new for found, _ in placed.values()):
        return False
    for (_, form, top, told), (node, port) in list(placed.items()):
        if node is old:
            placed[id(new), form, top, told] = new, port
    return True


def _unfiltered(output: OutputPort, sink: Sink) -> bool:
    """Whether the usual filter, or none, would have let through the same."""
    waits = output.filter is not None and (len(output.filter.waiting) > 0 or output.filter.orders)
    return not waits if sink.filter is None else sink.filter.emit is Emit.FINAL


def _group_events(usual: GroupChangelogEncoder, cti: int, said: Changes, standing: Changes) -> bool:
    """Give an encoder of groups the events that are said, if the group of each is known."""
    if standing.group is None:
        return not len(said) and not len(standing)
    if len(netted(concat(after(said, cti), after(_plain(standing), cti).negated()))):
        return False  # the plan says more or less than was let through
    table = KeyTable(said.codec.width)
    ids = table.intern(standing.rows)
    lowest = np.full(table.capacity, np.iinfo(np.int64).max, np.int64)
    highest = np.full(table.capacity, -1, np.int64)
    np.minimum.at(lowest, ids, standing.group)
    np.maximum.at(highest, ids, standing.group)
    if (lowest[ids] != highest[ids]).any():
        return False  # two groups have the same row
    of = table.find(said.rows)
    if (of < 0).any():
        return False
    group = lowest[of]
    order = np.lexsort((said.lo, group))
    groups, counts = np.unique(group, return_counts=True)
    records = np.stack([said.lo[order], said.hi[order]], axis=1)
    if (records[1:, 0][np.diff(group[order]) == 0] < records[:-1, 1][np.diff(group[order]) == 0]).any():
        return False
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    usual.restore({"cti": cti, "groups": groups, "said": records, "offsets": offsets})
    return True


def _plain(changes: Changes) -> Changes:
    return Changes(changes.codec, changes.lo, changes.hi, changes.weight, changes.rows)


def _same(said: Changes, events: Changes, cti: int) -> bool:
    """Whether these are the same events; one that has just ended may still grow, and is not known any more."""
    if (events.hi <= cti).any() or (len(said) != len(events) and int(np.abs(events.weight).sum()) != len(said)):
        return False
    table = KeyTable(2 + said.codec.width)
    total = np.zeros(0, np.int64)
    for changes, sign in ((said, 1), (events, -1)):
        ids = table.intern(np.concatenate([changes.lo[:, None], changes.hi[:, None], changes.rows], axis=1))
        total = np.concatenate([total, np.zeros(max(table.capacity - len(total), 0), np.int64)])
        np.add.at(total, ids, sign * changes.weight)
    return not total.any()
