"""Two sets of many promises about different columns meet within bounds, and what they then say is true."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.punctuation import store as promise_set
from everwhen.punctuation.api import PunctuationStore

SCHEMA = Schema.of([(name, pa.int64()) for name in "abcd"])


def boxes(one: str, two: str) -> list[Punctuation]:
    return [Punctuation({one: OneOf((2 * at,)), two: Range(ge=at, le=3 * at)}, 5 + at) for at in range(100)]


def test_pairs_are_combined_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    combine = promise_set.combine

    def counted(p: Punctuation, q: Punctuation, schema: Schema) -> Punctuation | None:
        nonlocal asked
        asked += 1
        return combine(p, q, schema)

    monkeypatch.setattr(promise_set, "combine", counted)
    kept = PunctuationStore(SCHEMA)
    kept.add(boxes("a", "b"))
    found = kept.meet(boxes("c", "d"))
    assert 0 < asked <= promise_set.MOST_COMBINED
    other = PunctuationStore(SCHEMA)
    other.add(boxes("c", "d"))
    said = list(found)
    assert said
    for promise in said:
        assert set(promise.match) == set("abcd")
        assert kept.implies(promise) and other.implies(promise)
