"""What ranks and frames have in common, stepped by hand: what a change brings, and what stands."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.nodes import Ordering, Over, Rank
from everwhen.algebra.ranks.over import OverFunction
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Operator
from everwhen.operators.rank.over import OverOperator
from everwhen.operators.rank.rank import RankOperator
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.stepping import Stepped, codec_of, said

SOURCE = ew.source("S", {"k": "string", "x": "int64"})
RANK = Rank(SOURCE.node, ("k",), (Ordering("x"),), "row_number", 1)
OVER = Over(SOURCE.node, ("k",), (Ordering("x"),), (OverFunction("l", "lag", "k", default="none"),))


def stepped(node: Rank | Over) -> Stepped:
    pool = Interner()
    source = codec_of({"k": pa.string(), "x": pa.int64()}, pool)

    def make() -> Operator:
        codec = RowCodec(node.schema, pool)
        return RankOperator(node, source, codec) if isinstance(node, Rank) else OverOperator(node, source, codec)

    return Stepped(make, source)


def test_only_the_difference_is_said() -> None:
    operator = stepped(RANK)
    assert operator.step([(0, 9, 1, "a", 2), (0, 9, 1, "b", 5)]) == {(0, 9, "a", 2): 1, (0, 9, "b", 5): 1}
    assert operator.step([(3, 6, 1, "a", 1)]) == {(3, 6, "a", 2): -1, (3, 6, "a", 1): 1}
    assert operator.step([(0, 9, 1, "a", 7)]) == {}
    assert operator.step([(4, 6, -1, "a", 1)]) == {(4, 6, "a", 1): -1, (4, 6, "a", 2): 1}


def test_neighbours_are_said_anew() -> None:
    operator = stepped(OVER)
    assert operator.step([(0, 9, 1, "a", 2)]) == {(0, 9, "a", 2, "none"): 1}
    assert operator.step([(3, 6, 1, "a", 1)]) == {
        (3, 6, "a", 1, "none"): 1,
        (3, 6, "a", 2, "none"): -1,
        (3, 6, "a", 2, "a"): 1,
    }


@pytest.mark.parametrize("node", [RANK, OVER], ids=["rank", "over"])
def test_what_stands_is_what_was_said(node: Rank | Over) -> None:
    operator = stepped(node)
    first = operator.step([(0, 5, 1, "a", 2), (3, 9, 1, "a", 3), (2, INF, 1, "b", 3)], ctis=[1])
    found = operator.operator.standing([Frontier(1)])
    assert found is not None
    since, standing = found
    assert since == 1
    assert said(standing) == {(max(lo, 1), hi, *row): n for (lo, hi, *row), n in first.items()}


def test_before_anything_came_nothing_stands() -> None:
    found = stepped(RANK).operator.standing([Frontier(NEVER)])
    assert found is not None and not len(found[1])
