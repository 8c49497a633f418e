"""Functions over frames against their definition, after every epoch, whatever comes late, is corrected, or goes."""

from __future__ import annotations

import random
from typing import Any

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Ordering, Over
from everwhen.algebra.ranks.over import AGGREGATES, FRAMED, SHIFTS, Frame, OverFunction
from everwhen.operators.rank.ordered_rows import OrderedRows
from operators.differential import Trial
from operators.rank.random_rows import SCHEMA, R, assert_right_after_every_epoch, in_epochs, random_history
from state_files import through_file

_ADDED = ("x", "f")


def random_function(rng: random.Random, at: int, order: tuple[Ordering, ...]) -> OverFunction:
    function = rng.choice((*FRAMED, *FRAMED, *SHIFTS, "ntile", "percent_rank", "cume_dist") if order else FRAMED)
    column: str | None = rng.choice(_ADDED if function in ("sum", "avg") else SCHEMA.names)
    name = f"o{at}"
    if function in SHIFTS:
        defaults: dict[str, Any] = {"k": "none", "x": 9, "f": 0.5, "d": None}
        default = defaults[column or ""] if rng.random() < 0.5 else None
        return OverFunction(name, function, column, places=rng.choice((0, 1, 2)), default=default)
    if function not in FRAMED:
        return OverFunction(name, function, places=rng.choice((1, 2, 3)))
    if function == "count" and rng.random() < 0.5:
        column = None
    return OverFunction(name, function, column, random_frame(rng, order) if order else None)


def random_frame(rng: random.Random, order: tuple[Ordering, ...]) -> Frame | None:
    unit = rng.choice((None, "rows", "rows", "range", "range"))
    if unit is None:
        return None
    bounded = unit == "rows" or (len(order) == 1 and order[0].column in _ADDED)
    bounds = sorted(rng.choice((-2, -1, 0, 1, 2)) if bounded else 0 for _ in range(2))
    start, end = (None if rng.random() < 0.3 else bound for bound in bounds)
    return Frame(unit, start, end)


def random_query(rng: random.Random) -> ew.Stream:
    columns = rng.sample(SCHEMA.names, rng.choice((0, 1, 1, 1, 2)))
    order = tuple(Ordering(name, rng.random() < 0.5, rng.random() < 0.5) for name in columns)
    partition = tuple(rng.sample(SCHEMA.names, rng.choice((0, 0, 1))))
    functions = tuple(random_function(rng, at, order) for at in range(rng.choice((1, 1, 2, 3))))
    return ew.Stream(Over(R.node, partition, order, functions))


@pytest.mark.parametrize("seed", range(50))
def test_the_answer_is_right_after_every_epoch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As said so far over what has come so far: nothing is only right at the end.  Near rows may be the whole
    partition."""
    rng = random.Random(seed)
    monkeypatch.setattr(OrderedRows, "share", rng.choice((0, OrderedRows.share)))
    assert_right_after_every_epoch(random_query(rng), rng, rng.choice((3, 6, 9)))


@pytest.mark.parametrize("emit", ["final", "ended", "current"])
@pytest.mark.parametrize("seed", range(8))
def test_every_policy_says_in_the_end_what_is_so(seed: int, emit: str) -> None:
    rng = random.Random(1000 + seed)
    query, history = random_query(rng), random_history(rng, 8)
    trial = Trial(query, emit, {"R": history})
    for batch in in_epochs(history, rng):
        trial.push({"R": batch})
        if rng.random() < 0.3:
            trial.restart(through_file)
    trial.close()


T = ew.source("T", {"t": "int64", "x": "int64"})


def test_a_sum_that_exceeds_64_bits_is_an_error() -> None:
    query = ew.Stream(Over(T.node, (), (Ordering("t"),), (OverFunction("s", "sum", "x"),)))
    stream = [ew.Insert(0, 5, {"t": i, "x": 2**62}) for i in range(3)]
    with pytest.raises(ew.EvaluationError, match="exceeds 64 bits"):
        list(ew.run(query, {"T": stream}))


@pytest.mark.parametrize(
    ("function", "order", "problem"),
    [
        (OverFunction("o", "lag", "x"), (), "LAG needs an ORDER BY"),
        (OverFunction("o", "sum", "x", Frame("rows", -1, 0)), (), "needs an ORDER BY"),
        (OverFunction("o", "sum", "x", Frame("rows", 1, 0)), ("t",), "begins before it ends"),
        (OverFunction("o", "sum", "x", Frame("rows", -1.5, 0)), ("t",), "whole rows"),
        (OverFunction("o", "sum", "x", Frame("range", -1, 0)), ("t", "x"), "one column"),
        (OverFunction("o", "sum", "x", Frame("range", -0.5, 0)), ("t",), "whole numbers as bounds"),
        (OverFunction("o", "lag", "x", Frame("rows")), ("t",), "takes no frame"),
        (OverFunction("o", "ntile", places=0), ("t",), "at least one part"),
        (OverFunction("o", "mode", "x"), ("t",), "there is no MODE OVER"),
        (OverFunction("o", "max"), ("t",), "needs a value"),
    ],
)
def test_what_has_no_meaning_is_refused(function: OverFunction, order: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ew.QueryError, match=problem):
        Over(T.node, (), tuple(map(Ordering, order)), (function,))


def test_the_aggregates_are_those_of_groups() -> None:
    assert set(AGGREGATES) == {"count", "sum", "avg", "min", "max"}
