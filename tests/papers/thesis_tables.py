"""The tables of Krämer's thesis as data: input streams, the plan of each table, and what it must give.

`CASES` is used twice: for the oracle (`test_thesis_reference_tables.py`) and for the physical operators.  Where a
table is wrong or leaves something open, `note` says what was changed and why.  A payload is one column `e`, a letter.

Chapter 8 prints snapshots per instant, chapters 11, 17 and 20 print pieces `(tuple, start, end)`.  `fixed` marks the
cases whose pieces follow from the operator's definition, so that operators may be compared piece by piece; elsewhere
only the snapshots are determined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import everwhen as ew
from everwhen.algebra.aggregates import calls as aggregates
from everwhen.algebra.expressions.build import Expr, col, when
from everwhen.algebra.nodes import Node
from everwhen.core.time import INF

Row = tuple[Any, ...]
Event = tuple[int, int, Row]
Snapshots = Mapping[int, Counter[Row]]

COLUMNS = {"e": "string"}


@dataclass(frozen=True)
class Case:
    """One table: the plan, the events of its inputs, and the expected snapshots or pieces."""

    name: str
    build: Callable[[], Node]
    inputs: Mapping[str, tuple[Event, ...]]
    snapshots: Snapshots | None = None
    """Expected snapshot per instant; from the last one listed on it is the same for ever; empty before the first."""
    pieces: tuple[Event, ...] | None = None
    """Expected events, all of them."""
    fixed: bool = False
    note: str = ""

    def expected(self) -> tuple[Event, ...]:
        """The expected result as events."""
        if self.pieces is not None:
            return self.pieces
        assert self.snapshots is not None
        instants = sorted(self.snapshots)
        ends = [*instants[1:], INF]
        return tuple(
            (vs, ve, row) for vs, ve in zip(instants, ends, strict=True) for row in self.snapshots[vs].elements()
        )


def letters(text: str) -> Counter[Row]:
    """`"aab"` is the multiset ⟨a, a, b⟩."""
    return Counter((letter,) for letter in text)


def logical(*snapshots: str) -> tuple[Event, ...]:
    """A stream from its snapshots at the instants 1, 2, …, as chronons."""
    return tuple((t, t + 1, row) for t, text in enumerate(snapshots, start=1) for row in letters(text).elements())


def physical(text: str) -> tuple[Event, ...]:
    """`"c 1 8, a 5 ∞"` as events."""
    parts = (piece.split() for piece in text.split(","))
    return tuple((int(vs), INF if ve == "∞" else int(ve), (letter,)) for letter, vs, ve in parts)


def at_instants(*snapshots: str) -> Snapshots:
    """Expected snapshots at 1, 2, …, nothing afterwards."""
    found = {t: letters(text) for t, text in enumerate(snapshots, start=1)}
    return {**found, len(snapshots) + 1: Counter()}


def and_for_ever(*snapshots: str) -> Snapshots:
    """Expected snapshots at 1, 2, …; the last one stays."""
    return {t: letters(text) for t, text in enumerate(snapshots, start=1)}


# Table 8.1: two logical streams; 8.11: the logical stream S3, as its text and Table 8.12 imply it.
LOGICAL_S1 = logical("c", "aaa", "aaab", "aaabc", "bb", "bb")
LOGICAL_S2 = logical("", "bb", "bb", "abc", "aab", "acc")
LOGICAL_S3 = logical("c", "a", "b", "b", "a", "c")

# Table 11.1: two physical streams; Table 11.11(a): a chronon stream.
PHYSICAL_S1 = physical("c 1 8, a 5 11, d 6 14, a 9 10, b 12 17")
PHYSICAL_S2 = physical("b 1 7, d 3 9, a 4 5, b 7 15, e 10 18")
CHRONON_S3 = physical("b 1 2, a 3 4, c 4 5, a 7 8, b 10 11")

LOGICAL = {"S1": LOGICAL_S1, "S2": LOGICAL_S2, "S3": LOGICAL_S3}
PHYSICAL = {"S1": PHYSICAL_S1, "S2": PHYSICAL_S2, "S3": CHRONON_S3}


def s1() -> ew.Stream:
    return ew.source("S1", COLUMNS)


def s2() -> ew.Stream:
    return ew.source("S2", COLUMNS)


def s3() -> ew.Stream:
    return ew.source("S3", COLUMNS)


# The thesis adds letters up.  Here each is worth a power of ten, so a sum still says which letters it is made of.
WORTH = {"a": 1, "b": 10, "c": 100, "d": 1000, "e": 10000}


def worth() -> Expr:
    value: Any = when(col("e") == "a").then(1)
    for letter, amount in list(WORTH.items())[1:]:
        value = value.when(col("e") == letter).then(amount)
    result: Expr = value.otherwise(0)
    return result


def total(text: str) -> Row:
    """The sum of letters: `total("aab")` is a + a + b."""
    return (sum(WORTH[letter] for letter in text),)


def group_of(*groups: str) -> Expr:
    """A grouping function: 1 for the letters of the first group, and so on; one more for the others."""
    value: Any = when(col("e").is_in(list(groups[0]))).then(1)
    for number, members in enumerate(groups[1:], start=2):
        value = value.when(col("e").is_in(list(members))).then(number)
    result: Expr = value.otherwise(len(groups) + 1)
    return result


def pairs(left: str, right: str) -> Counter[Row]:
    """The product of two multisets of letters."""
    return Counter((a, b) for a in left for b in right)


def partition_of_s1(number: int) -> Callable[[], Node]:
    return lambda: s1().partition(group_of("a", "b"), [1, 2, 3])[number - 1].node


def partitioned_rows(source: Callable[[], ew.Stream], group: Callable[[], Expr]) -> Callable[[], Node]:
    return lambda: source().with_columns(g=group()).rows(1, partition_by=("g",)).select("e").node


CHAPTER_8 = (
    Case("8.1(a)", lambda: s1().node, LOGICAL, at_instants("c", "aaa", "aaab", "aaabc", "bb", "bb")),
    Case("8.1(b)", lambda: s2().node, LOGICAL, at_instants("", "bb", "bb", "abc", "aab", "acc")),
    Case(
        "8.2 filter",
        lambda: s1().where((col("e") == "a") | (col("e") == "c")).node,
        LOGICAL,
        at_instants("c", "aaa", "aaa", "aaac"),
    ),
    Case(
        "8.3 map",
        lambda: s1().select(e=when(col("e") == "b").then("x").otherwise(col("e"))).node,
        LOGICAL,
        at_instants("c", "aaa", "aaax", "aaaxc", "xx", "xx"),
    ),
    Case(
        "8.4 union",
        lambda: s1().union(s2()).node,
        LOGICAL,
        at_instants("c", "aaabb", "aaabbb", "aaaabbcc", "aabbb", "abbcc"),
    ),
    Case(
        "8.5 product",
        lambda: s1().product(s2()).node,
        LOGICAL,
        {
            2: pairs("aaa", "bb"),
            3: pairs("aaab", "bb"),
            4: pairs("aaabc", "abc"),
            5: pairs("bb", "aab"),
            6: pairs("bb", "acc"),
            7: Counter(),
        },
        note=(
            "The table prints two pairs a∘b at 2, and one pair a∘b with three b∘b at 3; formula (8.4) gives 3·2 pairs "
            "a∘b at 2, and 3·2 pairs a∘b with 1·2 pairs b∘b at 3."
        ),
    ),
    Case("8.6 distinct", lambda: s1().distinct().node, LOGICAL, at_instants("c", "a", "ab", "abc", "b", "b")),
    Case(
        "8.7 difference",
        lambda: s1().difference(s2()).node,
        LOGICAL,
        at_instants("c", "aaa", "aaa", "aa", "b", "bb"),
    ),
    Case("8.8 grouping, group 1", partition_of_s1(1), LOGICAL, at_instants("", "aaa", "aaa", "aaa")),
    Case("8.8 grouping, group 2", partition_of_s1(2), LOGICAL, at_instants("", "", "b", "b", "bb", "bb")),
    Case("8.8 grouping, group 3", partition_of_s1(3), LOGICAL, at_instants("c", "", "", "c")),
    Case(
        "8.9 aggregation",
        lambda: s1().aggregate(total=aggregates.sum(worth())).node,
        LOGICAL,
        {
            **{t: Counter([total(x)]) for t, x in enumerate(("c", "aaa", "aaab", "aaabc", "bb", "bb"), start=1)},
            7: Counter(),
        },
        note="Letters are worth powers of ten, so that sums are numbers.",
    ),
    Case(
        "8.10 time window",
        lambda: s1().range(2).node,
        LOGICAL,
        at_instants("c", "aaac", "aaaaaab", "aaaaaabbc", "aaabbbc", "bbbb", "bb"),
    ),
    Case(
        "8.11",
        lambda: s3().node,
        LOGICAL,
        at_instants("c", "a", "b", "b", "a", "c"),
        note="The table prints the result of Table 8.12; the text and 8.12 imply that S3 is c, a, b, b, a, c.",
    ),
    Case("8.12 rows", lambda: s3().rows(3).node, LOGICAL, and_for_ever("c", "ac", "abc", "abb", "abb", "abc")),
    Case(
        "8.13 partitioned rows",
        partitioned_rows(s3, lambda: group_of("ac")),
        LOGICAL,
        and_for_ever("c", "a", "ab", "ab", "ab", "bc"),
    ),
)

CHAPTER_11 = (
    Case("11.1(a)", lambda: s1().node, PHYSICAL, pieces=PHYSICAL_S1, fixed=True),
    Case("11.1(b)", lambda: s2().node, PHYSICAL, pieces=PHYSICAL_S2, fixed=True),
    Case(
        "11.2 filter",
        lambda: s1().where(col("e") == "a").node,
        PHYSICAL,
        pieces=physical("a 5 11, a 9 10"),
        fixed=True,
    ),
    Case(
        "11.3 map",
        lambda: s1().select(e=when(col("e") == "a").then("x").when(col("e") == "b").then("y").otherwise(col("e"))).node,
        PHYSICAL,
        pieces=physical("c 1 8, x 5 11, d 6 14, x 9 10, y 12 17"),
        fixed=True,
    ),
    Case(
        "11.4 union",
        lambda: s1().union(s2()).node,
        PHYSICAL,
        pieces=physical("c 1 8, b 1 7, d 3 9, a 4 5, a 5 11, d 6 14, b 7 15, a 9 10, e 10 18, b 12 17"),
        note="Printed pieces meet at 5 (a) and 7 (b): snapshots are compared.",
    ),
    Case(
        "11.6 equi-join",
        lambda: s1().join(s2(), on="e").node,
        PHYSICAL,
        pieces=physical("d 6 9, b 12 15"),
        fixed=True,
    ),
    Case(
        "11.7 distinct",
        lambda: s1().distinct().node,
        PHYSICAL,
        pieces=physical("c 1 8, a 5 11, d 6 14, b 12 17"),
        fixed=True,
    ),
    Case(
        "11.8 difference",
        lambda: s1().difference(s2()).node,
        PHYSICAL,
        pieces=physical("c 1 8, a 5 11, d 9 14, a 9 10, b 15 17"),
    ),
    Case(
        "11.9 aggregation",
        lambda: s1().aggregate(total=aggregates.sum(worth())).node,
        PHYSICAL,
        pieces=(
            (1, 5, total("c")),
            (5, 6, total("ca")),
            (6, 8, total("cad")),
            (8, 9, total("ad")),
            (9, 10, total("ada")),
            (10, 11, total("ad")),
            (11, 12, total("d")),
            (12, 14, total("db")),
            (14, 17, total("b")),
        ),
        fixed=True,
        note="Letters are worth powers of ten, so that sums are numbers.",
    ),
    Case(
        "11.10 grouping with aggregation",
        lambda: s1().group_by("e").agg(n=aggregates.count()).node,
        PHYSICAL,
        pieces=(
            (1, 8, ("c", 1)),
            (5, 9, ("a", 1)),
            (6, 14, ("d", 1)),
            (9, 10, ("a", 2)),
            (10, 11, ("a", 1)),
            (12, 17, ("b", 1)),
        ),
        fixed=True,
    ),
    Case("11.11(a)", lambda: s3().node, PHYSICAL, pieces=CHRONON_S3, fixed=True),
    Case(
        "11.11(b) time window",
        lambda: s3().range(50).node,
        PHYSICAL,
        pieces=physical("b 1 51, a 3 53, c 4 54, a 7 57, b 10 60"),
    ),
    Case(
        "11.12 rows",
        lambda: s3().rows(1).node,
        PHYSICAL,
        pieces=physical("b 1 3, a 3 4, c 4 7, a 7 10, b 10 ∞"),
        fixed=True,
    ),
    Case(
        "11.13 partitioned rows",
        lambda: s3().rows(1, partition_by=("e",)).node,
        PHYSICAL,
        pieces=physical("b 1 10, a 3 7, c 4 ∞, a 7 ∞, b 10 ∞"),
        note="Printed pieces of one letter meet: snapshots are compared.  The table's caption names S1 by mistake.",
    ),
    Case(
        "11.14 split",
        lambda: s1().split(1).node,
        PHYSICAL,
        pieces=tuple((t, t + 1, row) for vs, ve, row in PHYSICAL_S1 for t in range(vs, ve)),
        fixed=True,
        note="The table is an excerpt; here are all chronons.",
    ),
    Case(
        "11.15 coalesce",
        lambda: s2().coalesce(20).node,
        PHYSICAL,
        pieces=physical("b 1 15, d 3 9, a 4 5, e 10 18"),
        fixed=True,
    ),
)

CHAPTER_17 = (
    Case(
        "17.1 time window with slide",
        lambda: s3().range(50, slide=10).node,
        PHYSICAL,
        pieces=physical("b 9 59, a 9 59, c 9 59, a 9 59, b 19 69"),
    ),
    Case(
        "17.2 rows with slide",
        lambda: s3().rows(2, slide=2).node,
        PHYSICAL,
        pieces=physical("b 3 7, a 3 7, c 7 ∞, a 7 ∞"),
        note="Printed pieces of a meet at 7: snapshots are compared.",
    ),
    Case(
        "17.3 istream",
        lambda: s2().istream().node,
        PHYSICAL,
        pieces=physical("b 1 2, d 3 4, a 4 5, e 10 11"),
        fixed=True,
    ),
    Case(
        "17.4 dstream",
        lambda: s2().dstream().node,
        PHYSICAL,
        pieces=physical("a 5 6, d 9 10, b 15 16, e 18 19"),
        fixed=True,
        note=(
            "The table and Algorithm 23 report at the last instant alive; formula (17.4), τ(t-1) - τ(t), and CQL "
            "report at the first instant at which the tuple is gone, which is one later."
        ),
    ),
)

CHAPTER_20 = (
    Case(
        "20.1 granularity",
        lambda: s1().granularity(2).node,
        LOGICAL,
        at_instants("", "aaa", "aaa", "aaabc", "aaabc", "bb", "bb"),
        note=(
            "Formula (20.1) and the table leave odd instants empty, Algorithm 24 holds the value of the granule: so "
            "does Everwhen.  At the even instants, which lemma 20.1 is about, both agree."
        ),
    ),
    Case(
        "20.2 granularity",
        lambda: s1().granularity(2).node,
        PHYSICAL,
        pieces=physical("c 2 8, a 6 12, d 6 14, b 12 18"),
        fixed=True,
    ),
)

CASES: tuple[Case, ...] = (*CHAPTER_8, *CHAPTER_11, *CHAPTER_17, *CHAPTER_20)
