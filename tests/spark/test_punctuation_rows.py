"""Promises as rows of an exchange: where they go, what comes back from them, and what is wrong with one."""

from __future__ import annotations

import json
from datetime import date
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from everwhen.core.punctuation import Frontier, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.punctuation.api import PunctuationStore
from everwhen.spark.exchange.messages import PUNCTUATION, Failure, decode, kind_of
from everwhen.spark.exchange.punctuation_rows import (
    BY_HASH,
    OWNED,
    PART,
    WHOLE,
    Address,
    Heard,
    SourceWords,
    heard,
    promise_rows,
)
from everwhen.spark.exchange.schema import ExchangeSchema

SCHEMA = Schema.of([("item", pa.int64()), ("seller", pa.string()), ("day", pa.date32())])
LAYOUT = ExchangeSchema.of([SCHEMA])
D = date(2024, 2, 28)


def rows(promise: Punctuation, sender: int | None = 1, partitions: int = 3, **about: Any) -> pa.Table:
    address = Address(5, SCHEMA, about.pop("by", ("item",)), about.pop("own", None), **about)
    return pa.Table.from_batches(promise_rows(LAYOUT, address, [promise], partitions, sender), LAYOUT.arrow)


def all_of(promise: Punctuation) -> list[tuple[Any, ...]]:
    """The values of a promise that binds columns to lists of constants."""
    bound = [pattern.values for _, pattern in sorted(promise.match.items()) if isinstance(pattern, OneOf)]
    return list(product(*bound))


def partitions_of(table: pa.Table) -> list[int]:
    return table.column("partition").to_pylist()


def scopes(table: pa.Table) -> list[int]:
    return [json.loads(text)["scope"] for text in table.column("message").to_pylist()]


@pytest.mark.parametrize(
    ("promise", "by", "targets"),
    [
        (Punctuation.constants({"item": 7}), ("item",), [BY_HASH]),
        (Punctuation({"item": OneOf((7, None, 9)), "seller": OneOf(("a",))}), ("item",), [BY_HASH] * 3),
        (Punctuation({"item": OneOf((7, 9)), "seller": OneOf(("a", "b"))}), ("seller", "item"), [BY_HASH] * 4),
        (Punctuation({"day": Range(ge=D, lt=date(2024, 3, 2))}), ("day",), [BY_HASH] * 3),
        (Punctuation({"item": OneOf(tuple(range(0, 300_000, 2)))}), ("item",), [BY_HASH] * 150_000),
        # not all columns of the key, no constants, too many of them, no key at all
        (Punctuation.constants({"item": 7}), ("item", "seller"), [0, 1, 2]),
        (Punctuation({"item": Range(ge=7)}), ("item",), [0, 1, 2]),
        (Punctuation({"item": Range(ge=0, le=10**9)}), ("item",), [0, 1, 2]),
        (Punctuation({"seller": Range(ge="a", le="b")}), ("seller",), [0, 1, 2]),
        (
            Punctuation({"item": OneOf(tuple(range(0, 2000, 2))), "seller": OneOf(tuple(map(str, range(1000))))}),
            ("item", "seller"),
            [0, 1, 2],
        ),
        (Punctuation.constants({"item": 7}), (), [0, 1, 2]),
        (Punctuation.constants({"item": 7}), None, [0, 1, 2]),
    ],
)
def test_a_promise_goes_to_the_partitions_of_its_constants_or_to_all(
    promise: Punctuation, by: tuple[str, ...] | None, targets: list[int]
) -> None:
    table = rows(promise, by=by)
    assert partitions_of(table) == targets and set(table.column("kind").to_pylist()) == {PUNCTUATION}
    found = heard(table.filter(pa.array([at in (BY_HASH, 0) for at in targets])), {5: SCHEMA})[5]
    assert found.whole == []
    back, there = PunctuationStore(SCHEMA), PunctuationStore(SCHEMA)
    back.add(found.parts[1])
    there.add([promise])
    assert all(map(there.implies, found.parts[1]))
    assert back.implies(promise) or {r for p in found.parts[1] for r in all_of(p)} == set(all_of(promise))


def test_who_may_say_it_decides_whether_it_holds() -> None:
    promise = Punctuation({"item": OneOf((7, 8))}, 12)
    assert set(scopes(rows(promise, sender=None))) == {WHOLE}
    assert set(scopes(rows(promise, partitions=1))) == {WHOLE}
    assert set(scopes(rows(promise))) == {PART}
    owned = rows(promise, own=("item",), by=("seller",))
    assert scopes(owned) == [OWNED] * 6 and sorted(partitions_of(owned)) == [0, 0, 1, 1, 2, 2]
    assert sorted(owned.column("int64_1").to_pylist()) == [7, 7, 7, 8, 8, 8]
    assert partitions_of(rows(promise, own=("item",), by=None, everywhere=False)) == [0, 0]
    assert heard(rows(promise, own=("item",)), {5: SCHEMA})[5].whole == [promise]


def test_what_partitions_say_stands_with_their_times() -> None:
    said = Heard(parts={1: [Punctuation.constants({"item": 7})]})
    assert said.frontiers({0: 4}) == {0: Frontier(4), 1: Frontier(NEVER, (Punctuation.constants({"item": 7}),))}


def words(*texts: str) -> list[dict[str, Any]]:
    task = SourceWords({5: Address(5, SCHEMA, ("item",))}, {5: "Bid"}, LAYOUT, 2)
    given = pa.RecordBatch.from_pydict({"kind": [5] * len(texts), "vs": [INF] * len(texts), "match": list(texts)})
    return pa.Table.from_batches(task(iter([given])), LAYOUT.arrow).to_pylist()


def test_the_rows_of_a_source_are_read() -> None:
    found = words('{"item": 3}', '{"item": 4}', '{"seller": {"ge": "m"}}')
    assert sorted((row["partition"], row["int64_1"]) for row in found if row["partition"] == BY_HASH) == [
        (-1, 3),
        (-1, 4),
    ]
    assert sorted(row["partition"] for row in found if row["partition"] != BY_HASH) == [0, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"itm": 3}', "Bid: \"match\" names the attribute 'itm', which no row has"),
        ('{"item": {"ge": "x"}}', "Bid: in the pattern of 'item'"),
        ('{"item": {"ge": 5, "lt": 5}}', "holds no value"),
        ('{"item": ', "Bid: a punctuation that is no JSON"),
        ("3", '"match" must be an object'),
    ],
)
def test_a_wrong_pattern_is_told_to_every_partition(text: str, problem: str) -> None:
    found = words('{"item": 3}', text)
    assert [(row["kind"], row["partition"]) for row in found] == [(kind_of(Failure), 0), (kind_of(Failure), 1)]
    told = decode(found[0]["kind"], found[0]["message"])
    assert isinstance(told, Failure) and told.error == "InputError"
    assert problem in told.message and text in told.message
