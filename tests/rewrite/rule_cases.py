"""For each rule some plans, by name: where it fires, and where it must not (`none of it: …`).

The texts before and after are in `golden/<rule>.txt`; `test_rules_golden.py` compares them, `test_rules_property.py`
compares the answers over random histories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import Expr, col, function, lit, udf, when

COLUMNS = {"k": "int64", "v": "int64"}
Build = Callable[[], n.Node]


def a() -> Stream:
    return ew.source("A", COLUMNS)


def b() -> Stream:
    return ew.source("B", COLUMNS)


def c() -> Stream:
    return ew.source("C", {"k": "int64", "w": "float64", "s": "string"})


def keyed(name: str, chronons: bool = True, **more: Any) -> Stream:
    """A stream of which no two events have the same k."""
    return Stream(n.Source(name, a().schema, chronons=chronons, keys=(("k",),), **more))


def twice(x: int) -> int:
    return 2 * x


def fails(column: str = "v") -> Expr:
    """A condition that may fail: integers overflow."""
    return col(column) + 1 > 0


def safe(column: str = "v") -> Expr:
    return col(column) >= 1


def joined(left: Stream, right: Stream, how: n.JoinKind = "inner", where: Expr | None = None, **more: Any) -> Stream:
    """A join on k with the columns k, v, k_right, v_right."""
    return Stream(n.Join(left.node, right.node, ("k",), ("k",), where, how, **more))


def pairs(name: str = "r") -> Stream:
    """From each k of A, what B leads to."""
    return ew.fixpoint(a(), lambda r: r.join(b(), on={"v": "k"}).select(k=col("k"), v=col("v_right")), name=name)


def best() -> Stream:
    """Of each k the smallest v that B leads to."""
    return ew.fixpoint(
        a(),
        lambda r: joined(r, b()).select(k=col("k"), v=function("least", col("v"), col("v_right"))),
        "min",
        value="v",
    )


def marked(left: Stream, right: Stream, null_safe: bool = False) -> Stream:
    """As the binder writes a subquery: a left join with the distinct keys and a mark."""
    marks = right.select("k", mark=lit(True)).distinct()
    return Stream(n.Join(left.node, marks.node, ("k",), ("k",), None, "left", null_safe))


FILTERS: Mapping[str, Mapping[str, Build]] = {
    "merge_filters": {
        "two filters": lambda: a().where(safe()).where(col("k") == 1).node,
        "a condition twice": lambda: a().where(safe()).where((col("k") == 1) & safe()).node,
        "true": lambda: a().where(lit(True)).node,
        "one that may fail below": lambda: a().where(fails()).where(safe("k")).node,
        "none of it: one that may fail above": lambda: a().where(safe("k")).where(fails()).node,
    },
    "fold_constants": {
        "arithmetic": lambda: a().where(col("v") > lit(2) * 1 - 1).node,
        "in a map": lambda: a().select("k", y=col("v") + (lit(2) + 3), z=function("upper", "x")).node,
        "and, or": lambda: a().where((lit(1) == 1) & ((lit(1) == 2) | safe())).node,
        "not is null": lambda: a().where(~col("v").is_null() & ~~safe("k")).node,
        "no nulls left": lambda: a().where(safe()).select("k", "v").where(col("v").not_null()).node,
        "in a join": lambda: joined(a(), b(), where=(lit(1) == 1) & (col("v") < col("v_right"))).node,
        "none of it: it fails": lambda: a().where((col("k") == 1) & (lit("x").cast("int64") == 1)).node,
        "none of it: a null": lambda: a().where(col("v") > lit(None, "int64")).node,
    },
    "push_filter": {
        "a rank's partition": lambda: a().rank("n", "v", "k").where((col("k") == 1) & (col("v") > 1)).node,
        "map": lambda: a().select("k", y=col("v") % 2).where((col("y") == 1) & safe("k")).node,
        "a constant keeps its type": lambda: a().select("k", y=lit(2)).where(col("y") > col("k")).node,
        "python functions are called once": lambda: (
            a().select("k", y=udf(twice, col("v"), type="int64")).where((col("y") == 2) & safe("k")).node
        ),
        "union": lambda: a().union(b().rename(k="x", v="y")).where(safe()).node,
        "window": lambda: a().range(3).where(safe()).node,
        "unbounded window": lambda: a().unbounded().where(fails()).node,
        "sliding window": lambda: a().range(2, slide=3).where(safe() & fails("k")).node,
        "granularity": lambda: a().granularity(3).where(safe()).node,
        "split": lambda: a().split(2).where(safe()).node,
        "coalesce": lambda: a().coalesce().where(safe()).node,
        "istream": lambda: a().istream().where(fails()).node,
        "dstream": lambda: a().dstream().where(safe()).node,
        "rstream": lambda: a().rstream().where(safe()).node,
        "partitions": lambda: a().rows(2, slide=2, partition_by="k").where((col("k") == 1) & safe()).node,
        "none of it: rows": lambda: a().rows(2).where(safe()).node,
        "none of it: partitions, another column": lambda: a().rows(2, partition_by="k").where(safe()).node,
        "none of it: granularity, may fail": lambda: a().granularity(3).where(fails()).node,
        "none of it: lifetimes": lambda: a().lifetime(length=3).where(safe()).node,
    },
    "push_filter_sets": {
        "distinct": lambda: a().distinct().where(fails()).node,
        "difference": lambda: a().difference(b().rename(k="x", v="y")).where(safe() & fails("k")).node,
        "strict difference": lambda: a().strict_difference(b()).where(safe()).node,
        "intersect": lambda: a().intersect(b()).where(safe()).node,
        "max union": lambda: a().max_union(b()).where(fails()).node,
        "merged copies": lambda: ew.lmerge(a(), a().where(lit(True))).where(safe() & fails("k")).node,
        "none of it: may fail": lambda: a().intersect(b()).where(fails()).node,
        "none of it: copies may fail": lambda: ew.lmerge(a(), a().where(lit(True))).where(fails()).node,
        "none of it: audited copies": lambda: (
            ew.lmerge(a(), a().where(lit(True)), policy=ew.MergePolicy(audit=True)).where(safe()).node
        ),
    },
    "push_filter_aggregate": {
        "on a key": lambda: (
            a().group_by("k").agg(n=ew.count(), t=ew.sum("v")).where((col("k") > 0) & (col("n") > 1)).node
        ),
        "one that may fail on its own": lambda: a().group_by("k").agg(n=ew.count()).where(fails("k")).node,
        "no rows, no groups": lambda: a().aggregate(n=ew.count()).where(lit(False)).node,
        "none of it: one that may fail behind another": lambda: (
            a().group_by("k").agg(n=ew.count()).where((col("n") > 1) & fails("k")).node
        ),
        "none of it: on a result": lambda: a().aggregate(n=ew.count()).where(col("n") > 1).node,
    },
    "push_filter_fixpoint": {
        "kept by a linear step": lambda: pairs().where((col("k") == 1) & (col("v") > 0)).node,
        "may fail": lambda: pairs().where(fails("k")).node,
        "kept by both readings": lambda: (
            ew.fixpoint(a(), lambda r: r.join(r, on="k").select(k=col("k"), v=col("v_right"))).where(safe("k")).node
        ),
        "by way of the partner": lambda: (
            ew.fixpoint(a(), lambda r: joined(r, b()).select(k=col("k_right"), v=col("v_right"))).where(safe("k")).node
        ),
        "in a semi-join": lambda: ew.fixpoint(a(), lambda r: joined(b(), r, "semi")).where(safe("k")).node,
        "key of a MIN": lambda: best().where((col("k") == 1) & (col("v") == 1)).node,
        "none of it: computed": lambda: pairs().where(col("v") > 0).node,
        "none of it: another reading": lambda: (
            ew.fixpoint(a(), lambda r: r.join(r, on={"v": "k"}).select(k=col("k"), v=col("v_right")))
            .where(safe("k"))
            .node
        ),
        "none of it: rows begin in the step": lambda: ew.fixpoint(a(), lambda r: r.union(b())).where(safe("k")).node,
        "none of it: another column": lambda: (
            ew.fixpoint(a(), lambda r: r.select(k=col("v"), v=col("k"))).where(safe("k")).node
        ),
    },
    "push_filter_join": {
        "inner": lambda: joined(a(), b()).where(safe() & (col("v_right") < 2) & (col("v") < col("v_right"))).node,
        "on a key, for both": lambda: joined(a(), b()).where(col("k") == 1).node,
        "left": lambda: joined(a(), b(), "left").where(safe() & fails() & col("v_right").is_null()).node,
        "left, all of it": lambda: joined(a(), b(), "left").where(fails()).node,
        "semi": lambda: joined(a(), b(), "semi").where(safe()).node,
        "anti, on a key": lambda: joined(a(), b(), "anti").where(col("k") == 1).node,
        "null-safe": lambda: joined(a(), b(), null_safe=True).where(col("k").is_null()).node,
        "floats are equal and yet different": lambda: (
            c().join(c(), on={"w": "w"}).where(col("w").cast("string") == "0").node
        ),
        "none of it: may fail": lambda: joined(a(), b()).where(fails()).node,
        "none of it: full": lambda: joined(a(), b(), "full").where(safe() & (col("v_right") < 2)).node,
    },
}

JOINS: Mapping[str, Mapping[str, Build]] = {
    "filter_to_join": {
        "product": lambda: a().product(b()).where((col("k") == col("k_right")) & (col("v") < col("v_right"))).node,
        "sides exchanged": lambda: a().product(b()).where(col("v_right") == col("v")).node,
        "an expression": lambda: a().product(b()).where(col("k") % 2 == col("v_right")).node,
        "types that differ": lambda: (
            a().product(b().select(k=col("k").cast("int32"), u=col("v"))).where(col("k") == col("k_right")).node
        ),
        "a condition of the join": lambda: a().join(b(), where=(col("k") == col("k_right")) & fails(), how="anti").node,
        "a full join's condition": lambda: a().join(b(), where=col("v") == col("v_right"), how="full").node,
        "behind a condition, may fail": lambda: (
            a().join(b(), where=col("v") < col("v_right")).where(fails() & (col("k") == col("k_right"))).node
        ),
        "null-safe keys get no others": lambda: joined(a(), b(), null_safe=True).where(col("v") == col("v_right")).node,
        "a sum that does not fit has no partner": lambda: a().product(b()).where(col("k") == col("v_right") + 1).node,
        "may fail, so no key": lambda: a().product(b()).where(col("k") == col("v_right") * 2).node,
        "none of it: nothing equal": lambda: a().join(b(), where=col("v") < col("v_right")).node,
        "none of it: outer": lambda: joined(a(), b(), "left").where(col("v") == col("v_right")).node,
    },
    "push_residual": {
        "inner": lambda: joined(a(), b(), where=safe() & (col("v_right") < 2) & (col("v") < col("v_right"))).node,
        "semi": lambda: joined(a(), b(), "semi", safe() & (col("v_right") < 2)).node,
        "anti": lambda: joined(a(), b(), "anti", safe() & (col("v_right") < 2)).node,
        "left": lambda: joined(a(), b(), "left", safe() & (col("v_right") < 2)).node,
        "none of it: full": lambda: joined(a(), b(), "full", safe() & (col("v_right") < 2)).node,
        "none of it: may fail": lambda: joined(a(), b(), where=fails()).node,
    },
    "outer_to_inner": {
        "left": lambda: joined(a(), b(), "left").where(col("v_right") > 0).node,
        "left, not null": lambda: joined(a(), b(), "left").where(col("k_right").not_null()).node,
        "full, to inner": lambda: joined(a(), b(), "full").where(col("v") < col("v_right")).node,
        "full, to left": lambda: joined(a(), b(), "full").where(col("v").is_in([1, 2])).node,
        "full, to right": lambda: joined(a(), b(), "full", col("v") < col("v_right")).where(safe("v_right")).node,
        "none of it: is null": lambda: joined(a(), b(), "left").where(col("v_right").is_null()).node,
        "none of it: coalesce": lambda: (
            joined(a(), b(), "left").where(function("coalesce", col("v_right"), 5) > 1).node
        ),
        "none of it: or": lambda: joined(a(), b(), "left").where((col("v_right") > 1) | safe()).node,
    },
    "flatten_subquery": {
        "not exists": lambda: marked(a(), b()).where(col("mark").is_null() & safe()).select("k", "v").node,
        "a key as the mark": lambda: joined(a(), b(), "left").where(col("k_right").is_null()).node,
        "exists": lambda: joined(a(), b().select("k").distinct()).select("k", "v").node,
        "exists, null-safe": lambda: joined(a(), b().select("k").distinct(), null_safe=True).select("v").node,
        "in one row": lambda: a().join(a().aggregate(m=ew.max("v")), on={"v": "m"}).select("k", "m").node,
        "the other side": lambda: joined(b().select("k").distinct(), a()).select("k_right", "v").node,
        "below an aggregate": lambda: joined(a(), keyed("U")).group_by("k").agg(n=ew.count()).node,
        "below an aggregate, the other side": lambda: (
            joined(keyed("U"), a()).group_by("v_right").agg(n=ew.count()).node
        ),
        "below distinct": lambda: joined(a(), b()).select("v").distinct().node,
        "not in, with nulls": lambda: Stream(
            n.Filter(
                n.Join(a().node, b().select(mark=lit(True)).distinct().node, kind="left"),
                col("v").not_null() | col("mark").is_null(),
            )
        ).select("k", "v").node,
        "at least as much as all": lambda: at_least_all(),
        "a join that adds nothing": lambda: joined(a(), keyed("U"), "left").select("k", "v").node,
        "none of it: several partners": lambda: joined(a(), b()).select("k", "v").node,
        "none of it: several partners, outer": lambda: joined(a(), b(), "left").select("k", "v").node,
        "none of it: a null partner": lambda: joined(a(), b(), "left").where(col("v_right").is_null()).node,
        "none of it: a null-safe key": lambda: (
            joined(a(), b(), "left", null_safe=True).where(col("k_right").is_null()).node
        ),
        "none of it: a condition": lambda: joined(a(), keyed("U"), where=safe()).select("k", "v").node,
    },
    "join_order": {
        "products last": lambda: (
            Stream(n.Join(a().product(b()).node, c().node, ("k", "v_right"), ("k", "k"))).select("k", "v_right", "w")
            .node
        ),
        "no product in the middle": lambda: Stream(
            n.Join(n.Join(a().node, b().node, (), ()), c().node, ("k", "k_right"), ("k", "k"))
        ).node,
        "small windows first": lambda: joined(joined(a().range(9), b().range(5)), c().range(2)).node,
        "by key": lambda: joined(joined(a().range(3), b().range(3)), keyed("U").range(4).rename(v="u")).node,
        "conditions go along": lambda: Stream(
            n.Join(
                n.Join(a().node, b().rename(k="x", v="y").node, residual=col("v") < col("y")),
                keyed("U").rename(k="p", v="q").node,
                ("x", "k"),
                ("p", "q"),
                col("y") != col("p"),
            )
        ).node,
        "one row first": lambda: a().product(b()).product(a().aggregate(n=ew.count())).node,
        "two columns of the last input": lambda: Stream(
            n.Join(
                n.Join(b().range(5).node, c().range(9).select(p=col("k"), q=col("k")).node, ("k", "k"), ("p", "q")),
                a().range(2).node,
                ("k",),
                ("k",),
            )
        ).node,
        "two columns of the first input": lambda: Stream(
            n.Join(
                n.Join(b().range(9).node, a().now().node, ("k",), ("k",)),
                keyed("U").range(5).rename(k="p", v="q").node,
                ("v_right", "k"),
                ("p", "p"),
            )
        ).node,
        "none of it: null-safe": lambda: joined(
            joined(a().range(9), b().range(5), null_safe=True), c().range(2), null_safe=True
        ).node,
        "none of it: as good as any": lambda: joined(joined(a(), b()), c()).node,
        "none of it: a condition that may fail": lambda: (
            Stream(n.Join(n.Join(a().node, b().node, residual=fails()), c().node, ("k", "k_right"), ("k", "k"))).node
        ),
    },
    "group_by_pushdown": {
        "one partner": lambda: (
            joined(a(), keyed("U")).group_by("k", "v_right").agg(m=ew.max("v"), o=ew.min("v")).node
        ),
        "rows that end": lambda: (
            joined(a().lifetime(length=4), keyed("U")).group_by("k").agg(m=ew.max("v"), n=ew.count()).node
        ),
        "through projections": lambda: (
            joined(a(), keyed("U")).select(key=col("k_right"), x=col("v"), y=col("v_right")).group_by("key", "y")
            .agg(y2=ew.max("x"), k=ew.min("x")).node
        ),
        "the other side": lambda: joined(keyed("U"), a()).group_by("k", "v").agg(n=ew.min("v_right")).node,
        "two joins": lambda: (
            joined(joined(a().range(3), keyed("U")).select("k", "v"), keyed("W").range(3)).group_by("k", "v_right")
            .agg(best=ew.max("v")).node
        ),
        "by a column equal to the key": lambda: Stream(
            n.Join(joined(a().range(3), keyed("U")).node, keyed("W").node, ("k_right",), ("k",))
        ).group_by("k", "v_right_right").agg(n=ew.max("v")).node,
        "null-safe": lambda: joined(a(), keyed("U"), null_safe=True).group_by("k").agg(n=ew.max("v")).node,
        "a semi-join": lambda: joined(a(), keyed("U"), "semi").group_by("k").agg(n=ew.min("v")).node,
        "none of it: partners that live on": lambda: (
            joined(a(), keyed("U").range(4)).group_by("k", "v_right").agg(m=ew.max("v")).node
        ),
        "none of it: rows that may never end": lambda: joined(a(), keyed("U")).group_by("k").agg(n=ew.count()).node,
        "none of it: a sum that may not fit": lambda: (
            joined(a().lifetime(length=4), keyed("U")).group_by("k").agg(t=ew.sum("v")).node
        ),
        "none of it: a sum that depends on the order": lambda: (
            joined(c().lifetime(length=4), keyed("U")).group_by("k").agg(t=ew.sum("w")).node
        ),
        "none of it: several groups at an instant": lambda: (
            joined(a(), keyed("U")).group_by("k", "v").agg(n=ew.max("v")).node
        ),
        "none of it: a semi-join, no key": lambda: joined(a(), b(), "semi").group_by("k").agg(n=ew.count()).node,
        "none of it: no key": lambda: joined(a(), b()).group_by("k", "v_right").agg(m=ew.max("v")).node,
        "none of it: groups without the key": lambda: (
            joined(a(), keyed("U")).group_by("v_right").agg(m=ew.max("v")).node
        ),
        "none of it: both sides": lambda: (
            joined(a(), keyed("U")).group_by("k").agg(m=ew.max("v"), o=ew.max("v_right")).node
        ),
        "none of it: a condition": lambda: (
            joined(a(), keyed("U"), where=col("v") < col("v_right")).group_by("k").agg(n=ew.count()).node
        ),
        "none of it: nothing to gain": lambda: joined(keyed("U"), keyed("W")).group_by("k").agg(n=ew.count()).node,
    },
}  # fmt: skip

COLUMNS_AND_WINDOWS: Mapping[str, Mapping[str, Build]] = {
    "merge_maps": {
        "two maps": lambda: a().select("k", y=col("v") % 2).select(z=col("y") > 0, x=col("k")).node,
        "nothing changes": lambda: a().select("k", "v").node,
        "a plain column twice": lambda: a().rename(v="y").select(p=col("y"), q=col("y") > 1).node,
        "a constant keeps its type": lambda: a().select("k", y=lit(2)).select(z=when(safe("k")).then(col("y"))
        .otherwise(col("k"))).node,
        "none of it: computed twice": lambda: a().select(y=col("v") % 2).select(p=col("y"), q=col("y") > 0).node,
        "none of it: another order": lambda: a().select("v", "k").node,
    },
    "drop_now_window": {
        "now": lambda: a().now().node,
        "granule of a tick": lambda: a().granularity(1).node,
        "none of it: a slide": lambda: a().range(1, slide=2).node,
    },
    "window_map": {
        "projection": lambda: a().range(3).select("k").node,
        "expression": lambda: a().range(3).select(y=col("v") + 1).node,
        "sliding": lambda: a().range(2, slide=3).select(y=col("v") % 2).node,
        "none of it: sliding, may fail": lambda: a().range(2, slide=3).select(y=col("v") + 1).node,
    },
    "window_union": {
        "equal": lambda: a().range(3).union(b().range(3)).node,
        "equal and sliding": lambda: a().range(2, slide=3).union(b().rename(k="x").range(2, slide=3)).node,
        "none of it: different": lambda: a().range(3).union(b().range(2)).node,
        "none of it: another slide": lambda: a().range(3).union(b().range(3, slide=2)).node,
        "none of it: shared": lambda: shared_window(),
    },
    "rows_map": {
        "renamed": lambda: a().rows(2, partition_by="k").rename(k="x").node,
        "one more column": lambda: a().rows(2, slide=2).select("k", "v", y=col("v") % 2).node,
        "one row at an instant": lambda: a().aggregate(n=ew.count(), t=ew.max("v")).rows(2).select("t").node,
        "none of it: ties": lambda: a().rows(2).select("v", "k").node,
        "none of it: a partition is lost": lambda: a().rows(2, partition_by="k").select("v").node,
    },
    "drop_distinct": {
        "twice": lambda: a().distinct().distinct().node,
        "one row per group": lambda: a().group_by("k").agg(n=ew.count()).distinct().node,
        "a declared key": lambda: keyed("U").range(4).where(safe()).distinct().node,
        "the partners": lambda: joined(a(), b().distinct(), "anti").node,
        "below a union": lambda: a().distinct().union(b().distinct()).distinct().node,
        "below a maximum": lambda: a().distinct().group_by("k").agg(m=ew.max("v")).node,
        "none of it: below a count": lambda: a().distinct().group_by("k").agg(m=ew.count()).node,
        "none of it: the key is gone": lambda: a().group_by("k").agg(n=ew.count()).select("n").distinct().node,
    },
    "distinct_join": {
        "product": lambda: a().product(b()).distinct().node,
        "a side without duplicates": lambda: Stream(joined(a(), keyed("U"), where=col("v") < col("v_right")).node)
        .distinct().node,
        "none of it: a projection": lambda: joined(a(), b()).select("v", "v_right").distinct().node,
        "none of it: outer": lambda: joined(a(), b(), "left").distinct().node,
    },
    "prune_columns": {
        "to the source": lambda: c().range(3).group_by("k").agg(n=ew.count()).node,
        "through a filter": lambda: joined(c().where(col("w") > 1), a()).select("s", "v").node,
        "names of pairs": lambda: Stream(n.Join(c().node, c().node, ("k",), ("k",), col("w") < col("w_right")))
        .select("s_right").node,
        "a union": lambda: c().union(c().rename(k="p", w="q", s="r").range(2)).select("s").node,
        "aggregates that nobody reads": lambda: (
            a().group_by("k").agg(n=ew.count(), m=ew.max("v")).select("k", "n").node
        ),
        "only the rows count": lambda: a().select("k", y=col("v") % 2).aggregate(n=ew.count()).node,
        "a constant below distinct": lambda: a().select("k", mark=lit(True)).distinct().select("k").node,
        "shared": lambda: shared_source(),
        "lifetimes": lambda: c().lifetime(length=3).select("k").node,
        "a semi-join": lambda: a().join(c(), on="k", where=col("w") > 0, how="semi").select("k").node,
        "none of it: distinct": lambda: a().distinct().select("k").node,
        "none of it: difference": lambda: a().difference(b()).select("k").node,
        "none of it: rows": lambda: a().rows(2).select("k").node,
        "a rank that nobody reads": lambda: c().rank("n", "w").select("k").node,
        "the number of a limit": lambda: c().rank("n", "w", limit=2).select("k").node,
        "below ranks, which have no ties": lambda: c().rank("n", "w", kind="rank").select("n").node,
        "none of it: numbers of rows": lambda: c().rank("n", "w").select("n").node,
        "none of it: changes": lambda: a().istream().select("k").node,
        "none of it: coalesce": lambda: a().coalesce().select("k").node,
    },
    "share_common": {
        "loops that differ in their names": lambda: pairs("p").union(pairs("q")).node,
        "none of it: loops of other steps": lambda: pairs().union(ew.fixpoint(a(), lambda r: r)).node,
        "two windows": lambda: joined(a().range(3), a().range(3).where(safe()), "semi").node,
        "a grouping under other names": lambda: (
            a().group_by("k").agg(n=ew.count(), m=ew.max("v"))
            .union(a().group_by("k").agg(x=ew.count(), y=ew.max("v"))).node
        ),
        "functions by identity": lambda: (
            a().select(y=udf(twice, col("v"), type="int64")).union(a().select(y=udf(twice, col("v"), type="int64")))
            .node
        ),
        "constants by type": lambda: a().select(y=lit(1.0)).union(a().select(y=lit(1, "float64"))).node,
        "none of it: other constants": lambda: a().where(col("v") > 1).union(a().where(col("v") > 2)).node,
    },
}  # fmt: skip

RANKS: Mapping[str, Mapping[str, Build]] = {
    "limit_rank": {
        "up to": lambda: a().rank("n", "v", "k").where(col("n") <= 3).node,
        "less": lambda: a().rank("n", "v", "k", kind="rank").where(lit(3) > col("n")).node,
        "exactly": lambda: a().rank("n", "v", kind="dense_rank").where(col("n") == 2).node,
        "between, and another condition": lambda: (
            a().rank("n", "v", limit=9).where((col("n") > 1) & (col("n") <= 4) & (col("v") > 0)).node
        ),
        "none of it: another column": lambda: a().rank("n", "v").where(col("v") <= 3).node,
        "none of it: no constant": lambda: a().rank("n", "v").where(col("n") <= col("v")).node,
        "none of it: a rank without a name": lambda: a().limit(3, "v").where(col("v") <= 3).node,
    },
}

CASES: Mapping[str, Mapping[str, Build]] = {**FILTERS, **RANKS, **JOINS, **COLUMNS_AND_WINDOWS}


def at_least_all() -> n.Node:
    """v >= ALL (SELECT v FROM B), as the binder writes it where no v is null."""
    most = b().where(safe()).aggregate(most=ew.max("v"))
    beside = n.Join(a().where(col("v").not_null()).node, most.node, kind="left")
    return Stream(n.Filter(beside, col("most").is_null() | (col("v") >= col("most")))).select("k", "v").node


def shared_window() -> n.Node:
    """A window that the union and another step read: it must not be there twice (Example 10.2)."""
    window = a().range(3)
    return joined(window.union(b().range(3)), window, "semi").node


def shared_source() -> n.Node:
    """A grouping that is read for different columns by two steps, and stays one grouping."""
    groups = c().range(3).group_by("k").agg(n=ew.count(), w=ew.max("w"), lost=ew.min("s"))
    return groups.select("k", x=col("n")).join(groups.select("k", y=col("w")), on="k").node
