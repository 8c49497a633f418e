"""Which kernel of LMerge runs, and what EXPLAIN says of it."""

from __future__ import annotations

from typing import Any

import pytest

import everwhen as ew
from everwhen.algebra.nodes import LMerge
from everwhen.plan.explain import explain_text
from everwhen.plan.merge_kernel import merge_kernel

IN_ORDER: dict[str, Any] = {"insert_only": True, "arrives": "in order"}


def copies(**declared: Any) -> list[ew.Stream]:
    return [ew.source(name, {"k": "int64", "x": "int64"}, **declared) for name in ("left", "right")]


def kernel(*streams: ew.Stream, policy: ew.MergePolicy | None = None) -> str:
    node = ew.lmerge(*streams, policy=policy).node
    assert isinstance(node, LMerge)
    return merge_kernel(node).name


@pytest.mark.parametrize(
    ("wanted", "declared"),
    [
        ("R0", {"insert_only": True, "arrives": "strictly", "chronons": True}),
        ("R0", {"insert_only": True, "arrives": "strictly", "keys": "k"}),
        ("R2", {**IN_ORDER, "chronons": True}),
        ("R2", {**IN_ORDER, "keys": "k"}),
        ("R4", IN_ORDER),  # lifetimes may be cut
        ("R3", {"insert_only": True, "keys": "k"}),  # in any order
        ("R4", {"insert_only": True, "ordered": True, "chronons": True}),  # trusted is not checked
        ("R3", {"arrives": "strictly", "keys": "k"}),  # may be corrected
        ("R4", {}),
    ],
)
def test_the_kernel_follows_from_what_is_declared(wanted: str, declared: dict[str, Any]) -> None:
    assert kernel(*copies(**declared)) == wanted
    weaker = copies(**declared)[0], ew.source("right", {"k": "int64", "x": "int64"})
    assert kernel(*weaker) == "R4", "the weakest input decides"


def test_the_kernel_follows_from_what_is_said_above_sources() -> None:
    declared = {**IN_ORDER, "chronons": True}
    assert kernel(*(each.where(ew.col("x") > 1).select("k") for each in copies(**declared))) == "R2"
    assert kernel(*(each.group_by("k").agg(n=ew.count()) for each in copies(**declared))) == "R3", "it corrects itself"
    assert kernel(*(each.union(each) for each in copies(**declared))) == "R4"
    strictly = copies(insert_only=True, arrives="strictly", chronons=True)
    assert kernel(*strictly, policy=ew.MergePolicy(leader=True)) == "R4", "R0 follows nobody"
    assert kernel(*strictly, policy=ew.MergePolicy(lazy=True, audit=True)) == "R0"


def test_a_kernel_may_be_asked_for_where_it_holds() -> None:
    for asked in ("R1", "R2", "R4"):
        assert kernel(*copies(**IN_ORDER, chronons=True), policy=ew.MergePolicy(kernel=asked)) == asked
    with pytest.raises(
        ew.QueryError, match="the kernel R0 was asked for, but left may have several rows that start to"
    ):
        ew.LocalRuntime(ew.lmerge(*copies(**IN_ORDER, chronons=True), policy=ew.MergePolicy(kernel="R0")))
    for asked, given, lacks in [
        ("R1", {"arrives": "in order"}, "left may be corrected"),
        ("R2", {"insert_only": True, "ordered": True}, "left may come in any order"),
        ("R2", IN_ORDER, "left may cut lifetimes"),
        ("R3", IN_ORDER, "left may have a row twice"),
    ]:
        with pytest.raises(ew.QueryError, match=lacks):
            kernel(*copies(**given), policy=ew.MergePolicy(kernel=asked))
    with pytest.raises(ew.QueryError, match="what comes first, and the policy is LEADER"):
        kernel(*copies(**IN_ORDER, chronons=True), policy=ew.MergePolicy(leader=True, kernel="R2"))


def test_explain_names_the_kernel_and_why() -> None:
    text = explain_text("q", ew.lmerge(*copies(**IN_ORDER, chronons=True)).node)
    assert "LMerge R2 on events: never corrected, in order, lifetimes that cannot be cut" in " ".join(text.split())
    assert "lmerge R2 of left, right" in text
    assert "how often each row of the present instant" in text
    text = " ".join(explain_text("q", ew.lmerge(*copies()).node).split())
    assert "LMerge R4 on events: left may have a row twice (no KEY)" in text


@pytest.mark.parametrize("asked", ["R0", "R1", "R2", "R4"])
def test_in_a_runtime_all_kernels_say_the_same(asked: str) -> None:
    declared: dict[str, Any] = {"insert_only": True, "arrives": "strictly", "chronons": True}
    runtime = ew.LocalRuntime(ew.lmerge(*copies(**declared), policy=ew.MergePolicy(kernel=asked)))
    elements = [ew.Insert(t, t + 1, {"k": t % 3, "x": t}) for t in range(50)]
    out: list[ew.Element] = []
    for at in range(0, 60, 10):
        for name, lag in (("left", 0), ("right", 10)):
            part = elements[max(at - lag, 0) : max(at - lag + 10, 0)]
            batch = ew.ElementBatch.of([*part, ew.Cti(at - lag)], copies()[0].schema)
            out += runtime.push({name: batch})["out"].elements()
        state = runtime.snapshot()
        runtime = ew.LocalRuntime(ew.lmerge(*copies(**declared), policy=ew.MergePolicy(kernel=asked)))
        runtime.restore(state)
    assert [e for e in out if isinstance(e, ew.Insert)] == elements
