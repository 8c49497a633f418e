"""Plans that between them use every operator, for the tests that compare runtimes."""

from __future__ import annotations

from collections.abc import Callable

import everwhen as ew
from everwhen.algebra.builder import Stream

COLUMNS = {"k": "string", "x": "int64"}
S = ew.source("S", COLUMNS)
T = ew.source("T", COLUMNS)
c = ew.col

PLANS: dict[str, Callable[[], Stream]] = {
    "filter": lambda: S.where(c("x") > 1),
    "map": lambda: S.select("k", y=c("x") * 2),
    "project": lambda: S.select("k"),
    "union": lambda: S.union(T),
    "range": lambda: S.range(3),
    "slide": lambda: S.range(5, slide=3),
    "sparse": lambda: S.range(2, slide=5),
    "granularity": lambda: S.granularity(4),
    "distinct": lambda: S.distinct(),
    "distinct_key": lambda: S.select("k").distinct(),
    "difference": lambda: S.difference(T),
    "strict_difference": lambda: S.strict_difference(T),
    "intersect": lambda: S.intersect(T),
    "max_union": lambda: S.max_union(T),
    "self_difference": lambda: S.difference(S.where(c("x") > 1)),
    "group": lambda: S.group_by("k").agg(n=ew.count(), t=ew.sum("x"), nx=ew.count("x")),
    "group_key_dropped": lambda: S.group_by("k").agg(t=ew.sum("x")).select("t"),
    "scalar": lambda: S.aggregate(n=ew.count(), t=ew.sum("x"), a=ew.avg("x")),
    "min_max": lambda: S.group_by("k").agg(lo=ew.min("x"), hi=ew.max("x"), n=ew.count()),
    "scalar_min_max": lambda: S.aggregate(lo=ew.min("x"), hi=ew.max("k")),
    "holistic": lambda: S.group_by("k").agg(m=ew.median("x"), d=ew.count_distinct("x"), q=ew.quantile("x", 0.25)),
    "scalar_median": lambda: S.aggregate(m=ew.median("x")),
    "variance": lambda: S.group_by("k").agg(v=ew.variance("x"), s=ew.stddev_pop("x")),
    "first_last": lambda: S.aggregate(f=ew.first("k", by="x"), l=ew.last("k", by="x")),
    "join": lambda: S.join(T, on="k"),
    "join_regrouped": lambda: S.join(T, on="k").group_by("x").agg(n=ew.count()),
    "join_of_groups": lambda: S.group_by("k").agg(n=ew.count()).join(T, on="k"),
    "theta": lambda: S.join(T, where=c("x") < c("x_right")),
    "band": lambda: S.join(T, where=(c("x") <= c("x_right") + 1) & (c("x") >= c("x_right") - 1)),
    "product": lambda: S.product(T),
    "semi": lambda: S.join(T, on="k", how="semi"),
    "anti": lambda: S.join(T, on="k", how="anti"),
    "semi_theta": lambda: S.join(T, where=c("x") < c("x_right"), how="semi"),
    "anti_theta": lambda: S.join(T, on="k", where=c("x") < c("x_right"), how="anti"),
    "anti_no_key": lambda: S.join(T, where=c("x") == c("x_right") + 1, how="anti"),
    "left": lambda: S.join(T, on={"k": "k"}, how="left"),
    "left_theta": lambda: S.join(T, where=c("x") < c("x_right"), how="left"),
    "full": lambda: S.join(T, on={"k": "k"}, how="full"),
    "full_theta": lambda: S.join(T, where=c("x") < c("x_right"), how="full"),
    "full_grouped": lambda: S.join(T, on={"k": "k"}, how="full").group_by("k").agg(n=ew.count()),
    "rows": lambda: S.rows(2),
    "rows_slide": lambda: S.rows(3, slide=2),
    "rows_partitioned": lambda: S.rows(2, partition_by=["k"]),
    "rows_partitioned_slide": lambda: S.rows(2, slide=3, partition_by=["k"]),
    "istream": lambda: S.istream(),
    "dstream": lambda: S.dstream(),
    "rstream": lambda: S.rstream(),
    "split": lambda: S.split(3),
    "coalesce": lambda: S.coalesce(),
    "coalesce_bounded": lambda: S.coalesce(4),
    "coalesce_grouped": lambda: S.select("k").coalesce().group_by("k").agg(n=ew.count()),
    "lifetime": lambda: S.lifetime(length=4),
    "hop": lambda: S.lifetime(hop=4, length=8),
    "shift": lambda: S.lifetime(shift=3),
    "inserts": lambda: S.inserts(),
    "deletes": lambda: S.deletes(),
    "coalesce_lifetime": lambda: S.coalesce().lifetime(length=3),
    "two_groups": lambda: S.group_by("k").agg(t=ew.sum("x")).aggregate(m=ew.max("t"), n=ew.count()),
    "group_of_groups": lambda: S.group_by("k").agg(t=ew.sum("x")).group_by("t").agg(n=ew.count()),
    "window_group": lambda: S.range(4).group_by("k").agg(t=ew.sum("x")),
    "highest": lambda: S.range(4).join(S.range(4).aggregate(m=ew.max("x")), on={"x": "m"}, how="semi"),
    "rows_of_groups": lambda: S.group_by("k").agg(t=ew.sum("x")).rows(2, partition_by=["k"]),
    "window_of_groups": lambda: S.group_by("k").agg(t=ew.sum("x")).range(3),
    "union_of_groups": lambda: S.group_by("k").agg(t=ew.sum("x")).union(T.group_by("k").agg(t=ew.max("x"))).distinct(),
}
FINITE = ("rows", "rows_slide", "rows_partitioned", "rows_partitioned_slide", "rstream", "split", "rows_of_groups")
FINITE += ("coalesce_bounded",)
"""Plans that refuse infinite lifetimes."""
