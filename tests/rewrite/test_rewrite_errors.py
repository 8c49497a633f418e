"""Expressions that can fail are not evaluated on rows that something kept away from them.

Each plan meets a row on which `v + 1` overflows, and guards against it: it gives an answer.  So must the rewritten one,
by the definition and on the local runtime.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import col
from everwhen.core.time import INF
from everwhen.engine.run import run
from everwhen.errors import EvaluationError
from everwhen.reference import evaluate
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.facts.conditions import may_fail
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.history import History
from rewrite.rewriting import assert_same_answers
from rewrite.rule_cases import a, b, fails, joined, keyed, safe

LARGEST = 2**63 - 1


def stream(*rows: tuple[int, int, int | None, int | None]) -> list[Element]:
    return [*(Insert(vs, ve, {"k": k, "v": v}) for vs, ve, k, v in rows), Cti(INF)]


A = stream((2, 4, 1, 5), (2, 4, 9, LARGEST), (4, 5, None, LARGEST), (4, 5, 2, None))
B = stream((2, 4, 1, 5), (3, 4, 2, 7))
U = stream((2, 3, 1, 5))
GUARDED: dict[str, Callable[[], Stream]] = {
    "a filter": lambda: a().where(col("k") < 5).where(fails()),
    "a join": lambda: joined(a(), b()).where(fails()),
    "a join's key": lambda: a().where(col("k") < 5).product(b()).where(col("v") + 1 == col("v_right")),
    "a join's condition": lambda: joined(a(), b(), where=fails()),
    "a semi-join": lambda: joined(a(), b(), "semi").where(fails()),
    "an anti-join": lambda: a().join(b().where(col("k") > 5), on="k", how="anti").where(col("k") == 1).where(fails()),
    "an intersection": lambda: a().intersect(b()).where(fails()),
    "a difference": lambda: a().difference(a().where(col("v") == LARGEST)).where(fails()),
    "a slide": lambda: a().where(col("k") > 0).range(1, slide=5).where(fails()),
    "a slide, computed": lambda: a().where(col("k") > 0).range(1, slide=5).select(y=col("v") + 1),
    "a granule": lambda: a().where(col("k") > 0).granularity(5).where(fails()),
    "a window of rows": lambda: a().rows(1, partition_by="k").where(col("k") < 5).where(fails("v")),
    "another conjunct, of a grouping": lambda: (
        a().group_by("k", "v").agg(n=ew.count()).where((col("n") > 1) & fails())
    ),
    "another conjunct, of an outer join": lambda: (
        joined(a(), b(), "left").where(col("k").not_null() & (col("k") == 1) & fails())
    ),
    "a join of three": lambda: joined(joined(a(), b()), keyed("U").rename(v="u")).where(fails()),
}  # fmt: skip


@pytest.mark.parametrize("guard", GUARDED)
def test_a_guard_stays_a_guard(guard: str) -> None:
    query = GUARDED[guard]()
    given = {"A": A, "B": B, "U": U}
    read = {each.name for each in n.walk(query.node) if isinstance(each, n.Source)}
    histories = {name: History.of(given[name], a().schema) for name in read}
    found = Stream(rewrite(query.node, strict=True).node)
    assert_same_answers(query.node, found.node, histories)
    run(found, {name: given[name] for name in read})


def test_the_rows_would_fail_without_a_guard() -> None:
    unguarded = evaluate(a().where(fails()).node, {"A": History.of(A, a().schema)})
    with pytest.raises(EvaluationError, match="overflow"):
        unguarded.at(2)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("v") > 1, False),
        (safe() & col("k").is_null(), False),
        (col("v") % 3 == 1, False),
        (col("v") / 0 > 1, False),
        (col("v").cast("float64") * 2.0 > 1, False),
        (col("v").cast("string") == "1", False),
        (col("v") + 1 > 1, True),
        (-col("v") > 1, True),
        (col("v").cast("int32") == 1, True),
        (col("v").cast("string").cast("int64") == 1, True),
        (ew.udf(abs, col("v"), type="int64") == 1, True),
    ],
    ids=str,
)
def test_what_may_fail(expr: ew.Expr, expected: bool) -> None:
    assert may_fail(expr, a().schema) is expected
