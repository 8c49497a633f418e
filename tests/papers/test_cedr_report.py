"""The CEDR report (Goldstein, Hong, Ali, Barga): its tables 1 to 4, and the algorithms of 4.1 to 4.3 beside ours.

Select, AlterLifetime and Equijoin are written down as the report gives them, and fed with the same late and corrected
streams as our operators, one element at a time.  Elements of one step are compared as a set.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid, stream_from_table
from example_counts import examples_per_case
from papers.cedr_streams import Lifetime, S, lifetimes, shrinking

MANY = settings(max_examples=2 * settings().max_examples)
Event = tuple[int, int, int]
any_emit = pytest.mark.parametrize("emit", ["ended", "current", "all"])
# the report's join answers at once (B = 0); in `ended` what a plan with state says is clipped
at_once = pytest.mark.parametrize("emit", ["current", "all"])


def steps(query: ew.Stream, emit: str, arrivals: list[tuple[str, Element]]) -> Iterator[list[str]]:
    runtime = ew.LocalRuntime(query, emit=emit)
    for name, element in arrivals:
        pushed = runtime.push({name: batch_of([element], runtime.schema_of(name))})
        yield sorted(str(each) for each in pushed["out"].elements())


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables_1_and_2_of_section_2() -> None:
    """A history table, the physical stream that says it, and its canonical history table."""
    stream = stream_from_table("""
        op     | vs | ve | vnew | payload
        insert | 1  | ∞  |      | P1
        adjust | 1  | ∞  | 10   | P1
        adjust | 1  | 10 | 5    | P1
        insert | 4  | 9  |      | P2
    """)
    assert_valid(stream)
    assert list(stream.history().events()) == [(1, 5, ("P1",)), (4, 9, ("P2",))]


A0, A1 = {"p": "A0"}, {"p": "A1"}
TABLE_1: list[tuple[str, Element]] = [
    ("S1", Insert(0, 2, A0)),
    ("S1", Cti(1)),
    ("S1", Insert(2, 6, A1)),
    ("S2", Insert(3, 5, A1)),
    ("S2", Cti(3)),
    ("S1", Adjust(2, 6, 4, A1)),
]


@at_once
def test_tables_1_to_4_of_the_join(emit: str) -> None:
    """Table 1 goes in, table 4 comes out, element by element; their histories are tables 2 and 3.

    Table 2 prints the end of A0 as 1, table 1 as 2; it joins nothing.
    """
    s1, s2 = ew.source("S1", {"p": "string"}), ew.source("S2", {"p": "string"})
    said = [each for step in steps(s1.join(s2, on="p"), emit, TABLE_1) for each in step]
    assert said == ["insert [3, 5) p='A1'", "cti 1", "adjust [3, 5 -> 4) p='A1'"]
    table_2 = {name: History.of([e for n, e in TABLE_1 if n == name]) for name in ("S1", "S2")}
    assert [list(each.events()) for each in table_2.values()] == [
        [(0, 2, ("A0",)), (2, 4, ("A1",))],
        [(3, 5, ("A1",))],
    ]
    table_3 = History.of([Insert(3, 5, A1), Cti(1), Adjust(3, 5, 4, A1)])
    assert list(table_3.events()) == [(3, 4, ("A1",))]


# --- 4.1 select -------------------------------------------------------------------------------------------------------


@any_emit
@MANY
@given(drawn=lifetimes(), seed=st.integers(0, 2**32))
def test_select(emit: str, drawn: list[Lifetime], seed: int) -> None:
    """Elements whose payload passes, and CTIs, as they are."""
    stream = shrinking(drawn, random.Random(seed))
    found = steps(S.where(ew.col("x") > 16), emit, [("S", element) for element in stream])
    for element, said in zip(stream, found, strict=True):
        passes = isinstance(element, Cti) or (isinstance(element, Insert | Adjust) and element.row["x"] > 16)
        assert said == ([str(element)] if passes else [])


# --- 4.2 AlterLifetime ------------------------------------------------------------------------------------------------


@dataclass
class AlterLifetime:
    """The report's algorithm: a start as a function of the start, a length as a function of the event."""

    start: Callable[[int], int]
    length: Callable[[int, int], int]
    last: int = NEVER

    def take(self, element: Element) -> list[Element]:
        match element:
            case Insert(vs, ve, row):
                return [Insert(self.start(vs), self._end(vs, ve), row)]
            case Adjust(vs, ve, vnew, row):
                end = self.start(vs) if vnew == vs else self._end(vs, vnew)
                # a retraction that changes no end is not worth an element, the report would say it
                return [Adjust(self.start(vs), self._end(vs, ve), end, row)] * (end != self._end(vs, ve))
            case Cti(t):
                moved = self.start(t) if t < INF else INF
                if moved == self.last:
                    return []
                self.last = moved
                return [Cti(moved)]
        raise AssertionError(element)

    def _end(self, vs: int, ve: int) -> int:
        length = self.length(vs, ve)
        return INF if length == INF else self.start(vs) + length


def length_of(vs: int, ve: int) -> int:
    return INF if ve == INF else ve - vs


ALTERED = {
    "window": (S.lifetime(length=4), AlterLifetime(lambda vs: vs, lambda vs, ve: 4)),
    "hopping window": (S.lifetime(hop=4, length=8), AlterLifetime(lambda vs: vs // 4 * 4, lambda vs, ve: 8)),
    "later": (S.lifetime(shift=3), AlterLifetime(lambda vs: vs + 3, length_of)),
    "inserts": (S.inserts(), AlterLifetime(lambda vs: vs, lambda vs, ve: INF)),
}


@any_emit
@pytest.mark.parametrize("name", ALTERED)
@settings(max_examples=examples_per_case(2))
@given(drawn=lifetimes(), seed=st.integers(0, 2**32))
def test_alter_lifetime(name: str, emit: str, drawn: list[Lifetime], seed: int) -> None:
    query, algorithm = ALTERED[name]
    stream = shrinking(drawn, random.Random(seed))
    algorithm = AlterLifetime(algorithm.start, algorithm.length)
    for element, said in zip(stream, steps(query, emit, [("S", each) for each in stream]), strict=True):
        assert said == [str(each) for each in algorithm.take(element)]


# --- 4.3 equijoin -----------------------------------------------------------------------------------------------------


@dataclass
class Equijoin:
    """The report's symmetric join; sides by number.  Payloads join where they have the same remainder."""

    events: tuple[list[Event], list[Event]] = field(default_factory=lambda: ([], []))
    ctis: list[int] = field(default_factory=lambda: [NEVER, NEVER])

    def take(self, side: int, element: Element) -> list[Element]:
        mine, others = self.events[side], self.events[1 - side]
        match element:
            case Insert(vs, ve, row):
                mine.append((vs, ve, row["x"]))
                return [
                    Insert(max(vs, a), min(ve, b), _pair(side, row["x"], y))
                    for a, b, y in others
                    if _joins(row["x"], y) and max(vs, a) < min(ve, b)
                ]
            case Adjust(vs, ve, vnew, row):
                if (vs, ve, row["x"]) in mine:  # else it was aged out, as nothing can meet it any more
                    mine.remove((vs, ve, row["x"]))
                    mine.extend([(vs, vnew, row["x"])] * (vnew > vs))
                return [
                    Adjust(max(vs, a), min(ve, b), max(vnew, vs, a), _pair(side, row["x"], y))
                    for a, b, y in others
                    if _joins(row["x"], y) and max(vs, a) < min(ve, b) and vnew < min(ve, b)
                ]
            case Cti(t):
                before, self.ctis[side] = min(self.ctis), t
                others[:] = [event for event in others if event[1] >= t]
                return [Cti(min(self.ctis))] * (min(self.ctis) > before)
        raise AssertionError(element)


def _joins(x: int, y: int) -> bool:
    return x % 17 == y % 17


def _pair(side: int, x: int, y: int) -> dict[str, int]:
    return {"r": x % 17, "x": x, "x_right": y} if side == 0 else {"r": x % 17, "x": y, "x_right": x}


@at_once
@MANY
@given(left=lifetimes(5), right=lifetimes(5), seed=st.integers(0, 2**32))
def test_equijoin(emit: str, left: list[Lifetime], right: list[Lifetime], seed: int) -> None:
    rng = random.Random(seed)
    streams = {"S": shrinking(left, rng), "T": shrinking(right, rng)}
    keyed = [ew.source(name, {"x": "int64"}).select(r=ew.col("x") % 17, x=ew.col("x")) for name in streams]
    turns = [name for name, elements in streams.items() for _ in elements]
    rng.shuffle(turns)
    left_over = {name: iter(elements) for name, elements in streams.items()}
    arrivals = [(name, next(left_over[name])) for name in turns]
    algorithm = Equijoin()
    for (name, element), said in zip(arrivals, steps(keyed[0].join(keyed[1], on="r"), emit, arrivals), strict=True):
        theirs = algorithm.take(("S", "T").index(name), element)
        assert Counter(said) == Counter(str(each) for each in theirs), f"for {name} {element}"
