"""Who knows the past of a source that another plan needs."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.plan.stages.model import StagePlan
from everwhen.plan.stages.past import Told, narrowed_like, needed_of, same_feeds, told_by
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


def test_the_same_feeds_tell_whatever_they_compute() -> None:
    running, new = S.select("k", n=V + 1).group_by("k").agg(n=ew.sum("n")), S.select("k", n=V + 1).distinct()
    found = same_feeds(staged(running), "S", staged(new))
    assert found is not None and [told.stream.name for told in found.values()] == ["@0"]
    assert same_feeds(staged(running), "S", staged(S.distinct())) is None


def test_a_plan_of_the_same_meaning_is_narrowed_to_the_rows_that_are_kept() -> None:
    running, written = S.where(V > 3).range(5), S.range(5).where(V > 3)
    plan = staged(running)
    like = narrowed_like({"out": written.node}, staged(written), plan)
    new = cut({"out": narrow(like["out"])}, {}, lambda expr, schema: True)
    assert isinstance(told_by(plan, "S", False, new), Told)
    assert narrowed_like(like, new, plan) == like, "once is enough"
    both = S.where(V > 3).join(S.where(V > 5), on="k")
    assert narrowed_like({"out": both.node}, staged(both), staged(both)) == {"out": both.node}
    one = S.join(S.where(V > 5), on="k")
    assert narrowed_like({"out": S.node}, staged(S), staged(one)) == {"out": S.node}, "not what one of two feeds drops"
