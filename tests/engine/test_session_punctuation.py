"""Queries of a session hear the promises about data that they would hear alone, under their own names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of

S = ew.source("S", {"k": "int64", "x": "int64"})


def row(k: int, x: int) -> dict[str, int]:
    return {"k": k, "x": x}


def punct(t: int = ew.INF, **match: ew.punctuation.Range | ew.punctuation.OneOf) -> Punct:
    return Punct(ew.punctuation.Punctuation(match, t))


EPOCHS: Sequence[Sequence[Element]] = (
    [Insert(0, 9, row(1, 5)), Insert(1, 9, row(2, 6)), punct(k=ew.punctuation.OneOf((1,)))],
    [punct(k=ew.punctuation.OneOf((3,)))],
    [Insert(2, 8, row(2, 7)), punct(x=ew.punctuation.Range(lt=6)), Cti(2)],
    [Insert(4, 8, row(2, 9)), Adjust(1, 9, 5, row(2, 6)), punct(7, k=ew.punctuation.OneOf((2,)))],
)
PLANS = {  # three filters by constants are looked up in one table
    "all": S,
    "second": S.where(ew.col("k") == 2),
    "first": S.where(ew.col("k") == 1),
    "third": S.where(ew.col("k") == 3),
    "two_filters": S.where(ew.col("k") == 2).where(ew.col("x") > 6),
    "renamed": S.select(key=ew.col("k"), y=ew.col("x"), also=ew.col("k"), more=ew.col("x") + 1),
    "groups": S.group_by("k").agg(total=ew.sum("x")),
}


def texts(batch: ElementBatch) -> list[str]:
    return [str(element) for element in batch.elements()]


@pytest.mark.parametrize("emit", ["final", "current"])
def test_as_alone(emit: str) -> None:
    session = Session(emit=emit)
    alone = {name: LocalRuntime(query, emit=emit) for name, query in PLANS.items()}
    for name, query in PLANS.items():
        session.register(name, query)
    said = 0
    for epoch in EPOCHS:
        heard = session.push({"S": batch_of(epoch, S.schema, "S")})
        for name, runtime in alone.items():
            expected = texts(runtime.push({"S": batch_of(epoch, S.schema, "S")})["out"])
            assert sorted(texts(heard[name])) == sorted(expected), name
            said += sum(text.startswith("punct") for text in expected)
    assert said == 4 * len(alone) - 1, "each epoch's promise by each query, but that about x by the groups"


def test_one_who_joins_hears_what_is_promised_from_then_on() -> None:
    session = Session()
    session.register("first", S)
    session.push({"S": batch_of([Insert(0, 9, row(1, 5)), Cti(3), punct(k=ew.punctuation.OneOf((4,)))], S.schema, "S")})
    session.register("second", S.where(ew.col("x") > 0))
    session.push({})
    heard = session.push({"S": batch_of([Insert(3, 9, row(2, 5)), punct(k=ew.punctuation.OneOf((1,)))], S.schema, "S")})
    assert texts(heard["second"]) == ["insert [3, 9) k=2 x=5", "punct k = 1"]
    assert texts(heard["second"]) == texts(heard["first"])


def test_what_waits_goes_on_before_a_promise_that_covers_it() -> None:
    """A stricter policy holds back what is not promised; all that a promise about data covers is out before it."""
    runtime = LocalRuntime(S, emit="current")
    runtime.push({"S": batch_of([Insert(0, 9, row(1, 5)), Cti(0)], S.schema, "S")})
    runtime.change(emit="final")
    epoch: list[Element] = [
        Insert(3, 9, row(2, 6)),
        punct(k=ew.punctuation.OneOf((2,))),
        punct(3, x=ew.punctuation.Range(ge=6)),
    ]
    assert texts(runtime.push({"S": batch_of(epoch, S.schema, "S")})["out"]) == [
        "insert [3, 9) k=2 x=6", "punct k = 2", "punct x >= 6 before 3",
    ]  # fmt: skip
    other = runtime.push({"S": batch_of([punct(k=ew.punctuation.OneOf((3,)))], S.schema, "S")})["out"]
    assert texts(other) == ["punct k = 3"]
    closing = runtime.push({"S": batch_of([Cti(20)], S.schema, "S")})["out"]
    assert texts(closing) == ["cti 20"]


def test_a_query_whose_last_steps_have_names_of_their_own_hears_a_promise_while_it_goes_over() -> None:
    query = S.select("k", y=ew.col("x") * 2).select("k", x=ew.col("y"))
    session = Session()
    session.register("q", query)
    session.replace("q", query)
    both = {name: ew.punctuation.OneOf((1,)) for name in ("k", "x")}
    said = session.push({"S": batch_of([Insert(0, 9, row(1, 1)), punct(20, **both)], S.schema, "S")})
    assert session.query("q").error == ""
    assert [str(each) for each in said["q"].elements()] == ["insert [0, 9) k=1 x=2"]
