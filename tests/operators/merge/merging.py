"""A merge with an output, fed with elements; histories and the physical streams that mean them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from everwhen.core.merge_policy import MergePolicy
from everwhen.core.punctuation import Frontier
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.operators.merge.in_order import InOrderMergeOperator
from everwhen.operators.merge.inputs import MergeOperator
from everwhen.operators.merge.lmerge import LMergeOperator
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import reorder

SCHEMA = Schema.of([("p", pa.string())])


class Merge:
    """An operator with an output, fed with elements.  `kernel`: R0 to R2, else the general one."""

    def __init__(
        self,
        since: Sequence[int],
        policy: MergePolicy,
        events: bool,
        kernel: str = "R4",
        instants: bool = False,
    ) -> None:
        self.codec = RowCodec(SCHEMA, Interner())
        self.since, self.policy, self.events = list(since), policy, events
        self.kernel, self.instants = kernel, instants
        self.operator = self._operator()
        self.encoder = EventChangelogEncoder(self.codec) if events else ChangelogEncoder(self.codec)
        self.frontiers = [Frontier(NEVER)] * len(self.since)
        self.out: list[Element] = []

    def _operator(self) -> MergeOperator:
        if self.kernel in ("R0", "R1", "R2"):
            return InOrderMergeOperator(self.codec, self.since, self.policy, self.kernel, self.instants)
        return LMergeOperator(self.codec, self.since, self.policy, self.events)

    def take(self, epoch: dict[int, list[Element]], ended: tuple[int, ...] = ()) -> list[Element]:
        inputs = []
        for port in range(len(self.frontiers)):
            elements = epoch.get(port, [])
            inputs.append(self._changes(elements))
            times = [e.t for e in elements if isinstance(e, Cti)]
            self.frontiers[port] = Frontier(max([self.frontiers[port].time, *times]))
        self.operator.end(ended)
        starts = [[e.vs for e in epoch.get(port, []) if isinstance(e, Insert)] for port in range(len(inputs))]
        self.operator.reach([max(each, default=NEVER) for each in starts])
        output = self.operator.step(inputs, self.frontiers, 0)
        said = list(self.encoder.step(output.changes, output.frontier.time).elements())
        self.out += said
        return said

    def begin_anew(self, port: int, since: int) -> None:
        self.operator.begin_anew(port, since)
        self.frontiers[port] = Frontier(NEVER)

    def _changes(self, elements: list[Element]) -> Changes:
        lo, hi, weight, rows = [], [], [], []
        for e in elements:
            if isinstance(e, Insert):
                parts = [(e.vs, e.ve, 1)]
            elif isinstance(e, Adjust) and self.events:
                parts = [(e.vs, e.ve, -1), (e.vs, e.vnew, 1)]
            elif isinstance(e, Adjust):
                parts = [(e.vnew, e.ve, -1)] if e.vnew < e.ve else [(e.ve, e.vnew, 1)]
            else:
                parts = []
            for a, b, w in parts:
                if a < b:
                    lo.append(a), hi.append(b), weight.append(w), rows.append(e.row["p"])
        if not lo:
            return no_changes(self.codec)
        ints = [np.array(column, np.int64) for column in (lo, hi, weight)]
        return Changes(self.codec, *ints, self.codec.encode([pa.array(rows)], len(rows)))

    def restart(self) -> None:
        state = self.operator.snapshot()
        self.operator = self._operator()
        self.operator.restore(state)


def a(p: str, vs: int, ve: int) -> Insert:
    return Insert(vs, ve, {"p": p})


def m(p: str, vs: int, old: int, ve: int) -> Adjust:
    return Adjust(vs, old, ve, {"p": p})


def texts(elements: list[Element]) -> list[str]:
    return [str(e) for e in elements]


def history(rng: random.Random, unique: bool) -> list[tuple[str, int, int]]:
    found = [(rng.choice("ABC"), rng.randrange(20)) for _ in range(rng.randrange(1, 8))]
    if unique:
        found = list(dict.fromkeys(found))
    return [(p, vs, rng.choice([INF, vs + 1 + rng.randrange(12)])) for p, vs in found]


def physical(rng: random.Random, events: list[tuple[str, int, int]]) -> list[Element]:
    of = History.of([a(p, vs, ve) for p, vs, ve in events], SCHEMA)
    return list(reorder(of, rng, infinite=True))


def snapshots(elements: list[Element]) -> list[Counter]:
    alive = History.of([e for e in elements if not isinstance(e, Cti)], SCHEMA)
    return [Counter(row for vs, ve, row in alive.events() if vs <= t < ve) for t in range(-5, 45)]
