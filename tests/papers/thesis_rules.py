"""The thesis's transformation rules as pairs of plans: 10.4 to 10.12, and identities stated in passing.

`RULES` is used for the oracle (`test_thesis_rules.py`) and for the physical operators: for every input both plans
must have the same history.  Sources are `A`, `B` and `C` of `SCHEMA`.  Rules about windows of rows hold only where
ties cannot arise (`single`: at most one row alive at any instant, the thesis's own premise in 8.2.2; no infinite
lifetimes): a map that changes the order of rows changes which of two simultaneous ones is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import everwhen as ew
from everwhen.algebra.aggregates import calls as aggregates
from everwhen.algebra.expressions.build import Expr, col, when
from everwhen.algebra.nodes import Node
from everwhen.core.schema import Schema

COLUMNS = {"k": "int64", "v": "int64"}
SCHEMA: Schema = ew.source("A", COLUMNS).schema


@dataclass(frozen=True)
class Rule:
    """Two plans that mean the same."""

    name: str
    left: Callable[[], Node]
    right: Callable[[], Node]
    single: bool = False
    """Whether the inputs must have at most one row alive at any instant."""


def a() -> ew.Stream:
    return ew.source("A", COLUMNS)


def b() -> ew.Stream:
    return ew.source("B", COLUMNS)


def c() -> ew.Stream:
    return ew.source("C", COLUMNS)


def p() -> Expr:
    """A condition that is false for some rows and null for others."""
    return col("v") >= 1


def f(s: ew.Stream) -> ew.Stream:
    """A mapping that merges rows and turns their order around, but keeps `k`."""
    return s.select("k", v=when(col("v") > 0).then(0 - col("v")).otherwise(0))


def renamed(s: ew.Stream, suffix: str) -> ew.Stream:
    return s.rename(k=f"k{suffix}", v=f"v{suffix}")


def groups(s: ew.Stream) -> tuple[ew.Stream, ...]:
    """γ with all the values that `k` has in the tests; rows without `k` belong to the last group."""
    key = when(col("k").is_null()).then(99).otherwise(col("k"))
    return s.partition(key, [0, 1, 2, -7, 99])


def aggregated(group: ew.Stream) -> ew.Stream:
    """α of one group; every row of it has the same `k`."""
    return group.aggregate(k=aggregates.min("k"), n=aggregates.count(), s=aggregates.sum("v"))


def union_all(streams: tuple[ew.Stream, ...]) -> ew.Stream:
    result = streams[0]
    for stream in streams[1:]:
        result = result.union(stream)
    return result


RULES: tuple[Rule, ...] = (
    Rule(
        "10.4 the product is associative",
        lambda: renamed(a(), "1").product(renamed(b(), "2")).product(renamed(c(), "3")).node,
        lambda: renamed(a(), "1").product(renamed(b(), "2").product(renamed(c(), "3"))).node,
    ),
    Rule(
        "10.5 filter and union",
        lambda: a().union(b()).where(p()).node,
        lambda: a().where(p()).union(b().where(p())).node,
    ),
    Rule(
        "10.6 distinct and product",
        lambda: a().product(b()).distinct().node,
        lambda: a().distinct().product(b().distinct()).node,
    ),
    Rule("10.7 the now-window", lambda: a().range(1).node, lambda: a().node),
    Rule("10.7 the now-window by name", lambda: a().now().node, lambda: a().node),
    Rule("10.8 filter and window", lambda: a().range(3).where(p()).node, lambda: a().where(p()).range(3).node),
    Rule("10.9 map and window", lambda: f(a().range(3)).node, lambda: f(a()).range(3).node),
    Rule("10.10 union and window", lambda: a().range(3).union(b().range(3)).node, lambda: a().union(b()).range(3).node),
    Rule("10.11 map and rows", lambda: f(a().rows(2)).node, lambda: f(a()).rows(2).node, single=True),
    Rule(
        "10.12 map and partitioned rows",
        lambda: f(a().rows(2, partition_by=("k",))).node,
        lambda: f(a()).rows(2, partition_by=("k",)).node,
        single=True,
    ),
    # The same with a slide: (17.1) changes only which window is seen, not what is in it.
    Rule(
        "10.8 filter and sliding window",
        lambda: a().range(3, slide=2).where(p()).node,
        lambda: a().where(p()).range(3, slide=2).node,
    ),
    Rule(
        "10.10 union and sliding window",
        lambda: a().range(2, slide=3).union(b().range(2, slide=3)).node,
        lambda: a().union(b()).range(2, slide=3).node,
    ),
    # 8.1.9: derived operators from the basic ones.
    Rule(
        "8.10 theta-join",
        lambda: a().join(b(), where=col("v") < col("v_right")).node,
        lambda: a().product(b()).where(col("v") < col("v_right")).node,
    ),
    Rule(
        "8.11 semi-join",
        lambda: a().join(b(), on="k", how="semi").node,
        lambda: a().join(b().select("k").distinct(), on="k").node,
    ),
    Rule("8.12 intersection", lambda: a().intersect(b()).node, lambda: a().difference(a().difference(b())).node),
    Rule(
        "8.13 max-union",
        lambda: a().max_union(b()).node,
        lambda: a().difference(b()).union(b().difference(a())).union(a().intersect(b())).node,
    ),
    Rule(
        "8.15 grouping with aggregation",
        lambda: a().group_by("k").agg(n=aggregates.count(), s=aggregates.sum("v")).node,
        lambda: union_all(tuple(aggregated(each) for each in groups(a()))).node,
    ),
    Rule(
        "8.16 anti-join",
        lambda: a().join(b(), on="k", how="anti").node,
        lambda: a().difference(a().join(b(), on="k", how="semi")).node,
    ),
    Rule(
        "8.19 partitioned window",
        lambda: a().rows(2, partition_by=("k",)).node,
        lambda: union_all(tuple(each.rows(2) for each in groups(a()))).node,
        single=True,
    ),
    Rule(
        "8.2.3 time windows need no partitions",
        lambda: union_all(tuple(each.range(3) for each in groups(a()))).node,
        lambda: a().range(3).node,
    ),
    # 17.2: relation-to-stream operators, and 11.7: split and coalesce change no snapshot.
    # Everwhen subtracts multisets where (17.3) and (17.4) have anti-joins: the text's τ(t) - τ(t-1).
    Rule("17.3 istream", lambda: a().istream().node, lambda: a().difference(a().range(2).difference(a())).node),
    Rule("17.4 dstream", lambda: a().dstream().node, lambda: a().range(2).difference(a()).difference(a()).node),
    Rule("17.2 rstream is a split", lambda: a().rstream().node, lambda: a().split(1).node),
    Rule("11.7 coalesce undoes split", lambda: a().split(2).coalesce().node, lambda: a().node),
)
