"""Who knows the past of a source that another plan needs."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.plan.stages.model import StagePlan
from everwhen.plan.stages.past import Told, needed_of, told_by
from everwhen.plan.stages.prune_columns import narrow
from everwhen.plan.stages.stages import cut

S = ew.source("S", {"k": "int64", "v": "int64", "w": "int64"})
K, V = ew.col("k"), ew.col("v")


def staged(query: ew.Stream) -> StagePlan:
    return cut({"out": narrow(query.node)}, {}, lambda expr, schema: True)


SUM = S.group_by("k").agg(n=ew.sum("v"))


@pytest.mark.parametrize(
    ("running", "new"),
    [
        (SUM, S.range(5).group_by("k").agg(n=ew.max("v"))),
        (SUM, S.where(V > 3).group_by("k").agg(n=ew.count())),
        (S.where(V > 3).group_by("k").agg(n=ew.sum("v")), S.where(V > 3).range(9).group_by("k").agg(n=ew.min("v"))),
        (S.where(V > 3), S.where(V > 3).where(K > 1)),
        (SUM.where(ew.col("n") > 1), SUM),
    ],
)
def test_a_guard_that_has_the_rows_and_columns_tells(running: ew.Stream, new: ew.Stream) -> None:
    told = told_by(staged(running), "S", False, staged(new))
    assert isinstance(told, Told) and told.stage == 1 and told.stream.feed is not None


@pytest.mark.parametrize(
    ("running", "new", "why"),
    [
        (SUM, S.group_by("k").agg(n=ew.sum("w")), "does not keep its column 'w'"),
        (S.where(V > 3), S, "keeps only rows with v > 3"),
        (S.where(V > 3), S.where(V > 2), "keeps only rows with v > 3"),
        (S.select("k", n=V + 1), S.select("k", n=V), "keeps only what it computes"),
        (S.select("k", v=K, w=V).where(V > 3), S.where(V > 3), "keeps only what it computes"),
    ],
)
def test_what_was_dropped_is_named(running: ew.Stream, new: ew.Stream, why: str) -> None:
    assert why in told_by(staged(running), "S", False, staged(new))


def test_what_is_never_corrected_is_not_kept() -> None:
    assert "no events are kept" in told_by(staged(SUM), "S", True, staged(SUM))


def test_the_columns_of_all_feeds_and_the_conditions_that_they_share() -> None:
    both = S.where(V > 3).where(K > 0).join(S.where(V > 3), on="k")
    assert needed_of(staged(both), "S") == ({"k", "v", "w"}, {"v > 3"})
