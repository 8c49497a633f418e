"""Guards of copies that share their events check and forget what they would with a log each."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF
from everwhen.errors import InputError
from everwhen.operators.ingress.guard import Guard
from everwhen.operators.merge.shared_log import SharedLog
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Cti, Element
from everwhen.stream.element_batch import ElementBatch
from operators.merge.merging import SCHEMA, a, history, m, physical


def kept(guard: Guard) -> list[tuple[int, int, str]]:
    events = guard.standing()
    assert events is not None
    rows = guard.codec.decode(events.rows)[0].to_pylist()
    return sorted(zip(events.lo.tolist(), events.hi.tolist(), rows, strict=True))


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32))
def test_as_with_a_log_each(seed: int) -> None:
    """Random copies, some elements wrong, epochs undone: the same errors, the same events, through restarts."""
    rng = random.Random(seed)
    n = rng.randrange(2, 6)
    found = history(rng, False) * rng.choice([1, 1, 40])
    streams = [physical(rng, found) for _ in range(n)]
    codec = RowCodec(SCHEMA, Interner())
    own = [Guard("S", codec) for _ in range(n)]
    shared = SharedLog(codec, n)
    others = [Guard("S", codec, log=shared.copy()) for _ in range(n)]
    places = [0] * n
    while any(at < len(each) for at, each in zip(places, streams, strict=True)):
        checked: list[int] = []
        wrong = False
        steps = [rng.choice([0, 1, 5, 60]) for _ in range(n)]
        for port in rng.sample(range(n), n):
            elements = streams[port][places[port] : places[port] + steps[port]]
            if rng.random() < 0.05:
                elements = [*elements, m(rng.choice("ABC"), rng.randrange(20), 21 + rng.randrange(12), INF)]
            batch = ElementBatch.of(elements, SCHEMA)
            said = [outcome(each[port], batch) for each in (own, others)]
            assert said[0] == said[1]
            wrong = said[0] is not None
            if wrong:
                break
            checked.append(port)
        if wrong or rng.random() < 0.1:
            for port in reversed(checked):
                own[port].undo(), others[port].undo()
            if not wrong:
                continue
            break
        for port in checked:
            own[port].settle(), others[port].settle()
            places[port] += steps[port]
        if rng.random() < 0.2:
            assert [kept(each) for each in own] == [kept(each) for each in others]
        if rng.random() < 0.2:
            codec.pool.collect(force=True)
        if rng.random() < 0.2:
            states = [each.snapshot() for each in others]
            shared = SharedLog(codec, n)
            others = [Guard("S", codec, log=shared.copy()) for _ in range(n)]
            for each, state in zip(others, states, strict=True):
                each.restore(state)
    assert [kept(each) for each in own] == [kept(each) for each in others]
    assert [each.state_size().rows for each in own] == [each.state_size().rows for each in others]


def outcome(guard: Guard, batch: ElementBatch) -> str | None:
    try:
        guard.step(batch)
    except InputError as error:
        return str(error)
    return None


def test_a_wrong_copy_takes_nothing_of_the_epoch_from_the_others() -> None:
    copies = [ew.source(name, {"p": "string"}) for name in "xyz"]
    runtime = ew.LocalRuntime(ew.lmerge(*copies))

    def push(**batches: list[Element]) -> None:
        runtime.push({name: ew.ElementBatch.of(each, SCHEMA) for name, each in batches.items()})

    push(x=[a("A", 0, 9)], y=[a("A", 0, 9)])
    with pytest.raises(InputError, match="z:1: an adjust of an event that is not there"):
        push(x=[m("A", 0, 9, 7), a("B", 1, 9)], y=[m("A", 0, 9, 7)], z=[m("A", 0, 9, 7)])
    push(x=[m("A", 0, 9, 8)], y=[m("A", 0, 9, 8)])
    with pytest.raises(InputError, match="y:1"):
        push(x=[m("A", 0, 8, 7)], y=[m("B", 1, 9, 7)])


def test_what_all_have_is_stored_once() -> None:
    codec = RowCodec(SCHEMA, Interner())
    shared = SharedLog(codec, 8)
    guards = [Guard("S", codec, log=shared.copy()) for _ in range(8)]
    events = [a("A", t, t + 500) for t in range(3000)]
    for at in range(0, 3000, 100):
        batch = ElementBatch.of([*events[at : at + 100], Cti(at)], SCHEMA)
        for guard in guards:
            guard.step(batch)
        for guard in guards:
            guard.settle()
    assert shared.alive(-1) == guards[0].state_size().rows == 600
    assert sum(each.state_size().bytes for each in guards) <= shared.nbytes
    for guard in guards:
        guard.close()
    assert shared.alive(-1) == 0


def test_only_sources_with_the_same_columns_share_a_log() -> None:
    """What is promised of a column is promised of one that the source has."""
    a, b = (ew.source(name, {"k": "int64", other: "int64"}) for name, other in (("a", "v"), ("b", "w")))
    runtime = ew.LocalRuntime(ew.lmerge(a, b, policy=ew.MergePolicy()))
    promise = ew.Punct(Punctuation({"k": OneOf((1,)), "w": OneOf((2,))}))
    batch = ew.ElementBatch.of([ew.Insert(0, 5, {"k": 1, "w": 2}), promise], b.schema)
    assert len(runtime.push({"b": batch})["out"]) == 2
