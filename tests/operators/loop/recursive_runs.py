"""Recursions over a changing network, run epoch by epoch beside the definition.

After every epoch, whatever came in it, the history said so far must be the fixed point of the inputs so far, at every
instant; and every promise must hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import everwhen as ew
from everwhen.algebra.expressions.build import Call
from everwhen.core.consistency import MIDDLE
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.reference import evaluate
from everwhen.reference.admission import Finalized, finalized
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from operators.differential import Said, assert_snapshots
from state_files import through_file

col = ew.col
SOURCE = ew.source("Source", {"n": "int64"})
LINK = ew.source("Link", {"a": "int64", "b": "int64", "w": "int64"})
FIRST, LAST = -1, 16
NODES = 4

Query = Callable[..., ew.Stream]


def linear(**options: Any) -> ew.Stream:
    """What each source reaches: r(s, n)."""
    base = SOURCE.select(s=col("n"), n=col("n"))
    return ew.fixpoint(base, lambda r: r.join(LINK, on={"n": "a"}).select("s", n=col("b")), **options)


def nodes(**options: Any) -> ew.Stream:
    """What is reached at all: r(n)."""
    return ew.fixpoint(SOURCE, lambda r: r.join(LINK, on={"n": "a"}).select(n=col("b")), **options)


def right_linear(**options: Any) -> ew.Stream:
    """Pairs, each link before what follows it."""
    links = LINK.select("a", "b")
    return ew.fixpoint(links, lambda r: links.join(r, on={"b": "a"}).select("a", b=col("b_right")), **options)


def non_linear(**options: Any) -> ew.Stream:
    """Pairs, joined with pairs."""

    def step(r: ew.Stream) -> ew.Stream:
        return r.join(r.select(c=col("a"), d=col("b")), on={"b": "c"}).select("a", b=col("d"))

    return ew.fixpoint(LINK.select("a", "b"), step, **options)


def same_generation(**options: Any) -> ew.Stream:
    """Nodes that are as far below a source as others are."""

    def step(r: ew.Stream) -> ew.Stream:
        left, right = LINK.select(p=col("a"), x2=col("b")), LINK.select(q=col("a"), y2=col("b"))
        return r.join(left, on={"x": "p"}).join(right, on={"y": "q"}).select(x=col("x2"), y=col("y2"))

    return ew.fixpoint(SOURCE.select(x=col("n"), y=col("n")), step, **options)


def both_ways(**options: Any) -> ew.Stream:
    """Two names that use each other, as one relation with a tag: there by even and by odd steps."""

    def step(r: ew.Stream) -> ew.Stream:
        even = r.where(col("odd") == 0).join(LINK, on={"n": "a"}).select(odd=ew.lit(1), n=col("b"))
        odd = r.where(col("odd") == 1).join(LINK, on={"n": "a"}).select(odd=ew.lit(0), n=col("b"))
        return even.union(odd)

    return ew.fixpoint(SOURCE.select(odd=ew.lit(0), n=col("n")), step, **options)


def shortest(**options: Any) -> ew.Stream:
    """The least cost from any source; links may cost nothing."""
    base = SOURCE.select("n", d=ew.lit(0))
    return ew.fixpoint(
        base,
        lambda r: r.join(LINK, on={"n": "a"}).select(n=col("b"), d=col("d") + col("w")),
        kind="min",
        value="d",
        **options,
    )


def widest(**options: Any) -> ew.Stream:
    """The largest bottleneck from any source."""
    base = SOURCE.select(d=ew.lit(3), n=col("n"))

    def step(r: ew.Stream) -> ew.Stream:
        return r.join(LINK, on={"n": "a"}).select(d=Call("least", (col("d"), col("w"))), n=col("b"))

    return ew.fixpoint(base, step, kind="max", value="d", **options)


def all_pairs_shortest(**options: Any) -> ew.Stream:
    """Least costs between all nodes, joined with themselves."""

    def step(r: ew.Stream) -> ew.Stream:
        other = r.select(c=col("a"), e=col("b"), v=col("w"))
        return r.join(other, on={"b": "c"}).select("a", b=col("e"), w=col("w") + col("v"))

    return ew.fixpoint(LINK, step, kind="min", value="w", **options)


def simple_paths(**options: Any) -> ew.Stream:
    """The paper's own query: each path once, with a set of visited nodes as bits."""
    bit = {name: ew.when(col(name) == 0).then(1).when(col(name) == 1).then(2).when(col(name) == 2).then(4).otherwise(8)
           for name in ("n", "b")}  # fmt: skip

    def step(r: ew.Stream) -> ew.Stream:
        met = r.join(LINK, on={"n": "a"}).with_columns(bit=bit["b"])
        new = met.where((col("seen") // col("bit")) % 2 == 0)
        return new.select("s", n=col("b"), seen=col("seen") + col("bit"))

    return ew.fixpoint(SOURCE.select(s=col("n"), n=col("n"), seen=bit["n"]), step, kind="union all", **options)


def unreached_neighbours(**options: Any) -> ew.Stream:
    """Reached by links into nodes that are no sources."""

    def step(r: ew.Stream) -> ew.Stream:
        met = r.join(LINK, on={"n": "a"}).select(n=col("b"))
        return met.join(LINK.where(col("w") == 0), on={"n": "b"}, how="anti")

    return ew.fixpoint(SOURCE, step, **options)


QUERIES: dict[str, Query] = {
    each.__name__: each
    for each in (
        linear, nodes, right_linear, non_linear, same_generation, both_ways, shortest, widest, all_pairs_shortest,
        simple_paths, unreached_neighbours,
    )
}  # fmt: skip


class Network:
    """A random network that changes: what came so far, a legal next epoch.  `promises`: how often inputs promise."""

    def __init__(self, rng: random.Random, inserts_only: bool = False, promises: float = 0.3) -> None:
        self._rng = rng
        self._inserts_only = inserts_only
        self._promises = promises
        self.given: dict[str, list[Element]] = {"Source": [], "Link": []}
        self.ctis = {"Source": FIRST, "Link": FIRST}
        self._alive: dict[str, list[tuple[int, int, dict[str, int]]]] = {"Source": [], "Link": []}

    def epoch(self, most: int = 4) -> dict[str, list[Element]]:
        rng = self._rng
        found: dict[str, list[Element]] = {"Source": [], "Link": []}
        for _ in range(rng.randrange(most + 1)):
            name = "Source" if rng.random() < 0.3 else "Link"
            found[name].append(self._change(name))
        for name in found:
            if rng.random() < self._promises:
                self.ctis[name] = min(self.ctis[name] + rng.choice((0, 1, 1, 3)), LAST - 1)
                found[name].append(Cti(self.ctis[name]))
        for name, elements in found.items():
            self.given[name] += elements
        return found

    def _change(self, name: str) -> Element:
        rng, alive, cti = self._rng, self._alive[name], self.ctis[name]
        open_ = [at for at, (_, ve, _) in enumerate(alive) if ve > cti]
        if open_ and not self._inserts_only and rng.random() < 0.5:
            at = rng.choice(open_)
            vs, ve, row = alive.pop(at)
            low = max(vs, cti)
            vnew = rng.choice([t for t in [*range(low, LAST), INF] if t != ve])
            if vnew > vs:
                alive.append((vs, vnew, row))
            return Adjust(vs, ve, vnew, row)
        vs = rng.randrange(max(cti, 0), LAST)
        ve = rng.choice([*range(vs + 1, LAST + 1), INF, INF, INF, INF])
        row = {"n": rng.randrange(NODES)}
        if name == "Link":
            row = {"a": rng.randrange(NODES), "b": rng.randrange(NODES), "w": rng.choice((0, 0, 1, 2))}
        alive.append((vs, ve, row))
        return Insert(vs, ve, row)


def run(
    query: ew.Stream, rng: random.Random, epochs: int = 8, emit: str = "all", staged: bool = True,
    restarts: bool = True, inserts_only: bool = False, prompt: bool = True, block: int = 0, remember: int = INF,
) -> LocalRuntime:  # fmt: skip
    """Run a recursion over a random network beside its definition.  `prompt`: staged, it promises what its inputs
    have; else less, if nothing came.  `block`: how long elements wait to be put in order; `remember`: how long they
    can be corrected.  Where that is not for ever, the definition is given what Finalize admits."""
    network = Network(rng, inserts_only)
    level = MIDDLE.changed(block=block, remember=remember)
    runtime = LocalRuntime(query, emit=emit, consistency=level)
    said = Said(query.schema)
    restarted = False
    for _ in range(epochs):
        pushed = network.epoch()
        schemas = {name: runtime.plan.sources[name].schema for name in runtime.inputs}
        epoch = {name: batch_of(pushed[name], schemas[name], name) for name in runtime.inputs if pushed[name]}
        promised = said.cti
        new = said.take(runtime.push(epoch)["out"])
        broken = [each for each in new if not isinstance(each, Cti) and start_of(each) < promised]
        assert not broken, f"{broken} after the promise {promised}"
        admitted = {name: finalized(network.given[name], remember) for name in runtime.inputs}
        expected = _fixed_point(query, admitted)
        lowest = max(min(each.cti for each in admitted.values()), FIRST)
        assert said.cti <= lowest, f"promised {said.cti}, the inputs only {lowest}"
        if staged and prompt and not block:
            assert said.cti == lowest or lowest == FIRST, f"promised {said.cti}, the inputs {lowest}"
        if emit == "all" and staged and not block:
            assert_snapshots(said, expected, range(FIRST, LAST + 2), "after an epoch")
        else:
            assert_snapshots(said, expected, range(FIRST, min(said.cti, LAST + 2)), "before the promise")
        if restarts and rng.random() < 0.2:
            state = through_file(runtime.snapshot())
            runtime = LocalRuntime(query, emit=emit, consistency=level)
            runtime.restore(state)
            restarted = True
    said.take(runtime.close()["out"])
    assert said.cti == INF
    assert_snapshots(said, _fixed_point(query, admitted), range(FIRST, LAST + 2), "at the end")
    lost = {name: len(each.dropped) for name, each in admitted.items() if each.dropped}
    assert restarted or {name: sum(counts.values()) for name, counts in runtime.dropped.items()} == lost
    return runtime


def start_of(change: Element) -> int:
    """The first instant that an element changes."""
    assert isinstance(change, Insert | Adjust)
    return change.vs if isinstance(change, Insert) else min(change.ve, change.vnew)


def _fixed_point(query: ew.Stream, admitted: Mapping[str, Finalized]) -> Any:
    schemas = {"Source": SOURCE.schema, "Link": LINK.schema}
    return evaluate(query.node, {name: History.of(each.elements, schemas[name]) for name, each in admitted.items()})
