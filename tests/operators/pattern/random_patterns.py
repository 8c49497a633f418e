"""Random patterns with random conditions over rows of several types, and random streams of such rows."""

from __future__ import annotations

import random
from typing import Any

import everwhen as ew
from everwhen.algebra.patterns.pattern import Alternation, Concatenation, Pattern, Repeat, Symbol, variables
from everwhen.core.schema import Schema

p, col = ew.patterns, ew.col
COLUMNS = {"k": "string", "x": "int64", "y": "float64", "s": "string"}
R = ew.source("R", COLUMNS)
SCHEMA: Schema = R.schema
VALUES: dict[str, list[Any]] = {
    "k": ["a", "b", None], "x": [0, 1, 2, 3, None], "y": [0.5, -1.25, 2.0, None], "s": ["n", "m", "ö", None]
}  # fmt: skip


def random_pattern(rng: random.Random, depth: int = 3) -> Pattern:
    """At least one variable, at most eight places."""
    match rng.randrange(5) if depth else 0:
        case 1 | 2:
            return Concatenation(tuple(random_pattern(rng, depth - 1) for _ in range(rng.choice((1, 2, 2, 3)))))
        case 3:
            return Alternation(tuple(random_pattern(rng, depth - 1) for _ in range(2)))
        case 4:
            least = rng.choice((0, 0, 1, 1, 2))
            return Repeat(random_pattern(rng, depth - 1), least, rng.choice((None, None, max(least, 1), least + 1)))
    return Symbol(rng.choice("ABC"))


def random_condition(rng: random.Random, names: tuple[str, ...]) -> ew.col | Any:
    """What a row must meet: by itself, beside the row before, or with what the match has so far."""
    one, other = rng.choice(names), rng.choice(names)
    number = rng.randrange(4)
    found = [
        col("x") > number - 1,
        col("s") == "n",
        col("x").is_null() | (col("y") > 0),
        col("x") >= p.prev("x"),
        p.prev("x").is_null() | (p.prev("s") == "m"),
        col("s") < p.prev("s"),
        col("y") - p.prev("y") > p.count() - 2,
        p.count(one) <= p.count(other) + number,
        p.sum(f"{one}.x") + col("x") < 4,
        p.sum(f"{one}.y") <= p.avg(f"{other}.x"),
        p.first("x") <= col("x"),
        p.last(f"{one}.s") != col("s"),
        p.min("s") < col("s"),
        p.max(f"{one}.y") > col("y"),
        ew.when(p.count(one) > 1).then(p.last(f"{other}.x")).otherwise(col("x") * 2) < 3,
        ew.function("coalesce", p.first(f"{one}.x"), p.prev("x"), col("x")) % 2 == 0,
        (p.count(f"{one}.x") // 2).is_in([0, number]) & ~(col("x") == p.first("x")),
    ]
    return rng.choice(found)


def random_query(rng: random.Random) -> ew.Stream:
    """A pattern over `R`."""
    pattern = random_pattern(rng)
    names = variables(pattern)
    define = {name: random_condition(rng, names) for name in names if rng.random() < 0.75}
    name = rng.choice(names)
    measures = [
        ("n", p.count()), ("a", p.count(name)), ("f", p.first("x")), ("l", col("s")), ("t", p.sum(f"{name}.x")),
        ("u", p.sum("y")), ("v", p.avg(f"{name}.x")), ("m", p.min("s")), ("o", p.max("x") - p.min(f"{name}.x")),
        ("g", p.last(f"{name}.y")), ("c", p.count(f"{name}.y") + 1),
    ]  # fmt: skip
    order = rng.sample(["x", "y", "s"], rng.choice((1, 1, 2)))
    return R.match_recognize(
        pattern,
        order,
        rng.choice(("k", (), ("k",))),
        define,
        dict(rng.sample(measures, rng.randrange(5))),
        within=rng.choice((None, None, None, 2)),
        descending=[each for each in order if rng.random() < 0.3],
    )


def random_row(rng: random.Random) -> dict[str, Any]:
    return {name: rng.choice(few) for name, few in VALUES.items()}
