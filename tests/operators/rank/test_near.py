"""Frames of a few rows: what is said of near rows alone is what is said of all, and by definition so; and how few rows
that are."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.nodes import Ordering, Over
from everwhen.algebra.ranks.over import Frame, OverFunction
from everwhen.core.time import INF
from everwhen.errors import EvaluationError
from everwhen.operators.rank import over
from everwhen.operators.rank.over import OverOperator
from everwhen.reference.ranks.frames import framed
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.rank.contents import LAST, Row, add, come, nothing, random_change
from operators.stepping import Segment, Stepped, codec_of

S = ew.source("S", {"k": "string", "x": "int64", "s": "string"})


def node_of(*functions: OverFunction, falling: bool = False) -> Over:
    return Over(S.node, ("k",), (Ordering("x", falling),), functions)


def stepped(node: Over, share: int | None = None) -> Stepped:
    """An operator that takes near rows alone (share 0), all rows (a large share), or as it sees fit."""
    pool = Interner()
    source = codec_of({"k": pa.string(), "x": pa.int64(), "s": pa.string()}, pool)

    def make() -> OverOperator:
        operator = OverOperator(node, source, RowCodec(node.schema, pool))
        if share is not None:
            operator._kept.share = share  # type: ignore[attr-defined]
        return operator

    return Stepped(make, source)


def random_node(rng: random.Random) -> Over:
    functions = []
    for at in range(rng.choice((1, 1, 2))):
        function = rng.choice(("lag", "lead", "sum", "count", "max", "first_value", "last_value"))
        column = "s" if function == "last_value" else "x"
        if function in ("lag", "lead"):
            functions.append(OverFunction(f"o{at}", function, column, places=rng.choice((0, 1, 1, 2))))
        else:
            start, end = sorted(rng.choice((-2, -1, 0, 1, 2)) for _ in range(2))
            functions.append(OverFunction(f"o{at}", function, column, Frame("rows", start, end)))
    return node_of(*functions, falling=rng.random() < 0.5)


def random_row(rng: random.Random) -> Row:
    return rng.choice("aaab"), rng.randrange(9), rng.choice("st")


@pytest.mark.parametrize("seed", range(24))
def test_near_rows_say_what_all_rows_say(seed: int) -> None:
    """After every epoch, for some changes of two keys at once, among rows that stay, that leave, and that are equal."""
    rng = random.Random(seed)
    node = random_node(rng)
    near, whole, free = stepped(node, 0), stepped(node, 1 << 40), stepped(node)
    content, answer = nothing(), nothing()
    stays = rng.choice((0.0, 0.5, 1.0))
    begin = []
    for _ in range(rng.choice((12, 30, 50))):
        hi = LAST + 1 if rng.random() < stays else rng.randrange(1, LAST + 2)
        begin.append(come(content, 0, hi, 1, random_row(rng)))
    batch, promise = begin, 0
    for _ in range(12):
        said = near.step(batch, ctis=[promise])
        assert said == whole.step(batch, ctis=[promise]) == free.step(batch, ctis=[promise])
        add(answer, said)
        for t in range(LAST + 1):
            assert +answer[t] == framed(node, +content[t]), (t, batch, node)
        if rng.random() < 0.2:
            near.restart()
        batch = [random_change(rng, content, random_row) for _ in range(rng.choice((1, 1, 2, 4)))]


M = 2**63 - 1
SUM = node_of(OverFunction("o", "sum", "x", Frame("rows", -1, 1)))
ORDERED = Over(S.node, ("k",), (Ordering("s"),), (OverFunction("o", "sum", "x", Frame("rows", -1, 1)),))


def test_a_sum_of_rows_that_are_no_neighbours_does_not_exceed() -> None:
    """Of the rows beside `a`, `d` is not near; `c` and `e` are, at different instants, and are walked together."""
    rows = [(0, 9, 1, "k", 0, "b"), (0, 9, 1, "k", M, "c"), (0, 9, 1, "k", -M, "d"), (0, 10, 1, "k", M, "e")]
    near, whole = stepped(ORDERED, 0), stepped(ORDERED, 1 << 40)
    assert near.step(rows) == whole.step(rows)
    assert near.step([(0, 10, 1, "k", 1 - M, "a")]) == whole.step([(0, 10, 1, "k", 1 - M, "a")])
    with pytest.raises(EvaluationError, match="exceeds 64 bits"):
        near.step([(3, 4, 1, "k", 1, "f")])


def walked(live: int, stay: bool, monkeypatch: pytest.MonkeyPatch) -> float:
    """Along how many rows a step walks for one row that comes, among so many."""
    rng = random.Random(live)
    operator = stepped(node_of(OverFunction("o", "lag", "x")))

    def segment(t: int) -> Segment:
        return t, INF if stay else t + live, 1, "k", rng.randrange(10**9), "s"

    operator.step([segment(t) for t in range(live)])
    met = 0

    def counted(*args: Any) -> Any:
        nonlocal met
        found, rows = framed_loop(*args)
        met += rows
        return found, rows

    framed_loop = over.framed
    with monkeypatch.context() as patch:
        patch.setattr(over, "framed", counted)
        for t in range(live, live + 40):
            operator.step([segment(t)], ctis=[t])
    return met / 40


def test_a_step_walks_along_as_many_rows_however_many_live(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (walked(live, True, monkeypatch) for live in (500, 4_000))
    assert few == many == 2 * 4 + 1, "two rows on each side, before and after, and the row itself"


def test_where_rows_leave_one_after_the_other_few_more_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest rows that are alive change over the span: as often as a record is broken among random numbers."""
    few, many = (walked(live, False, monkeypatch) for live in (500, 4_000))
    assert many < 1.6 * few < 120
