"""Stream properties: Table 12.1 row by row, keys operator by operator, and everything derived checked on histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.properties import Properties
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.reference.evaluation import events
from everwhen.stream.history import History

COLUMNS = {"id": "int64", "k": "int64", "x": "int64"}
C = ew.source("C", COLUMNS, insert_only=True, chronons=True, keys="id", ordered=True)
D = ew.source("D", COLUMNS, chronons=True)
I = ew.source("I", COLUMNS, keys=["id"])  # noqa: E741 (intervals)
J = ew.source("J", COLUMNS, insert_only=True)
R = ew.source("R", COLUMNS, keys=[("id", "k")], kind="varying")
Q = ew.source("Q", COLUMNS, insert_only=True, ordered=True)
SCHEMA: Schema = C.schema
col = ew.col


def of(stream: ew.Stream) -> Properties:
    return properties(stream.node)


def keys(stream: ew.Stream) -> set[str]:
    """Keys as text, such as `id` or `id+k`; the empty one is `-`."""
    return {"+".join(sorted(key)) or "-" for key in of(stream).keys}


def lasting(stream: ew.Stream) -> set[str]:
    return {"+".join(sorted(key)) or "-" for key in of(stream).history_keys}


# -- Table 12.1: order of ends, and when the output is a chronon stream ------------------------------------------------

Build = Callable[[ew.Stream], ew.Stream]
ENDS: dict[str, tuple[Build, str]] = {
    "filter": (lambda s: s.where(col("x") > 1), "retains"),
    "map": (lambda s: s.select("id", y=col("x") + 1), "retains"),
    "union": (lambda s: s.union(s), "destroys"),
    "join": (lambda s: s.range(3).join(s.range(5), on="id"), "destroys"),
    "distinct": (lambda s: s.select("k").distinct(), "destroys"),
    "difference": (lambda s: s.range(3).difference(s.range(2)), "destroys"),
    "grouping": (lambda s: s.group_by("k").agg(n=ew.count()), "destroys"),
    "partitioned window": (lambda s: s.rows(2, partition_by="k"), "destroys"),
    "coalesce": (lambda s: s.select("k").coalesce(), "destroys"),
    "time window": (lambda s: s.range(4), "enforces"),
    "count window": (lambda s: s.rows(3), "enforces"),
    "aggregation": (lambda s: s.aggregate(n=ew.count()), "enforces"),
}


@pytest.mark.parametrize("row", ENDS)
def test_table_12_1_order_of_ends(row: str) -> None:
    build, effect = ENDS[row]
    with_order, without = of(build(C)).end_ordered, of(build(J)).end_ordered
    match effect:
        case "retains":
            assert with_order and not without
        case "destroys":
            # a union of chronon streams is one again, so there the order stays after all
            assert with_order is (row == "union") and not without
        case "enforces":
            assert with_order


def test_table_12_1_a_split_retains_the_order_of_ends_only_if_it_cuts_to_instants() -> None:
    """The table says that any split does; [0,4) and [2,10) in pieces of 3 are [0,3), [2,5), [3,4), …: 5 before 4."""
    assert of(C.split(3)).end_ordered  # nothing to cut
    assert of(J.split(1)).end_ordered
    assert of(C.range(4)).end_ordered and not of(C.range(4).split(3)).end_ordered


CHRONONS: dict[str, tuple[Callable[[], ew.Stream], Callable[[], ew.Stream]]] = {
    "filter": (lambda: D.where(col("x") > 1), lambda: J.where(col("x") > 1)),
    "map": (lambda: D.select("k"), lambda: J.select("k")),
    "split to one": (lambda: J.split(1), lambda: J.split(2)),
    "split of chronons": (lambda: D.split(3), lambda: J.split(3)),
    "union": (lambda: D.union(C), lambda: D.union(J)),
    "join, left": (lambda: D.join(J, on="k"), lambda: J.join(J, on="k")),
    "join, right": (lambda: J.join(D, on="k"), lambda: J.join(R, on="k")),
    "distinct": (lambda: D.distinct(), lambda: J.distinct()),
    "difference": (lambda: D.difference(J), lambda: J.difference(D)),
    "grouping": (lambda: D.group_by("k").agg(n=ew.count()), lambda: J.group_by("k").agg(n=ew.count())),
    "partitioned window": (lambda: D.split(1), lambda: D.rows(2, partition_by="k")),
    "coalesce": (lambda: D.coalesce(1), lambda: D.coalesce()),
    "time window": (lambda: D.now(), lambda: D.range(2)),
    "count window": (lambda: D.split(1), lambda: D.rows(2)),
    "aggregation": (lambda: D.aggregate(n=ew.count()), lambda: J.aggregate(n=ew.count())),
}


@pytest.mark.parametrize("row", CHRONONS)
def test_table_12_1_chronon_streams(row: str) -> None:
    yes, no = CHRONONS[row]
    assert of(yes()).chronon
    assert not of(no()).chronon


# -- keys --------------------------------------------------------------------------------------------------------------

LEFT = ew.source("L", {"id": "int64", "part": "int64", "v": "int64"}, keys="id")
RIGHT = ew.source("T", {"key": "int64", "sub": "int64", "w": "int64"}, chronons=True, keys=[("key", "sub")])
UNIQUE = ew.source("U", {"key": "int64", "w": "int64"}, keys="key")

KEYS: dict[str, tuple[Callable[[], ew.Stream], set[str], set[str]]] = {
    "stream": (lambda: C, {"id"}, {"id"}),
    "two keys": (lambda: ew.source("s", COLUMNS, keys=["id", ("k", "x"), ("id", "k")]), {"id", "k+x"}, {"id", "k+x"}),
    "varying relation": (lambda: R, {"id+k"}, set()),
    "temporal relation": (lambda: ew.source("r", COLUMNS, keys="id", kind="temporal"), {"id"}, set()),
    "constant relation": (lambda: ew.source("r", COLUMNS, keys="id", kind="constant"), {"id"}, {"id"}),
    "filter": (lambda: R.where(col("x") > 1), {"id+k"}, set()),
    "filter to a constant": (lambda: R.where((col("k") == 3) & (col("x") > 1)), {"id"}, set()),
    "filter to nulls": (lambda: R.where(col("k").is_null()), {"id"}, set()),
    "filter to one value each": (lambda: R.where((col("k") == 3) & (col("id") == 1)), {"-"}, set()),
    "filter by another column": (lambda: R.where(col("k") == col("x")), {"id+k", "id+x"}, set()),
    "filter by or": (lambda: R.where((col("k") == 3) | (col("k") == 4)), {"id+k"}, set()),
    "map that renames": (lambda: R.select(a=col("id"), b=col("id"), c=col("k")), {"a+c", "b+c"}, set()),
    "map that drops a part": (lambda: R.select("id", "x"), set(), set()),
    "map that computes": (lambda: C.select(id=col("id") + 1), set(), set()),
    "union": (lambda: C.union(C), set(), set()),
    "distinct": (lambda: J.distinct(), {"id+k+x"}, set()),
    "distinct of keyed": (lambda: I.distinct(), {"id"}, {"id"}),
    "difference": (lambda: I.difference(J), {"id"}, set()),
    "difference of chronons": (lambda: C.difference(J), {"id"}, {"id"}),
    "strict difference": (lambda: R.strict_difference(J), {"id+k"}, set()),
    "intersect": (lambda: J.intersect(R.select(a=col("k"), b=col("id"), c=col("x"))), {"id+k"}, set()),
    "max union of sets": (lambda: I.max_union(R), {"id+k+x"}, set()),
    "max union": (lambda: I.max_union(J), set(), set()),
    "groups": (lambda: J.group_by("k", "x").agg(n=ew.count()), {"k+x"}, set()),
    "groups of a key": (lambda: I.group_by("id", "k").agg(n=ew.count()), {"id"}, {"id"}),
    "one group": (lambda: J.aggregate(n=ew.count()), {"-"}, set()),
    "now": (lambda: R.now(), {"id+k"}, set()),
    "window over chronons": (lambda: C.range(5), {"id"}, {"id"}),
    "sliding window over chronons": (lambda: C.range(5, slide=3), {"id"}, {"id"}),
    "window over intervals": (lambda: I.range(5), set(), set()),
    "window over cut intervals": (lambda: I.split(1).range(5), set(), set()),
    "unbounded window": (lambda: C.unbounded(), {"id"}, {"id"}),
    "last row": (lambda: J.rows(1), {"-"}, set()),
    "last row of each": (lambda: J.rows(1, partition_by="k"), {"k"}, set()),
    "last rows of each": (lambda: J.rows(2, partition_by="k"), set(), set()),
    "rows of chronons": (lambda: C.rows(3), {"id"}, {"id"}),
    "granularity": (lambda: R.granularity(3), {"id+k"}, set()),
    "istream": (lambda: I.istream(), {"id"}, {"id"}),
    "istream of a set": (lambda: R.istream(), {"id+k+x"}, set()),
    "istream of a window": (lambda: C.select("k", "x").range(3).istream(), set(), set()),
    "dstream of a set": (lambda: R.dstream(), {"id+k+x"}, set()),
    "istream of a window of a set": (lambda: R.lifetime(length=1).range(3).istream(), {"id+k+x"}, set()),
    "dstream of rows": (lambda: R.lifetime(length=1).rows(2).dstream(), set(), set()),
    "rstream": (lambda: R.rstream(), {"id+k"}, set()),
    "coalesce": (lambda: I.coalesce(), {"id"}, {"id"}),
    "coalesce in pieces": (lambda: I.coalesce(3), {"id"}, set()),
    "lifetime": (lambda: I.lifetime(length=5), {"id"}, {"id"}),
    "lifetime of a relation": (lambda: R.lifetime(length=5), set(), set()),
    "lifetime of one tick": (lambda: R.lifetime(length=1), {"id+k+x"}, set()),
    "lifetime by hops": (lambda: R.lifetime(hop=5, length=1), set(), set()),
    "shifted relation": (lambda: R.lifetime(shift=5), {"id+k"}, set()),
    "deletes": (lambda: I.deletes(), {"id"}, {"id"}),
    "deletes of a relation": (lambda: R.deletes(), set(), set()),
    "product": (lambda: LEFT.product(RIGHT), {"id+key+sub"}, {"id+key+sub"}),
    "join on the right key": (lambda: LEFT.join(UNIQUE, on={"part": "key"}), {"id"}, {"id"}),
    "join on both keys": (lambda: LEFT.join(UNIQUE, on={"id": "key"}), {"id", "key"}, {"id", "key"}),
    "join on a part of the right key": (
        lambda: LEFT.join(RIGHT, on={"part": "key"}), {"id+sub"}, {"id+sub"}
    ),
    "join on what is no key": (lambda: LEFT.join(UNIQUE, on={"v": "w"}), {"id+key"}, {"id+key"}),
    "join of what has no key": (lambda: J.join(UNIQUE, on={"k": "key"}), set(), set()),
    "semi-join": (lambda: I.join(J, on="k", how="semi"), {"id"}, set()),
    "semi-join of chronons": (lambda: C.join(J, on="k", how="semi"), {"id"}, {"id"}),
    "anti-join": (lambda: R.join(J, on="k", how="anti"), {"id+k"}, set()),
    "left join": (lambda: LEFT.join(UNIQUE, on={"part": "key"}, how="left"), {"id"}, set()),
    "left join of chronons": (lambda: C.join(UNIQUE, on={"x": "key"}, how="left"), {"id"}, {"id"}),
    "left join, many": (lambda: LEFT.join(RIGHT, on={"part": "key"}, how="left"), {"id+sub"}, set()),
    "right join": (lambda: LEFT.join(UNIQUE, on={"id": "key"}, how="right"), {"key"}, set()),
    "full join": (lambda: LEFT.join(UNIQUE, on={"id": "key"}, how="full"), set(), set()),
    "product of single rows": (
        lambda: J.aggregate(n=ew.count()).product(J.aggregate(m=ew.count())), {"-"}, set()
    ),
    "product with a single row": (lambda: R.product(J.aggregate(m=ew.count())), {"id+k"}, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_keys(name: str) -> None:
    build, per_instant, ever = KEYS[name]
    assert keys(build()) == per_instant
    assert lasting(build()) == ever


def test_a_long_chain_of_joins_has_few_keys() -> None:
    chain = LEFT
    for i in range(8):
        other = ew.source(f"T{i}", {f"a{i}": "int64", f"b{i}": "int64"}, keys=[f"a{i}", f"b{i}"])
        chain = chain.join(other, on={"id": f"a{i}"})
    assert 1 <= len(of(chain).keys) <= 24


def test_constant_lifetimes() -> None:
    assert [of(s).lifetime for s in (C, C.range(5), C.range(6, slide=3), C.range(5, slide=3), C.unbounded())] == [
        1, 5, 6, None, INF
    ]  # fmt: skip
    assert [of(s).lifetime for s in (J, J.range(5), J.lifetime(length=7), J.inserts(), J.deletes())] == [
        None, None, 7, INF, INF
    ]  # fmt: skip
    assert [of(s).lifetime for s in (C.granularity(4), C.range(8).granularity(4), C.range(6).granularity(4))] == [
        4, 8, None
    ]  # fmt: skip
    assert of(C.range(4).union(D.range(4))).lifetime == 4
    assert of(C.range(4).union(D.range(5))).lifetime is None
    assert of(C.unbounded().join(D.unbounded(), on="k")).lifetime == INF
    assert of(J.join(D, on="k")).lifetime == 1


def test_nothing_is_taken_back() -> None:
    assert of(J.join(C, on="k").range(3)).insert_only  # monotone: order does not matter
    assert not of(J.aggregate(n=ew.count())).insert_only  # a late row changes an answer
    assert of(Q.aggregate(n=ew.count())).insert_only and of(Q.aggregate(n=ew.count())).ordered
    assert of(Q.group_by("k").agg(n=ew.count())).insert_only and not of(Q.group_by("k").agg(n=ew.count())).ordered
    assert not of(Q.difference(Q)).insert_only and not of(D.range(3)).insert_only


def test_in_words() -> None:
    assert of(C).words() == "insert-only, ordered, chronon, key(id)"
    assert of(C.range(5)).words() == "insert-only, ordered, lifetime 5, key(id)"
    assert of(J.aggregate(n=ew.count())).words() == "one row"
    assert of(J.rows(3)).words() == "ends in order"
    assert of(J.union(D)).words() == ""
    assert of(C.select("k", "x", "id").range(3).select("x", "k")).words() == "insert-only, ordered, lifetime 3"


def test_properties_are_remembered_on_the_node() -> None:
    stream = C.range(3)
    assert properties(stream.node) is properties(stream.node)
    assert stream.node.inputs == (C.node,)


# -- declarations ------------------------------------------------------------------------------------------------------


def test_a_key_names_columns_that_are_there() -> None:
    with pytest.raises(QueryError, match=r"unknown column 'idd' in the key \(idd\) of source 'S'; did you mean 'id'"):
        ew.source("S", COLUMNS, keys="idd")


def test_a_kind_of_source_is_one_that_there_is() -> None:
    with pytest.raises(QueryError, match="there are stream, constant, temporal, varying"):
        ew.source("S", COLUMNS, kind="table")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="lives for ever"):
        ew.source("S", COLUMNS, chronons=True, kind="constant")


# -- what is derived holds ---------------------------------------------------------------------------------------------


def _keyed(history: History, columns: list[int], ever: bool) -> History:
    """The history without events that break a key."""
    kept: dict[Any, int] = {}
    for (vs, ve, row), _ in sorted(history.multiset.items(), key=lambda item: item[0][:2]):
        same = [e for e in kept if all(e[2][i] == row[i] for i in columns)]
        if not any(ever or (e[0] < ve and vs < e[1]) for e in same):
            kept[vs, ve, row] = 1
    return History(history.schema, kept)


def _two_columns(history: History) -> History:
    return History(UNIQUE.schema, Counter((vs, ve, row[:2]) for vs, ve, row in history.multiset))


ROW = st.tuples(st.sampled_from([0, 1, 2, None]), st.sampled_from([0, 1, None]), st.sampled_from([0, 1]))


def _histories(longest: int) -> st.SearchStrategy[History]:
    """Few values and instants, so that rows meet, repeat and touch."""
    event = st.tuples(st.integers(-2, 5), st.integers(1, longest), ROW)
    return st.lists(event, max_size=7).map(
        lambda drawn: History(SCHEMA, dict(Counter((vs, vs + length, row) for vs, length, row in drawn)))
    )


ANY, TICKS = _histories(5), _histories(1)
INPUTS = st.fixed_dictionaries(
    {
        "C": TICKS.map(lambda h: _keyed(h, [0], True)),
        "D": TICKS,
        "I": ANY.map(lambda h: _keyed(h, [0], True)),
        "J": ANY,
        "R": ANY.map(lambda h: _keyed(h, [0, 1], False)),
        "L": ANY.map(lambda h: _keyed(h, [0], True)),
        "T": TICKS.map(lambda h: _keyed(h, [0, 1], True)),
        "U": ANY.map(lambda h: _keyed(h, [0], True)).map(_two_columns),
        "s": ANY.map(lambda h: _keyed(_keyed(h, [0], True), [1, 2], True)),
        "r": ANY.map(lambda h: _keyed(h, [0], True)),
    }
)
ALL = (C, D, I, J, R)
Step = Callable[[st.DrawFn, ew.Stream], ew.Stream]


def _some(draw: st.DrawFn, s: ew.Stream) -> list[str]:
    return draw(st.lists(st.sampled_from(s.schema.names), min_size=1, unique=True))


def _other(draw: st.DrawFn) -> ew.Stream:
    other = draw(st.sampled_from(ALL))
    change: Callable[[ew.Stream], ew.Stream] = draw(
        st.sampled_from([lambda s: s, lambda s: s.range(3), lambda s: s.distinct(), lambda s: s.istream()])
    )
    return change(other)


def _join(draw: st.DrawFn, s: ew.Stream) -> ew.Stream:
    how = draw(st.sampled_from(["inner", "inner", "semi", "anti", "left", "right", "full"]))
    other = _other(draw)
    pairs = draw(st.dictionaries(st.sampled_from(s.schema.names), st.sampled_from(["id", "k"]), min_size=1, max_size=2))
    joined = n.Join(s.node, other.node, tuple(pairs), tuple(pairs.values()), null_safe=draw(st.booleans()))
    if how == "right":
        return s.join(other, on=pairs, how="right")
    return ew.Stream(n.Join(s.node, other.node, joined.left_keys, joined.right_keys, None, how, joined.null_safe))


def _alter(draw: st.DrawFn, s: ew.Stream) -> ew.Stream:
    events = s if s.node.keeps_events else s.coalesce()
    if draw(st.integers(0, 4)) == 0:
        return events.deletes()
    hop, shift, length = draw(st.sampled_from([1, 1, 3])), draw(st.integers(-1, 2)), draw(st.sampled_from([None, 1, 4]))
    return events.lifetime(hop, shift, length)


def _condition(draw: st.DrawFn, s: ew.Stream) -> ew.Stream:
    a, b = draw(st.sampled_from(s.schema.names)), draw(st.sampled_from(s.schema.names))
    return s.where(draw(st.sampled_from([col(a) == 1, col(a) == col(b), col(a).is_null(), col(a) >= 0])))


STEPS: tuple[Step, ...] = (
    _condition,
    lambda draw, s: s.select(*_some(draw, s)),
    lambda draw, s: s.distinct(),
    _join,
    _join,
    _alter,
    lambda draw, s: s.group_by(*_some(draw, s)[:2]).agg(**{"_".join(("n", *s.schema.names)): ew.count()}),
    lambda draw, s: s.aggregate(number=ew.count()),
    lambda draw, s: s.range(draw(st.integers(1, 4)), slide=draw(st.sampled_from([1, 1, 2, 3]))),
    lambda draw, s: s.granularity(draw(st.integers(1, 3))),
    lambda draw, s: s.rows(draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2])), _some(draw, s)[:1]),
    lambda draw, s: s.rows(draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2]))),
    lambda draw, s: getattr(s, draw(st.sampled_from(["istream", "dstream", "rstream"])))(),
    lambda draw, s: s.split(draw(st.integers(1, 3))),
    lambda draw, s: s.coalesce(draw(st.sampled_from([None, 1, 2]))),
    lambda draw, s: getattr(s, draw(st.sampled_from(["union", "difference", "strict_difference", "intersect"])))(
        draw(st.sampled_from([s, s.distinct(), s.where(col(s.schema.names[0]) >= 1), s.range(2)]))
    ),
    lambda draw, s: s.max_union(draw(st.sampled_from([s.distinct(), s.granularity(2), s.where(lit_true())]))),
)
INFINITE = (n.RowsWindow, n.Deletes)


def lit_true() -> ew.Expr:
    return ew.lit(True)


def _endless(stream: ew.Stream) -> bool:
    """Whether lifetimes may have no end, over which windows of rows and cuts are not defined."""
    return any(isinstance(node, INFINITE) for node in n.walk(stream.node))


@st.composite
def plans(draw: st.DrawFn, last: Step) -> ew.Stream:
    """Up to two steps, then the one that is looked at, and perhaps another."""
    stream = draw(st.sampled_from(ALL))
    before = draw(st.lists(st.sampled_from(STEPS), max_size=2))
    for step in (*before, last, *draw(st.lists(st.sampled_from(STEPS), max_size=1))):
        found = step(draw, stream)
        needs_end = any(isinstance(node, n.RowsWindow | n.Split | n.Coalesce) for node in n.walk(found.node))
        if not (needs_end and _endless(stream)):
            stream = found
    return stream


def _agree(rows: Iterable[tuple[Any, ...]], places: list[int]) -> list[tuple[Any, ...]]:
    found = Counter(tuple(row[i] for i in places) for row in rows)
    return [values for values, count in found.items() if count > 1]


def assert_events(p: Properties, found: list[tuple[int, int, tuple[Any, ...]]], schema: Schema) -> None:
    lengths = {ve - vs if ve != INF else INF for vs, ve, _ in found}
    assert p.lifetime is None or lengths <= {p.lifetime}
    assert not p.chronon or lengths <= {1}
    if p.no_duplicates:
        assert max(Counter((vs, row) for vs, _, row in found).values(), default=0) <= 1
    if p.end_ordered:
        for vs, ve, _ in found:
            assert all(ve <= end for start, end, _ in found if start > vs)
    for key in p.history_keys:
        assert not _agree([row for _, _, row in found], [schema.index(c) for c in key]), key


@pytest.mark.parametrize("step", STEPS, ids=range(len(STEPS)))
@settings(max_examples=30, deadline=None)
@given(data=st.data(), inputs=INPUTS)
def test_derived_properties_hold(step: Step, data: st.DataObject, inputs: dict[str, History]) -> None:
    assert_holds(data.draw(plans(step)), inputs)


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=15, deadline=None)
@given(inputs=INPUTS)
def test_the_keys_of_the_table_hold(name: str, inputs: dict[str, History]) -> None:
    assert_holds(KEYS[name][0](), inputs)


def assert_holds(stream: ew.Stream, inputs: dict[str, History]) -> None:
    p, schema = of(stream), stream.schema
    logical = evaluate(stream.node, inputs)
    for t in range(-5, 24):
        rows = list(logical.at(t).elements())
        assert len(rows) <= 1 or not p.at_most_one
        for key in p.keys:
            assert not _agree(rows, [schema.index(column) for column in key]), (t, key)
    levels = [e for e in logical.levels(-6, 60)]
    for key in p.history_keys:
        again = _agree([row for _, _, row in levels], [schema.index(column) for column in key])
        assert not again, (key, again)
    if p.chronon and p.history_keys:
        assert {ve - vs for vs, ve, _ in levels} <= {1}
    if p.no_duplicates:
        assert max(Counter((vs, row) for vs, _, row in levels).values(), default=0) <= 1
    if stream.node.keeps_events:
        assert_events(p, events(stream.node, inputs), schema)
