"""Plans as data: what is read is what was written, and nothing else is ever made."""

from __future__ import annotations

import json

import pytest

import everwhen as ew
from everwhen.algebra.builder import Stream
from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import walk
from everwhen.errors import QueryError
from everwhen.plan.explain import explain_stages
from everwhen.plan.stages.stages import cut
from everwhen.plan.stored_plan import plans_of, stored
from plans import PLANS, REGROUPED, SPREAD_LOOPS, Plan, S


@pytest.mark.parametrize("plan", [*PLANS, *REGROUPED, *SPREAD_LOOPS], ids=str)
def test_what_is_read_is_what_was_written(plan: Plan) -> None:
    node = plan.build().node
    text = stored({"out": node})
    assert text is not None
    back = plans_of(text)["out"]
    assert explain(back) == explain(node) and back.schema == node.schema
    assert len(walk(back)) == len(walk(node)), "what several nodes read stays one node"
    cuts = [explain_stages(cut({"out": each}, {}, lambda expr, schema: True)) for each in (node, back)]
    assert cuts[0] == cuts[1]
    assert stored(plans_of(text)) == text


def test_constants_of_every_kind() -> None:
    query = ew.sql(
        "SELECT k, x + 1.5 AS a, CAST(x AS DECIMAL(12, 2)) * 1.25 AS b, DATE '2020-01-02' AS c, "
        "TIMESTAMP '2020-01-02 03:04:05' AS d, k || 'ä\"' AS e FROM S WHERE x < 1e300 AND k IN ('p', 'q')",
        S,
    )
    text = stored({"out": query.node})
    assert text is not None
    back = Stream(plans_of(text)["out"])
    rows = [ew.Insert(0, 5, {"k": "p", "x": 3})]
    assert list(ew.run(back, {"S": rows})) == list(ew.run(query, {"S": rows}))


def test_functions_of_the_user_are_no_data() -> None:
    assert stored({"out": S.select(y=ew.udf(lambda x: x, ew.col("x"), type="int64")).node}) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"roots": {}}',
        '{"roots": {"out": {"at": 0}}, "values": []}',
        '{"roots": {"out": 1}, "values": []}',
        '{"roots": {"out": {"at": 0}}, "values": [{"of": "os:system", "fields": {}}]}',
        '{"roots": {"out": {"at": 0}}, "values": [{"of": "everwhen.algebra.nodes:walk", "fields": {}}]}',
        '{"roots": {"out": {"at": 0}}, "values": [{"of": "everwhen.algebra.builder:Any", "fields": {}}]}',
        '{"roots": {"out": {"enum": "everwhen.algebra.nodes:Filter", "name": "x"}}, "values": []}',
        '{"roots": {"out": {"odd": 1}}, "values": []}',
    ],
)
def test_whatever_else_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="the stored plan cannot be read"):
        plans_of(text)


def test_a_damaged_text_is_refused() -> None:
    text = stored({"out": S.range(5).group_by("k").agg(n=ew.count()).node})
    assert text is not None
    found = json.loads(text)
    found["values"][-1]["fields"]["keys"] = {"tuple": ["nowhere"]}
    with pytest.raises((QueryError, AssertionError)):
        _ = plans_of(json.dumps(found))["out"].schema
