"""The inputs of a union or a set operation meet column by column, whatever the columns are called there.

A promise of the second input speaks of its own names.  Read under the first one's names it would be refused, or, where
the names are the same in another order, would say something that nobody has promised.
"""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Element, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.testing import assert_same_history, assert_valid

A = ew.source("A", {"k": "int64", "v": "int64"})
B = ew.source("B", {"x": "int64", "y": "int64"})
SETS = ("UNION ALL", "UNION", "EXCEPT ALL", "EXCEPT", "INTERSECT ALL", "INTERSECT")


def about(**constants: int) -> Punct:
    return Punct(Punctuation({name: OneOf((value,)) for name, value in constants.items()}, INF))


@pytest.mark.parametrize("kind", SETS)
def test_other_names(kind: str) -> None:
    """x of the second input is k of the answer: both have closed 7, so the answer has."""
    query = ew.sql(f"SELECT k, v FROM A {kind} SELECT x, y FROM B", A, B)
    runtime = LocalRuntime(query, emit="final")
    one: list[Element] = [Insert(0, 5, {"k": 7, "v": 1}), about(k=7)]
    two: list[Element] = [Insert(2, INF, {"x": 7, "y": 2}), about(x=7)]
    assert not len(runtime.push({"A": batch_of(one, A.schema, "A")})["out"])
    said = list(runtime.push({"B": batch_of(two, B.schema, "B")})["out"].elements())
    assert said[-1] == about(k=7)
    said += runtime.close()["out"].elements()
    assert assert_valid(said).grammatical
    plain = {"A": one[:1], "B": two[:1]}
    assert_same_history([each for each in said if not isinstance(each, Punct)], list(ew.run(query, plain)))


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("emit", ["final", "current"])
def test_the_same_names_in_another_order(kind: str, emit: str) -> None:
    """Nobody has promised anything about k = 1: the second input says it of v, which is its first column."""
    query = ew.sql(f"SELECT k, v FROM A {kind} SELECT v, k FROM A", A)
    elements: list[Element] = [
        Insert(0, 9, {"k": 1, "v": 2}),
        Insert(0, 9, {"k": 2, "v": 2}),
        about(k=1),
        Insert(3, 6, {"k": 3, "v": 1}),
        about(v=1),
        Insert(4, INF, {"k": 2, "v": 3}),
    ]
    said = list(ew.run(query, {"A": elements}, consistency=ew.STRONG if emit == "final" else ew.MIDDLE, batch=1))
    report = assert_valid(said)
    assert report.grammatical, report.offences
    assert emit != "final" or not report.adjusts
    rows = [each for each in elements if isinstance(each, Insert)]
    assert_same_history([each for each in said if not isinstance(each, Punct)], list(ew.run(query, {"A": rows})))
