"""Algorithms 1 to 5 of the CEDR paper beside our operator, one element at a time: the same elements.

Elements of one step are compared as a set, since the paper takes back first and then says, and we say in the order of
sync times.  They are the same until a retraction takes the last end point away from an instant.  There the paper takes
back the pieces on both sides and says them as one, unless a CTI or τ forbids it; we leave what has not changed as it
is, and say what changes later in one piece.  From there on the answers are compared at every instant.

The invariants of section 3.2 (τ-O, τ-S, POS, ECQ) are asserted after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, is_perfect, is_valid, logical
from papers.cedr_algorithms import Payload, Row, SnapshotOperator, Tuple
from papers.cedr_streams import COUNT_AND_SUM, Lifetime, S, lifetimes, shrinking

MANY = settings(max_examples=5 * settings().max_examples)
POLICIES = ("ended", "current", "all")


def count_and_sum(state: Counter[Payload]) -> Row:
    return {"n": state.total(), "s": sum(payload * copies for payload, copies in state.items())}


def as_set(elements: list[Element]) -> Counter[str]:
    return Counter(str(element) for element in elements)


class Reference:
    """The transcription with its input and output, and the invariants."""

    def __init__(self, policy: str) -> None:
        self.operator = SnapshotOperator(policy, count_and_sum)
        self.said: list[Element] = []
        self.taken: list[Element] = []
        self.tuples: list[Tuple] = []
        self.cti = NEVER

    def take(self, element: Element) -> list[Element]:
        before = self.operator.tau
        out = self.operator.take(element)
        self.said += out
        self.taken.append(element)
        match element:
            case Insert(vs, ve, row):
                self.tuples.append((vs, ve, row["x"]))
                expected = max(before, vs)
            case Adjust(vs, ve, vnew, row):
                self.tuples.remove((vs, ve, row["x"]))
                self.tuples += [(vs, vnew, row["x"])] * (vnew > vs)
                expected = before
            case Cti(t):
                self.cti = t
                expected = max(before, t)  # the paper: the last end point by then; see the cut in algorithm 5
        assert self.operator.tau == expected, "invariant τ-S"
        self.check()
        return out

    def check(self) -> None:
        """The invariants τ-O, ECQ-τ-S and POS-τ-S-O."""
        operator, tau = self.operator, self.operator.tau
        history = History.of(self.said, COUNT_AND_SUM.schema)
        assert Counter(operator.ecq) == Counter(each for each in self.tuples if each[1] > tau), "invariant ECQ-τ-S"
        if operator.policy == "ended":
            assert all(ve <= tau for _, ve, _ in history.events()), "invariant τ-O"
            if is_perfect(self.taken):
                assert is_perfect(self.said), "invariant τ-O"
        points = {t for vs, ve, _ in self.tuples for t in (vs, ve) if t <= tau} | operator.cuts
        if operator.policy != "ended":
            points.add(INF)
        expected = []
        for v, following in pairwise(sorted(points)):
            alive = Counter(payload for vs, ve, payload in self.tuples if vs <= v < ve)
            if alive:
                expected.append((v, following, tuple(count_and_sum(alive).values())))
            for entry in operator.pos:
                assert entry.ts != v or +entry.state == alive, "invariant POS, the state of an entry"
        assert sorted(history.events()) == expected, "invariant POS, pieces and end points"
        last = operator.pos[-1]
        assert +last.state == Counter(x for _, ve, x in self.tuples if ve > last.ts), "invariant POS, the last entry"
        assert all(entry.ts >= self.cti for entry in operator.pos[1:]), "invariant POS, purged"


class Ours:
    """Our operator, one element at a time."""

    def __init__(self, policy: str) -> None:
        self.runtime = ew.LocalRuntime(COUNT_AND_SUM, emit=policy)
        self.said: list[Element] = []

    def take(self, element: Element) -> list[Element]:
        out = list(self.runtime.push({"S": batch_of([element], S.schema)})["out"].elements())
        self.said += out
        return out


@pytest.mark.parametrize("policy", POLICIES)
@MANY
@given(drawn=lifetimes(), seed=st.integers(0, 2**32))
def test_element_for_element(policy: str, drawn: list[Lifetime], seed: int) -> None:
    stream = shrinking(drawn, random.Random(seed))
    paper, ours = Reference(policy), Ours(policy)
    for element in stream:
        theirs, mine = paper.take(element), ours.take(element)
        if paper.operator.lost:
            assert_same_history(
                History.of(ours.said, COUNT_AND_SUM.schema), History.of(paper.said, COUNT_AND_SUM.schema)
            )
        else:
            assert as_set(mine) == as_set(theirs), f"for {element}"
    event(f"an end point was lost: {paper.operator.lost}")
    assert_valid(paper.said)
    assert_same_history(History.of(paper.said, COUNT_AND_SUM.schema), logical(COUNT_AND_SUM)(stream))


@pytest.mark.parametrize("policy", POLICIES)
@MANY
@given(drawn=lifetimes(), seed=st.integers(0, 2**32))
def test_late_inserts_are_the_same_to_the_end(policy: str, drawn: list[Lifetime], seed: int) -> None:
    """Without retractions no end point goes away: the streams are the same throughout."""
    inserts = [each for each in shrinking(drawn, random.Random(seed), close=False) if isinstance(each, Insert)]
    paper, ours = Reference(policy), Ours(policy)
    for element in [*inserts, Cti(INF)]:
        assert as_set(ours.take(element)) == as_set(paper.take(element)), f"for {element}"
    assert not paper.operator.lost
    assert len(ours.said) == len(paper.said)


def test_an_end_point_that_goes_away() -> None:
    """Where we differ: the paper says [0, 30) anew; we leave [10, 30) as it was."""
    stream = [
        Insert(0, 30, {"x": 1}),
        Insert(0, 10, {"x": 16}),
        Insert(40, 50, {"x": 256}),
        Adjust(0, 10, 0, {"x": 16}),
    ]
    paper, ours = Reference("ended"), Ours("ended")
    theirs, mine = ([taker.take(element) for element in stream][-1] for taker in (paper, ours))
    assert [str(element) for element in theirs] == [
        "adjust [0, 10 -> 0) n=2 s=17",
        "adjust [10, 30 -> 10) n=1 s=1",
        "insert [0, 30) n=1 s=1",
    ]
    assert [str(element) for element in mine] == ["adjust [0, 10 -> 0) n=2 s=17", "insert [0, 10) n=1 s=1"]


def test_end_points_not_contributors() -> None:
    """The slip of algorithm 1, line 25: a late insert that ends inside a piece with several contributors."""
    drawn = [(0, 10), (0, 20), (25, 30), (2, 5)]
    paper = Reference("ended")
    for i, (vs, ve) in enumerate(drawn):
        paper.take(Insert(vs, ve, {"x": 16**i}))
    assert [(vs, ve) for vs, ve, _ in History.of(paper.said).events()] == [(0, 2), (2, 5), (5, 10), (10, 20)]


class Line27(SnapshotOperator):
    """Algorithm 4 as printed: the last entry loses the payload although its tuple goes on behind τ."""

    def _retract(self, old: Tuple, vnew: int) -> list[Element]:
        out = super()._retract(old, vnew)
        if vnew > self.tau:
            self.pos[-1].state[old[2]] -= 1
        return out


def test_line_27_loses_a_tuple_that_is_still_alive() -> None:
    stream = [Insert(0, 30, {"x": 1}), Adjust(0, 30, 20, {"x": 1}), Insert(5, 9, {"x": 16})]
    said = [[each for element in stream for each in taker.take(element)] for taker in (_ended(), _ended(Line27))]
    assert [[str(each) for each in elements] for elements in said] == [["insert [0, 5) n=1 s=1"], []]


class AcrossCtis(SnapshotOperator):
    """Algorithm 4 as printed: pieces are joined wherever an end point goes."""

    def _leaves(self, t: int) -> bool:
        self.cti, cti = NEVER, self.cti
        try:
            return super()._leaves(t)
        finally:
            self.cti = cti


def test_joining_pieces_across_a_cti_breaks_the_promise() -> None:
    """[0, 3) has been said, and 1 promised; it is taken back all the same."""
    events = [Insert(0, 9, {"x": 1}), Insert(3, 5, {"x": 16}), Insert(7, 8, {"x": 256})]
    stream = [*events, Cti(1), Adjust(3, 5, 3, {"x": 16})]
    right, wrong = (
        [each for element in stream for each in taker.take(element)] for taker in (_all(), _all(AcrossCtis))
    )
    assert is_valid(right)
    assert not is_valid(wrong) and "changes instant 0, but cti 1" in is_valid(wrong).why


def _ended(kind: type[SnapshotOperator] = SnapshotOperator) -> SnapshotOperator:
    return kind("ended", count_and_sum)


def _all(kind: type[SnapshotOperator] = SnapshotOperator) -> SnapshotOperator:
    return kind("all", count_and_sum)
