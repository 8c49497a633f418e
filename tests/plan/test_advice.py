"""What advice says of punctuation is so: the ways that it names free the state of a run, and nothing less does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pytest

import everwhen as ew
from everwhen.core.punctuation import Punctuation, Range
from everwhen.engine.local import LocalRuntime
from everwhen.errors import QueryError
from everwhen.plan.sanity.advice import Advice, advise
from everwhen.plan.sanity.bounded import require_bounded, unbounded
from everwhen.plan.sanity.needs import Way
from everwhen.plan.sanity.wording import example
from everwhen.punctuation.api import read_match
from everwhen.punctuation.schemes import Scheme
from everwhen.stream.element import Element, Insert, Punct
from everwhen.stream.element_batch import batch_of

COLUMNS = {"k": "int64", "x": "int64"}
S, T = (ew.source(name, COLUMNS, chronons=True, insert_only=True) for name in "ST")
FIXED = ew.source("F", COLUMNS, kind="constant")
col = ew.col
Said = dict[str, set[str]]


def ever(stream: ew.Stream = S) -> ew.Stream:
    return stream.unbounded()


def said(way: Way) -> Said:
    found: Said = {}
    for say in way:
        found.setdefault(say.name, set()).update(say.columns)
    return found


def ways(advice: Advice, operator: str, kept: int = 0) -> list[Said]:
    (entry,) = [each for each in advice.operators if each.operator.startswith(operator)]
    return [said(way) for way in entry.kept[kept].need.ways]


JOINED = ever().join(ever(T), on={"k": "k"})
"""Columns k, x, k_right, x_right."""


@pytest.mark.parametrize(
    ("stream", "operator", "kept", "expected"),
    [
        (ever().group_by("k").agg(c=ew.count()), "Aggregate", 0, [{"S": {"k"}}]),
        (ever().group_by("k", "x").agg(c=ew.count()), "Aggregate", 0, [{"S": {"k", "x"}}]),
        (ever().distinct(), "Distinct", 0, [{"S": {"k", "x"}}]),
        (ever().select(a=col("k"), b=col("x") + 1).distinct(), "Distinct", 0, [{"S": {"k"}}]),
        (ever().select(b=col("x") + 1).distinct(), "Distinct", 0, []),
        (ever().where(col("x") > 3).group_by("k").agg(c=ew.count()), "Aggregate", 0, [{"S": {"k"}}]),
        (ever().aggregate(c=ew.max("x")), "Aggregate", 0, []),
        (JOINED, "Join", 0, [{"T": {"k"}}]),
        (JOINED, "Join", 1, [{"S": {"k"}}]),
        (JOINED.group_by("k_right").agg(c=ew.count()), "Aggregate", 0, [{"S": {"k"}, "T": {"k"}}]),
        (JOINED.group_by("x").agg(c=ew.count()), "Aggregate", 0, [{"S": {"x"}, "T": {"k"}}]),
        (ever().join(ever(T), on={"k": "x"}), "Join", 0, [{"T": {"x"}}]),
        (ever().join(FIXED, on={"k": "k"}).group_by("k").agg(c=ew.count()), "Aggregate", 0, [{"S": {"k"}}]),
        (ever().join(ever(T), where=col("x") < col("x_right")), "Join where", 0, []),
        (ever().union(ever(T)).distinct(), "Distinct", 0, [{"S": {"k", "x"}, "T": {"k", "x"}}]),
        (ever().union(ever(T).select("x", "k")).group_by("k").agg(c=ew.count()), "Agg", 0, [{"S": {"k"}, "T": {"x"}}]),
        (ever().union(ever().select("x", "k")).distinct(), "Distinct", 0, [{"S": {"k"} | {"x"}}]),
        (ever().union(ever().select("x", "k")).group_by("k").agg(c=ew.count()), "Aggregate", 0, [{"S": {"k", "x"}}]),
        (ever().difference(ever(T)), "Difference", 0, [{"S": {"k", "x"}, "T": {"k", "x"}}]),
        (ever().join(ever(T), on="k", how="semi"), "Semi", 0, [{"T": {"k"}}]),
        (ever().join(ever(T), on="k", how="semi"), "Semi", 1, [{"S": {"k"}, "T": {"k"}}]),
        (ever().join(ever(T), on="k", how="anti"), "Anti", 0, [{"S": {"k", "x"}, "T": {"k"}}]),
        (ever().range(3).rows(2, partition_by="k"), "Window rows", 0, [{"S": {"k"}}]),
        (ever().coalesce(), "Coalesce", 0, [{"S": {"k", "x"}}]),
        (ever().sort("x", "k"), "Sort", 0, [{"S": {"k", "x"}}]),
        (FIXED.group_by("k").agg(c=ew.count()), "Aggregate", 0, [{}]),
        (ever().group_by("k").agg(c=ew.count()).group_by("c").agg(n=ew.count()), "Aggregate by c", 0, []),
    ],
)  # fmt: skip
def test_the_ways(stream: ew.Stream, operator: str, kept: int, expected: list[Said]) -> None:
    assert ways(advise(stream.node), operator, kept) == expected


def test_a_join_can_be_freed_through_either_side() -> None:
    found = ways(advise(JOINED.group_by("k", "x", "x_right").agg(c=ew.count()).node), "Aggregate")
    assert {"S": {"k", "x"}, "T": {"k"}} in found or {"S": {"k", "x"}, "T": {"k", "x"}} in found
    assert all(set(way) == {"S", "T"} for way in found)


# -- the engine agrees -------------------------------------------------------------------------------------------------

RUNS: dict[str, Callable[[], ew.Stream]] = {
    "groups": lambda: ever().group_by("k").agg(c=ew.count(), m=ew.max("x")),
    "distinct": lambda: ever().distinct(),
    "projected": lambda: ever().select("k").distinct(),
    "join": lambda: JOINED,
    "join, groups": lambda: JOINED.group_by("k_right").agg(c=ew.sum("x")),
    "join with a residual": lambda: ever().join(ever(T), on={"k": "k"}, where=col("x") < col("x_right")),
    "groups by another column": lambda: JOINED.group_by("x").agg(c=ew.count()),
    "union": lambda: ever().union(ever(T)).distinct(),
    "difference": lambda: ever().difference(ever(T)),
    "intersect": lambda: ever().intersect(ever(T)),
    "semi": lambda: ever().join(ever(T), on="k", how="semi"),
    "anti": lambda: ever().join(ever(T), on="k", how="anti"),
    "left": lambda: ever().join(ever(T), on={"k": "k"}, how="left"),
    "coalesce": lambda: ever().coalesce(),
    "istream": lambda: ever().istream(),
    "sort": lambda: ever().sort("k", "x"),
}


def kept(stream: ew.Stream, rows: Mapping[str, Sequence[Element]], emit: str) -> int:
    """How many rows are kept after these; guards keep none of sources that correct nothing."""
    runtime = LocalRuntime(stream, emit)
    runtime.push({name: batch_of(some, S.schema) for name, some in rows.items()})
    return runtime.state_size().rows


@pytest.mark.parametrize("emit", ["final", "current"])
@pytest.mark.parametrize("name", RUNS)
def test_a_way_frees_everything_and_a_part_of_it_does_not(name: str, emit: str) -> None:
    stream = RUNS[name]()
    if name == "sort" and emit != "final":
        return
    advice = advise(stream.node)
    asked: Said = {}
    for each in advice.operators:
        for part in each.kept:
            for source, columns in said(part.need.ways[0]).items():
                if not asked.setdefault(source, set()) & columns:
                    asked[source].add(min(columns))
    values = [(k, x) for k in range(3) for x in (k, k + 1)]
    rows: dict[str, list[Element]] = {
        source: [Insert(t, t + 1, {"k": k, "x": x}) for t, (k, x) in enumerate(values)] for source in asked
    }
    every = {source: [*rows[source], *_promises(columns, name == "sort", values)] for source, columns in asked.items()}
    assert kept(stream, rows, emit) > 0
    assert kept(stream, every, emit) == 0
    for silent in asked:
        assert kept(stream, {**every, silent: rows[silent]}, emit) > 0
    schemes: dict[str, list[Scheme]] = {
        source: [ew.punctuation.given(column) for column in columns] for source, columns in asked.items()
    }
    assert advise(stream.node, schemes).missing == ()
    for silent in asked:
        assert advise(stream.node, {**schemes, silent: []}).missing


def _promises(columns: set[str], ordered: bool, values: Sequence[tuple[int, int]]) -> list[Element]:
    if ordered:
        return [Punct(Punctuation({column: Range(le=9)})) for column in columns]
    places = [(column, sorted(COLUMNS).index(column)) for column in sorted(columns)]
    return [
        Punct(Punctuation.constants({column: value}))
        for column, at in places
        for value in sorted({row[at] for row in values})
    ]


# -- what is declared --------------------------------------------------------------------------------------------------


def idle(stream: ew.Stream, **declared: Sequence[Scheme]) -> dict[str, str]:
    return {entry.declared: entry.why for entry in advise(stream.node, declared).idle}


def test_idle_schemes_and_why() -> None:
    groups = ever().group_by("k").agg(c=ew.count())
    assert (
        idle(
            groups,
            S=[
                ew.punctuation.sorted_by("k"),
                ew.punctuation.unique("k"),
                ew.punctuation.given("k"),
                ew.punctuation.clustered_by("k"),
            ],
        )
        == {}
    )
    found = idle(
        groups, S=[ew.punctuation.sorted_by("x"), ew.punctuation.unique("k", "x"), ew.punctuation.bounds("k", 0, 9)]
    )
    assert "goes no further than 'Aggregate by k: c = count(*)' (line 1): it groups by k" in found["SORTED BY x"]
    assert "whatever its x" in found["UNIQUE (k, x)"]
    assert "values that never come" in found["k BETWEEN 0 AND 9"]
    away = idle(ever().select("k").distinct(), S=[ew.punctuation.given("x")])
    assert "'Select k' (line 2): x is projected away" in away["GIVEN x"]
    computed = idle(ever().select(y=col("x") + 1).distinct(), S=[ew.punctuation.given("x")])
    assert "only used to compute" in computed["GIVEN x"]
    union = ever().union(ever(T)).group_by("k").agg(c=ew.count())
    assert "it also takes punctuation from T about k" in idle(union, S=[ew.punctuation.given("k")])["GIVEN k"]
    assert idle(union, S=[ew.punctuation.given("k")], T=[ew.punctuation.sorted_by("k")]) == {}


def test_a_complete_scheme_speaks_of_its_groups() -> None:
    groups = ever().group_by("k").agg(c=ew.count())
    assert idle(groups, S=[ew.punctuation.complete("k", "x", [1, 2])]) == {}
    two = ew.source("R", {"k": "int64", "x": "int64", "u": "string"}).unbounded().group_by("k").agg(c=ew.count())
    assert idle(two, R=[ew.punctuation.complete(["k", "x"], "u", ["a"])]) == {}
    assert "whatever its x" in next(
        iter(idle(two, R=[ew.punctuation.complete(["k", "x"], "u", ["a"], each=1)]).values())
    )


def test_keys_promise_nothing() -> None:
    keyed = ew.source("S", COLUMNS, keys=["k"]).unbounded().group_by("k").agg(c=ew.count())
    why = idle(keyed)["KEY (k)"]
    assert "promises nothing by itself" in why and "PUNCTUATE (UNIQUE (k)) would" in why
    assert "would" not in idle(ew.source("S", COLUMNS, keys=["x"]).group_by("k").agg(c=ew.count()))["KEY (x)"]


def test_a_sort_needs_its_beginning() -> None:
    up, down = ever().sort("k"), ever().sort("k", descending="k")
    assert (
        idle(up, S=[ew.punctuation.sorted_by("k")])
        == idle(down, S=[ew.punctuation.sorted_by("k", descending=True)])
        == {}
    )
    assert idle(up, S=[ew.punctuation.bounds("k", 0)]) == {}
    for stream, scheme in (
        (up, ew.punctuation.sorted_by("k", descending=True)),
        (down, ew.punctuation.sorted_by("k")),
        (up, ew.punctuation.unique("k")),
    ):
        assert list(idle(stream, S=[scheme])) == [str(scheme)]


def test_schemes_inside_the_plan_count() -> None:
    inside = ever().where(col("x") > 0).punctuate(ew.punctuation.sorted_by("k")).group_by("k").agg(c=ew.count())
    assert advise(inside.node).missing == () and advise(inside.node).idle == ()
    assert unbounded(inside.node) == ()
    vain = ever().where(col("x") > 0).punctuate(ew.punctuation.sorted_by("x")).group_by("k").agg(c=ew.count())
    assert [entry.source for entry in advise(vain.node).idle] == ["the stream below punctuate()"]


def test_an_unknown_source() -> None:
    with pytest.raises(QueryError, match="no source 'U'; it reads S"):
        advise(ever().distinct().node, {"U": [ew.punctuation.given("k")]})


@pytest.mark.parametrize(
    "type_", ["int64", "string", "float64", "bool", "date32", "timestamp[us]", "decimal(9, 2)", "binary"]
)
def test_examples_can_be_sent(type_: str) -> None:
    stream = ew.source("S", {"k": type_}).unbounded().distinct()
    advice = advise(stream.node)
    (way,) = advice.operators[0].kept[0].need.ways
    (say,) = way
    line = example(say)
    assert json.loads(line)["op"] == "punct"
    assert set(read_match(json.loads(line)["match"], stream.schema)) == {"k"}
    assert line in str(advice)


# -- sanity ------------------------------------------------------------------------------------------------------------

AUCTION = """CREATE STREAM Auction (item BIGINT, seller VARCHAR) {auction};
CREATE STREAM Bid (item BIGINT, inc BIGINT) {bid};
SELECT A.item, SUM(B.inc) AS price FROM Auction WINDOW(UNBOUNDED) A, Bid WINDOW(UNBOUNDED) B
WHERE A.item = B.item GROUP BY A.item"""


def auction(auction: str = "", bid: str = "") -> ew.Stream:
    return ew.sql(AUCTION.format(auction=auction, bid=bid))


def test_closed_auctions_are_bounded_by_what_is_declared() -> None:
    assert require_bounded(auction("PUNCTUATE (UNIQUE (item))", "PUNCTUATE (GIVEN item)").node) == ()
    assert require_bounded(auction("PUNCTUATE (GIVEN item)", "PUNCTUATE (GIVEN (item))").node) == ()
    with pytest.raises(QueryError) as caught:
        require_bounded(auction("PUNCTUATE (UNIQUE (item))").node)
    told = str(caught.value)
    assert "it keeps every row of its left side" in told and "right side" not in told
    assert "have punctuation from Bid about item, and declare it: Bid PUNCTUATE (GIVEN item); or run it" in told
    with pytest.raises(QueryError, match="Auction about item, and Bid about item"):
        require_bounded(auction().node)


def test_what_punctuation_cannot_bound_stays_refused() -> None:
    given = S.punctuate(ew.punctuation.given("k"), ew.punctuation.given("x")).unbounded()
    for stream in (given.rows(3), given.split(1), given.rstream(), given.aggregate(m=ew.max("x"))):
        with pytest.raises(QueryError, match="grows without bound"):
            require_bounded(stream.node)
    assert require_bounded(given.group_by("k").agg(m=ew.max("x")).node) == ()
    assert unbounded(given.node) == ()  # the answer is forgotten as it is promised
    assert [entry.fatal for entry in unbounded(ever().node)] == [False]


def test_without_punctuation_the_same_plan_grows() -> None:
    plan = auction("PUNCTUATE (UNIQUE (item))", "PUNCTUATE (GIVEN item)").node
    assert {entry.side for entry in unbounded(plan, punctuated=False)} == {"", "left", "right"}


def test_one_source_under_other_names() -> None:
    """`k = 7` is about k on one side of the union and about x on the other: only both together free a row."""
    turned = ever().union(ever().select("x", "k")).distinct()
    for entry in advise(turned.node).operators:
        (way,) = entry.kept[0].need.ways
        assert sorted(sorted(say.columns) for say in way) == [["k"], ["x"]]
    declared = ew.source("S", COLUMNS, chronons=True, insert_only=True).punctuate(ew.punctuation.given("k"))
    assert unbounded(declared.unbounded().union(declared.unbounded().select("x", "k")).distinct().node)
    runtime = LocalRuntime(turned, emit="final")
    rows: list[Element] = [Insert(0, 1, {"k": 1, "x": 2}), Punct(Punctuation.constants({"k": 1}))]
    runtime.push({"S": batch_of(rows, S.schema, "S")})
    assert runtime.state_size().rows > 0
    rest = [Punct(Punctuation.constants(each)) for each in ({"k": 2}, {"x": 1}, {"x": 2})]
    runtime.push({"S": batch_of(rest, S.schema, "S")})
    assert runtime.state_size().rows == 0
