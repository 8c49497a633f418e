"""What ranks, frames and patterns have in common, stepped by hand: promises, snapshots, rows that go piece by piece."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.nodes import MatchRecognize, Node, Ordering, Over, Rank
from everwhen.algebra.ranks.over import OverFunction
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF
from everwhen.errors import StateError
from everwhen.operators.partitioned import PartitionedOperator
from everwhen.operators.pattern.match import MatchOperator
from everwhen.operators.rank.over import OverOperator
from everwhen.operators.rank.rank import RankOperator
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.stepping import Stepped, codec_of

col = ew.col
SOURCE = ew.source("S", {"k": "string", "x": "int64"})
RANK = Rank(SOURCE.node, ("k",), (Ordering("x"),), "row_number", 1)
OVER = Over(SOURCE.node, ("k",), (Ordering("x"),), (OverFunction("l", "lag", "k", default="none"),))
MATCH = SOURCE.match_recognize("A B", "x", "k", {"B": col("x") > 1}, {"b": ew.patterns.last("x")}).node
NODES = pytest.mark.parametrize("node", [RANK, OVER, MATCH], ids=["rank", "over", "match"])


def stepped(node: Node) -> Stepped:
    pool = Interner()
    source = codec_of({"k": pa.string(), "x": pa.int64()}, pool)

    def make() -> PartitionedOperator:
        codec = RowCodec(node.schema, pool)
        if isinstance(node, MatchRecognize):
            return MatchOperator(node, source, codec)
        if isinstance(node, Rank):
            return RankOperator(node, source, codec)
        assert isinstance(node, Over)
        return OverOperator(node, source, codec)

    return Stepped(make, source)


@NODES
def test_the_promise_is_the_input_s_and_frees_what_has_ended(node: Node) -> None:
    operator = stepped(node)
    operator.step([(0, 5, 1, "a", 2), (0, 9, 1, "a", 3), (2, INF, 1, "b", 3)], ctis=[2])
    assert (operator.rows, operator.frontier.time) == (3, 2)
    operator.step(ctis=[5])
    assert (operator.rows, operator.frontier.time) == (2, 5)
    operator.step(ctis=[5], promises=[[Punctuation.constants({"k": "b"})]])
    assert operator.rows == 1
    operator.step(ctis=[INF])
    assert operator.rows == 0


@NODES
def test_a_restored_operator_goes_on(node: Node) -> None:
    segments = [(0, 5, 1, "a", 2), (3, 9, 1, "a", 3)], [(1, 4, 1, "a", 0)], [(0, 5, -1, "a", 2)]
    whole, restarted = stepped(node), stepped(node)
    for batch in segments:
        assert whole.step(batch) == restarted.step(batch)
        restarted.restart()


@NODES
def test_a_state_that_no_operator_had_is_refused(node: Node) -> None:
    operator = stepped(node)
    operator.step([(0, 5, 1, "a", 2)])
    state = operator.operator.snapshot()
    state["hi"] = state["lo"]
    with pytest.raises(StateError, match="ends before it begins"):
        stepped(node).operator.restore(state)


@NODES
def test_rows_that_go_piece_by_piece_leave_nothing(node: Node) -> None:
    """One change of a batch takes all that another one has left of a row behind a cut."""
    operator = stepped(node)
    operator.step([(1, 8, 1, "a", 2), (1, 7, 1, "a", 2)])
    operator.step([(6, 8, -1, "a", 2), (6, 7, -1, "a", 2)])
    state = operator.operator.snapshot()
    assert list(zip(state["lo"].tolist(), state["hi"].tolist(), strict=True)) == [(1, 6), (1, 6)]
    operator.restart()
    operator.step([(1, 6, -2, "a", 2)])
    assert operator.rows == 0
