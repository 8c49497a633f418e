"""Two plans in one dataflow: what they have in common is computed once, what is new gets the past that is known.

Operators of the new plan that compute what a running one does, on the same inputs, are that one: found by their stable
names (`plan/names.py`), and compared once more with Python functions by identity, because two functions may have one
name.  The others join as operators of a session's network do (`engine/session/network.py` has the argument).  A local
runtime does not note how far ends reach behind its operators, so these know of the past what they remember, not less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from everwhen.core.time import INF
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.ingress import Ingress
from everwhen.engine.session.cutover import is_much, load_gradually
from everwhen.engine.session.joining.as_of import AsOf
from everwhen.engine.session.joining.loading import Loading
from everwhen.engine.session.network import Network
from everwhen.engine.session.output_port import SharedOutput
from everwhen.errors import QueryError
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.merge.inputs import MergeOperator
from everwhen.plan.physical import PhysicalPlan, PlacedOperator, Port
from everwhen.plan.properties import require_alike
from everwhen.rewrite.plans.share_common import Sharing
from everwhen.rows.codec import RowCodec


@dataclass(frozen=True, slots=True)
class BothPlans:
    """An old plan and a new one beside it.

    `plan`: the operators of the old one, then those that only the new one has; its sinks are the new one's.  `new`: the
    new plan by itself; `numbers`: by the numbers of its operators there, those that they have in `plan`.
    """

    plan: PhysicalPlan
    new: PhysicalPlan
    numbers: Mapping[int, int]
    first_new: int

    @property
    def joining(self) -> dict[int, PlacedOperator]:
        """The operators that are new, by their numbers in `plan`; inputs stand before their users."""
        return dict(list(enumerate(self.plan.operators))[self.first_new :])


def both_plans(old: PhysicalPlan, new: PhysicalPlan) -> BothPlans:
    """Two plans, of which the first one runs, in one.  QueryError: they declare a source differently."""
    for name in old.sources.keys() & new.sources.keys():
        require_alike(old.sources[name], new.sources[name])
    sharing, taken = Sharing(), set()
    by_name: dict[str, list[int]] = {}
    for number, placed in enumerate(old.operators):
        by_name.setdefault(placed.what, []).append(number)
    numbers: dict[int, int] = {}
    operators = list(old.operators)

    def moved(port: Port) -> Port:
        return port if port.source is not None else Port(operator=numbers[port.operator])

    for number, placed in enumerate(new.operators):
        inputs = tuple(map(moved, placed.inputs))
        alike = (at for at in by_name.get(placed.what, ()) if at not in taken and old.operators[at].inputs == inputs)
        # of equal ones first that of the very same node: other queries keep theirs
        ranked = sorted(alike, key=lambda at: old.operators[at].node is not placed.node)
        same = next((at for at in ranked if sharing.node(old.operators[at].node) is sharing.node(placed.node)), None)
        if same is not None:
            taken.add(same)
        numbers[number] = len(operators) if same is None else same
        if same is None:
            operators.append(replace(placed, inputs=inputs))
    plan = PhysicalPlan(
        old.pool,
        {**new.sources, **old.sources},
        {**new.codecs, **old.codecs},
        tuple(operators),
        tuple(replace(sink, port=moved(sink.port)) for sink in new.sinks),
    )
    whole = replace(new, sources=plan.sources, codecs=plan.codecs)
    return BothPlans(plan, whole, numbers, len(old.operators))


class FixedNetwork(Network):
    """A fixed dataflow as a network that plans can join."""

    def __init__(self, dataflow: FixedDataflow, ingress: Ingress, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.pool, self.ingress, self.flow = dataflow.plan.pool, ingress, dataflow.flow  # type: ignore[assignment]
        self._present, self._plan = dataflow.tau, dataflow.plan
        for node in self.flow.nodes.values():
            node.max_end = INF  # it has not been noted
            node.exact = max(node.exact, dataflow.cares_from())

    def tau(self, port: Port) -> int:
        return self._present

    @property
    def operators(self) -> dict[int, PlacedOperator]:
        return {number: node.placed for number, node in self.flow.nodes.items()}

    def codec_of(self, name: str) -> RowCodec:
        return self._plan.codecs[name]

    def loaded(self, plans: BothPlans, output: SharedOutput) -> Loading | None:
        """Let the new operators of a plan run, which are given a large past in slices; None: it is not large."""
        loading = load_gradually(self, plans.joining, output) if is_much(self) else None
        if loading is not None:
            self._hear(plans)
        return loading

    def joined(self, plans: BothPlans, port: Port) -> AsOf:
        """Let the new operators of a plan run: what is known at a port of it.  On an error nothing has changed."""
        pasts: dict[Port, AsOf] = {}
        try:
            for number, placed in plans.joining.items():
                if isinstance(placed.operator, MergeOperator):
                    raise QueryError(
                        "a merge of copies (lmerge) that reads something else than the one that runs cannot join: what "
                        "its inputs have said is kept by that one; leave the part below the merge as it is"
                    )
                self._start(number, placed, pasts)
            past = self.past_of(port, pasts)
            if past.since == INF:
                raise self._unknown(port)
        except BaseException:
            self.flow.detach(plans.joining)
            raise
        self._hear(plans)
        return past

    def _hear(self, plans: BothPlans) -> None:
        """Let joins that stay tell promises about all columns that the new plan has use for."""
        for at, number in plans.numbers.items():
            running, wanted = self.flow.nodes[number].placed.operator, plans.new.operators[at].operator
            if isinstance(running, JoinOperator) and isinstance(wanted, JoinOperator):
                running.heard(wanted.hears)
