"""The fluent API: schemas, naming rules of joins, aggregates of expressions, errors, immutability, the plan as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

from everwhen.algebra import nodes
from everwhen.algebra.aggregates import calls as ew
from everwhen.algebra.builder import GroupBy, Stream
from everwhen.algebra.expressions.build import col, function, lit
from everwhen.algebra.named_source import source
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError

bids = source("bids", {"item": "int64", "price": pa.float64(), "bidder": str})
items = source("items", {"item": "int64", "name": "string", "price": "float64"})


def types(stream: Stream) -> dict[str, str]:
    return {field.name: str(field.type) for field in stream.schema}


# -- sources, columns, rows --------------------------------------------------------------------------------------------


def test_a_source_takes_names_classes_types_and_schemas() -> None:
    assert types(bids) == {"item": "int64", "price": "double", "bidder": "string"}
    schema = Schema.of([("a", pa.int8())])
    assert source("x", schema).schema == schema
    assert source("x", pa.schema([("a", pa.int8())])).schema == schema
    assert source("x", {"a": "int8"}, insert_only=True).node.insert_only  # type: ignore[attr-defined]


def test_select_orders_plain_columns_before_computed_ones() -> None:
    found = bids.select("price", col("item"), double=col("price") * 2, one=1)
    assert types(found) == {"price": "double", "item": "int64", "double": "double", "one": "int64"}


def test_with_columns_reads_the_old_columns() -> None:
    found = bids.with_columns(price=col("price") * 2, before=col("price"))
    assert found.schema.names == ("item", "price", "bidder", "before")
    assert isinstance(found.node, nodes.Map)
    row = {name: expr.value({"item": 1, "price": 2.0, "bidder": "b"}) for name, expr in found.node.columns}
    assert row == {"item": 1, "price": 4.0, "bidder": "b", "before": 2.0}


def test_rename_can_exchange_names() -> None:
    assert types(bids.rename(item="price", price="item")) == {"price": "int64", "item": "double", "bidder": "string"}


def test_drop_and_where() -> None:
    assert bids.drop("bidder", "item").schema.names == ("price",)
    assert bids.where(col("price") > 5).schema == bids.schema
    assert bids.where(True).schema == bids.schema


# -- joins -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "how", "expected"),
    [
        ("item", "inner", ["item", "price", "bidder", "name", "price_right"]),
        (["item"], "left", ["item", "price", "bidder", "name", "price_right"]),
        (["item", "price"], "inner", ["item", "price", "bidder", "name"]),
        ({"item": "item"}, "inner", ["item", "price", "bidder", "item_right", "name", "price_right"]),
        ({"bidder": "name"}, "left", ["item", "price", "bidder", "item_right", "name", "price_right"]),
        ("item", "right", ["item", "price", "bidder", "item_right", "name", "price_right"]),
        ("item", "full", ["item", "price", "bidder", "item_right", "name", "price_right"]),
        ("item", "semi", ["item", "price", "bidder"]),
        ("item", "anti", ["item", "price", "bidder"]),
    ],
)
def test_names_after_a_join(on: Any, how: Any, expected: list[str]) -> None:
    assert list(bids.join(items, on=on, how=how).schema.names) == expected


def test_a_suffix_that_is_taken_is_repeated() -> None:
    left = source("l", {"k": "int64", "k_right": "string"})
    right = source("r", {"k": "int64"})
    assert left.product(right).schema.names == ("k", "k_right", "k_right_right")


def test_the_condition_reads_both_sides() -> None:
    found = bids.join(items, on="item", where=col("price") > col("price_right"))
    join = found.node.inputs[0]
    assert isinstance(join, nodes.Join)
    assert str(join.residual) == "price > price_right"
    assert isinstance(bids.join(items, where=col("price") > col("price_right")).node, nodes.Join)
    assert bids.join(items, where=col("item") == col("item_right"), how="semi").schema == bids.schema


def test_a_right_join_is_a_left_join_with_columns_put_back() -> None:
    found = bids.join(items, on={"bidder": "name"}, where=col("price") > col("price_right"), how="right")
    assert isinstance(found.node, nodes.Map)
    join = found.node.input
    assert isinstance(join, nodes.Join)
    assert (join.kind, join.left, join.right) == ("left", items.node, bids.node)
    assert (join.left_keys, join.right_keys) == (("name",), ("bidder",))
    assert str(join.residual) == "price_right > price"  # seen from the other side
    left_row = {"item": 1, "price": 2.0, "bidder": "b"}
    right_row = {"item": 3, "name": "n", "price": 4.0}
    joined = dict(zip(join.schema.names, [*right_row.values(), *left_row.values()], strict=True))
    assert [expr.value(joined) for _, expr in found.node.columns] == [1, 2.0, "b", 3, "n", 4.0]
    assert types(found) == types(bids.join(items, on={"bidder": "name"}, how="full"))


# -- groups ------------------------------------------------------------------------------------------------------------


def test_plain_aggregates_need_no_map() -> None:
    found = bids.group_by("item").agg(total=ew.sum("price"), n=ew.count())
    assert types(found) == {"item": "int64", "total": "double", "n": "int64"}
    assert found.node.inputs == (bids.node,)


def test_expressions_are_computed_below_under_hidden_names() -> None:
    stream = bids.rename(bidder="_1")
    found = stream.group_by("item").agg(
        total=ew.sum(col("price") * 2),
        top=ew.max(col("price") * 2),
        plain=ew.min("price"),
        who=ew.last("_1", by=lit(1)),
    )
    below = found.node.inputs[0]
    assert isinstance(below, nodes.Map)
    assert [(name, str(expr)) for name, expr in below.columns] == [
        ("item", "item"),
        ("_2", "price * 2"),
        ("price", "price"),
        ("_1", "_1"),
        ("_3", "1"),
    ]
    assert found.schema.names == ("item", "total", "top", "plain", "who")


def test_a_computed_key_may_hide_a_column_that_is_aggregated() -> None:
    found = bids.group_by(item=col("item") % 10).agg(most=ew.max("item"), last=ew.max(col("item") % 10))
    below = found.node.inputs[0]
    assert isinstance(below, nodes.Map)
    assert [(name, str(expr)) for name, expr in below.columns] == [("item", "item % 10"), ("_1", "item")]
    assert isinstance(found.node, nodes.Aggregate)
    assert [aggregation.columns for aggregation in found.node.aggregations] == [("_1",), ("item",)]


def test_a_result_may_carry_the_name_of_a_column() -> None:
    assert types(bids.aggregate(price=ew.max("price"))) == {"price": "double"}
    assert types(bids.group_by("item").agg(price=ew.avg("item"))) == {"item": "int64", "price": "double"}


def test_groups_without_aggregates_are_their_keys() -> None:
    grouped = bids.group_by("item", cheap=col("price") < 5)
    assert isinstance(grouped, GroupBy)
    assert types(grouped.agg()) == {"item": "int64", "cheap": "bool"}


def test_partition_gives_one_substream_per_value() -> None:
    one, none, rest = bids.partition("item", [1, None, 2])
    assert [str(each).splitlines()[0] for each in (one, none, rest)] == [
        "Filter item = 1",
        "Filter item IS NULL",
        "Filter item = 2",
    ]
    (even,) = bids.partition(col("item") % 2, [0])
    assert str(even).startswith("Filter item % 2 = 0")


# -- windows and lifetimes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (bids.range(10), nodes.TimeWindow(bids.node, 10)),
        (bids.range("10 minutes", slide="1 minute"), nodes.TimeWindow(bids.node, 600_000, 60_000)),
        (bids.range(INF), nodes.TimeWindow(bids.node, INF)),
        (bids.now(), nodes.TimeWindow(bids.node, 1)),
        (bids.unbounded(), nodes.TimeWindow(bids.node, INF)),
        (bids.rows(5, slide=2, partition_by="item"), nodes.RowsWindow(bids.node, 5, 2, ("item",))),
        (bids.rows(5, partition_by=["item", "bidder"]), nodes.RowsWindow(bids.node, 5, 1, ("item", "bidder"))),
        (bids.granularity("1 s"), nodes.Granularity(bids.node, 1000)),
        (bids.istream(), nodes.RelationToStream(bids.node, "istream")),
        (bids.dstream(), nodes.RelationToStream(bids.node, "dstream")),
        (bids.rstream(), nodes.RelationToStream(bids.node, "rstream")),
        (bids.split("1 s"), nodes.Split(bids.node, 1000)),
        (bids.coalesce(), nodes.Coalesce(bids.node)),
        (bids.coalesce("1 s"), nodes.Coalesce(bids.node, 1000)),
        (bids.lifetime("1 s", shift=5, length="2 s"), nodes.AlterLifetime(bids.node, 1000, 5, 2000)),
        (bids.inserts(), nodes.AlterLifetime(bids.node, 1, 0, INF)),
        (bids.deletes(), nodes.Deletes(bids.node)),
        (bids.union(bids), nodes.Union(bids.node, bids.node)),
        (bids.distinct(), nodes.Distinct(bids.node)),
        (bids.difference(bids), nodes.SetOperation(bids.node, bids.node, "difference")),
        (bids.intersect(bids), nodes.SetOperation(bids.node, bids.node, "intersect")),
        (bids.max_union(bids), nodes.SetOperation(bids.node, bids.node, "max_union")),
        (bids.strict_difference(bids), nodes.SetOperation(bids.node, bids.node, "strict_difference")),
        (bids.product(items), nodes.Join(bids.node, items.node)),
    ],
)
def test_methods_build_one_node(stream: Stream, expected: nodes.Node) -> None:
    assert type(stream.node) is type(expected)
    assert vars_of(stream.node) == vars_of(expected)


def vars_of(node: nodes.Node) -> dict[str, Any]:
    return {field.name: getattr(node, field.name) for field in fields(node)}


def test_except_is_a_strict_difference_without_duplicates() -> None:
    assert bids.except_(bids).explain().splitlines()[:2] == ["Distinct", "└─ Strict difference"]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: source("", {"a": "int64"}), ["a source needs a name"]),
        (lambda: source("x", ["a"]), ["mapping of names to types"]),
        (lambda: source("x", {"a": "intt"}), ["unknown type 'intt'"]),
        (lambda: bids.where(col("pric") > 5), ["unknown column 'pric'", "'price'"]),
        (lambda: bids.where(col("price") + 5), ["a filter needs a condition", "double"]),
        (lambda: bids.where("price > 5"), ["where() takes a condition", "col('price') > 5"]),
        (lambda: bids.select("pric"), ["unknown column 'pric' in select()", "'price'"]),
        (lambda: bids.select(col("price") + 1), ["name=expression", "price + 1"]),
        (lambda: bids.select("item", item=1), ["item is there more than once"]),
        (lambda: bids.rename(pric="x"), ["'pric' in rename()"]),
        (lambda: bids.rename(price="item"), ["item is there more than once"]),
        (lambda: bids.drop("pric"), ["'pric' in drop()"]),
        (lambda: bids.union(items), ["union needs the same column types"]),
        (lambda: bids.union(bids.node), ["union needs another stream"]),
        (lambda: bids.join(items), ["on=… or where=…", "product()"]),
        (lambda: bids.join(items, on="name"), ["'name' in the left side"]),
        (lambda: bids.join(items, on={"bidder": "item"}), ["one type", "bidder string", "item int64"]),
        (lambda: bids.join(items, on={"bidder": "item"}, how="right"), ["bidder string on the left"]),
        (lambda: bids.join(items, on="item", how="outer"), ["how='outer'", "full"]),
        (lambda: bids.join(items, where=col("price") + 1), ["a join condition must be true or false"]),
        (lambda: bids.join(items, where="price = price"), ["join(where=…) takes a condition"]),
        (lambda: bids.join(items, on="item", where=col("nme") == "x"), ["'nme'", "'name'"]),
        (lambda: bids.group_by(), ["group_by() needs a key", "aggregate()"]),
        (lambda: bids.group_by("itm"), ["'itm' in group_by()", "'item'"]),
        (lambda: bids.group_by(col("item") + 1), ["name=expression"]),
        (lambda: bids.aggregate(), ["at least one aggregate"]),
        (lambda: bids.group_by("item").agg(n=col("price")), ["n=<price> is no aggregate", "ew.sum"]),
        (lambda: bids.group_by("item").agg(item=ew.count()), ["item is there more than once"]),
        (lambda: bids.group_by("item").agg(n=ew.sum("bidder")), ["sum(bidder) needs numbers"]),
        (lambda: bids.group_by("item").agg(n=ew.sum(function("lower", col("price")))), ["needs text"]),
        (lambda: bids.range(0), ["at least one tick"]),
        (lambda: bids.range("10 parsecs"), ["unknown time unit 'parsecs'"]),
        (lambda: bids.range(1.5), ["whole number of ticks"]),
        (lambda: bids.rows(0), ["at least 1"]),
        (lambda: bids.rows(5, partition_by="itm"), ["'itm' in PARTITION BY"]),
        (lambda: bids.range(5).lifetime(), [".coalesce()"]),
        (lambda: bids.distinct().deletes(), [".coalesce()"]),
    ],
)
def test_wrong_queries_are_refused_when_built(build: Callable[[], Any], parts: list[str]) -> None:
    with pytest.raises(QueryError) as error:
        build()
    for part in parts:
        assert part in str(error.value)


# -- immutability and text ---------------------------------------------------------------------------------------------


def test_streams_are_immutable_and_shared() -> None:
    before = bids.explain()
    cheap = bids.where(col("price") < 5)
    cheap.select("item")
    assert bids.explain() == before
    assert cheap.node.inputs == (bids.node,)
    with pytest.raises(AttributeError):
        bids.node = cheap.node  # type: ignore[misc]


def test_the_plan_reads_from_the_result_down() -> None:
    hot = (
        bids.where(col("price") > 2.5)
        .range("10 minutes", slide="1 minute")
        .group_by("item")
        .agg(total=ew.sum("price"), n=ew.count())
    )
    query = hot.join(items.unbounded(), on="item", how="left").istream()
    assert str(query) == "\n".join(
        [
            "Istream",
            "└─ Select item, total, n, name, price",
            "   └─ Left join on item",
            "      ├─ Aggregate by item: total = sum(price), n = count(*)",
            "      │  └─ Window range 600000 slide 60000",
            "      │     └─ Filter price > 2.5",
            "      │        └─ Source bids (item int64, price double, bidder string)",
            "      └─ Window unbounded",
            "         └─ Source items (item int64, name string, price double)",
        ]
    )
    assert repr(hot) == "<Stream (item int64, total double, n int64)>"


def test_a_shared_step_is_written_out_once() -> None:
    shared = bids.where(col("price") > 2.5)
    assert shared.union(shared).explain().splitlines() == [
        "Union",
        "├─ Filter price > 2.5  (step 1)",
        "│  └─ Source bids (item int64, price double, bidder string)",
        "└─ (step 1 again)",
    ]


@pytest.mark.parametrize(
    ("stream", "first_line"),
    [
        (bids.rows(5, 2, "item"), "Window rows 5 slide 2 per item"),
        (bids.granularity(60), "Granularity 60"),
        (bids.split(7), "Split into 7"),
        (bids.coalesce(9), "Coalesce up to 9"),
        (bids.coalesce(), "Coalesce"),
        (bids.inserts(), "Lifetime from vs to ∞"),
        (bids.lifetime(10, shift=-3, length=20), "Lifetime from vs rounded down to 10 - 3 to start + 20"),
        (bids.lifetime(shift=4), "Lifetime from vs + 4 to ve + 4"),
        (bids.deletes(), "Deletes"),
        (bids.max_union(bids), "Max union"),
        (bids.product(items), "Product"),
        (bids.join(items, where=col("price") > 1, how="anti"), "Anti-join where price > 1"),
        (bids.join(items, on={"bidder": "name"}, how="full"), "Full join on bidder = name"),
        (
            bids.aggregate(n=ew.count(), d=ew.count_distinct("item")),
            "Aggregate: n = count(*), d = count(distinct item)",
        ),
        (bids.select("item", twice=col("price") * 2), "Select item, twice = price * 2"),
        (source("x", {"a": "int64"}, insert_only=True), "Source x (a int64), inserts only"),
    ],
)
def test_every_step_has_a_line(stream: Stream, first_line: str) -> None:
    assert stream.explain().splitlines()[0] == first_line
