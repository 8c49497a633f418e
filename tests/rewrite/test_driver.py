"""The driver: sharing, fixpoints, guards against rules that are wrong or undo each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.explain import explain
from everwhen.algebra.expressions.build import col, lit
from everwhen.demo.nexmark.queries import QUERIES, closing_price
from everwhen.rewrite.driver import rewrite, rewrite_all
from everwhen.rewrite.plans.share_common import same_plans
from everwhen.rewrite.rule import Rule
from everwhen.rewrite.rule_order import SHARING_RULES
from rewrite.rule_cases import a, b, joined, safe


def count(kind: type[n.Node], *roots: n.Node) -> int:
    return sum(isinstance(each, kind) for each in n.walk(*roots))


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_equal_subplans_of_queries_become_one() -> None:
    queries = {
        str(limit): a().range(5).group_by("k").agg(n=ew.count(), m=ew.max("v")).where(col("n") > limit).node
        for limit in range(100)
    }
    found = rewrite_all(queries, SHARING_RULES, strict=True)
    nodes = found.nodes.values()
    assert count(n.Aggregate, *nodes) == count(n.TimeWindow, *nodes) == count(n.Source, *nodes) == 1
    assert count(n.Filter, *nodes) == 100


def test_a_filter_on_a_key_does_not_tear_a_shared_grouping_apart() -> None:
    groups = a().range(5).group_by("k").agg(n=ew.count())
    both = {"one": groups.where(col("k") == 1).node, "all": groups.node}
    found = rewrite_all(both, strict=True).nodes
    assert isinstance(found["one"], n.Filter)
    assert found["one"].input is found["all"]
    alone = rewrite(both["one"], strict=True).node
    assert isinstance(alone, n.Aggregate)


def test_a_shared_node_is_rewritten_once_and_stays_shared() -> None:
    shared = a().where(safe()).where(col("k") > 0).range(1).distinct()
    found = rewrite(joined(shared, shared.where(col("v") > 1), "semi").node, strict=True).node
    assert count(n.Distinct, found) == 1
    assert count(n.TimeWindow, found) == 0
    assert explain(found) == (
        "Semi-join on k\n"
        "├─ Distinct  (step 1)\n"
        "│  └─ Filter v >= 1 AND k > 0\n"
        "│     └─ Source A (k int64, v int64)\n"
        "└─ Filter v > 1\n"
        "   └─ (step 1 again)"
    )


def test_what_runs_already_is_kept_and_found_again() -> None:
    running = rewrite(a().range(5).group_by("k").agg(n=ew.count()).node, SHARING_RULES).node
    new = a().now().range(5).group_by("k").agg(n=ew.count()).where(col("k") > 1).node
    found = rewrite_all({"new": new}, SHARING_RULES, kept=[running], strict=True).nodes["new"]
    assert isinstance(found, n.Filter)
    assert found.input is running


def test_a_query_asked_twice_is_one_plan() -> None:
    found = rewrite_all({"p": a().range(3).node, "q": a().range(3).node}, strict=True).nodes
    assert found["p"] is found["q"]


def test_plans_are_compared_as_written() -> None:
    def same(x: ew.Stream, y: ew.Stream) -> bool:
        return same_plans((x.node,), (y.node,))

    assert same(a().where(safe()), a().where(safe()))
    assert not same(a().where(safe()), b().where(safe()))
    assert not same(a().select(y=lit(1)), a().select(y=lit(True)))
    assert not same(a().select(y=lit(0.0)), a().select(y=lit(-0.0)))
    assert not same(a().range(2), a().rows(2))
    assert not same(joined(a(), b()), joined(a(), b(), null_safe=True))


# -- fixpoints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUERIES)
def test_the_queries_of_nexmark_reach_a_fixpoint(name: str) -> None:
    node = QUERIES[name]().node
    found = rewrite(node, strict=True)
    assert found.node.schema == node.schema
    assert not rewrite(found.node, strict=True).applied


def _swap(node: n.Node) -> n.Node | None:
    match node:
        case n.Union(left, right) if left.schema == right.schema:
            return n.Union(right, left)
    return None


def test_rules_that_undo_each_other_are_named() -> None:
    there, back = Rule("there", "one way", _swap), Rule("back", "the other way", _swap)
    node = a().union(b()).node
    with pytest.raises(AssertionError, match=r"undo each other.*there"):
        rewrite(node, [there, back], strict=True)
    left_alone = rewrite(node, [there, back])
    assert left_alone.node is node
    assert left_alone.applied == ()


def test_a_rule_that_changes_columns_is_refused() -> None:
    def wrong(node: n.Node) -> n.Node | None:
        return node.input if isinstance(node, n.Map) else None

    with pytest.raises(AssertionError, match="wrong changes the columns"):
        rewrite(a().select("k").node, [Rule("wrong", "it is", wrong)])


def test_what_was_applied_is_told_in_order() -> None:
    found = rewrite(a().range(3).where(safe()).where(lit(True)).node)
    assert [each.name for each in found.applied] == ["push_filter", "merge_filters"]
    assert all(each.reason for each in found.applied)
    assert explain(found.applied[0].before).startswith("Filter v >= 1")
    assert explain(found.applied[0].after).startswith("Window range 3")


def test_without_rules_nothing_happens() -> None:
    node = a().where(lit(True)).node
    assert rewrite(node, []).node is node


# -- Figure 10.2 -------------------------------------------------------------------------------------------------------


def declared(node: n.Node, keys: bool) -> n.Node:
    """The plan over streams of chronons, with or without keys on the two auction streams."""
    new: dict[int, n.Node] = {}
    for each in n.walk(node):
        if isinstance(each, n.Source):
            key = (("itemID",),) if keys and each.name in ("OpenAuction", "ClosedAuction") else ()
            new[id(each)] = replace(each, chronons=True, keys=key)
        else:
            new[id(each)] = n.over(each, *(new[id(child)] for child in each.inputs))
    return new[id(node)]


def test_the_closing_price_groups_below_the_joins_if_keys_are_declared() -> None:
    found = rewrite(declared(closing_price().node, keys=True), strict=True)
    assert "group_by_pushdown" in {each.name for each in found.applied}
    grouping = next(each for each in n.walk(found.node) if isinstance(each, n.Aggregate))
    assert grouping.keys == ("itemID",)
    assert isinstance(grouping.input, n.Union)
    assert count(n.Join, grouping) == 0
    assert count(n.Join, found.node) == 2
    assert count(n.TimeWindow, found.node) == 2  # the window over OpenAuction is shared (Example 10.2)


def test_without_keys_the_closing_price_groups_above_the_joins() -> None:
    found = rewrite(declared(closing_price().node, keys=False), strict=True)
    assert "group_by_pushdown" not in {each.name for each in found.applied}
    assert isinstance(found.node, n.Aggregate)
    assert count(n.Join, found.node) == 2
