"""What a query keeps that forgets: operator by operator, under disorder without bound and without one promise.

With `remember=M` everything before c = τ - M is taken for promised, so an operator may keep what is alive at τ or can
still change within M, and no more.  Rows are counted after every epoch, against the events that were let in.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

import everwhen as ew
from everwhen.model.element import Insert
from everwhen.model.elements import batch_of
from everwhen.model.history import History
from everwhen.model.time import INF
from everwhen.runtime.local import LocalRuntime
from operators.differential import SCHEMA, S, T, col
from operators.test_state import chronons, edges, of_rows, rows_of

EPOCHS, EACH, STEP = 30, 12, 10


@dataclass(frozen=True)
class Kept:
    """What was let in of both inputs, the largest start, and what is forgotten before."""

    s: History
    t: History
    tau: int
    c: int

    @property
    def alive(self) -> int:
        """Events of both inputs that go on behind c."""
        return sum(ve > self.c for history in (self.s, self.t) for _, ve, _ in history.events())

    def pairs(self) -> int:
        """Pairs of equal keys that are alive together at some time after c."""
        met = product(self.s.events(), self.t.events())
        ends = [min(a[1], b[1]) for a, b in met if a[2][0] == b[2][0] and max(a[0], b[0]) < min(a[1], b[1])]
        return sum(end > self.c for end in ends)


def in_groups(kept: Kept) -> int:
    return edges([(row[0], i, vs, ve) for i, (vs, ve, row) in enumerate(kept.s.events())], kept.c)


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
    "max": Case(
        lambda: S.group_by("k").agg(m=ew.max("x")),
        "aggregate",
        lambda kept: in_groups(kept) + sum(ve > kept.c for _, ve, _ in kept.s.events()),
    ),
    "istream": Case(lambda: S.istream(), "istream", a_tick_later),
    "dstream": Case(lambda: S.dstream(), "dstream", a_tick_later),
    "rstream": Case(lambda: S.rstream(), "rstream", lambda kept: edges(of_rows(kept.s), kept.c)),
    "split": Case(lambda: S.split(1), "split", lambda kept: edges(of_rows(kept.s), kept.c)),
    "rows": Case(lambda: S.rows(2), "rows window", ranked),
    "coalesce": Case(
        lambda: S.coalesce(), "coalesce", lambda kept: sum(ve >= kept.c for _, ve, _ in kept.s.coalesced().events())
    ),
}


def streams(remember: int, seed: int) -> list[tuple[dict[str, list[Insert]], Kept]]:
    """Epochs of both inputs, and what is to be kept after each; both come as far as the other."""
    rng = random.Random(seed)
    admitted: dict[str, list[Insert]] = {"S": [], "T": []}
    epochs = []
    for i in range(1, EPOCHS + 1):
        epoch: dict[str, list[Insert]] = {}
        for name, let_in in admitted.items():
            starts = [*(rng.randint(0, STEP * i) for _ in range(EACH)), STEP * i]
            epoch[name] = [
                Insert(t, t + rng.randint(1, 12), {"k": rng.choice("ab"), "x": rng.randint(0, 2)}) for t in starts
            ]
            come = STEP * (i - 1) if i > 1 else -INF
            for each in epoch[name]:
                if each.vs >= come - remember:
                    let_in.append(each)
                come = max(come, each.vs)
        s, t = (History.of(admitted[name], SCHEMA) for name in ("S", "T"))
        epochs.append((epoch, Kept(s, t, STEP * i, STEP * i - remember)))
    return epochs


@pytest.mark.parametrize("remember", [0, 25])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_keeps_what_is_alive_or_may_change(name: str, remember: int) -> None:
    case = CASES[name]
    runtime = LocalRuntime(case.query(), consistency=ew.consistency(0, remember))
    given_up = 0
    for epoch, kept in streams(remember, 7):
        runtime.push({each: batch_of(epoch[each], SCHEMA) for each in runtime.inputs})
        assert set(runtime.progress.values()) == {kept.c}
        found, most = rows_of(runtime, case.operator), case.most(kept)
        assert found == most if case.exactly else found <= most, (found, most)
        given_up = sum(sum(counts.values()) for counts in runtime.given_up.values())
        for each, history in (("S", kept.s), ("T", kept.t)):
            if each in runtime.inputs:  # Finalize: an event that ends at c may still grow
                assert runtime._intakes[each].state_size().rows == sum(ve >= kept.c for _, ve, _ in history.events())
    assert given_up > EPOCHS * EACH // 4


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
        (sink,) = runtime._plan.sinks
        said = sink.chain.state_size().rows
        if emit == "final":  # what is final is said, and forgotten
            assert said == 0 and rows_of(runtime, "hold") == kept.pairs()
        else:
            assert said == kept.pairs()
