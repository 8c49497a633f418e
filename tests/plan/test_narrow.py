"""Plans carry only the columns that are needed, and mean the same."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Map, Source, walk
from everwhen.plan.stages.prune_columns import narrow
from everwhen.reference.evaluation import evaluate
from everwhen.testing import stream_from_table

S = ew.source("S", {"k": "string", "x": "int64", "y": "int64", "z": "string"})
T = ew.source("T", {"k": "string", "x": "int64", "w": "int64"})
c = ew.col


def read_columns(query: Stream) -> dict[str, set[str]]:
    """Which columns of each source go further than its first projection."""
    found: dict[str, set[str]] = {}
    nodes = walk(narrow(query.node))
    for node in nodes:
        if isinstance(node, Source):
            users = [user for user in nodes if node in user.inputs]
            for user in users:
                names = set(user.schema.names) if isinstance(user, Map) else set(node.schema.names)
                found[node.name] = found.get(node.name, set()) | names
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (S.group_by("k").agg(t=ew.sum("x")), {"S": {"k", "x"}}),
        (S.range(9).where(c("y") > 1).group_by("k").agg(n=ew.count()), {"S": {"k", "y"}}),
        (S.aggregate(n=ew.count()), {"S": {"k"}}),
        (S.distinct(), {"S": {"k", "x", "y", "z"}}),
        (S.rows(2).aggregate(n=ew.count()), {"S": {"k", "x", "y", "z"}}),
        (S.join(T, on="k").group_by("z").agg(t=ew.sum("w")), {"S": {"k", "z"}, "T": {"k", "w"}}),
        # without the left x the right one would be called x and not x_right: nothing is left out
        (S.join(T, on="k").group_by("z").agg(t=ew.sum("x_right")), {"S": {"k", "x", "y", "z"}, "T": {"k", "x", "w"}}),
    ],
)
def test_only_what_is_needed_is_read(query: Stream, expected: dict[str, set[str]]) -> None:
    assert read_columns(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        S.where(c("y") > 1).group_by("k").agg(n=ew.count(), t=ew.sum("x")),
        S.aggregate(n=ew.count()),
        S.join(T, on="k").group_by("z").agg(t=ew.sum("w"), u=ew.sum("x_right")),
        S.join(T, on="k", how="left").select("z", "w"),
        S.join(T, on="k", where=c("x") < c("w"), how="semi").select("z"),
        S.join(T, on="k", how="anti").select("y"),
        S.select("k", "x").union(T.select("k", "x")).select("x"),
        S.rows(1, partition_by=["k"]).select("z"),
    ],
)
def test_the_answer_stays_the_same(query: Stream) -> None:
    s = stream_from_table(
        """
        vs | ve | k | x | y | z
        1  | 5  | a | 1 | 2 | p
        2  | 7  | a | 3 | 0 | q
        3  | 4  | b | 2 | 2 | p
        3  | 9  | b | 2 | 5 | q
        """,
        S.schema,
    )
    t = stream_from_table(
        """
        vs | ve | k | x | w
        2  | 6  | a | 4 | 2
        3  | 8  | c | 1 | 1
        """,
        T.schema,
    )
    from everwhen.testing import history_of

    inputs = {"S": history_of(s), "T": history_of(t)}
    narrowed = narrow(query.node)
    assert narrowed.schema == query.node.schema
    for instant in range(12):
        assert evaluate(narrowed, inputs).at(instant) == evaluate(query.node, inputs).at(instant)
