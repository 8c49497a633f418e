"""Outlets: where a running plan leaves the graph, once for all queries that differ only behind it.

A filter looks at rows alone, and an adjust carries the row of the event that it moves.  So filtering the *elements* of
an answer is the same as filtering the answer, and queries that differ in their last filters can share everything up to
the chain: its memory, its work, and the decoding of rows.  The same holds for a projection that keeps all columns under
whatever names, and for any projection where events are the source's own, which are never merged.  (Elsewhere one that
drops columns may merge rows, whose changes would then have to be netted.)

A `Subscription` is such a tail, together with the instant from which on the query's answer is right: an outlet's
elements restricted to [since, ∞).  An event that began earlier is known to the subscriber under the start `since`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.node import cut
from everwhen.engine.output_port import OutputPort
from everwhen.engine.session.filter_index import FEWEST, EqualityFilterIndex, constant_of, met, taken
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import ChangelogEncoder, with_punctuation, without_punctuation
from everwhen.operators.signed_bag import SignedBag, after, before
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes, concat_all, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch, empty_elements

Step = n.Filter | n.Map

OutputKey = tuple[n.Node, Emit]
"""Where a plan leaves the graph: the plan, and what its operators were built to say."""


def split_tail(node: n.Node) -> tuple[n.Node, tuple[Step, ...]]:
    """A plan without the filters and projections at its end that may follow the chain, and these, first one first."""
    steps: list[Step] = []
    while isinstance(node, n.Filter) or (isinstance(node, n.Map) and (node.keeps_events or _keeps_all(node))):
        steps.append(node)
        node = node.input
    return node, tuple(reversed(steps))


def _keeps_all(node: n.Map) -> bool:
    plain = {expr.name for _, expr in node.columns if isinstance(expr, Column)}
    return plain.issuperset(node.input.schema.names)


@dataclass(frozen=True, slots=True, eq=False)
class EmittedBatch:
    """What an outlet says in an epoch: elements, then promises about data, then perhaps a CTI."""

    batch: ElementBatch
    """All but the promises."""

    data: int
    """How many elements stand before the CTI."""

    silence: ElementBatch
    """The same without any data: only the CTI, if there is one."""

    first: int
    """The earliest start."""

    promises: tuple[Punctuation, ...] = ()

    @staticmethod
    def of(batch: ElementBatch) -> EmittedBatch:
        if batch.promises:
            promises = tuple(said.promise for said in batch.promises.values() if isinstance(said, Punct))
            return replace(EmittedBatch.of(without_punctuation(batch)), promises=promises)
        size = len(batch)
        data = size - int(size > 0 and int(batch.op[-1]) == CTI)
        if not data:
            return EmittedBatch(batch, 0, batch, INF)
        return EmittedBatch(batch, data, batch.slice(data, size - data), int(batch.vs[:data].min()))


@dataclass(frozen=True, slots=True)
class Cutover:
    """An old plan that still speaks (`cutover.py`): its port, and the query's last filters.

    It says what is before `at`.  With `new` it says everything, until what it promises reaches `at`: then all from
    there on is what the new plan has said meanwhile.
    """

    port: Port
    through: tuple[Operator, ...]
    at: int
    new: SignedBag | None = None
    """What the new plan has said of instants from `at` on."""

    @property
    def ends(self) -> bool:
        """Whether it is over when the old plan has promised everything before the instant."""
        return True

    def counts_from(self, promise: int) -> int:
        """From when on the new plan counts, if it is over when so much is promised."""
        return self.at if self.new is None else promise

    def state_size(self) -> StateSize:
        """What is kept because of it."""
        return StateSize() if self.new is None else self.new.state_size()

    def combined(self, old: Output, new: Output) -> Output:
        """What the old plan says before the instant, and the new one from there on."""
        codec, ends = new.changes.codec, old.frontier.time >= self.at
        changes = netted(concat_all(codec, [before(self.passed(old, codec), self.at), after(new.changes, self.at)]))
        return Output(changes, Frontier(max(self.at, new.frontier.time) if ends else old.frontier.time))

    def passed(self, old: Output, codec: RowCodec) -> Changes:
        """What the old plan says, behind the query's last filters."""
        changes = old.changes
        for operator in self.through:
            changes = operator.step([changes], [Frontier(old.frontier.time)], INF).changes
        return Changes(codec, changes.lo, changes.hi, changes.weight, changes.rows)


@dataclass
class SharedOutput(OutputPort):
    """An output port that several queries share."""

    over: Emit | None = None
    """The policy of the operators below, if they emit more than this output does."""
    cutover: Cutover | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    patience: int = 0
    """How many epochs were let go before it was tried to go on as a new output would."""
    delay: int = 0
    """How many are to be let go before the next try."""
    _banks: dict[str, EqualityFilterIndex] | None = None

    def __post_init__(self) -> None:
        self._nothing = EmittedBatch.of(empty_elements(self.encoder.codec.schema))

    def subscribe(self, query: str, subscription: Subscription) -> None:
        self.subscriptions[query] = subscription
        self._banks = None

    @property
    def wanted(self) -> int:
        """From when on some query cares."""
        return min((each.wanted for each in self.subscriptions.values()), default=NEVER)

    def leave(self, query: str) -> None:
        del self.subscriptions[query]
        self._banks = None

    @property
    def ports(self) -> tuple[Port, ...]:
        """The port that it reads; behind it that of an old plan, while a query is being replaced."""
        return (self.port,) if self.cutover is None else (self.port, self.cutover.port)

    def take(self, given: tuple[Output, int], old: tuple[Output, int] | None = None) -> EmittedBatch:
        """What it emits in an epoch: each of its ports with its largest start."""
        output, tau = self._combined(given, old)
        said = self.step(cut(output.changes, self.since), tau, output.frontier)
        self._settle(output.frontier.time)
        return said

    def hear(self, given: tuple[Output, int], old: tuple[Output, int] | None = None) -> ElementBatch:
        """The same as elements."""
        output, tau = self._combined(given, old)
        said = self.encode(cut(output.changes, self.since), tau, output.frontier)
        self._settle(output.frontier.time)
        return said

    def _combined(self, given: tuple[Output, int], old: tuple[Output, int] | None) -> tuple[Output, int]:
        if self.cutover is None or old is None:
            return given
        both = self._switched if self.cutover.new is not None else self.cutover.combined
        return both(old[0], given[0]), max(given[1], old[1])

    def _switched(self, old: Output, new: Output) -> Output:
        """What the old plan says; when its promise has come far enough, from there on what the new one has said."""
        assert self.cutover is not None and self.cutover.new is not None
        codec, p = self.encoder.codec, old.frontier.time
        earlier = self.cutover.passed(old, codec)
        self.cutover.new.add(after(new.changes, self.cutover.at))
        if p < self.cutover.at:
            return Output(earlier, Frontier(p))
        # what both say stays as it is, in one piece
        other = concat_all(codec, [self.cutover.new.netted(), self.fed().negated(), earlier.negated()])
        changes = concat_all(codec, [earlier, netted(after(other, p))])
        return Output(changes, Frontier(max(p, new.frontier.time)))

    def fed(self) -> Changes:
        """What stands of all that has been said or is held back."""
        codec = self.encoder.codec
        assert isinstance(self.encoder, ChangelogEncoder), "it is one of rows while a query is being replaced"
        held = no_changes(codec) if self.filter is None else self.filter.waiting
        return concat_all(codec, [self.encoder.standing()[1], held])

    def _settle(self, promise: int) -> None:
        """When everything before the cutover is promised, all that the old plan knows is out."""
        if (cutover := self.cutover) is not None and cutover.ends and promise >= cutover.at:
            self.cutover, self.since = None, max(self.since, cutover.counts_from(promise))

    def state_size(self) -> StateSize:
        return super().state_size() if self.cutover is None else super().state_size() + self.cutover.state_size()

    def snapshot(self) -> dict[str, Any]:
        new = None if self.cutover is None or self.cutover.new is None else self.cutover.new.snapshot()
        return super().snapshot() | {"new": new, "put_off": (self.patience, self.delay)}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.patience, self.delay = state.get("put_off", (0, 0))
        if self.cutover is not None and state.get("new") is not None:
            self.cutover = replace(self.cutover, new=SignedBag(self.encoder.codec))
            assert self.cutover.new is not None
            self.cutover.new.restore(state["new"])

    def step(self, changes: Changes, tau: int, frontier: Frontier) -> EmittedBatch:
        quiet = not len(changes) and frontier.time <= self.encoder.cti and not frontier.promises
        quiet = quiet and changes.closed is None
        if quiet and self.filter is None:
            return self._nothing
        return EmittedBatch.of(self.encode(changes, tau, frontier))

    def deliver(self, said: EmittedBatch) -> dict[str, ElementBatch | Exception]:
        """What every subscriber hears, or the error of its own tail."""
        if self._banks is None:
            self._banks = self._build_banks()
        parts = {name: bank.find(said.batch, said.data) for name, bank in self._banks.items() if said.data}
        heard: dict[str, ElementBatch | Exception] = {}
        for query, each in self.subscriptions.items():
            try:
                if each.constant is not None and each.constant[0] in parts and not each.restricts(said):
                    batch = each.take_rest(said, parts[each.constant[0]].get(each.constant[1]))
                else:
                    batch = each.take(said)
                heard[query] = with_punctuation(batch, each.carried(said.promises)) if said.promises else batch
            except Exception as error:  # also of a function of the user's: the others must go on
                heard[query] = error
        return heard

    def _build_banks(self) -> dict[str, EqualityFilterIndex]:
        wanted: dict[str, list[Any]] = {}
        for each in self.subscriptions.values():
            if each.constant is not None:
                wanted.setdefault(each.constant[0], []).append(each.constant[1])
        schema = self.encoder.codec.schema
        return {
            name: EqualityFilterIndex(schema.index(name), schema.types[schema.index(name)], constants)
            for name, constants in wanted.items()
            if len(constants) >= FEWEST
        }

    def again(self, events: Changes, since: int) -> EmittedBatch:
        """What one who joins now must hear: the events that live at or after `since`, and the CTI."""
        alive = events.take(events.hi > since)
        alive = alive.take(np.argsort(alive.lo, kind="stable"))
        count, cti = len(alive), self.encoder.cti
        op = np.full(count + (cti > NEVER), INSERT, np.uint8)
        vs, ve = np.full(len(op), cti, np.int64), np.full(len(op), cti, np.int64)
        vs[:count], ve[:count] = np.maximum(alive.lo, since), alive.hi
        op[count:] = CTI
        codec = self.encoder.codec
        columns = codec.decode(alive.rows, nulls=len(op) - count)
        return EmittedBatch.of(ElementBatch(codec.schema, op, vs, ve, np.zeros(len(op), np.int64), columns))


class Subscription:
    """The tail of one query."""

    def __init__(self, steps: tuple[Step, ...], schema: Schema, since: int, began: float) -> None:
        self.since = since
        self.wanted = NEVER
        """From when on the query cares."""
        self.began = began
        self.rows_in = 0
        self.rows_out = 0
        self._steps = steps
        self._schema = schema
        self._renames = any(isinstance(step, n.Map) for step in steps)
        first = steps[0] if steps else None
        self.constant = constant_of(first.predicate, first.schema) if isinstance(first, n.Filter) else None

    def restricts(self, said: EmittedBatch) -> bool:
        """Whether some of the elements speak of instants before `since`."""
        return self.since > NEVER and said.data > 0 and said.first < self.since

    def carried(self, promises: Sequence[Punctuation]) -> list[Punctuation]:
        """Promises under the query's own names: those about columns that it keeps.  A filter changes none."""
        found = list(promises)
        for step in self._steps:
            if isinstance(step, n.Map):
                kept: dict[str, list[str]] = {}
                for name, expr in step.columns:
                    if isinstance(expr, Column):
                        kept.setdefault(expr.name, []).append(name)
                found = [
                    Punctuation({name: pattern for given, pattern in p.match.items() for name in kept[given]}, p.t)
                    for p in found
                    if p.match.keys() <= kept.keys()
                ]
        return found

    def take_rest(self, said: EmittedBatch, found: ElementBatch | None) -> ElementBatch:
        """The query's elements, of those that a bank found for its first condition."""
        if found is None or len(self._steps) == 1:
            self.rows_in += said.data
            self.rows_out += 0 if found is None else len(found) - (len(said.batch) - said.data)
            return self._silence(said) if found is None else found
        batch = self.take(EmittedBatch.of(found), self._steps[1:])
        self.rows_in += said.data - (len(found) - (len(said.batch) - said.data))
        return batch

    def take(self, said: EmittedBatch, steps: tuple[Step, ...] | None = None) -> ElementBatch:
        """The query's elements; cost: the tail's conditions over all elements, and a copy of those that stay."""
        self.rows_in += said.data
        if not said.data:
            return self._silence(said)
        batch = said.batch
        if steps is None and len(self._steps) == 1 and not self._renames and not self.restricts(said):
            return self._filtered(said, self._steps[0])
        times = [batch.op[: said.data], batch.vs[: said.data], batch.ve[: said.data], batch.vnew[: said.data]]
        columns = batch.columns
        if said.data < len(batch):
            columns = tuple(column.slice(0, said.data) for column in columns)
        whole = True
        if self.restricts(said):
            whole = False
            times, columns = _restricted(times, columns, self.since)
        for step in self._steps if steps is None else steps:
            named = dict(zip(step.input.schema.names, columns, strict=True))
            if isinstance(step, n.Map):
                columns = tuple(expr.evaluate(named, len(times[0])) for _, expr in step.columns)
                whole = False
                continue
            picked = met(step, named, len(times[0]))
            if len(picked) < len(times[0]):
                whole = False
                times, columns = taken(times, columns, picked)
        if whole:
            self.rows_out += said.data
            return batch
        self.rows_out += len(times[0])
        if not len(times[0]):
            return self._silence(said)
        if said.data < len(batch):
            end = said.silence
            times = [np.append(a, b) for a, b in zip(times, (end.op, end.vs, end.ve, end.vnew), strict=True)]
            columns = tuple(pa.concat_arrays([column, pa.nulls(1, column.type)]) for column in columns)
        return ElementBatch(self._schema, times[0], times[1], times[2], times[3], columns)

    def _filtered(self, said: EmittedBatch, step: Step) -> ElementBatch:
        """The same for a single condition, the usual case: all that stays is copied once, the CTI with it."""
        assert isinstance(step, n.Filter)
        batch, data = said.batch, said.data
        named = {name: column.slice(0, data) for name, column in zip(step.schema.names, batch.columns, strict=True)}
        picked = met(step, named, data)
        self.rows_out += len(picked)
        if len(picked) == data:
            return batch
        if not len(picked):
            return self._silence(said)
        if data < len(batch):
            picked = np.append(picked, data)
        times, columns = taken([batch.op, batch.vs, batch.ve, batch.vnew], batch.columns, picked)
        return ElementBatch(self._schema, times[0], times[1], times[2], times[3], columns)

    def _silence(self, said: EmittedBatch) -> ElementBatch:
        if not self._renames:
            return said.silence
        end = said.silence
        columns = tuple(pa.nulls(len(end), type_) for type_ in self._schema.types)
        return ElementBatch(self._schema, end.op, end.vs, end.ve, end.vnew, columns)


def _restricted(
    times: list[np.ndarray], columns: tuple[pa.Array, ...], since: int
) -> tuple[list[np.ndarray], tuple[pa.Array, ...]]:
    """Elements about the instants from `since` on: what they change earlier is left out."""
    op, vs, ve, vnew = times
    adjust = op == ADJUST
    # an event that had ended before and grows beyond it is new to who listens from then on
    grown = adjust & (ve <= since) & (vnew > since)
    op = np.where(grown, np.uint8(INSERT), op)
    ve = np.where(grown, vnew, ve)
    cut = [op, np.maximum(vs, since), ve, np.where(adjust & ~grown, np.maximum(vnew, since), 0)]
    return taken(cut, columns, np.flatnonzero(ve > since))
