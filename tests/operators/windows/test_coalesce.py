"""Coalesce: what is held back and how long, level forms after purging, and pieces of a longest length."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.reference import events as reference_events
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid, reorder
from everwhen.testing.strategies import histories
from operators.differential import EMITS, SCHEMA, Said, run_all
from plans import S

A = {"k": "a", "x": 1}


@pytest.mark.parametrize("emit", ["final", "ended"])
@settings(max_examples=40)
@given(history=histories(SCHEMA), seed=st.integers(0, 2**32))
def test_the_promise_is_held_at_the_oldest_held_start(emit: str, history: History, seed: int) -> None:
    """min(c, oldest held vs): held are intervals that something in order may still prolong, and not yet promised."""
    rng = random.Random(seed)
    runtime = LocalRuntime(S.coalesce(), emit=emit)
    said = Said(SCHEMA)
    so_far: list[Element] = []
    for element in reorder(history, rng, disorder=rng.choice([0, 3])):
        so_far.append(element)
        before = said.cti
        said.take(runtime.push({"S": batch_of([element], SCHEMA)})["out"])
        c = runtime.progress["S"]
        bound = c if emit == "final" else max(c, runtime.tau)
        levels = History.of(so_far, SCHEMA).coalesced().multiset
        held = [lo for lo, hi, _ in levels if hi >= bound < INF and lo >= before]
        assert said.cti == max(before, min([c, *held]))
    assert_valid(said.elements)


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("longest", [None, 1, 3, 20])
@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_events_are_the_definition_s(emit: str, longest: int | None, data: st.DataObject, seed: int) -> None:
    """Not only the snapshots: boundaries too, because AlterLifetime may follow."""
    finite = longest is not None
    history = data.draw(histories(SCHEMA, allow_infinite=not finite))
    elements = reorder(history, random.Random(seed), infinite=not finite)
    query = S.coalesce(longest)
    runtime = LocalRuntime(query, emit=emit)
    said = Said(SCHEMA)
    for at in range(0, len(elements), 2):
        said.take(runtime.push({"S": batch_of(elements[at : at + 2], SCHEMA)})["out"])
    assert sorted(said.history().events(), key=repr) == sorted(reference_events(query.node, {"S": history}), key=repr)


@pytest.mark.parametrize("emit", EMITS)
def test_levels_keep_their_starts_after_their_first_pieces_are_gone(emit: str) -> None:
    """Level 1 is [0, 10), level 2 [2, 5); at 5 the second is prolonged, and its pieces stay anchored at 2."""
    elements = [Insert(0, 10, A), Insert(2, 5, A), Cti(5), Insert(5, 7, A), Cti(INF)]
    out = run_all(S.coalesce(4).lifetime(length=1), emit, [{"S": batch_of([e], SCHEMA)} for e in elements])
    starts = sorted(vs for vs, _, _ in History.of(out, SCHEMA).events())
    assert starts == [0, 2, 4, 6, 8]


def test_an_interval_that_was_said_and_grows_is_adjusted() -> None:
    """It ended at the CTI, so it may; holding it back again would break the promise."""
    runtime = LocalRuntime(S.coalesce(), emit="ended")
    elements: list[Element] = [
        Insert(0, 3, A),
        Insert(5, 6, {"k": "b", "x": 1}),
        Cti(3),
        Insert(3, 4, A),
        Insert(9, 10, A),
    ]
    out = [e for element in elements for e in runtime.push({"S": batch_of([element], SCHEMA)})["out"].elements()]
    out += runtime.close()["out"].elements()
    assert_valid(out)
    assert Adjust(0, 3, 4, A) in out


def test_a_long_interval_costs_no_more_than_its_last_pieces() -> None:
    """A row that is alive for ever is said piece by piece, and only new pieces are looked at."""
    runtime = LocalRuntime(S.coalesce(10), emit="final")
    for t in range(0, 5000, 5):
        runtime.push({"S": batch_of([Insert(t, t + 5, A), Cti(t + 5)], SCHEMA)})
    operator = runtime.plan.operators[0].operator
    assert operator.state_size().rows == 1
    assert len(operator._pieces(operator._keys.ids())[0]) <= 3  # type: ignore[attr-defined]
