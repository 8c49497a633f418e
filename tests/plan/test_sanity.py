"""Plans whose state nothing can bound are named: the operator, what grows, the remedy; all others pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.demo.nexmark import queries as nexmark
from everwhen.engine.local import LocalRuntime
from everwhen.errors import QueryError
from everwhen.plan.sanity.bounded import Unbounded, require_bounded, unbounded
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import batch_of
from plans import STAGED

COLUMNS = {"k": "int64", "x": "int64"}
S = ew.source("S", COLUMNS, chronons=True)
T = ew.source("T", COLUMNS)
FIXED = ew.source("F", COLUMNS, kind="constant")
DATED = ew.source("P", COLUMNS, kind="temporal")
VARYING = ew.source("V", COLUMNS, kind="varying")
Q = ew.Stream
col = ew.col


def found(stream: Q) -> tuple[Unbounded, ...]:
    return unbounded(stream.node)


def fatal(stream: Q) -> list[str]:
    return [entry.operator for entry in found(stream) if entry.fatal]


def ever() -> Q:
    return S.unbounded()


FATAL: dict[str, tuple[Callable[[], Q], str, str]] = {
    "inner join, left": (lambda: ever().join(T, on={"k": "k"}), "Join on k", "its left side"),
    "inner join, right": (lambda: T.join(ever(), on={"k": "k"}), "Join on k", "its right side"),
    "theta-join": (lambda: ever().join(T, where=col("x") < col("x_right")), "Join where", "its left side"),
    "product": (lambda: T.product(S.inserts()), "Product", "its right side"),
    "join of a varying relation": (lambda: ever().join(VARYING, on={"k": "k"}), "Join on k", "its left side"),
    "semi-join, left": (lambda: ever().join(T, on="k", how="semi"), "Semi-join", "its left side"),
    "semi-join, right": (lambda: T.join(ever(), on="k", how="semi"), "Semi-join", "its right side"),
    "semi-join of a relation": (lambda: FIXED.join(ever(), on="k", how="semi"), "Semi-join", "partner of its right"),
    "anti-join, left": (lambda: ever().join(T, on="k", how="anti"), "Anti-join", "its left side"),
    "anti-join with a relation": (lambda: ever().join(FIXED, on="k", how="anti"), "Anti-join", "its left side"),
    "anti-join, right": (lambda: T.join(ever(), on="k", how="anti"), "Anti-join", "its right side"),
    "left join": (lambda: ever().join(FIXED, on={"k": "k"}, how="left"), "Left join", "its left side"),
    "full join": (lambda: FIXED.join(ever(), on="k", how="full"), "Full join", "its right side"),
    "groups": (lambda: ever().group_by("k").agg(c=ew.count()), "Aggregate by k", "every k of 'Window unbounded'"),
    "distinct": (lambda: ever().select("k").distinct(), "Distinct", "every different row"),
    "limit": (lambda: ever().limit(1, "x", "k"), "Rank row_number up to 1 by k", "lets others move up"),
    "frames": (lambda: ever().over("x", c=ew.frames.count()), "Over in the order of x", "a neighbour of others"),
    "difference": (lambda: ever().difference(T), "Difference", "counts every row"),
    "difference, right": (lambda: T.difference(ever()), "Difference", "counts every row"),
    "intersection": (lambda: T.intersect(ever()), "Intersect", "counts every row"),
    "max": (lambda: ever().aggregate(m=ew.max("x"), c=ew.count()), "Aggregate", "max(x) keeps every row"),
    "median": (lambda: ever().aggregate(m=ew.median("x")), "Aggregate", "median(x) keeps every row"),
    "istream": (lambda: ever().istream(), "Istream", "istream keeps every row"),
    "dstream": (lambda: ever().dstream(), "Dstream", "dstream keeps every row"),
    "rstream": (lambda: ever().rstream(), "Rstream", "rstream keeps every row"),
    "coalesce": (lambda: ever().coalesce(), "Coalesce", "may be prolonged"),
    "rows": (lambda: ever().rows(3), "Window rows 3", "every instant"),
    "split": (lambda: ever().split(2), "Split into 2", "every instant"),
    "deletes": (lambda: T.deletes().join(T, on={"k": "k"}), "Join on k", "'Deletes' over T"),
    "length without end": (
        lambda: T.lifetime(hop=5, length=ew.INF).group_by("k").agg(c=ew.count()), "Aggregate by k", "Lifetime from"
    ),
    "a window of a window": (lambda: ever().range(5).distinct(), "Distinct", "'Window unbounded' over S"),
    "through a union": (lambda: T.union(ever()).distinct(), "Distinct", "'Window unbounded' over S"),
    "through two joins": (
        lambda: ever().join(S.inserts(), on={"k": "k"}).select("k").distinct(), "Distinct", "over S"
    ),
    "through a join with a relation": (
        lambda: ever().product(FIXED).select("x").distinct(), "Distinct", "'Window unbounded' over S"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FATAL)
def test_state_that_nothing_bounds_is_fatal(name: str) -> None:
    build, operator, why = FATAL[name]
    stream = build()
    entry = next(each for each in found(stream) if each.operator.startswith(operator))
    assert entry.fatal and why in entry.why
    assert "WINDOW(RANGE" in entry.remedy and "--allow-unbounded" in entry.remedy
    with pytest.raises(QueryError, match="grows without bound") as caught:
        require_bounded(stream.node)
    assert str(entry) in str(caught.value)
    assert entry in require_bounded(stream.node, allow=True)


FINE: dict[str, Callable[[], Q]] = {
    "no window": lambda: S.join(T, on={"k": "k"}).group_by("k").agg(c=ew.count()),
    "range": lambda: S.range(5).join(T.range("1 hour"), on={"k": "k"}),
    "an unbounded count": lambda: ever().aggregate(c=ew.count(), t=ew.sum("x"), a=ew.avg("x"), s=ew.stddev("x")),
    "a join with an unbounded count": lambda: T.join(ever().aggregate(c=ew.count()), where=col("x") < col("c")),
    "all rows beside a relation, then one": lambda: ever().join(FIXED, on={"k": "k"}).aggregate(c=ew.count()),
    "a relation that lives for ever": lambda: FIXED.inserts().join(S, on={"k": "k"}).distinct(),
    "groups of a relation": lambda: FIXED.group_by("k").agg(c=ew.count()),
    "groups of a temporal relation": lambda: DATED.inserts().group_by("k").agg(m=ew.max("x")),
    "lifetimes ended again": lambda: S.inserts().lifetime(length=5).distinct(),
    "last rows": lambda: T.rows(5).group_by("k").agg(c=ew.count()),
    "changes of a window": lambda: S.range(10).istream().distinct(),
    "pairs end with one side": lambda: T.distinct().join(FIXED.inserts(), on={"k": "k"}).distinct(),
}


@pytest.mark.parametrize("name", FINE)
def test_bounded_plans_pass_without_a_word(name: str) -> None:
    assert found(FINE[name]()) == ()
    assert require_bounded(FINE[name]().node) == ()


@pytest.mark.parametrize("name", STAGED)
def test_the_parity_plans_are_not_refused(name: str) -> None:
    """Also those with windows that never end: what they feed keeps one row, or nothing."""
    assert not fatal(STAGED[name].build())


def test_some_parity_plans_have_lifetimes_that_never_end() -> None:
    """So that the test above is about something."""
    endless = [
        name
        for name, plan in STAGED.items()
        if any(
            isinstance(each, n.Deletes)
            or (isinstance(each, n.TimeWindow) and each.size == ew.INF)
            or (isinstance(each, n.AlterLifetime) and each.length == ew.INF)
            for each in n.walk(plan.build().node)
        )
    ]
    assert endless


@pytest.mark.parametrize("name", sorted(nexmark.QUERIES))
def test_the_nexmark_queries_are_bounded(name: str) -> None:
    query = nexmark.QUERIES[name]
    require_bounded((query() if callable(query) else query).node)


def test_partitions_are_warned_of_once() -> None:
    stream = T.rows(10, partition_by="k").group_by("k").agg(a=ew.avg("x"))
    (entry,) = found(stream)
    assert not entry.fatal and entry.operator == "Window rows 10 per k" and entry.line == 2
    assert "the last rows of every k" in entry.why
    assert require_bounded(stream.node) == (entry,)
    assert not found(FIXED.rows(10, partition_by="k"))


def test_an_answer_that_grows_is_warned_of() -> None:
    (entry,) = found(ever().where(col("x") > 1))
    assert not entry.fatal and entry.line == 1 and "the answer itself grows" in entry.why
    assert [each.fatal for each in found(ever().distinct())] == [True]


def test_all_fatal_places_are_named_in_the_order_of_the_plan() -> None:
    stream = ever().distinct().join(T, on={"k": "k"}).select("x").distinct()
    assert [(entry.line, entry.operator) for entry in found(stream)] == [(3, "Join on k"), (4, "Distinct")]


def test_the_text() -> None:
    with pytest.raises(QueryError) as caught:
        require_bounded(ever().group_by("k").agg(c=ew.count()).node)
    assert str(caught.value).splitlines() == [
        "the state of this query grows without bound:",
        "  Aggregate by k: c = count(*) (line 1 of the plan): it keeps every k of 'Window unbounded' over S: a group "
        "stays while it has a row. Remedy: give S a window that ends, such as WINDOW(RANGE 1 HOUR); or have "
        "punctuation from S about k, and declare it: S PUNCTUATE (GIVEN k); or run it all the same with "
        "--allow-unbounded",
    ]


# -- the claims about state are so -------------------------------------------------------------------------------------


def state_after(stream: Q, rounds: int) -> int:
    """What is kept after rounds of one new row on each stream, all promised; relations have five rows."""
    runtime = LocalRuntime(stream, emit="current")
    schema = S.schema
    relations = {name for name in ("F", "P") if name in runtime.inputs}
    for name in relations:
        rows = [Insert(0, ew.INF, {"k": i, "x": i}) for i in range(5)]
        runtime.push({name: batch_of([*rows, Cti(ew.INF)], schema, name)})
    for t in range(rounds):
        elements = [Insert(t, t + 1, {"k": t, "x": t}), Cti(t + 1)]
        runtime.push({name: batch_of(elements, schema, name) for name in runtime.inputs if name not in relations})
    return sum(o.operator.state_size().rows for o in runtime.plan.operators)


@pytest.mark.parametrize("name", [name for name in FATAL if name not in ("rows", "split", "rstream")])
def test_fatal_plans_do_grow(name: str) -> None:
    build, *_ = FATAL[name]
    few, many = state_after(build(), 12), state_after(build(), 60)
    assert many - few >= 40


@pytest.mark.parametrize("name", [name for name in FINE if "range" not in name])
def test_fine_plans_do_not_grow(name: str) -> None:
    few, many = state_after(FINE[name](), 30), state_after(FINE[name](), 60)
    assert many - few <= 2
