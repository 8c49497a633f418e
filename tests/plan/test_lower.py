"""Lowering: which operators a plan becomes, where event form is used, what is shared, which sweep area a join gets."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra.expressions.build import Expr
from everwhen.core.emit import Emit
from everwhen.errors import QueryError
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.plan.lower import PhysicalPlan, lower
from plans import PLANS, Plan, S, T, col


def lowered(query: ew.Stream, emit: Emit = Emit.CURRENT) -> PhysicalPlan:
    return lower({"out": query.node}, emit)


def names(query: ew.Stream, emit: Emit = Emit.CURRENT) -> list[str]:
    return [placed.name for placed in lowered(query, emit).operators]


@pytest.mark.parametrize(
    ("where", "area"),
    [
        (col("x") < col("x_right"), "sorted"),
        (col("x") + 3 >= col("x_right"), "sorted"),
        ((col("x") <= col("x_right") + 1) & (col("k") != col("k_right")), "sorted"),
        (col("k") < col("k_right"), "list"),
        (col("x") * 2 < col("x_right"), "list"),
        ((col("x") < 3) | (col("x_right") < 2), "list"),
    ],
    ids=str,
)
def test_the_predicate_chooses_the_sweep_area(where: Expr, area: str) -> None:
    assert names(S.join(T, where=where)) == [f"join ({area})"]


def test_equal_keys_choose_the_keyed_area() -> None:
    assert names(S.join(T, on={"k": "k"})) == ["join (keyed)"]
    assert names(S.join(T, on={"k": "k"}, where=col("x") < col("x_right"))) == ["join (keyed)"]
    assert names(S.product(T)) == ["join (list)"]


def test_events_stay_events_until_segments_are_needed() -> None:
    plan = lowered(S.where(col("x") > 0).lifetime(length=3))
    assert [(placed.name, placed.inputs[0].form) for placed in plan.operators] == [
        ("filter", "events"), ("alter lifetime", "segments"),
    ]  # fmt: skip
    assert isinstance(plan.sinks[0].encoder, EventChangelogEncoder)
    assert names(S.lifetime(length=3).distinct()) == ["alter lifetime", "net", "distinct"]


def test_what_stands_at_the_output() -> None:
    assert isinstance(lowered(S).sinks[0].encoder, EventChangelogEncoder)
    assert isinstance(lowered(S.distinct()).sinks[0].encoder, ChangelogEncoder)

    def filtered(query: ew.Stream, emit: Emit) -> bool:
        return lower({"out": query.node}, emit).sinks[0].filter is not None

    assert filtered(S, Emit.FINAL) and filtered(S.range(2), Emit.ENDED)
    assert not filtered(S.distinct(), Emit.FINAL), "the sweep emits what is final"
    assert not filtered(S.range(2).distinct(), Emit.ENDED) and not filtered(S.range(2), Emit.CURRENT)


def test_inputs_stand_before_their_users() -> None:
    for plan in PLANS:
        for emit in (Emit.FINAL, Emit.ENDED, Emit.CURRENT):
            physical = lowered(plan.build(), emit)
            for at, placed in enumerate(physical.operators):
                assert len(placed.inputs) == placed.operator.ports
                for port in placed.inputs:
                    assert port.source in physical.sources if port.source else port.operator < at


def test_a_shared_node_is_lowered_once() -> None:
    window = S.range(3)
    assert names(window.difference(window.where(col("x") > 0))).count("window") == 1
    assert names(S.range(3).difference(S.range(3).where(col("x") > 0))).count("window") == 2


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_operator_says_what_it_keeps(plan: Plan) -> None:
    for placed in lowered(plan.build()).operators:
        assert placed.operator.keeps
        assert placed.operator.state_size().rows == 0


def test_sources_with_two_schemas() -> None:
    with pytest.raises(QueryError, match="two schemas"):
        lowered(S.select("k").union(ew.source("S", {"k": "string"})))
