"""Which columns of an answer tell the partition that it comes from."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra.builder import Stream
from everwhen.plan.stages.lineage import lain_by
from everwhen.plan.stages.model import Trait
from everwhen.plan.stages.stages import cut

S = ew.source("S", {"k": "string", "x": "int64"})
T = ew.source("T", {"k": "string", "x": "int64"})
c = ew.col


def own(query: Stream) -> tuple[str, ...] | None:
    """Of the answer in the last stage."""
    promising = Trait(promising=True)
    stage = cut({"out": query.node}, {"S": promising, "T": promising}, lambda expr, schema: True).stages[-1]
    return lain_by(stage.queries["out"], {stream.name: stream.by for stream in stage.inputs})


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (S.group_by("k").agg(n=ew.count()), ("k",)),
        (S.where(c("x") > 1).range(5).group_by("k").agg(n=ew.count()), ("k",)),
        (S.group_by("k").agg(n=ew.count()).select("n", name=c("k")), ("name",)),
        (S.join(T, on="k"), ("k",)),
        (S.select("x", "k").join(T, on={"k": "k"}).select("k_right", b=c("k")), ("b",)),
        (S.join(T, on="k", how="left"), ("k",)),
        (S.join(T, on="k", how="semi"), ("k",)),
        (S.join(T, where=c("x") < c("x_right")), ("k", "x")),
        (S.difference(T), ("k", "x")),
        (S.union(T).distinct(), ("k", "x")),
        (S.rows(2, partition_by=["k"]), ("k",)),
        # all rows are in one partition, which every partition's word must tell
        (S.aggregate(m=ew.median("x")), None),
        (S.rows(2), None),
        # the left columns of a row without a partner are nulls, so it may lie elsewhere
        (S.join(T, on="k", how="full").where(c("x") > 0), None),
        # an aggregate that has the name of a column is another one
        (S.group_by("k").agg(x=ew.count()).group_by("x").agg(m=ew.count()), ("x",)),
    ],
)
def test_the_columns_by_which_rows_were_spread_are_followed(query: Stream, expected: tuple[str, ...] | None) -> None:
    found = own(query)
    if expected is None and found is not None:  # brought together anew, by whole rows
        assert found == query.schema.names
    else:
        assert found == expected


def test_a_source_that_promises_is_fed_whole() -> None:
    query = S.where(c("x") > 1).select("k").group_by("k").agg(n=ew.count())
    (stream,) = cut({"out": query.node}, {"S": Trait(True, True, promising=True)}, lambda e, s: True).stages[0].inputs
    assert stream.form == "elements" and stream.schema == S.schema and stream.by == ("k",)
