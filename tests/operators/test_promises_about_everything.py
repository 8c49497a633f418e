"""Promises that cover everything together are progress in time, which stands: no operator falls behind it again.

The source's own CTI has not come so far, and the promises are news in one step only.
"""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.stream.element import Cti, Element
from everwhen.stream.element_batch import batch_of
from everwhen.testing import assert_same_history, assert_valid

S = ew.source("S", {"k": "int64", "v": "int64"})
KEYS = S.select("k")
PLANS = {
    "window": KEYS.range(5).group_by("k").agg(n=ew.count()),
    "count": S.group_by("k").agg(n=ew.count()),
    "median": S.group_by("k").agg(n=ew.median("v")),
    "no groups": S.aggregate(n=ew.count()),
    "distinct": S.distinct(),
    "distinct keys": KEYS.distinct(),
    "rows": S.split(1).rows(2, partition_by=["k"]),
    "istream": KEYS.istream(),
    "difference": KEYS.difference(S.where(ew.col("v") > 5).select("k")),
    "left join": KEYS.join(S.where(ew.col("v") > 0).select("k"), on="k", how="left"),
    "coalesce": KEYS.coalesce(),
    "held": KEYS.range(5),
    "filtered": KEYS.where(ew.col("k") > 0),
    "rows of keys": KEYS.split(1).rows(2, partition_by=["k"]),
    "join": KEYS.join(S.where(ew.col("v") > 0), on="k"),
}


def before(t: int, **match: ew.punctuation.Range | ew.punctuation.OneOf) -> ew.Punct:
    return ew.Punct(ew.punctuation.Punctuation(match, t))


COVERED: dict[str, list[Element]] = {
    "everything": [before(-2)],
    "all values": [
        before(-2, v=ew.punctuation.Range(lt=1)),
        before(-2, v=ew.punctuation.Range(ge=1)),
        before(-2, v=ew.punctuation.OneOf((None,))),
    ],
}


@pytest.mark.parametrize("runtime", ["local", "session"])
@pytest.mark.parametrize("covered", COVERED)
@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@pytest.mark.parametrize("plan", PLANS)
def test_time_does_not_go_back(plan: str, emit: str, covered: str, runtime: str) -> None:
    """With less promised in later steps, the answer is as without promises, and nothing begins before time.

    What lives before the promised time is out at once, where only what is final is said, and never again.
    """
    early = [ew.Insert(-6, 12, {"k": k, "v": 1}) for k in (1, 3)]
    one, other = ew.Insert(-2, -1, {"k": 3, "v": 1}), ew.Insert(-2, 3, {"k": 3, "v": 0})
    epochs: list[list[Element]] = [
        [*early, *COVERED[covered], one, other],
        [before(9, k=ew.punctuation.OneOf((1,)))],
        [ew.Insert(1, 4, {"k": 3, "v": 1})],
        [ew.Insert(9, 10, {"k": 0, "v": 1}), Cti(14)],
    ]
    unpunctuated = [[each for each in epoch if not isinstance(each, ew.Punct)] for epoch in epochs]
    run = _said if runtime == "local" else _said_in_a_session
    said, plain = run(plan, emit, epochs), run(plan, emit, unpunctuated)
    report = assert_valid(said)
    assert report.grammatical, report.offences
    assert emit != "final" or not report.adjusts
    times = [each.t for each in said if isinstance(each, Cti)]
    assert times == sorted(set(times))
    assert_same_history([each for each in said if not isinstance(each, ew.Punct)], plain)


def _said(plan: str, emit: str, epochs: list[list[Element]]) -> list[Element]:
    runtime = LocalRuntime(PLANS[plan], emit=emit)
    said = [each for epoch in epochs for each in runtime.push({"S": batch_of(epoch, S.schema, "S")})["out"].elements()]
    return [*said, *runtime.close()["out"].elements()]


def _said_in_a_session(plan: str, emit: str, epochs: list[list[Element]]) -> list[Element]:
    session = Session(emit=emit)
    session.register("out", PLANS[plan])
    said = [each for epoch in epochs for each in session.push({"S": batch_of(epoch, S.schema, "S")})["out"].elements()]
    return [*said, *session.close()["out"].elements()]
