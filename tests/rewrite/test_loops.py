"""What may stand on a loop of a plan built in Python, which columns it keeps, and loops that are none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import Expr, col, function, lit
from everwhen.algebra.properties.derive import properties
from everwhen.core.schema import Schema
from everwhen.errors import LoopError
from everwhen.query import optimized
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.facts.kept_columns import kept_columns
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.rewrite.loops.check_loop import check_loop
from everwhen.rewrite.loops.dependence import FALLS, FREE, MIXED, RISES, Dependence, dependence

A = ew.source("A", {"k": "int64", "v": "int64"})
B = ew.source("B", {"k": "int64", "v": "int64"})
Step = Callable[[Stream], Stream]


def loop(step: Step, kind: n.FixpointKind = "union", value: str | None = None) -> n.Fixpoint:
    node = ew.fixpoint(A, step, kind, value=value).node
    assert isinstance(node, n.Fixpoint)
    return node


REFUSED: dict[str, tuple[Step, n.FixpointKind]] = {
    "an anti-join over r": (lambda r: B.join(r, on="k", how="anti"), "union"),
    "padded with nulls": (lambda r: B.join(r, on="k", how="left").select("k", v=col("v_right")), "union"),
    "count(*) over r": (lambda r: r.group_by("k").agg(v=ew.count()), "union"),
    "a window over r": (lambda r: r.range(5), "union"),
    "a split over r": (lambda r: Stream(n.Split(r.node, 1)), "union"),
    "max_union cannot stand": (lambda r: Stream(n.SetOperation(r.node, B.node, "max_union")), "union"),
    "no promise can be made of r": (lambda r: r.punctuate(ew.punctuation.sorted_by("k")), "union"),
    "which counts them": (lambda r: r.distinct(), "union all"),
    "takes it as a set": (lambda r: B.join(r, on="k", how="semi"), "union all"),
    "q is a recursion of its own": (
        lambda r: ew.fixpoint(r, lambda q: q.join(B, on="k", how="semi"), name="q"),
        "union",
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_may_not_stand_on_a_loop(message: str) -> None:
    step, kind = REFUSED[message]
    found = loop(step, kind)
    for check in (check_loop, legal_loops, lambda node: optimized(Stream(node))):
        with pytest.raises(LoopError) as caught:
            check(found)
        assert message in str(caught.value) and caught.value.place is None


def test_what_stands_behind_a_loop_is_not_on_it() -> None:
    found = Stream(loop(lambda r: r.join(B, on="k", how="semi"))).range(5).group_by("k").agg(m=ew.count())
    assert legal_loops(found.node) is found.node


def test_a_loop_is_rewritten_where_it_has_to_be() -> None:
    def step(r: Stream) -> Stream:
        marks = n.Distinct(n.Map(r.node, (("k", col("k")), ("mark", lit(True)))))
        return Stream(n.Filter(n.Join(B.node, marks, ("k",), ("k",), None, "left"), col("mark").not_null())).select(
            "k", "v"
        )

    found = loop(step)
    with pytest.raises(LoopError):
        check_loop(found)
    legal = legal_loops(found)
    assert isinstance(legal, n.Fixpoint)
    assert [each.kind for each in n.walk(legal) if isinstance(each, n.Join)] == ["semi"]


def test_a_loop_that_turns_out_to_be_none_is_one_round() -> None:
    """A left join of which nothing is read goes, and the recursion with it."""
    found = loop(lambda r: B.join(r.distinct(), on=["k", "v"], how="left").select("k", "v"))
    assert isinstance(rewrite(found, strict=True).node, n.Distinct)


KEPT: dict[str, tuple[Step, n.FixpointKind, str | None, set[str]]] = {
    "linear": (lambda r: r.join(B, on={"v": "k"}).select(k=col("k"), v=col("v_right")), "union", None, {"k"}),
    "all": (lambda r: r.where(col("v") > 1), "union all", None, {"k", "v"}),
    "exchanged": (lambda r: r.select(k=col("v"), v=col("k")), "union", None, set()),
    "non-linear": (lambda r: r.join(r, on={"v": "k"}).select(k=col("k"), v=col("v_right")), "union", None, set()),
    "compared": (lambda r: r.join(r, on="k").select(k=col("k"), v=col("v_right")), "union", None, {"k"}),
    "not the value": (lambda r: r.where(col("v") < 9), "min", "v", {"k"}),
    "of one branch only": (lambda r: r.union(r.select(k=col("v"), v=col("v"))), "union", None, {"v"}),
    "kept side of an anti-join": (lambda r: r.join(B, on="k", how="anti"), "union", None, {"k", "v"}),
}


@pytest.mark.parametrize("name", KEPT)
def test_columns_that_a_loop_keeps(name: str) -> None:
    step, kind, value, expected = KEPT[name]
    assert kept_columns(loop(step, kind, value)) == expected


X, E = col("x"), col("e")
DEPENDENCE: list[tuple[Expr, Dependence]] = [
    (E + 1, FREE), (X, RISES), (X + E, RISES), (E - X, FALLS), (-X, FALLS), (lit(0) - (E - X), RISES),
    (X * 2, RISES), (X * -2, FALLS), (X * E, MIXED), (X / 2, RISES), (X * 0, MIXED), (X - X, MIXED), (X + X, RISES),
    (function("least", X, E), RISES), (function("greatest", E, E - X), FALLS), (X < E, FALLS), (E <= X, RISES),
    (~(X < E), RISES), ((X < E) & (X + 1 <= 5), FALLS), ((X < E) | (X > 5), MIXED), (X == E, MIXED),
    (X.is_null(), MIXED), (X.not_null(), FALLS), (X.cast("float64"), RISES), (X.cast("string"), MIXED),
    (function("coalesce", X, E), MIXED), (X < X + 1, MIXED), (function("floor", X), RISES),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "expected"), DEPENDENCE, ids=lambda each: str(each))
def test_how_expressions_depend_on_the_value_of_a_min(expr: Expr, expected: Dependence) -> None:
    schema = Schema.of([("x", A.schema.types[0]), ("e", A.schema.types[0])])
    assert dependence(expr, {"x": RISES}, schema, FALLS) is expected


@pytest.mark.parametrize(("expr", "expected"), [pair for pair in DEPENDENCE if pair[1] in (RISES, FALLS)], ids=str)
def test_what_is_said_of_an_expression_is_so(expr: Expr, expected: Dependence) -> None:
    """Over small values, and null as the worst of a MIN."""
    for e in (-1, 0, 2):
        values = [expr.value({"x": x, "e": e}) for x in range(-4, 5)]
        assert None not in values
        ordered = values if expected is RISES else values[::-1]
        assert all(a <= b for a, b in pairwise(ordered))


def test_properties_of_loops() -> None:
    step = lambda r: r.join(B, on={"v": "k"}).select(k=col("k"), v=col("v_right"))  # noqa: E731
    assert properties(loop(step)).words() == "key(k, v)"
    assert properties(loop(step, "union all")).words() == ""
    assert properties(loop(lambda r: r.where(col("v") < 9), "min", "v")).words() == "key(k)"


def test_what_explain_says() -> None:
    found = ew.fixpoint(A, lambda r: r.where(col("v") < 9), "min", value="v", rounds=2, progress="probing", max_level=5)
    assert str(found).splitlines() == [
        "Fixpoint r, min of v per k, 2 rounds at a time, progress probing, level 5 at most",
        "├─ Source A (k int64, v int64)",
        "└─ Filter v < 9",
        "   └─ Recursion r",
    ]
