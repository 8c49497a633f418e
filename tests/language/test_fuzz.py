"""Mutated queries: whatever is sent, the answer is a plan or a message with a place, never a traceback."""

from __future__ import annotations

import random

import pytest

from everwhen.demo.nexmark.texts import DECLARATIONS, TEXTS
from everwhen.errors import SqlError
from everwhen.language.program import program
from everwhen.rewrite.driver import rewrite
from language.duckdb_snapshots import CATALOG, ours
from language.query_mutations import mutated
from language.query_shapes import SHAPES

SEEDS = [ours(name) for name in SHAPES] + [DECLARATIONS + text for text in TEXTS.values()]


def feed(number: int, seed: int) -> tuple[int, int]:
    rng = random.Random(seed)
    good = 0
    for _ in range(number):
        text = mutated(SEEDS, rng)
        try:
            found = program(text, CATALOG)
        except SqlError as error:
            assert 1 <= error.line <= text.count("\n") + 1 and error.column >= 1
            assert str(error).startswith(f"line {error.line}, column {error.column}: ")
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{text!r}") from error
        good += 1
        if good % 4 == 0:
            assert rewrite(found.query.node).node.schema == found.query.schema, text
    return good, number - good


@pytest.mark.property
def test_ten_thousand_mutated_queries() -> None:
    good, bad = feed(10_000, seed=1)
    assert good > 250 and bad > 250
