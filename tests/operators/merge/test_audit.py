"""AUDIT: copies that say the same pass, however they say it; a difference names both inputs and the span."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError
from everwhen.operators.merge import audit
from everwhen.stream.element import Cti, Element
from operators.merge.merging import SCHEMA, Merge, a, history, m, physical, texts

AUDITED = MergePolicy(leader=True, audit=True)
SPAN = audit.SPAN


def wrong(merge: Merge, epoch: dict[int, list[Element]]) -> str:
    with pytest.raises(InputError) as caught:
        merge.take(epoch)
    assert "everwhen diff" in (caught.value.remedy or "")
    return str(caught.value)


def test_other_cuts_and_corrections_are_the_same() -> None:
    one = [a("A", 0, 5 * SPAN), a("B", 10, INF), Cti(3 * SPAN)]
    other = [a("A", 0, 7), a("A", 7, INF), m("A", 7, INF, 5 * SPAN), a("C", 1, 9), m("C", 1, 9, 1), a("B", 10, INF)]
    merge = Merge([NEVER, NEVER], AUDITED, False)
    merge.take({0: one})
    merge.take({1: other})
    assert texts(merge.take({1: [Cti(4 * SPAN)]})) == [f"cti {4 * SPAN}"]


@pytest.mark.parametrize("events", [False, True])
def test_a_difference_names_both_inputs_and_the_span(events: bool) -> None:
    merge = Merge([NEVER, NEVER], AUDITED, events)
    merge.take({0: [a("A", 5, 2 * SPAN + 7), Cti(5 * SPAN)]})
    state = merge.operator.snapshot()
    merge.take({1: [a("A", 5, 2 * SPAN + 8), Cti(2 * SPAN)]})  # not final there
    message = wrong(merge, {1: [Cti(3 * SPAN)]})
    assert f"input 2 and input 1 say different things between {2 * SPAN} and {3 * SPAN}" in message
    merge.restart()
    assert message in wrong(merge, {1: [Cti(3 * SPAN)]}), "nothing was taken; a restored one says the same"
    merge.operator.restore(state)


def test_a_missing_row_and_one_too_often() -> None:
    for other in ([], [a("A", 5, 9), a("A", 5, 9)]):
        merge = Merge([NEVER, NEVER], AUDITED, False)
        merge.take({1: [*other, Cti(SPAN - 1)]})
        merge.take({0: [a("A", 5, 9), Cti(SPAN)]})
        assert "between 0 and" in wrong(merge, {1: [Cti(SPAN)]})


def test_before_since_nothing_is_compared() -> None:
    merge = Merge([NEVER, SPAN + 5], AUDITED, False)
    merge.take({0: [a("A", 0, 9), a("B", 7, INF), a("C", SPAN + 900, 3 * SPAN), Cti(4 * SPAN)]})
    merge.take({1: [a("B", SPAN + 5, INF), a("C", 2 * SPAN - 10, 3 * SPAN), Cti(5 * SPAN)]})
    merge = Merge([NEVER, SPAN + 5], AUDITED, False)
    merge.take({0: [a("A", 0, 9), a("B", 7, INF), Cti(4 * SPAN)]})
    assert "say different things" in wrong(merge, {1: [a("B", SPAN + 5, 3 * SPAN), Cti(5 * SPAN)]})


def test_what_is_skipped_or_begins_anew_is_not_compared() -> None:
    merge = Merge([NEVER, NEVER], AUDITED, False)
    merge.take({0: [a("A", 5, 9), a("B", 3 * SPAN, INF), Cti(2 * SPAN)]})
    merge.operator.skip(1, 2 * SPAN)
    merge.take({1: [Cti(3 * SPAN)]})
    merge.take({}, (1,))
    merge.begin_anew(1, 0)
    merge.take({1: [a("B", 3 * SPAN, INF), Cti(3 * SPAN + 5)], 0: [Cti(5 * SPAN)]})
    merge.take({1: [Cti(5 * SPAN)]})


def test_who_has_ended_is_not_compared() -> None:
    merge = Merge([NEVER, NEVER], AUDITED, False)
    merge.take({0: [a("A", 5, 9), Cti(2 * SPAN)]})
    merge.take({1: [Cti(7)]}, (1,))
    assert texts(merge.take({}, (0,))) == ["cti ∞"]


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_random_copies(seed: int) -> None:
    """Copies of one history pass; one that differs in an event, in time, or in a row, does not."""
    rng = random.Random(seed)
    n, events = rng.randrange(2, 5), rng.random() < 0.5
    found = history(rng, False)
    held = [list(found) for _ in range(n)]
    differs = rng.random() < 0.6
    if differs:
        p, vs, ve = held[1].pop(rng.randrange(len(found)))
        held[1] += rng.choice([[], [(p, vs, ve), (p, vs, ve)], [("Z", vs, ve)], [(p, vs, 500)]])
    streams = [[*(scaled(e) for e in physical(rng, each))] for each in held]
    merge = Merge([NEVER] * n, MergePolicy(audit=True), events)
    places = [0] * n
    try:
        while any(at < len(each) for at, each in zip(places, streams, strict=True)):
            epoch = {}
            for port in range(n):
                step = rng.choice([0, 1, 3])
                epoch[port] = streams[port][places[port] : places[port] + step]
                places[port] += step
            merge.take(epoch)
            if rng.random() < 0.2:
                merge.restart()
    except InputError:
        assert differs
    else:
        assert not differs
    assert merge.operator._audit is not None
    assert differs or merge.operator._audit.state_size().bytes == 0


def scaled(element: Element) -> Element:
    """In spans, so that a few are passed."""

    def by(t: int) -> int:
        return t if t == INF else t * SPAN // 3

    if isinstance(element, Cti):
        return Cti(by(element.t))
    if isinstance(element, ew.Insert):
        return ew.Insert(by(element.vs), by(element.ve), element.row)
    return ew.Adjust(by(element.vs), by(element.ve), by(element.vnew), element.row)


def test_in_a_runtime_nothing_of_the_epoch_is_emitted() -> None:
    copies = [ew.source(name, {"p": "string"}) for name in ("left", "right")]
    runtime = ew.LocalRuntime(ew.lmerge(*copies, policy=MergePolicy(leader=True, audit=True)))

    def push(**batches: list[Element]) -> list[str]:
        found = runtime.push({name: ew.ElementBatch.of(each, SCHEMA) for name, each in batches.items()})
        return texts(list(found["out"].elements()))

    assert push(left=[a("A", 0, 9), Cti(SPAN)]) == ["insert [0, 9) p='A'", f"cti {SPAN}"]
    with pytest.raises(InputError, match="right and left say different things between 0 and"):
        push(left=[a("B", SPAN, INF)], right=[a("A", 0, 8), Cti(SPAN)])
