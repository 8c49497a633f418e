"""From which instant on a plan is exact whose sources are known from certain instants on."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.core.time import NEVER
from everwhen.plan.exact_from import exact_from
from everwhen.plan.stages.model import StagePlan, Trait
from everwhen.plan.stages.stages import cut

S, R = (ew.source(name, {"k": "int64", "v": "int64"}) for name in "SR")


def staged(query: ew.Stream, fixed: bool = False) -> StagePlan:
    """In stages; `fixed`: nothing is corrected and lives for one tick, so windows are part of feeds."""
    traits = {name: Trait(fixed, fixed) for name in "SR"}
    return cut({"out": query.node}, traits, lambda expr, schema: fixed)


@pytest.mark.parametrize(
    ("query", "since"),
    [
        (S, 20),
        (S.where(ew.col("v") > 0).group_by("k").agg(n=ew.count()), 20),
        (S.range(10), 29),
        (S.range(10).group_by("k").agg(n=ew.count()).range(5), 33),
        (S.range(10, 4), 31),
        (S.granularity(15), 30),
        (S.union(R), 50),
        (S.range(40).join(R, on="k"), 59),
        (ew.lmerge(S, R), 50),
    ],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_windows_add_their_length_and_the_latest_input_counts(query: ew.Stream, since: int, fixed: bool) -> None:
    assert exact_from(staged(query, fixed), Emit.CURRENT, {"S": 20, "R": 50}) == since


def test_what_is_known_throughout_is_exact_throughout() -> None:
    assert exact_from(staged(S.rows(3)), Emit.CURRENT, {"S": NEVER}) == NEVER


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("query", [S.rows(3), S.unbounded()])
def test_who_needs_all_of_the_past_is_named(query: ew.Stream, fixed: bool) -> None:
    with pytest.raises(ew.QueryError, match=r"no instant is known.*needs all of the past"):
        exact_from(staged(query, fixed), Emit.CURRENT, {"S": 20})
