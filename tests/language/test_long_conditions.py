"""Conditions of thousands of terms: read, bound, folded, rewritten, run and translated without deep recursion."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.complement import complement
from everwhen.algebra.expressions.build import Call, col, conjunction, conjuncts, disjunction, lit
from everwhen.core.schema import Schema
from everwhen.rewrite.facts.conditions import without_repeats
from everwhen.rewrite.plans.fold_constants import folded
from everwhen.spark.translate.expressions import translate
from everwhen.testing import history_of

TERMS = 5_000
SCHEMA = Schema.of([("n", pa.int64()), ("x", pa.int64())])
INPUT = [ew.Insert(t, t + 1, {"n": t, "x": None}) for t in range(1, 4)]

CHAINS = {
    "or": (" OR ".join(f"n = {i + 2}" for i in range(TERMS)), [2, 3]),
    "and": (" AND ".join(f"n <> {i + 2}" for i in range(TERMS)), [1]),
    "or, deeply": (" OR (n > 1 AND ".join(f"n = {i + 2}" for i in range(50)) + ")" * 49, [2, 3]),
    "in, computed": (f"n IN (x, {', '.join(f'{i + 2} + x * 0' for i in range(TERMS))}, 3)", [3]),
    "in": (f"n IN ({', '.join(str(i + 2) for i in range(TERMS))})", [2, 3]),
    "nulls": (" OR ".join(["x > 1"] * (TERMS - 1) + ["n = 2"]), [2]),
    "case": ("CASE " + " ".join(f"WHEN n = {i + 2} THEN {i}" for i in range(500)) + " END >= 0", [2, 3]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_long_condition_is_answered(name: str) -> None:
    condition, expected = CHAINS[name]
    text = f"CREATE STREAM S (n INT, x INT); SELECT n FROM S WHERE {condition}"
    said = history_of(list(ew.run(ew.sql(text), {"S": INPUT})))
    assert sorted(row[0] for t in range(1, 4) for row in said.snapshot(t)) == expected


def test_a_long_condition_on_groups_is_answered() -> None:
    having = " AND ".join(f"COUNT(*) <> {i + 2}" for i in range(1_000))
    text = f"CREATE STREAM S (n INT, x INT); SELECT n, COUNT(*) AS c FROM S GROUP BY n HAVING {having}"
    said = history_of(list(ew.run(ew.sql(text), {"S": INPUT})))
    assert said.snapshot(2) == {(2, 1): 1}


def test_a_long_condition_of_a_join_is_answered() -> None:
    on = " AND ".join(["a.n = b.n", *(f"a.n + b.n <> {2 * i + 5}" for i in range(1_000))])
    text = f"CREATE STREAM S (n INT, x INT); SELECT a.n FROM S a JOIN S b ON {on}"
    said = history_of(list(ew.run(ew.sql(text), {"S": INPUT})))
    assert said.snapshot(2) == {(2,): 1}


def test_a_chain_is_one_call_however_it_was_put_together() -> None:
    a, b, c, d = (col("n") == i for i in range(4))
    expected = Call("and", (a, b, c, d))
    for chain in (((a & b) & c) & d, a & (b & (c & d)), (a & b) & (c & d), conjunction([a, b, c, d])):
        assert chain.equals(expected)
        assert all(x is y for x, y in zip(conjuncts(chain), (a, b, c, d), strict=True))
        assert str(chain) == "n = 0 AND n = 1 AND n = 2 AND n = 3"
    assert str((a | b) & c) == "(n = 0 OR n = 1) AND n = 2"
    assert str(a | b & c) == "n = 0 OR n = 1 AND n = 2"


def test_a_long_chain_of_python_operators() -> None:
    any_of, all_of = lit(False), lit(True)
    for i in range(TERMS):
        any_of, all_of = any_of | (col("n") == i), all_of & (col("n") != i)
    assert any_of.value({"n": TERMS - 1}) is True
    assert all_of.value({"n": TERMS}) is True
    columns = {"n": pa.array([0, TERMS, None])}
    assert any_of.evaluate(columns, 3).to_pylist() == [True, False, None]
    assert all_of.evaluate(columns, 3).to_pylist() == [False, True, None]
    assert len(folded(any_of).operands) == TERMS  # the constant goes
    assert len(without_repeats([*conjuncts(all_of), *conjuncts(all_of)])) == TERMS
    assert any_of.substitute({"n": col("x")}).columns() == {"x"}
    assert complement(disjunction([col("n") == 1, col("n") > 5]), SCHEMA)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([True, None, "p"], "NULL AND p"),
        ([True, "p", True], "p"),
        (["p", False, "q"], "FALSE"),
        ([True, True, True], "TRUE"),
        ([None, None, True], "NULL"),
        (["p", "q", True], "p AND q"),
    ],
)
def test_constants_in_a_chain_decide_or_go(terms: list[object], expected: str) -> None:
    parts = [col(term) if isinstance(term, str) else lit(term, pa.bool_()) for term in terms]
    assert str(folded(conjunction(parts))) == expected


def test_a_chain_too_long_for_spark_stays_in_python() -> None:
    expr = disjunction(col("n") == i for i in range(TERMS))
    nothing: dict[str, object] = {"n": None}  # no Spark column is asked for
    assert translate(expr, SCHEMA, nothing) is None  # type: ignore[arg-type]
