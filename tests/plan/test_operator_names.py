"""Stable names: what an operator computes, not where it stands."""

import subprocess
import sys
from textwrap import dedent

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Recursion, walk
from everwhen.core.emit import Emit
from everwhen.plan.lower import lower
from everwhen.plan.names import operator_names, structure
from everwhen.rewrite.driver import rewrite

S = ew.source("S", {"x": "int64", "y": "string"})
R = ew.source("R", {"x": "int64", "z": "string"})


def names(*queries, emit=Emit.CURRENT):
    plan = lower({f"q{at}": query.node for at, query in enumerate(queries)}, emit)
    return list(operator_names(plan.operators).values())


def test_a_part_has_the_same_name_wherever_it_stands():
    window = S.range(10)
    alone = names(window.group_by("y").agg(n=ew.count()))
    below = names(R.range(7).join(window.group_by("y").agg(n=ew.count()), on={"z": "y"}).where(ew.col("n") > 3))
    assert set(names(window)) <= set(alone)
    assert len(set(alone) & set(below)) >= 1, "the window"
    beside = names(R.distinct(), window.group_by("y").agg(n=ew.count()))
    assert set(alone) <= set(beside), "numbers do not matter"


def test_every_parameter_counts():
    queries = [
        S.range(10), S.range(11), S.range(10, 2), S.rows(10), R.range(10), S.where(ew.col("x") > 1).range(10),
        S.where(ew.col("x") > 2).range(10), S.where(ew.col("x") > 1.0).range(10), S.select("x").range(10),
        S.range(10).distinct(), S.range(10).aggregate(n=ew.count()), S.range(10).aggregate(m=ew.count()),
        ew.source("S", {"x": "int64", "y": "string"}, insert_only=True).range(10),
        ew.source("S", {"x": "double", "y": "string"}).range(10),
    ]  # fmt: skip
    last = [names(query)[-1] for query in queries]
    assert len(set(last)) == len(queries)


def test_the_policy_counts_for_what_says_something_else():
    query = S.range(10).aggregate(n=ew.count())
    assert len({names(query, emit=emit)[-1] for emit in Emit}) == 4


def test_all_operators_of_one_node_have_names_of_their_own():
    for kind in ("semi", "anti", "left", "full"):
        found = names(S.range(5).join(R.range(5), on="x", how=kind))
        assert len(set(found)) == len(found), kind


def test_equal_operators_that_run_apart_are_counted():
    one, two = S.range(10).distinct(), S.range(10).distinct()
    found = names(one, two)
    assert [name.partition(" #")[2] for name in found] == ["", "", "2", "2"]
    assert names(one, one) == found[:2], "a node that is shared is one operator"
    plan = lower({"a": one.node, "b": two.node}, Emit.CURRENT)
    swapped = operator_names(plan.operators, order=[3, 2, 1, 0])
    assert {swapped[3], swapped[1]} == {found[1], found[3]} and swapped[3] == found[1]


def larger(x):
    return x + 1


def smaller(x):
    return x - 1


def test_functions_count_by_their_qualified_names():
    one, two = (S.select(z=ew.udf(f, ew.col("x"), type="int64")) for f in (larger, smaller))
    assert names(one) != names(two)
    module = type(sys)("again")
    exec(dedent("""
        def larger(x):
            return x + 1
    """), module.__dict__)  # fmt: skip
    module.larger.__module__ = larger.__module__
    assert module.larger is not larger
    assert names(S.select(z=ew.udf(module.larger, ew.col("x"), type="int64"))) == names(one)


LOOP = """
    WITH RECURSIVE reach(a, b) AS (SELECT x AS a, x + 1 AS b FROM S WINDOW(RANGE 5)
    UNION SELECT r.a, s.x AS b FROM reach r, S s WINDOW(RANGE 5) WHERE r.b = s.x AND s.x < {}) SELECT * FROM reach
"""


def test_loops_have_names_without_their_tokens():
    one, again, other = (ew.sql(LOOP.format(n), S) for n in (9, 9, 8))
    assert names(one) == names(again) != names(other)
    (leaf,) = {each.token for each in walk(one.node) if isinstance(each, Recursion)}
    (same,) = {each.token for each in walk(again.node) if isinstance(each, Recursion)}
    assert leaf is not same


def test_the_name_does_not_depend_on_what_was_named_before():
    one, again = (ew.sql(LOOP.format(9), S).node for _ in range(2))
    for node in walk(one):
        structure(node)
    assert structure(one) == structure(again)


@pytest.mark.parametrize("text", ["S.range(10).distinct()", "S.range(10).join(S.range(5), on='x')"])
def test_another_process_finds_the_same_names(text):
    program = dedent(f"""
        import everwhen as ew
        from everwhen.core.emit import Emit
        from everwhen.plan.lower import lower
        from everwhen.plan.names import operator_names
        S = ew.source("S", {{"x": "int64", "y": "string"}})
        for name in operator_names(lower({{"q0": {text}.node}}, Emit.CURRENT).operators).values():
            print(name)
    """)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == names(eval(text))


def test_rewriting_keeps_the_names_of_what_it_leaves_alone():
    query = S.range(10).join(R.range(10), on="x").where(ew.col("y") == "a")
    as_written, rewritten = names(query), names(ew.Stream(rewrite(query.node).node))
    assert set(as_written) & set(rewritten), "a window is the same"
    assert set(as_written) != set(rewritten)
