"""Chapters 28 to 30 of the thesis: GenMig, its optimisations and Parallel Track as printed, where they are wrong, and
that a session's cutover is right in each of these cases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.session.session import Session
from everwhen.reference.migration.boxes import Box, Count, CountAtOnce, Distinct, Join, Piece, Port, snapshot
from everwhen.reference.migration.fork_fuse import Fuse, MendedFuse, fork
from everwhen.reference.migration.strategies import GenMig, ParallelTrack, Strategy
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch
from everwhen.testing import assert_valid

A, B = (ew.source(name, {name.lower(): "int64"}) for name in "AB")
Arrivals = Sequence[tuple[int, Piece]]
EXAMPLE: Arrivals = [
    (0, Piece((1,), 10, 111)),
    (1, Piece((1,), 20, 121)),
    (0, Piece((1,), 50, 151)),
    (1, Piece((1,), 70, 171)),
]
"""Example 28.1: lifetimes of 101, for a window of 100 and closed intervals."""


def first(row: tuple) -> object:
    return row[0]


def joined(one: Box, two: Box) -> Join:
    return Join(one, two, first, first)


def old_of_28_1() -> Box:
    return Distinct(joined(Port(0), Port(1)))


def new_of_28_1() -> Box:
    return joined(Distinct(Port(0)), Distinct(Port(1)))


def run(strategy: Strategy, arrivals: Arrivals, at: float) -> list[Piece]:
    """All that leaves; the migration begins before the first arrival that starts at or after `at`."""
    said: list[Piece] = []
    for port, piece in arrivals:
        if piece.start >= at:
            strategy.begin()
        said += strategy.take(port, piece)
    return said + strategy.finish()


def alone(box: Box, arrivals: Arrivals) -> list[Piece]:
    return [said for port, piece in arrivals for said in box.take(port, piece)] + box.finish()


def wrong(got: Sequence[Piece], box: Box, arrivals: Arrivals, last: int = 400) -> list[int]:
    """The instants at which an answer is not the one that a box would have given."""
    right = alone(box, arrivals)
    return [t for t in range(last) if snapshot(got, t) != snapshot(right, t)]


def source_of(port: int) -> str:
    return "AB"[port]


def ours(
    old: ew.Stream, new: ew.Stream, arrivals: Arrivals, at: float, promises: Callable[[float], float]
) -> list[Element]:
    """What a session says whose query is replaced by an equal one before the first arrival at or after `at`."""
    session = Session(emit="current")
    session.register("q", old)
    said: list[Element] = []
    replaced = False
    for port, piece in arrivals:
        if piece.start >= at and not replaced:
            session.replace("q", new)
            replaced = True
        name = source_of(port)
        row = {name.lower(): piece.row[0]}
        source = (A, B)[port]
        batch = ElementBatch.of([Insert(int(piece.start), int(piece.end), row)], source.schema)
        said += session.push({name: batch})["q"].elements()
        cti = [Cti(int(promises(piece.start)))]
        said += session.push({n: ElementBatch.of(cti, (A, B)["AB".index(n)].schema) for n in session.inputs})[
            "q"
        ].elements()
    assert replaced
    said += session.close()["q"].elements()
    assert_valid(said)
    return said


def alive(elements: Sequence[Element], t: int) -> Counter:
    found: Counter = Counter()
    for each in elements:
        if isinstance(each, (Insert, Adjust)) and each.vs <= t:
            row = tuple(each.row.values())
            if isinstance(each, Insert):
                found[row] += t < each.ve
            else:
                found[row] += int(t < each.vnew) - int(t < each.ve)
    return +found


def right(elements: Sequence[Element], box: Box, arrivals: Arrivals, last: int = 400) -> bool:
    expected = alone(box, arrivals)
    return all(alive(elements, t) == snapshot(expected, t) for t in range(last))


def in_order(start: float) -> float:
    return start


# -- example 28.1 ---------------------------------------------------------------------------------------------------


def test_both_boxes_of_example_28_1_are_equal() -> None:
    assert not wrong(alone(new_of_28_1(), EXAMPLE), old_of_28_1(), EXAMPLE)


def test_example_28_1_parallel_track_doubles_70_to_120() -> None:
    """The text says 111 to 120; the pieces that it prints force 70 to 120."""
    got = run(ParallelTrack(old_of_28_1(), new_of_28_1(), 2), EXAMPLE, 40)
    assert wrong(got, old_of_28_1(), EXAMPLE) == list(range(70, 121))
    assert {snapshot(got, t)[1, 1] for t in range(70, 121)} == {2}


def test_example_28_1_says_lifetimes_of_101_for_a_window_of_100() -> None:
    assert {piece.end - piece.start for _, piece in EXAMPLE} == {101}


@pytest.mark.parametrize("by_ends", [False, True])
def test_example_28_1_gen_mig(by_ends: bool) -> None:
    later = [(0, Piece((1,), 200, 301)), (1, Piece((1,), 210, 311))]
    strategy = GenMig(old_of_28_1(), new_of_28_1(), 2, 101, by_ends)
    assert not wrong(run(strategy, [*EXAMPLE, *later], 40), old_of_28_1(), [*EXAMPLE, *later])
    assert strategy.split == 171.5
    assert strategy.done


def test_example_28_1_ours() -> None:
    old = A.join(B, on={"a": "b"}).select("a", "b").distinct()
    new = A.distinct().join(B.distinct(), on={"a": "b"}).select("a", "b")
    assert right(ours(old, new, EXAMPLE, 40, in_order), old_of_28_1(), EXAMPLE)


# -- algorithms 26 and 27 -------------------------------------------------------------------------------------------


def test_algorithm_26_fork() -> None:
    assert fork(Piece((1,), 0, 9), 10) == (Piece((1,), 0, 9), None)
    assert fork(Piece((1,), 0, 10), 10) == (Piece((1,), 0, 10), None)
    assert fork(Piece((1,), 10, 12), 10) == (None, Piece((1,), 10, 12))
    assert fork(Piece((1,), 4, 12), 10) == (Piece((1,), 4, 10), Piece((1,), 10, 12))


def test_algorithm_27_as_printed_loses_a_half() -> None:
    fuse = Fuse(10)
    said = fuse.take(0, Piece((1,), 4, 10)) + fuse.take(1, Piece((1,), 10, 12)) + fuse.flush()
    assert said == [Piece((1,), 10, 12)], "the merged interval is [4, 12)"
    mended = MendedFuse(10)
    said = mended.take(0, Piece((1,), 4, 10)) + mended.take(1, Piece((1,), 10, 12)) + mended.flush()
    assert said == [Piece((1,), 4, 12)]


def test_algorithm_27_as_printed_lets_nothing_out_before_the_end() -> None:
    pieces = [Piece((t,), t, t + 1) for t in range(1, 9)]
    fuse, mended = Fuse(100), MendedFuse(100)
    assert [fuse.take(0, piece) for piece in pieces] == [[]] * 8
    assert fuse.flush() == pieces
    assert [mended.take(0, piece) for piece in pieces] == [[piece] for piece in pieces]


def ordered(rng: random.Random, count: int = 40, window: int = 12, values: int = 2) -> Arrivals:
    t, found = 0, []
    for _ in range(count):
        t += rng.randint(0, 3)
        found.append((rng.randint(0, 1), Piece((rng.randrange(values),), t, t + window)))
    return found


@pytest.mark.parametrize("by_ends", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_lemma_29_1_gen_mig_is_right_in_order(seed: int, by_ends: bool) -> None:
    """With the mended fuse; what leaves is in order."""
    arrivals = ordered(random.Random(seed))
    for old, new in ((old_of_28_1, new_of_28_1), (new_of_28_1, old_of_28_1)):
        strategy = GenMig(old(), new(), 2, 12, by_ends)
        got = run(strategy, arrivals, 15)
        assert strategy.done
        assert not wrong(got, old(), arrivals, 120)
        assert [piece.start for piece in got] == sorted(piece.start for piece in got)


def test_lemma_29_1_needs_the_mended_fuse() -> None:
    """As printed, the answer lacks what was alive around the split."""
    lost = 0
    for seed in range(10):
        arrivals = ordered(random.Random(seed))
        strategy = GenMig(old_of_28_1(), new_of_28_1(), 2, 12, fuse=Fuse)
        lost += bool(wrong(run(strategy, arrivals, 15), old_of_28_1(), arrivals, 120))
    assert lost >= 5


def test_29_6_the_largest_end_is_never_where_rows_have_no_end() -> None:
    arrivals = [(0, Piece((1,), 0, INF)), *[(t % 2, Piece((1,), t, t + 5)) for t in range(1, 60)]]
    strategy = GenMig(old_of_28_1(), new_of_28_1(), 2, by_ends=True)
    run(strategy, arrivals, 10)
    assert strategy.split == INF
    assert not strategy.done


def test_rows_without_end_ours() -> None:
    arrivals = [(0, Piece((1,), 0, INF)), *[(t % 2, Piece((1,), t, t + 5)) for t in range(1, 30)]]
    old = A.join(B, on={"a": "b"}).select("a", "b").distinct()
    new = A.distinct().join(B.distinct(), on={"a": "b"}).select("a", "b")
    assert right(ours(old, new, arrivals, 10, in_order), old_of_28_1(), arrivals, 40)


# -- the reference point (29.4.1) -----------------------------------------------------------------------------------


def reference_point(box: Callable[[Box], Box], arrivals: Arrivals, split: float) -> list[Piece]:
    """What leaves with a split that is given."""
    strategy = GenMig(box(Port(0)), box(Port(0)), 1, reference_point=True)
    strategy.begin()
    strategy.split = split
    strategy._starts[0] = 0
    return [said for port, piece in arrivals for said in strategy.take(port, piece)] + strategy.finish()


def test_the_reference_point_doubles_distinct() -> None:
    arrivals = [(0, Piece((7,), 0, 60)), (0, Piece((7,), 40, 100))]
    got = reference_point(Distinct, arrivals, 50)
    assert wrong(got, Distinct(Port(0)), arrivals) == list(range(60, 100))
    assert {snapshot(got, t)[7,] for t in range(60, 100)} == {2}


def test_the_reference_point_says_two_counts() -> None:
    arrivals = [(0, Piece((7,), 0, 100)), (0, Piece((7,), 60, 160))]
    got = reference_point(Count, arrivals, 50)
    assert wrong(got, Count(Port(0)), arrivals) == list(range(60, 100))
    assert [snapshot(got, t) for t in (60, 99)] == [Counter({(1,): 1, (2,): 1})] * 2


@pytest.mark.parametrize("box", [Distinct, Count])
def test_the_reference_point_is_wrong_with_a_split_beyond_all_ends_too(box: Callable[[Box], Box]) -> None:
    """A window of 100, and the split that algorithm 25 would take."""
    arrivals = [(0, Piece((7,), t, t + 100)) for t in (0, 60, 120, 150)]
    assert wrong(reference_point(box, arrivals, 160.5), box(Port(0)), arrivals)


def test_these_cases_ours() -> None:
    cases: dict[Callable[[Box], Box], tuple[ew.Stream, ew.Stream]] = {
        Distinct: (A.distinct(), A.where(ew.col("a") >= 0).distinct()),
        Count: (A.aggregate(n=ew.count()), A.where(ew.col("a") >= 0).aggregate(n=ew.count())),
    }
    for box, (old, new) in cases.items():
        for pieces in ([(0, 60), (40, 100)], [(0, 100), (60, 160)], [(t, t + 100) for t in (0, 60, 120, 150)]):
            arrivals = [(0, Piece((7,), *piece)) for piece in pieces]
            for at in sorted({start for start, _ in pieces[1:]}):
                assert right(ours(old, new, arrivals, at, in_order), box(Port(0)), arrivals)


def test_the_reference_point_is_right_for_joins() -> None:
    for seed in range(10):
        arrivals = ordered(random.Random(seed))
        strategy = GenMig(joined(Port(0), Port(1)), joined(Port(0), Port(1)), 2, 12, reference_point=True)
        assert not wrong(run(strategy, arrivals, 15), joined(Port(0), Port(1)), arrivals, 120)
        assert strategy.done


# -- disorder -------------------------------------------------------------------------------------------------------

DISORDER: Arrivals = [(0, Piece((7,), t, t + 10)) for t in (12, 15, 20, 24, 31, 25)]
"""A window of 10 and a promise of 22: row 25 comes late and is legal."""


def test_algorithm_25_ends_too_early_under_disorder() -> None:
    """Starts have passed the split, and a row comes for instants before it: the new box answers there, too.  The boxes
    are right in any order, so it is the end condition that is wrong."""
    strategy = GenMig(CountAtOnce(Port(0)), CountAtOnce(Port(0)), 1, 10)
    got = run(strategy, DISORDER, 20)
    assert strategy.split == 30.5
    assert strategy.done
    assert wrong(got, CountAtOnce(Port(0)), DISORDER, 60) == list(range(25, 31))
    assert all(sum(snapshot(got, t).values()) == 2 for t in range(25, 31)), "both boxes say a count"


def test_disorder_ours() -> None:
    old, new = A.aggregate(n=ew.count()), A.where(ew.col("a") >= 0).aggregate(n=ew.count())
    for at in (15, 20, 24, 31):
        got = ours(old, new, DISORDER, at, lambda start: min(start, 22))
        assert right(got, CountAtOnce(Port(0)), DISORDER, 60)


# -- chapter 30, small ----------------------------------------------------------------------------------------------


def test_parallel_track_is_right_for_joins_and_lasts_two_windows() -> None:
    """A join of three: PT's boxes know no ends, so an old pair stays a window longer than it may say anything."""
    rng = random.Random(3)
    arrivals = [(t % 3, Piece((rng.randrange(2),), t, t + 30)) for t in range(200)]

    def left_deep(evict: float | None) -> Box:
        return Join(Join(Port(0), Port(1), first, first, evict), Port(2), first, first, evict)

    def right_deep(evict: float | None) -> Box:
        return Join(Port(0), Join(Port(1), Port(2), first, first, evict), first, first, evict)

    ended: dict[str, float] = {}
    for name, strategy in {
        "PT": ParallelTrack(left_deep(30), right_deep(30), 3),
        "GenMig": GenMig(left_deep(None), right_deep(None), 3, 30),
        "reference point": GenMig(left_deep(None), right_deep(None), 3, 30, reference_point=True),
    }.items():
        got: list[Piece] = []
        for port, piece in arrivals:
            if piece.start == 60:
                strategy.begin()
            got += strategy.take(port, piece)
            if strategy.done and name not in ended:
                ended[name] = piece.start
        assert not wrong(got + strategy.finish(), left_deep(None), arrivals, 240), name
    assert ended["PT"] - 60 in range(58, 63)
    assert ended["GenMig"] - 60 in range(30, 36)
    assert ended["reference point"] == ended["GenMig"]
