"""Keep: after every epoch an operator's rows are within the keep invariant (Tucker, Table 4), by the definition.

With lifetimes the invariant is: of a key for which everything before `L` is promised, on all the inputs that it needs,
nothing is kept that ends before `L`.  `L` is what the promises say one by one (`reference.promise_rules`), those about
times included; for the rows of a join it is what the other side has promised for the row's key.  Streams are late but
not corrected here, so that the definition fixes the number of rows; with corrections, what is wholly promised is gone.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.reference.promise_rules import kept, mirrored, promised
from everwhen.reference.punctuation import Anything
from everwhen.stream.element import Cti, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import reorder
from everwhen.testing.strategies import histories
from example_counts import examples_per_case
from operators.differential import EMITS, SCHEMA, epochs, sources, streams_of
from operators.punctuated import Inputs, punctuated
from plans import S, T, col


def intakes(runtime: LocalRuntime) -> dict[str, SourcePipeline]:
    return {name: each.intake for name, each in runtime._ingress.inputs.items()}


FEW = settings(max_examples=examples_per_case(4, 8))
FINITE = histories(SCHEMA, max_events=7, allow_infinite=False)
ANY_END = histories(SCHEMA, max_events=7)
Row = tuple[Any, ...]
K, X = 0, 1


@dataclass(frozen=True)
class Seen:
    """What the definition counts from: events and promises of the inputs so far."""

    inputs: Inputs

    def events(self, name: str) -> list[tuple[int, int, Row]]:
        return list(self.inputs.history(name).events())

    def for_row(self, row: Row, *names: str) -> int:
        """What all the inputs promise for a row."""
        return min(promised(self.inputs.known(name), row) for name in names)

    def for_key(self, key: Row, columns: Sequence[int], name: str = "S") -> int:
        """What is promised for all rows with these values, whatever their other columns hold."""
        found = NEVER
        for said in self.inputs.known(name):
            patterns = said.pattern.patterns
            free = all(isinstance(p, Anything) for i, p in enumerate(patterns) if i not in columns)
            if free and all(patterns[i].matches(value) for i, value in zip(columns, key, strict=True)):
                found = max(found, said.t)
        return found


def edges(keyed: Iterable[tuple[Hashable, int, int, int]], limit: Callable[[Any], int]) -> int:
    """How many edges of (key, lane, vs, ve) lie after the key's limit, plus the keys with something in force at it."""
    change: defaultdict[Hashable, Counter[tuple[int, int]]] = defaultdict(Counter)
    for key, lane, vs, ve in keyed:
        c = limit(key)
        change[key][max(vs, c), lane] += 1
        change[key][max(ve, c), lane] -= 1
    return sum(len({t for (t, _), count in of_key.items() if count and t < INF}) for of_key in change.values())


def of_rows(seen: Seen, name: str, lane: int = 0, later: int = 0) -> list[tuple[Hashable, int, int, int]]:
    return [(row, lane, vs + later, ve if ve == INF else ve + later) for vs, ve, row in seen.events(name)]


def by_row(*names: str) -> Callable[[Seen], int]:
    """Edges per row, until all inputs have promised it."""

    def count(seen: Seen) -> int:
        keyed = [edge for lane, name in enumerate(names) for edge in of_rows(seen, name, lane)]
        return edges(keyed, lambda row: seen.for_row(row, *names))

    return count


def by_group(*columns: int, live: bool = False) -> Callable[[Seen], int]:
    """Edges per group; with `live` also the rows that may still be taken out of it."""

    def count(seen: Seen) -> int:
        groups = [(tuple(row[i] for i in columns), vs, ve) for vs, ve, row in seen.events("S")]
        keyed = [(key, lane, vs, ve) for lane, (key, vs, ve) in enumerate(groups)]
        rows = sum(ve > seen.for_key(key, columns) for key, vs, ve in groups) if live else 0
        return rows + edges(keyed, lambda key: seen.for_key(key, columns))

    return count


def changes(seen: Seen) -> int:
    """Istream and Dstream: edges of the stream and of itself a tick later."""
    return edges([*of_rows(seen, "S"), *of_rows(seen, "S", 1, 1)], lambda row: seen.for_row(row, "S"))


def of_join(query: ew.Stream) -> Callable[[Seen], int]:
    """Rows of each side until the other has promised their key."""

    def count(seen: Seen) -> int:
        (node,) = (each for each in n.walk(query.node) if isinstance(each, n.Join))
        mine = kept(node, seen.events("S"), seen.inputs.known("T"))
        return len(mine) + len(kept(mirrored(node), seen.events("T"), seen.inputs.known("S")))

    return count


def not_over(strictly: bool) -> Callable[[Seen], int]:
    """Events until their row is promised up to their end; `strictly`: past it, for what may still grow."""

    def count(seen: Seen) -> int:
        limits = [(ve, seen.for_row(row, "S")) for _, ve, row in seen.events("S")]
        return sum(c < INF and (ve >= c if strictly else ve > c) for ve, c in limits)

    return count


def levels(seen: Seen) -> int:
    limits = [(ve, seen.for_row(row, "S")) for _, ve, row in seen.inputs.history("S").coalesced().events()]
    return sum(c < INF and ve >= c for ve, c in limits)


EQUI, BAND, PRODUCT = S.join(T, on="k"), S.join(T, where=col("x") < col("x_right")), S.product(T)
Case = tuple[ew.Stream, str, Callable[[Seen], int]]
KEEPS: dict[str, Case] = {
    "filter": (S.where(col("x") > 1), "filter", lambda seen: 0),
    "map": (S.select("k"), "map", lambda seen: 0),
    "union": (S.union(T), "union", lambda seen: 0),
    "range": (S.range(3), "window", lambda seen: 0),
    "distinct": (S.distinct(), "distinct", by_row("S")),
    "difference": (S.difference(T), "difference", by_row("S", "T")),
    "strict difference": (S.strict_difference(T), "strict difference", by_row("S", "T")),
    "intersect": (S.intersect(T), "intersect", by_row("S", "T")),
    "max union": (S.max_union(T), "max union", by_row("S", "T")),
    "sums by group": (S.group_by("k").agg(n=ew.count(), t=ew.sum("x")), "aggregate", by_group(K)),
    "sums by both": (S.group_by("k", "x").agg(n=ew.count()), "aggregate", by_group(K, X)),
    "sums of all": (S.aggregate(n=ew.count(), t=ew.sum("x")), "aggregate", by_group()),
    "max by group": (S.group_by("k").agg(m=ew.max("x")), "aggregate", by_group(K, live=True)),
    "median by group": (S.group_by("k").agg(m=ew.median("x")), "aggregate", by_group(K, live=True)),
    "istream": (S.istream(), "istream", changes),
    "dstream": (S.dstream(), "dstream", changes),
    "join": (EQUI, "join (keyed)", of_join(EQUI)),
    "inequality join": (BAND, "join (sorted)", of_join(BAND)),
    "product": (PRODUCT, "join (list)", of_join(PRODUCT)),
    "coalesce": (S.coalesce(), "coalesce", levels),
}


def rows_of(runtime: LocalRuntime, name: str) -> int:
    found = [each.state_rows for each in runtime.metadata() if name in each.name]
    assert found, f"no operator {name}: {[each.name for each in runtime.metadata()]}"
    return sum(found)


def in_any_order(given_: dict[str, History], rng: random.Random) -> dict[str, list[Any]]:
    """Late and punctuated, but never corrected."""
    late = {
        name: reorder(
            history, rng, disorder=rng.choice((0, 4, None)), corrections=0, wrong=0, ctis=rng.choice((0, 0.3))
        )
        for name, history in given_.items()
    }
    return punctuated(late, rng, SCHEMA, chance=0.4)


def run(
    query: ew.Stream, emit: str, given_: dict[str, History], seed: int, look: Callable[[LocalRuntime, Seen], None]
) -> None:
    rng = random.Random(seed)
    runtime, inputs = LocalRuntime(query, emit=emit), Inputs(SCHEMA)
    for epoch in epochs(in_any_order(given_, rng), rng):
        inputs.take(epoch)
        runtime.push(epoch)
        look(runtime, Seen(inputs))


@pytest.mark.parametrize("name", KEEPS)
@FEW
@given(data=st.data(), emit=st.sampled_from(EMITS), seed=st.integers(0, 2**32))
def test_an_operator_keeps_what_the_invariant_says(name: str, data: st.DataObject, emit: str, seed: int) -> None:
    query, operator, most = KEEPS[name]

    def look(runtime: LocalRuntime, seen: Seen) -> None:
        got, wanted = rows_of(runtime, operator), most(seen)
        if (name, emit) == ("coalesce", "final"):  # it also holds back for the sake of order
            wanted = len(list(seen.inputs.history("S").coalesced().events()))
        assert got <= wanted, f"{got} rows are kept, the invariant allows {wanted}"

    run(query, emit, {each: data.draw(ANY_END, label=each) for each in sources(query)}, seed, look)


@FEW
@given(s=ANY_END, seed=st.integers(0, 2**32))
def test_the_guard_keeps_events_that_an_adjust_may_name(s: History, seed: int) -> None:
    def look(runtime: LocalRuntime, seen: Seen) -> None:
        got, wanted = runtime._ingress.inputs["S"].intake.guard.state_size().rows, not_over(strictly=True)(seen)
        assert got <= 2 * wanted, f"{got} events are kept, {wanted} may be named"

    run(S, "current", {"S": s}, seed, look)


@FEW
@given(s=ANY_END, seed=st.integers(0, 2**32))
def test_the_hold_keeps_what_is_not_settled(s: History, seed: int) -> None:
    def look(runtime: LocalRuntime, seen: Seen) -> None:
        assert rows_of(runtime, "emit final") == not_over(strictly=False)(seen)

    run(S, "final", {"S": s}, seed, look)


@FEW
@given(s=ANY_END, seed=st.integers(0, 2**32))
def test_the_chain_keeps_what_may_be_taken_back(s: History, seed: int) -> None:
    def look(runtime: LocalRuntime, seen: Seen) -> None:
        (sink,) = runtime.plan.sinks
        assert sink.encoder.state_size().rows == not_over(strictly=False)(seen)

    run(S.range(1), "current", {"S": s}, seed, look)


# --- wholly promised: gone --------------------------------------------------------------------------------------------

GONE: dict[str, ew.Stream] = {
    "source": S,
    "range": S.range(3),
    "distinct": S.distinct(),
    "difference": S.difference(T),
    "intersect": S.intersect(T),
    "sums": S.group_by("k").agg(t=ew.sum("x")),
    "max": S.group_by("k").agg(t=ew.max("x")),
    "median": S.group_by("k").agg(t=ew.median("x")),
    "windowed sums": S.range(4).group_by("k").agg(t=ew.sum("x")),
    "rows": S.rows(2, partition_by=["k"]),
    "istream": S.istream(),
    "split": S.split(1),
    "coalesce": S.coalesce(),
    "join": S.join(T, on="k"),
    "sum over a join": S.join(T, on="k").group_by("k").agg(t=ew.sum("x_right")),
    "semi-join": S.join(T, on="k", how="semi"),
    "anti-join": S.join(T, on="k", how="anti"),
    "left join": S.join(T, on={"k": "k"}, how="left"),
    "full join": S.join(T, on={"k": "k"}, how="full"),
    "except": S.except_(T),
}


@pytest.mark.parametrize("emit", ["final", "current"])
@pytest.mark.parametrize("name", GONE)
@settings(max_examples=6)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_what_is_wholly_promised_is_gone(name: str, emit: str, data: st.DataObject, seed: int) -> None:
    """No CTI at all, and corrections: when every key is promised for ever, no operator keeps a row."""
    rng, query = random.Random(seed), GONE[name]
    given_ = {each: data.draw(FINITE, label=each) for each in sources(query)}
    streams = {
        each: [element for element in elements if not isinstance(element, Cti)]
        for each, elements in streams_of(given_, rng, infinite=False).items()
    }
    runtime = LocalRuntime(query, emit=emit)
    for epoch in epochs(streams, rng):
        runtime.push(epoch)
    values = sorted({row[K] for each in given_.values() for _, _, row in each.events()}, key=str)
    values += ["", "a", "b", "ä", None]
    last = [Punct(Punctuation({"k": OneOf((value,))}, INF)) for value in dict.fromkeys(values)]
    for each in runtime.inputs:
        runtime.push({each: batch_of(last, SCHEMA, each)})
    left = {each.name: each.state_rows for each in runtime.metadata() if each.state_rows}
    assert not left
    (sink,) = runtime.plan.sinks
    assert sink.encoder.state_size().rows == 0
    assert all(intake.guard.state_size().rows == 0 for intake in intakes(runtime).values())
