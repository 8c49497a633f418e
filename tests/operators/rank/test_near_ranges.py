"""Frames of a range: what is said of rows around a change alone is what is said of all, and by definition so, for
numbers that are rounded, that exceed 64 bits, and that are none; and how few rows that are."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.nodes import Ordering, Over
from everwhen.algebra.ranks.over import SHIFTS, Frame, OverFunction
from everwhen.core.time import INF
from everwhen.operators.rank import over
from everwhen.operators.rank.over import OverOperator
from everwhen.reference.order import Row, canonical_row
from everwhen.reference.ranks.frames import framed
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.rank.contents import LAST, add, come, nothing, random_change
from operators.stepping import Said, Segment, Stepped, codec_of

MOST = 2**63 - 1
NAN, INFINITE = math.nan, math.inf


class Kind(NamedTuple):
    """Values of a column to order by, and bounds of ranges over them."""

    type_: pa.DataType
    values: Sequence[Any]
    bounds: Sequence[float]


KINDS = {
    "whole numbers": Kind(pa.int64(), (*range(12), *range(0, 24, 2), None), (-4, -2, -1, 0, 1, 3)),
    "large numbers": Kind(
        pa.int64(), (-MOST - 1, -MOST, 3 - MOST, -(2**61), -1, 0, 1, 2**61, MOST - 3, MOST - 1, MOST, None),
        (-(2**61), -3, -1, 0, 1, 4, 2**61),
    ),
    "floats": Kind(pa.float64(), [x / 4 for x in range(9)] + [NAN, INFINITE, -INFINITE, None], (-1.5, -0.25, 0, 0.5)),
    "rounded": Kind(
        pa.float64(), [*(x / 10 for x in range(12)), *(2.0**53 + x for x in range(0, 8, 2)), 1.7e308, INFINITE],
        (-0.3, -0.1, -1, 0, 0.1, 0.2, 1, 3),
    ),
    "timestamps": Kind(
        pa.timestamp("ms"), [datetime(2024, 2, 28) + timedelta(hours=x) for x in range(24)] + [None],
        (-7_200_000, -3_600_000, 0, 3_600_000),
    ),
    "dates": Kind(pa.date32(), [date(2024, 2, 20) + timedelta(days=x) for x in range(16)] + [None], (-3, -1, 0, 1)),
    "texts": Kind(pa.string(), ("", "a", "ab", "b", None), (0,)),
    "decimals": Kind(pa.decimal128(9, 2), [Decimal(x) / 4 for x in range(8)] + [None], (0,)),
}  # fmt: skip


def schema_of(kind: Kind) -> dict[str, pa.DataType]:
    return {"k": pa.string(), "o": kind.type_, "x": pa.int64(), "s": pa.string()}


def node_of(kind: Kind, functions: Sequence[OverFunction], *order: Ordering) -> Over:
    source = ew.source("S", schema_of(kind))
    return Over(source.node, ("k",), order or (Ordering("o"),), tuple(functions))


def stepped(node: Over, kind: Kind, share: int | None = None) -> Stepped:
    """An operator that takes near rows alone (share 0), all rows (a large share), or as it sees fit."""
    pool = Interner()
    source = codec_of(schema_of(kind), pool)

    def make() -> OverOperator:
        operator = OverOperator(node, source, RowCodec(node.schema, pool))
        if share is not None:
            operator._kept.share = share  # type: ignore[attr-defined]
        return operator

    return Stepped(make, source)


def random_function(rng: random.Random, at: int, kind: Kind, mixed: bool) -> OverFunction:
    """One over a range; if they are mixed also one over a few rows."""
    if mixed and rng.random() < 0.4:
        if rng.random() < 0.5:
            return OverFunction(f"o{at}", rng.choice(SHIFTS), "x", places=rng.choice((0, 1, 2)))
        return OverFunction(f"o{at}", "sum", "x", Frame("rows", -1, rng.choice((0, 1))))
    start, end = sorted(rng.choice(kind.bounds) for _ in range(2))
    name = rng.choice(("sum", "sum", "count", "avg", "min", "max", "first_value", "last_value"))
    columns = ("x",) if name in ("sum", "avg") else ("x", "o", "s")
    return OverFunction(f"o{at}", name, rng.choice(columns), Frame("range", start, end))


def random_node(rng: random.Random, kind: Kind) -> Over:
    mixed = rng.random() < 0.2
    functions = [random_function(rng, at, kind, mixed) for at in range(rng.choice((1, 1, 2)))]
    order = [Ordering("o", rng.random() < 0.5, rng.random() < 0.5)]
    if not any(any((each.frame.start, each.frame.end)) for each in functions if each.frame and each.column) and mixed:
        order.append(Ordering("s", rng.random() < 0.5))
    return node_of(kind, functions, *order)


def canonical(said: Said) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, weight in said.items():
        found[canonical_row(row)] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_rows_around_a_change_say_what_all_rows_say(name: str, seed: int) -> None:
    """After every epoch, for some changes of two keys at once, among rows that stay, that leave, and that are equal;
    and a snapshot goes on the same."""
    rng, kind = random.Random(f"{name} {seed}"), KINDS[name]
    node = random_node(rng, kind)

    def row_of(rng: random.Random) -> Row:
        return rng.choice("aaab"), rng.choice(kind.values), rng.choice((None, *range(9))), rng.choice("st")

    near, whole, free = stepped(node, kind, 0), stepped(node, kind, 1 << 40), stepped(node, kind)
    content, answer = nothing(), nothing()
    stays = rng.choice((0.0, 0.5, 1.0))
    batch = []
    for _ in range(rng.choice((12, 24, 40))):
        hi = LAST + 1 if rng.random() < stays else rng.randrange(1, LAST + 2)
        batch.append(come(content, 0, hi, 1, row_of(rng)))
    for _ in range(10):
        said = near.step(batch)
        assert canonical(said) == canonical(whole.step(batch)) == canonical(free.step(batch))
        add(answer, said)
        for t in rng.sample(range(LAST + 1), 4):
            assert +answer[t] == framed(node, +content[t]), (t, batch, node)
        if rng.random() < 0.2:
            near.restart()
        batch = [random_change(rng, content, row_of) for _ in range(rng.choice((1, 1, 2, 4)))]


@pytest.mark.parametrize(("stands", "comes", "start", "end"), [(2, 0, -1, 0), (2, 4, 0, 1)])
def test_a_sum_that_is_rounded_to_a_value_has_it_in_its_frame(stands: int, comes: int, start: int, end: int) -> None:
    """Neighbours among such floats are 2 apart, so one more or less is rounded; from the other side it is not."""
    kind = KINDS["rounded"]
    node = node_of(kind, [OverFunction("n", "count", None, Frame("range", start, end))])
    near = stepped(node, kind, 0)
    row, change = ("k", 2.0**53 + stands, 1, "s"), ("k", 2.0**53 + comes, 1, "s")
    assert near.step([(0, 9, 1, *row)]) == {(0, 9, *row, 1): 1}
    said = near.step([(0, 9, 1, *change)])
    assert said == {(0, 9, *row, 1): -1, (0, 9, *row, 2): 1, (0, 9, *change, 1): 1}


WHOLE = KINDS["whole numbers"]
SUM = node_of(WHOLE, [OverFunction("sum", "sum", "x", Frame("range", -10, 0))])


def test_a_sum_of_rows_that_no_frame_has_all_of_does_not_exceed() -> None:
    """0 is told of a change of 5, and 9 is not; that in its frame they exceed 64 bits is none's concern."""
    rows: list[Segment] = [(0, 9, 1, "k", 0, 7, "s"), (0, 9, 1, "k", 4, -5, "s"), (0, 9, 1, "k", 14, MOST, "s")]
    near, whole = stepped(SUM, WHOLE, 0), stepped(SUM, WHOLE, 1 << 40)
    assert near.step(rows) == whole.step(rows)
    change: list[Segment] = [(2, 4, 1, "k", -6, 1, "s")]
    assert near.step(change) == whole.step(change)


def walked(live: int, size: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Along how many rows a step walks for so many rows that come by value, among others 10 apart that stay."""
    operator = stepped(SUM, WHOLE)
    operator.step([(0, INF, 1, "k", 10 * at, 1, "s") for at in range(live)])
    met = 0

    def counted(*args: Any) -> Any:
        nonlocal met
        found, rows = framed_loop(*args)
        met += rows
        return found, rows

    framed_loop = over.framed
    with monkeypatch.context() as patch:
        patch.setattr(over, "framed", counted)
        for t in range(40):
            first = 10 * live // 2 + 1000 * t + 5
            operator.step([(t, INF, 1, "k", first + at, 1, "s") for at in range(size)])
    return met / 40


def test_a_step_walks_along_as_many_rows_however_many_live(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (walked(live, 1, monkeypatch) for live in (10_000, 20_000))
    assert few == many == 2 * 2 + 1, "one row on each side, before and after, and the row itself"


def test_rows_around_several_changes_are_walked_along_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert walked(10_000, 5, monkeypatch) == 2 * 2 + 5
