"""Two sets of many promises about different columns meet within bounds, and what they then say is true."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.punctuation import Frontier, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.punctuation import store as promise_set
from everwhen.punctuation.api import Intersection, PunctuationStore
from everwhen.punctuation.table import MOST_WIDE

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


def test_ports_that_meet_hand_on_no_more_wide_promises_than_one_of_them_said() -> None:
    said = [*boxes("a", "b"), *boxes("c", "d")]
    ports = Intersection(SCHEMA)
    both = PunctuationStore(SCHEMA)
    both.add(said)
    first = ports.intersect([Frontier(0, tuple(said)), Frontier(0)])
    assert not first
    found = ports.intersect([Frontier(0), Frontier(0, tuple(said))])
    assert 0 < len(found.wide) <= len(said)
    assert all(both.implies(promise) for promise in found)
    # what binds fewest columns stays
    assert {len(promise.match) for promise in found.wide} == {2}
    few = ports.intersect([Frontier(3), Frontier(4)])  # all that stands is said again, as far as it is few
    assert 0 < len(few.wide) <= MOST_WIDE
