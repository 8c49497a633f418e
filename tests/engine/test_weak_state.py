"""What a query keeps that forgets: operator by operator, under disorder without bound and without one promise.

With `remember=M` everything before c = τ - M is taken for promised, so an operator may keep what is alive at τ or can
still change within M, and no more.  Rows are counted after every epoch, against the events that were let in: inserts
alone, or inserts of which half are adjusted later, many of these too late.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.operators.join.group_join import GroupJoinOperator
from everwhen.reference.admission import finalized
from everwhen.stream.element import Adjust, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History, RowTuple
from operators.differential import SCHEMA
from operators.test_state import chronons, edges, of_rows, rows_of
from plans import S, T, col

EPOCHS, EACH, STEP = 30, 12, 10
T_ONCE = ew.source("T", {"k": "string", "x": "int64"}, keys="k")
PRODUCT = ew.UserAggregate(lambda v: v, lambda s, v: s * v, lambda s: s, pa.int64(), name="product")
MEAN = ew.UserAggregate(
    lambda v: (v, 1), lambda s, v: (s[0] + v, s[1] + 1), lambda s: s[0] / s[1], pa.float64(),
    inverse=lambda s, v: (s[0] - v, s[1] - 1), name="mean",
)  # fmt: skip


Part = tuple[int, int, RowTuple]


@dataclass(frozen=True)
class Kept:
    """What was let in of both inputs, the largest start, and what is forgotten before."""

    s: History
    t: History
    parts: tuple[list[Part], list[Part]]
    """The events of both inputs in the parts in which they came: one that was made longer is one more."""
    former: list[tuple[RowTuple, int]]
    """Rows of S, and ends that they had for a time; of those that were removed the starts as well."""
    tau: int
    c: int

    @property
    def alive(self) -> int:
        """Parts of events of both inputs that go on behind c."""
        return sum(ve > self.c for parts in self.parts for _, ve, _ in parts)

    def pairs(self) -> int:
        """Pairs of equal keys that are alive together at some time after c."""
        met = product(self.s.events(), self.t.events())
        ends = [min(a[1], b[1]) for a, b in met if a[2][0] == b[2][0] and max(a[0], b[0]) < min(a[1], b[1])]
        return sum(end > self.c for end in ends)


def in_groups(kept: Kept) -> int:
    return edges([(row[0], i, vs, ve) for i, (vs, ve, row) in enumerate(kept.s.events())], kept.c)


def groups_and_rows(kept: Kept) -> int:
    """Aggregates that need the rows themselves: those that go on behind c, and edges per group.

    Such an edge stays though what made it was moved or removed: a count does not tell whether rows meet there.
    """
    events = [(row[0], i, vs, ve) for i, (vs, ve, row) in enumerate(kept.s.events())]
    moved = [(row[0], len(events) + i, t, INF) for i, (row, t) in enumerate(kept.former) if t > kept.c]
    return edges([*events, *moved], kept.c) + sum(ve > kept.c for _, ve, _ in kept.parts[0])


def rows_and_reads(kept: Kept) -> int:
    """Rows that go on behind c, ungrouped; and of T, read when an event begins, the reads that are not before c."""
    return sum(ve > kept.c for _, ve, _ in kept.parts[0]) + sum(vs >= kept.c for vs, _, _ in kept.t.events())


def a_tick_later(kept: Kept) -> int:
    later = [(row, 1, vs + 1, ve + 1) for vs, ve, row in kept.s.events()]
    return edges([*of_rows(kept.s), *later], kept.c)


def both(kept: Kept) -> int:
    return edges([*of_rows(kept.s), *of_rows(kept.t, 1)], kept.c)


def levels_of_five(kept: Kept) -> int:
    """Edges per group of a window of five ticks."""
    found = [
        (row[0], (i, k), vs + k - 1, ve + 5 - k)
        for i, (vs, ve, row) in enumerate(kept.s.events())
        for k in range(1, min(5, ve - vs) + 1)
    ]
    return edges([(key, hash(lane), vs, ve) for key, lane, vs, ve in found], kept.c)


def ranked(kept: Kept) -> int:
    """Of a window of two rows: instants until the present that have not left before c."""
    instants = [t for t, _ in chronons(kept.s) if t <= kept.tau]
    leaves = [instants[i + 2] if i + 2 < len(instants) else INF for i in range(len(instants))]
    return sum(end >= kept.c for end in leaves)


@dataclass(frozen=True)
class Case:
    query: Callable[[], ew.Stream]
    operator: str
    most: Callable[[Kept], int]
    exactly: bool = False


CASES = {
    "join": Case(lambda: S.join(T, on="k"), "join (keyed)", lambda kept: kept.alive, True),
    "join by order": Case(
        lambda: S.join(T, where=col("x") < col("x_right")), "join (sorted)", lambda kept: kept.alive, True
    ),
    "product": Case(lambda: S.product(T), "join (list)", lambda kept: kept.alive, True),
    "distinct": Case(lambda: S.distinct(), "distinct", lambda kept: edges(of_rows(kept.s), kept.c)),
    "difference": Case(lambda: S.difference(T), "difference", both),
    "strict difference": Case(lambda: S.strict_difference(T), "strict difference", both),
    "intersect": Case(lambda: S.intersect(T), "intersect", both),
    "max union": Case(lambda: S.max_union(T), "max union", both),
    "sum": Case(lambda: S.group_by("k").agg(t=ew.sum("x")), "aggregate", in_groups),
    "sum over a window": Case(lambda: S.range(5).group_by("k").agg(t=ew.sum("x")), "aggregate", levels_of_five),
    "max": Case(lambda: S.group_by("k").agg(m=ew.max("x")), "aggregate", groups_and_rows),
    "median": Case(lambda: S.group_by("k").agg(m=ew.median("x")), "aggregate", groups_and_rows),
    "quantile": Case(lambda: S.group_by("k").agg(q=ew.quantile("x", 0.25)), "aggregate", groups_and_rows),
    "count distinct": Case(lambda: S.group_by("k").agg(d=ew.count_distinct("x")), "aggregate", groups_and_rows),
    "top-k": Case(lambda: S.group_by("k").agg(top=ew.top_k("x", 2)), "aggregate", groups_and_rows),
    "first and last": Case(
        lambda: S.group_by("k").agg(f=ew.first("x", by="x"), l=ew.last("x", by="x")), "aggregate", groups_and_rows
    ),
    "user-defined": Case(
        lambda: S.group_by("k").agg(p=ew.aggregate(PRODUCT)("x"), m=ew.aggregate(MEAN)("x")),
        "aggregate",
        groups_and_rows,
    ),
    "variance": Case(lambda: S.group_by("k").agg(v=ew.variance("x")), "aggregate", in_groups),
    "istream": Case(lambda: S.istream(), "istream", a_tick_later),
    "dstream": Case(lambda: S.dstream(), "dstream", a_tick_later),
    "rstream": Case(lambda: S.rstream(), "rstream", lambda kept: edges(of_rows(kept.s), kept.c)),
    "split": Case(lambda: S.split(1), "split", lambda kept: edges(of_rows(kept.s), kept.c)),
    "rows": Case(lambda: S.rows(2), "rows window", ranked),
    "coalesce": Case(
        lambda: S.coalesce(), "coalesce", lambda kept: sum(ve >= kept.c for _, ve, _ in kept.s.coalesced().events())
    ),
}


Epoch = dict[str, list[Element]]


@cache
def streams(remember: int, seed: int, corrected: bool = False, once: bool = False) -> list[tuple[Epoch, Kept]]:
    """Epochs of both inputs, and what is to be kept after each; both come as far as the other.

    `corrected`: half of the events are adjusted in a later epoch, however late that is.  `once`: no two events of T
    have the same key; those of S have keys of T's last events.
    """
    rng = random.Random(seed)
    sent: Epoch = {"S": [], "T": []}
    wrong: dict[str, list[Insert]] = {"S": [], "T": []}
    epochs = []
    for i in range(1, EPOCHS + 1):
        epoch: Epoch = {}
        for name, before in sent.items():
            starts = [*(rng.randint(0, STEP * i) for _ in range(EACH)), STEP * i]
            keys = [rng.choice("ab") for _ in starts]
            if once:
                keys = [f"{i if name == 'T' else rng.randint(max(1, i - 1), i)}.{j}" for j in range(len(starts))]
            new = [
                Insert(t, t + rng.randint(1, 12), {"k": k, "x": rng.randint(0, 2)})
                for t, k in zip(starts, keys, strict=True)
            ]
            epoch[name] = list(new)
            if corrected:
                due = [each for each in wrong[name] if rng.random() < 0.3]
                wrong[name] = [each for each in wrong[name] if each not in due] + rng.sample(new, len(new) // 2)
                adjusts = [Adjust(e.vs, e.ve, rng.choice((e.vs, e.vs + 1, e.ve + 1, e.ve + 9)), e.row) for e in due]
                epoch[name] += [each for each in adjusts if each.vnew != each.ve]
                last = epoch[name].pop(len(new) - 1)
                epoch[name].append(last)  # what comes as far as the other stays the last one
            before += epoch[name]
        let_in = [finalized(sent[name], remember).elements for name in ("S", "T")]
        s, t = (History.of(elements, SCHEMA) for elements in let_in)
        (of_s, former), (of_t, _) = map(in_parts, let_in)
        epochs.append((epoch, Kept(s, t, (of_s, of_t), former, STEP * i, STEP * i - remember)))
    return epochs


def in_parts(elements: list[Element]) -> tuple[list[Part], list[tuple[RowTuple, int]]]:
    """Events in the parts in which they came, and starts and ends that are no more."""
    events: dict[Part, list[list[tuple[int, int]]]] = {}
    former: list[tuple[RowTuple, int]] = []
    for element in elements:
        if not isinstance(element, Insert | Adjust):
            continue
        row = tuple(element.row.values())
        if isinstance(element, Insert):
            events.setdefault((element.vs, element.ve, row), []).append([(element.vs, element.ve)])
            continue
        parts = events[element.vs, element.ve, row].pop()
        former += [(row, element.ve), (row, element.vs)] if element.vnew <= element.vs else [(row, element.ve)]
        parts = [(lo, min(hi, element.vnew)) for lo, hi in parts if lo < element.vnew]
        if element.vnew > element.ve:
            parts.append((element.ve, element.vnew))
        events.setdefault((element.vs, element.vnew, row), []).append(parts)
    return [(lo, hi, row) for (_, _, row), same in events.items() for parts in same for lo, hi in parts], former


def assert_kept(case: Case, remember: int, epochs: list[tuple[Epoch, Kept]]) -> None:
    """After every epoch, and that much was given up on the way."""
    runtime = LocalRuntime(case.query(), consistency=ew.consistency(0, remember))
    dropped = 0
    for epoch, kept in epochs:
        runtime.push({each: batch_of(epoch[each], SCHEMA) for each in runtime.inputs})
        assert set(runtime.progress.values()) == {kept.c}
        found, most = rows_of(runtime, case.operator), case.most(kept)
        assert found == most if case.exactly else found <= most, (found, most)
        dropped = sum(sum(counts.values()) for counts in runtime.dropped.values())
        for each, history in (("S", kept.s), ("T", kept.t)):
            if each in runtime.inputs:  # Finalize: an event that ends at c may still grow, unless it was removed
                rows, most = (
                    runtime._ingress.inputs[each].intake.state_size().rows,
                    sum(ve >= kept.c for _, ve, _ in history.events()),
                )
                assert rows <= most if kept.former else rows == most
    assert dropped > EPOCHS * EACH // 4


@pytest.mark.parametrize("remember", [0, 25])
@pytest.mark.parametrize("corrected", [False, True], ids=["inserts", "adjusts"])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_keeps_what_is_alive_or_may_change(name: str, corrected: bool, remember: int) -> None:
    assert_kept(CASES[name], remember, streams(remember, 7, corrected))


@pytest.mark.parametrize("remember", [0, 25])
@pytest.mark.parametrize("corrected", [False, True], ids=["inserts", "adjusts"])
def test_groups_that_are_read_at_instants_keep_ungrouped_rows(corrected: bool, remember: int) -> None:
    query = S.group_by("k").agg(hi=ew.max("x"), lo=ew.min("x")).join(T_ONCE.istream(), on="k")
    (operator,) = [each for each in LocalRuntime(query).plan.operators if isinstance(each.operator, GroupJoinOperator)]
    case = Case(lambda: query, operator.name, rows_and_reads)
    assert_kept(case, remember, streams(remember, 17, corrected, once=True))


@pytest.mark.parametrize("remember", [0, 25])
@pytest.mark.parametrize("how", ["semi", "anti", "left", "full"])
def test_composed_joins_keep_no_more_than_their_parts(how: str, remember: int) -> None:
    """Each operator of one keeps at most two edges for an event that goes on behind c."""
    query = S.join(T, on="k", how=how)  # type: ignore[arg-type]
    runtime = LocalRuntime(query, consistency=ew.consistency(0, remember))
    for epoch, kept in streams(remember, 11):
        runtime.push({each: batch_of(epoch[each], SCHEMA) for each in runtime.inputs})
        assert all(each.state_rows <= 2 * (kept.alive + kept.pairs()) for each in runtime.metadata())


@pytest.mark.parametrize("remember", [0, 25])
@pytest.mark.parametrize("emit", ["current", "final"])
def test_the_output_keeps_what_it_may_take_back(emit: str, remember: int) -> None:
    runtime = LocalRuntime(S.join(T, on="k"), emit=emit, consistency=ew.consistency(0, remember))
    for epoch, kept in streams(remember, 13):
        runtime.push({each: batch_of(epoch[each], SCHEMA) for each in runtime.inputs})
        (sink,) = runtime.plan.sinks
        said = sink.encoder.state_size().rows
        if emit == "final":  # what is final is said, and forgotten
            assert said == 0 and rows_of(runtime, "emit final") == kept.pairs()
        else:
            assert said == kept.pairs()
