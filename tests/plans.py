"""Plans by name that between them use every operator: for the oracle, for sessions, for stages and for Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import everwhen as ew
from everwhen.algebra.nodes import Fixpoint, Node, over

COLUMNS = {"k": "string", "x": "int64"}
S, T = ew.source("S", COLUMNS), ew.source("T", COLUMNS)
col = ew.col


@dataclass(frozen=True)
class Plan:
    """A plan with a name.  `infinite`: whether lifetimes without end are legal for it."""

    name: str
    build: Callable[[], ew.Stream]
    infinite: bool = True
    ordered: bool = False
    """An ungrouped unary operator: ordered input gives ordered output."""

    def __str__(self) -> str:
        return self.name


def plan(name: str, build: Callable[[], ew.Stream], infinite: bool = True, ordered: bool = False) -> Plan:
    return Plan(name, build, infinite, ordered)


def _sums(stream: ew.Stream) -> ew.Stream:
    return stream.group_by("k").agg(t=ew.sum("x"))


def _pairs(stream: ew.Stream) -> ew.Stream:
    """How much higher each row is than the one before it."""
    return stream.match_recognize("A B", "x", "k", measures={"d": ew.patterns.last("B.x") - ew.patterns.last("A.x")})


UNARY: tuple[Plan, ...] = (
    plan("source", lambda: S, ordered=True),
    plan("filter", lambda: S.where(col("x") > 1), ordered=True),
    plan("map", lambda: S.select("k", y=col("x") * 2), ordered=True),
    plan("map that merges rows", lambda: S.select("k"), ordered=True),
    plan("now", lambda: S.now(), ordered=True),
    plan("range", lambda: S.range(3), ordered=True),
    plan("range slide", lambda: S.range(5, slide=3), ordered=True),
    plan("slide beyond range", lambda: S.range(2, slide=5), ordered=True),
    plan("unbounded", lambda: S.unbounded(), infinite=False, ordered=True),
    plan("granularity", lambda: S.granularity(4), ordered=True),
    plan("distinct", lambda: S.distinct()),
    plan("count and sum by group", lambda: S.group_by("k").agg(n=ew.count(), t=ew.sum("x"), nx=ew.count("x"))),
    plan("scalar aggregate", lambda: S.aggregate(n=ew.count(), t=ew.sum("x"), a=ew.avg("x")), ordered=True),
    plan("min and max by group", lambda: S.group_by("k").agg(lo=ew.min("x"), hi=ew.max("x"), n=ew.count())),
    plan("scalar min and max", lambda: S.aggregate(lo=ew.min("x"), hi=ew.max("k")), ordered=True),
    plan(
        "holistic aggregates",
        lambda: S.group_by("k").agg(
            m=ew.median("x"), d=ew.count_distinct("x"), q=ew.quantile("x", 0.25), top=ew.top_k("x", 2)
        ),
    ),
    plan("variance", lambda: S.group_by("k").agg(v=ew.variance("x"), s=ew.stddev_pop("x"))),
    plan("first and last", lambda: S.aggregate(f=ew.first("k", by="x"), l=ew.last("k", by="x")), ordered=True),
    plan("group by an expression", lambda: S.group_by(odd=col("x") % 2).agg(n=ew.count(), m=ew.min("k"))),
    plan("rows", lambda: S.rows(2), ordered=True),
    plan("rows 4", lambda: S.rows(4), ordered=True),
    plan("rows slide", lambda: S.rows(3, slide=2), infinite=False, ordered=True),
    plan("partitioned rows", lambda: S.rows(2, partition_by=["k"])),
    plan("partitioned rows slide", lambda: S.rows(2, slide=3, partition_by=["k"]), infinite=False),
    plan("istream", lambda: S.istream(), ordered=True),
    plan("dstream", lambda: S.dstream(), ordered=True),
    plan("rstream", lambda: S.rstream(), infinite=False, ordered=True),
    plan("split", lambda: S.split(1), infinite=False, ordered=True),
    plan("split 3", lambda: S.split(3), infinite=False, ordered=True),
    plan("coalesce", lambda: S.coalesce()),
    plan("coalesce longest", lambda: S.coalesce(4), infinite=False),
    plan("lists", lambda: S.group_by("k").agg(a=ew.array_agg("x"), q=ew.quantile_disc("x", 0.5))),
    plan("lists in an order", lambda: S.aggregate(a=ew.array_agg("x", "k", descending=True)), ordered=True),
    plan("lifetime", lambda: S.lifetime(length=4), ordered=True),
    plan("hop", lambda: S.lifetime(hop=4, length=8), ordered=True),
    plan("hop keeping ends", lambda: S.lifetime(hop=4), ordered=True),
    plan("shift", lambda: S.lifetime(shift=3), ordered=True),
    plan("shift back", lambda: S.lifetime(shift=-3, length=2), ordered=True),
    plan("inserts", lambda: S.inserts(), ordered=True),
    plan("deletes", lambda: S.deletes()),
)

p = ew.patterns

PATTERNS: tuple[Plan, ...] = (
    plan(
        "pattern of rows",
        lambda: S.match_recognize(
            "A B+", "x", define={"B": col("x") > 0}, measures={"a": p.first("x"), "n": p.count()}
        ),
    ),
    plan(
        "pattern with the row before",
        lambda: S.match_recognize(
            "A? B+ C*",
            "x",
            "k",
            define={"A": col("x") > p.prev("x"), "B": p.prev("x").is_null() | (col("x") >= 1), "C": p.prev("x") < 2},
            measures={"s": p.sum("B.x"), "c": p.count("C"), "e": col("x"), "m": p.max("x") - p.min("x")},
        ),
    ),
    plan(
        "pattern with registers",
        lambda: S.match_recognize(
            "(A | B)+ C",
            ["k", "x"],
            descending="k",
            define={"A": p.count("A") <= p.count("B") + 1, "B": p.sum("A.x") > 0, "C": p.last("A.k") != col("k")},
            measures={"a": p.count("A"), "f": p.first("B.k"), "l": p.last("C.x") + p.count()},
        ),
    ),
    plan(
        "pattern over a window, per partition",
        lambda: S.match_recognize("A{2,3}", "x", "k", within=4, measures={"a": p.avg("A.x"), "t": p.sum("x")}),
    ),
)

RANKS: tuple[Plan, ...] = (
    plan("row numbers", lambda: S.rank("n", "x", descending="x")),
    plan("ranks by group", lambda: S.rank("n", "x", "k", kind="rank")),
    plan("dense ranks", lambda: S.rank("n", "k", kind="dense_rank", limit=2)),
    plan("top two by group", lambda: S.rank("n", "x", "k", descending="x", limit=2)),
    plan("top ranks of windows", lambda: S.range(4).rank("n", "x", kind="rank", limit=2)),
    plan("limit", lambda: S.limit(2, "x")),
    plan("limit and offset", lambda: S.limit(2, "x", "k", offset=1)),
    plan("sums over frames", lambda: S.over("x", "k", s=ew.frames.sum("x"), n=ew.frames.count())),
    plan("neighbours", lambda: S.over("x", descending="x", l=ew.frames.lag("k"), m=ew.frames.avg("x", rows=(-1, 1)))),
    plan("first row by group", lambda: S.limit(1, "x", "k", descending="x")),
)

BINARY: tuple[Plan, ...] = (
    plan("union", lambda: S.union(T)),
    plan("difference", lambda: S.difference(T)),
    plan("strict difference", lambda: S.strict_difference(T)),
    plan("except", lambda: S.except_(T)),
    plan("intersect", lambda: S.intersect(T)),
    plan("max union", lambda: S.max_union(T)),
    plan("equi-join", lambda: S.join(T, on="k")),
    plan("equi-join and condition", lambda: S.join(T, on="k", where=col("x") != col("x_right"))),
    plan("theta-join", lambda: S.join(T, where=col("x") != col("x_right"))),
    plan("inequality join", lambda: S.join(T, where=col("x") < col("x_right"))),
    plan("band join", lambda: S.join(T, where=(col("x") <= col("x_right") + 1) & (col("x") >= col("x_right") - 1))),
    plan("product", lambda: S.product(T)),
    plan("semi-join", lambda: S.join(T, on="k", how="semi")),
    plan("anti-join", lambda: S.join(T, on="k", how="anti")),
    plan("theta semi-join", lambda: S.join(T, where=col("x") < col("x_right"), how="semi")),
    plan("theta anti-join", lambda: S.join(T, on="k", where=col("x") < col("x_right"), how="anti")),
    plan("left join", lambda: S.join(T, on={"k": "k"}, how="left")),
    plan("right join", lambda: S.join(T, on={"k": "k"}, how="right")),
    plan("full join", lambda: S.join(T, on={"k": "k"}, how="full")),
    plan("theta full join", lambda: S.join(T, where=col("x") < col("x_right"), how="full")),
    plan("join of all columns", lambda: S.join(T, on=["k", "x"])),
)


def _windows(text: str) -> ew.Stream:
    return ew.sql(
        f"SELECT k, window_start, window_end, COUNT(*) AS n FROM {text} GROUP BY k, window_start, window_end", S
    )


COMPOSED: tuple[Plan, ...] = (
    plan("windows with their starts", lambda: _windows("HOP(TABLE S, 2, 4)")),
    plan("windows of sessions", lambda: _windows("SESSION(TABLE S PARTITION BY k, 3)")),
    plan("self-difference", lambda: S.difference(S.where(col("x") > 1))),
    plan("self-join", lambda: S.join(S.where(col("x") > 0), on="k")),
    plan("stream minus itself", lambda: S.difference(S)),
    plan("aggregate of aggregate", lambda: S.group_by("k").agg(t=ew.sum("x")).aggregate(m=ew.max("t"), n=ew.count())),
    plan("windowed sum", lambda: S.range(4).group_by("k").agg(t=ew.sum("x"))),
    plan("sliding sum", lambda: S.range(6, slide=2).group_by("k").agg(t=ew.sum("x"), m=ew.max("x"))),
    plan(
        "highest bids",
        lambda: S.range(4).join(S.range(4).aggregate(m=ew.max("x")), on={"x": "m"}, how="semi"),
    ),
    plan("rows of sums", lambda: S.group_by("k").agg(t=ew.sum("x")).rows(2, partition_by=["k"])),
    plan("sum of rows", lambda: S.rows(3, partition_by=["k"]).group_by("k").agg(t=ew.sum("x"))),
    plan("window of sums", lambda: S.group_by("k").agg(t=ew.sum("x")).range(3)),
    plan("lifetime of coalesced", lambda: S.coalesce().lifetime(length=3)),
    plan("lifetime of coalesced pieces", lambda: S.coalesce(4).lifetime(length=3), infinite=False),
    plan("deletes of coalesced sums", lambda: S.group_by("k").agg(t=ew.sum("x")).coalesce().deletes()),
    plan("changes of a sum", lambda: S.aggregate(t=ew.sum("x")).istream()),
    plan("granular sums", lambda: S.aggregate(t=ew.sum("x")).granularity(3)),
    plan("distinct over a join", lambda: S.join(T, on="k").select("k").distinct()),
    plan("join of windows", lambda: S.range(3).join(T.range(2), on="k").group_by("k").agg(n=ew.count())),
    plan("anti-join, then sum", lambda: S.join(T, on="k", how="anti").aggregate(n=ew.count(), t=ew.sum("x"))),
    plan("dstream of distinct", lambda: S.distinct().dstream()),
    plan("filter on lifetime", lambda: S.lifetime(length=5).where(col("x") > 0).union(T.lifetime(shift=2))),
    plan("merged copies of events", lambda: ew.lmerge(S, S.where(ew.lit(True)))),
    plan("merged copies of sums", lambda: ew.lmerge(*(_sums(copy) for copy in (S, S.where(ew.lit(True)))))),
    plan("distinct over merged copies", lambda: ew.lmerge(S, S.where(ew.lit(True))).range(3).distinct()),
    plan("sum over matches", lambda: _pairs(S).group_by("k").agg(n=ew.count(), t=ew.sum("d"))),
    plan("top of sums", lambda: _sums(S).limit(2, "t", descending="t")),
    plan("sum over a top", lambda: S.limit(2, "x", "k").group_by("k").agg(t=ew.sum("x"))),
    plan("pattern over sums", lambda: _pairs(_sums(S).select("k", x=col("t")).union(T))),
    plan("sum over a union of windows", lambda: S.range(5, slide=2).union(T.granularity(3)).aggregate(t=ew.sum("x"))),
)


def _asked(text: str) -> ew.Stream:
    return ew.sql(text, S, T)


TABLES: tuple[Plan, ...] = (
    plan(
        "constant rows joined",
        lambda: _asked(
            "SELECT S.k, S.x, v FROM S LEFT JOIN (VALUES ('a', 1), ('b', 2), ('b', 3)) AS t(k, v) USING (k)"
        ),
    ),
    plan("constant rows beside a stream", lambda: _asked("SELECT k, x FROM S UNION VALUES ('a', 1), ('z', NULL)")),
    plan(
        "elements of lists",
        lambda: _asked(
            "SELECT k, y, place FROM S, UNNEST([x, 1, NULL]) WITH ORDINALITY AS t(y, place) WHERE place < 3"
        ),
    ),
    plan("series, rows without any kept", lambda: _asked("SELECT k, i FROM S LEFT JOIN range(1, x) AS t(i) ON TRUE")),
    plan("sums of elements", lambda: _asked("SELECT y, SUM(x) AS t FROM S, UNNEST([k, 'all']) AS t(y) GROUP BY y")),
    plan(
        "nearest partners",
        lambda: _asked("SELECT S.k, S.x, T.x AS y FROM S ASOF LEFT JOIN T ON S.k = T.k AND S.x >= T.x"),
    ),
    plan(
        "outer join with a subquery in its condition",
        lambda: _asked("SELECT S.x, T.x AS y FROM S FULL JOIN T ON S.k = T.k AND S.x IN (SELECT x FROM T)"),
    ),
)


def _met(r: ew.Stream) -> ew.Stream:
    """Partners of the recursion in T, as rows of the recursion: a few values, so cycles are the rule."""
    met = r.join(T, on="k").select("k", x=(col("x") + col("x_right")) % 5)
    return met.union(r.where(col("x") > 3).select("k", x=col("x") - 1))


def _joined_with_itself(r: ew.Stream) -> ew.Stream:
    other = r.select(j=col("k"), y=col("x"))
    return r.join(other, where=(col("x") == col("y") + 1)).select(k=col("j"), x=col("x"))


def _farther(r: ew.Stream) -> ew.Stream:
    """From each key to the keys that are next to it in T, at no cost or at some."""
    there = T.select(j=col("k"), y=ew.when(col("x") > 0).then(col("x")).otherwise(0))
    return r.join(there, where=(col("k") != col("j"))).select(k=col("j"), x=col("x") + col("y"))


RECURSIVE: tuple[Plan, ...] = (
    plan("recursion", lambda: ew.fixpoint(S, _met)),
    plan("recursion joined with itself", lambda: ew.fixpoint(S, _joined_with_itself)),
    plan("recursion with a semi-join", lambda: ew.fixpoint(S, lambda r: T.join(r, on="x", how="semi"))),
    plan(
        "recursion with an anti-join",
        lambda: ew.fixpoint(S, lambda r: r.select("k", x=(col("x") + 1) % 4).join(T, on=["k", "x"], how="anti")),
    ),
    plan(
        "recursion that counts derivations",
        lambda: ew.fixpoint(
            S, lambda r: r.where(col("x") < 3).join(T, on="k").select("k", x=col("x") + 2), kind="union all"
        ),
    ),
    plan("recursion for the smallest", lambda: ew.fixpoint(S, _farther, kind="min", value="x")),
    plan("sum over a recursion", lambda: ew.fixpoint(S, _met).group_by("k").agg(t=ew.sum("x"))),
    plan("recursion over sums", lambda: ew.fixpoint(_sums(S).select("k", x=col("t") % 5), _met)),
)


def _linked(r: ew.Stream) -> ew.Stream:
    """A step that keeps k and takes x along links that are the same for all k."""
    links = T.select(a=col("x"), b=(col("x") + 1) % 4)
    return r.join(links, on={"x": "a"}).select("k", x=col("b"))


def looping(query: ew.Stream, **options: Any) -> ew.Stream:
    """The query with these options for all its loops."""

    def again(node: Node) -> Node:
        found = over(node, *map(again, node.inputs))
        return replace(found, options=replace(found.options, **options)) if isinstance(found, Fixpoint) else found

    return ew.Stream(again(query.node))


def across(query: ew.Stream) -> ew.Stream:
    """The query with all its loops across partitions."""
    return looping(query, across=True)


SPREAD_LOOPS: tuple[Plan, ...] = (
    plan("recursion with copied links", lambda: ew.fixpoint(S, _linked)),
    plan("recursion, regrouped", lambda: ew.fixpoint(S, _linked).group_by("x").agg(n=ew.count())),
    plan("recursion with a second beginning", lambda: ew.fixpoint(S, lambda r: T.union(_linked(r)))),
    plan("recursion over its own base", lambda: ew.fixpoint(T, _linked)),
    plan("recursion of a recursion", lambda: ew.fixpoint(ew.fixpoint(S, _linked).range(2), _met)),
    plan(
        "recursion joined with itself by a kept column",
        lambda: ew.fixpoint(S, lambda r: r.join(r, on="k").select("k", x=(col("x") + col("x_right")) % 4)),
    ),
    plan(
        "recursion beside groups",
        lambda: ew.fixpoint(S, _linked).union(S.group_by("k").agg(x=ew.max("x"))).distinct(),
    ),
    plan("flying recursion", lambda: ew.fixpoint(S, _met, rounds=1)),
    plan("flying recursion with copied links", lambda: ew.fixpoint(S, _linked, rounds=2, progress="probing")),
    plan("flying recursion in one place", lambda: ew.fixpoint(S, _joined_with_itself, rounds=1).select("x").distinct()),
)
"""What is to be got right where the rows of a loop lie in partitions."""

PLANS = (*UNARY, *PATTERNS, *RANKS, *BINARY, *COMPOSED, *TABLES, *RECURSIVE)

REGROUPED: tuple[Plan, ...] = (
    plan("distinct key", lambda: S.select("k").distinct()),
    plan("group whose key is dropped", lambda: S.group_by("k").agg(t=ew.sum("x")).select("t")),
    plan("scalar median", lambda: S.aggregate(m=ew.median("x"))),
    plan("join, regrouped", lambda: S.join(T, on="k").group_by("x").agg(n=ew.count())),
    plan("join of groups", lambda: S.group_by("k").agg(n=ew.count()).join(T, on="k")),
    plan("anti-join without a key", lambda: S.join(T, where=col("x") == col("x_right") + 1, how="anti")),
    plan("theta left join", lambda: S.join(T, where=col("x") < col("x_right"), how="left")),
    plan("full join, grouped", lambda: S.join(T, on={"k": "k"}, how="full").group_by("k").agg(n=ew.count())),
    plan("coalesce, grouped", lambda: S.select("k").coalesce().group_by("k").agg(n=ew.count())),
    plan("group of groups", lambda: S.group_by("k").agg(t=ew.sum("x")).group_by("t").agg(n=ew.count())),
    plan("distinct over groups and rows", lambda: S.group_by("k").agg(x=ew.max("x")).union(T).distinct()),
    plan("union of windowed groups and rows", lambda: T.range(3).union(_sums(S).select("k", x=col("t")))),
    plan(
        "union of groups",
        lambda: S.group_by("k").agg(t=ew.sum("x")).union(T.group_by("k").agg(t=ew.max("x"))).distinct(),
    ),
)
"""Rows come together by several keys, or by none: what cutting a plan into stages has to get right."""

STAGED: dict[str, Plan] = {
    each.name: each
    for each in (
        *(each for each in (*UNARY, *PATTERNS, *RANKS, *BINARY) if each.name not in (
            "source", "now", "unbounded", "except", "equi-join and condition", "theta-join", "right join",
            "join of all columns", "rows 4", "split", "hop keeping ends", "shift back", "group by an expression",
            "row numbers", "dense ranks", "top ranks of windows", "limit and offset", "first row by group",
            "neighbours",
        )),
        *(each for each in COMPOSED if each.name in (
            "self-difference", "aggregate of aggregate", "windowed sum", "highest bids", "rows of sums",
            "window of sums", "lifetime of coalesced", "top of sums",
        )),
        *REGROUPED,
        *RECURSIVE,
        *SPREAD_LOOPS,
    )
}  # fmt: skip
"""For the tests that compare runtimes: without those that are cut into stages as others are."""
