"""Where plans are cut, and what may stay below the first exchange."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.plan.explain import explain_stages
from everwhen.plan.stages.feed_window import HopWindow, SlidingWindow
from everwhen.plan.stages.model import StagePlan, Trait
from everwhen.plan.stages.stages import cut

S = ew.source("S", {"k": "string", "x": "int64"})
T = ew.source("T", {"k": "string", "x": "int64"})
c = ew.col


def staged(query: Stream, native: bool = True, **traits: Trait) -> StagePlan:
    return cut({"out": query.node}, traits, lambda expr, schema: native)


def spread(plan: StagePlan) -> list[list[tuple[str, ...] | None]]:
    """How each stage's inputs are spread."""
    return [[stream.by for stream in stage.inputs] for stage in plan.stages]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (S.group_by("k").agg(n=ew.count()), [[("k",)]]),
        (S.distinct(), [[("k", "x")]]),
        (S.difference(T), [[("k", "x"), ("k", "x")]]),
        (S.join(T, on="k"), [[("k",), ("k",)]]),
        (S.rows(2, partition_by=["k"]), [[("k",)]]),
        (S.rows(2), [[()]]),
        (S.aggregate(m=ew.median("x")), [[()]]),
        (S.join(T, where=c("x") < c("x_right")), [[("k", "x"), None]]),
        (S.join(T, where=c("x") < c("x_right"), how="full"), [[(), ()]]),
        # the groups of a finer grouping lie together already
        (S.group_by("k", "x").agg(n=ew.count()).group_by("k").agg(m=ew.max("n")), [[("k",)]]),
        # another key: rows must cross
        (S.group_by("k").agg(n=ew.count()).group_by("n").agg(m=ew.count()), [[("k",)], [("n",)]]),
        (S.join(T, on="k").group_by("x").agg(n=ew.count()), [[("k",), ("k",)], [("x",)]]),
        # the key is gone from the answer: equal rows may lie apart, and the sink must see them together
        (S.group_by("k").agg(t=ew.sum("x")).select("t"), [[("k",)], [("t",)]]),
        # two phases
        (S.aggregate(n=ew.count()), [[("k", "x")], [()]]),
        # a source joins later than what was computed from it
        (
            S.join(S.group_by("k").agg(n=ew.count()).select(m=c("n")), on={"x": "m"}),
            [[("k",)], [("x",), ("n",)]],
        ),
    ],
)
def test_rows_lie_together_where_they_must(query: Stream, expected: list[list[tuple[str, ...] | None]]) -> None:
    assert spread(staged(query)) == expected


REACH = "WITH RECURSIVE reach(s, n) AS (SELECT s, s FROM Node UNION SELECT reach.s, b FROM reach JOIN Link ON n = a) "
NODE, LINK = ew.source("Node", {"s": "string"}), ew.source("Link", {"a": "string", "b": "string"})


@pytest.mark.parametrize(
    ("query", "expected", "words"),
    [
        (
            "SELECT * FROM reach",
            [[("s",), None]],
            "loop reach hashed by s, which it keeps from round to round; Link copied to every partition",
        ),
        # what reads the loop needs other rows together: they cross behind it
        (
            "SELECT n, COUNT(*) AS c FROM reach GROUP BY n",
            [[("s",), None], [("n",)]],
            "loop reach hashed by s, which it keeps from round to round; Link copied to every partition",
        ),
        # all rows in one place: the loop itself is still spread
        ("SELECT MEDIAN(s) AS m FROM reach", [[("s",), None], [()]], "loop reach hashed by s"),
        ("SELECT s, COUNT(*) AS c FROM reach GROUP BY s", [[("s",), None]], "loop reach hashed by s"),
    ],
)
def test_a_loop_that_keeps_a_column_is_hashed_by_it(
    query: str, expected: list[list[tuple[str, ...] | None]], words: str
) -> None:
    plan = staged(ew.sql(REACH + query, NODE, LINK))
    assert spread(plan) == expected
    assert words in explain_stages(plan)


def test_what_a_loop_joins_by_the_kept_column_is_hashed_alike() -> None:
    loop = ew.fixpoint(S, lambda r: r.join(T, on="k").select("k", x=c("x_right")))
    assert spread(staged(loop)) == [[("k",), ("k",)]]
    assert staged(loop).stages[0].loops == ("loop r hashed by k, which it keeps from round to round; T hashed alike",)
    # two joins, by the kept column and by another one: the second needs copies
    both = ew.fixpoint(
        S,
        lambda r: (
            r.join(T, on="k").select("k", x=c("x_right")).join(S.select(y=c("x")), on={"x": "y"}).select("k", "x")
        ),
    )
    assert sorted(spread(staged(both))[0], key=str) == [("k",), ("k",), None]


def test_a_branch_that_begins_rows_is_hashed_as_the_base_is() -> None:
    def step(r: Stream) -> Stream:
        return T.union(r.join(LINK, on={"k": "a"}).select("k", x=c("x") + 1))

    assert sorted(spread(staged(ew.fixpoint(S, step)))[0], key=str) == [("a",), ("k",), ("k",)]


def test_a_loop_that_keeps_nothing_runs_in_one_partition() -> None:
    swapped = ew.fixpoint(LINK, lambda r: r.select(a=c("b"), b=c("a")))
    plan = staged(swapped)
    assert spread(plan) == [[()]]
    assert plan.stages[0].loops == ("loop r in one partition: it keeps no column from round to round",)
    assert spread(staged(swapped.group_by("a").agg(n=ew.count()))) == [[()], [("a",)]]


def test_rounds_across_exchanges_pass_the_stages_between_the_joins_and_the_turn() -> None:
    far = ew.fixpoint(
        NODE.select(n=c("s")), lambda r: r.join(LINK, on={"n": "a"}).select(n=c("b")), name="far", across=True
    )
    plan = staged(far)
    (loop,) = plan.loops
    assert (loop.name, loop.first, loop.last) == ("far", 1, 2)
    assert [stage.loop for stage in plan.stages] == [0, 0, None]
    assert plan.stages[1].returns == loop.streams and len(loop.streams) == 1
    (back,) = loop.streams
    assert plan.stream(back).by == ("n",) and plan.stream(back).returning
    text = explain_stages(plan)
    assert "loop far across exchanges, as asked for: a round is a job over stages 1 to 2" in text
    assert f"back to the beginning of the round: {back}" in text
    assert not cut({"out": far.node}, {}, lambda expr, schema: True, across=False).loops


def test_both_sides_of_a_union_are_hashed_alike() -> None:
    groups = S.group_by("k").agg(x=ew.max("x"))
    assert spread(staged(groups.union(T.group_by("k").agg(x=ew.max("x"))).distinct())) == [[("k",), ("k",)]]
    (first, second) = spread(staged(groups.union(T).distinct()))
    assert first == [("k",)] and sorted(second, key=str) == [("k", "x"), ("k", "x")]


def test_filters_and_projections_belong_to_the_feed_as_far_as_they_are_native() -> None:
    query = S.where(c("x") > 1).select("k", y=c("x") * 2).group_by("k").agg(t=ew.sum("y"))
    (stream,) = staged(query).stages[0].inputs
    assert stream.feed is not None and isinstance(stream.feed.node, n.Map)
    (stream,) = staged(query, native=False).stages[0].inputs
    assert stream.feed is not None and isinstance(stream.feed.node, n.Source)


def test_a_key_that_only_we_can_compute_costs_a_stage() -> None:
    query = S.select(y=c("x") * 2).group_by("y").agg(n=ew.count())
    assert len(staged(query).stages) == 1
    assert spread(staged(query, native=False)) == [[("k", "x")], [("y",)]]


def test_rows_are_merged_early_only_where_nothing_is_taken_back() -> None:
    query = S.range(60, slide=10).group_by("k").agg(t=ew.sum("x"), a=ew.avg("x"))
    (stream,) = staged(query, S=Trait(insert_only=True, chronons=True)).stages[0].inputs
    assert stream.feed is not None
    assert stream.form == "segments" and stream.feed.window == SlidingWindow(60, 10)
    assert stream.feed.partial is not None and [lane.function for lane in stream.feed.partial.lanes] == ["sum", "count"]
    for trait in (Trait(), Trait(insert_only=True), Trait(chronons=True)):
        (stream,) = staged(query, S=trait).stages[0].inputs
        assert stream.form == "elements" and stream.feed is not None and stream.feed.partial is None


def test_rows_of_one_window_of_tumble_are_merged_early() -> None:
    text = "SELECT k, window_start, COUNT(*) AS n, SUM(x) AS t FROM TABLE(TUMBLE(TABLE S, 60)) GROUP BY k, window_start"
    query = ew.sql(text, S)
    (stream,) = staged(query, S=Trait(insert_only=True, chronons=True)).stages[0].inputs
    assert stream.feed is not None and stream.feed.window == HopWindow(60, 0, 60)
    assert stream.form == "events" and stream.by == ("k",)
    assert stream.feed.partial is not None and stream.schema.names == ("k", "count", "sum_x")
    for trait in (Trait(), Trait(insert_only=True), Trait(chronons=True), Trait(True, True, promising=True)):
        (stream,) = staged(query, S=trait).stages[0].inputs
        assert stream.form == "elements"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT window_start, COUNT(*) AS n FROM W GROUP BY window_start",
        "SELECT k, MEDIAN(x) AS m FROM W GROUP BY k, window_start",
        "SELECT k, MAX(window_end) AS m FROM W GROUP BY k, window_start",
        "SELECT k || 'a' AS j, COUNT(*) AS n FROM W GROUP BY k || 'a', window_start",
    ],
    ids=["no key of the rows", "no partial form", "an aggregate of the window", "a computed key"],
)
def test_what_is_not_merged_early_per_window(text: str) -> None:
    query = ew.sql(text.replace("W GROUP", "TABLE(TUMBLE(TABLE S, 60)) GROUP"), S)
    plan = staged(query, S=Trait(insert_only=True, chronons=True))
    assert all(stream.feed is None or stream.feed.window is None for stage in plan.stages for stream in stage.inputs)


def test_a_median_is_not_merged_early() -> None:
    query = S.range(60).group_by("k").agg(m=ew.median("x"))
    (stream,) = staged(query, S=Trait(True, True)).stages[0].inputs
    assert stream.feed is not None and stream.feed.partial is None and stream.feed.window == SlidingWindow(60, 1)


def test_queries_share_what_they_read() -> None:
    totals = S.group_by("k").agg(t=ew.sum("x"))
    plan = cut({"a": totals.node, "b": totals.where(c("t") > 1).node}, {}, lambda expr, schema: True)
    assert len(plan.stages) == 1 and len(plan.stages[0].inputs) == 1
    assert set(plan.stages[0].queries) == {"a", "b"}


def test_an_answer_that_is_ready_early_crosses_to_the_last_stage() -> None:
    totals = S.group_by("k").agg(t=ew.sum("x"))
    plan = cut({"a": totals.node, "b": totals.aggregate(m=ew.max("t")).node}, {}, lambda expr, schema: True)
    assert len(plan.stages) == 2
    assert not plan.stages[0].queries and set(plan.stages[1].queries) == {"a", "b"}


def test_what_meets_only_a_sink_may_leave_its_end_open() -> None:
    """As in one process, the operator that faces the sink says the piece open now without an end."""
    from everwhen.testing import stream_from_table
    from parity.stage_runner import Partitions

    totals = S.group_by("k").agg(t=ew.sum("x")).select("t")
    assert staged(totals).stages[0].facing == {"@1"}
    assert staged(totals.distinct()).stages[0].facing == frozenset()
    run = Partitions(totals.node, 2, "current")
    batch = stream_from_table("vs | ve | k | x\n1 | 5 | a | 2", S.schema).batch()
    assert [str(element) for element in run.push({"S": batch})] == ["insert [1, ∞) t=2"]
