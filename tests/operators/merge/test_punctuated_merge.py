"""Copies with gaps that promise things about rows: whatever they say, the output is valid, and nothing is left."""

from __future__ import annotations

import random
from typing import Any

import pytest

import everwhen as ew
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF
from everwhen.testing import assert_valid

COLUMNS = {"k": "string", "x": "int64"}
POLICIES = [
    ew.MergePolicy(lazy=True), ew.MergePolicy(), ew.MergePolicy(leader=True), ew.MergePolicy(leader=True, lazy=True),
    ew.MergePolicy(quorum=2), ew.MergePolicy(final=True),
]  # fmt: skip


def copy(events: list[tuple[int, int, dict]], rng: random.Random) -> list[Any]:
    """Some of the events, with wrong ends at first, and promises that this copy keeps."""
    data: list[ew.Insert | ew.Adjust] = []
    held = [event for event in events if rng.random() < 0.75]
    for vs, ve, row in sorted(held, key=lambda event: event[0] + 6 * rng.random()):
        end = rng.randint(vs + 1, vs + 20) if rng.random() < 0.4 else ve
        data.append(ew.Insert(vs, end, row))
        data += [ew.Adjust(vs, end, ve, row)] if end != ve else []
    said: list[Any] = []
    last = -1
    for at in range(len(data) + 1):
        rest = data[at:]
        limit = min((each.sync for each in rest), default=40)
        if rng.random() < 0.3 and limit > last:
            said.append(ew.Cti(limit))
            last = limit
        if rng.random() < 0.4:
            match = {"k": OneOf((rng.choice("ab"),))}
            match |= {"x": OneOf((rng.randint(0, 1),))} if rng.random() < 0.5 else {}
            until = min((each.sync for each in rest if Punctuation(match).matches(each.row)), default=INF)
            said += [ew.Punct(Punctuation(match, until))] if until > 0 else []
        said += rest[:1]
    return said


@pytest.mark.property
@pytest.mark.parametrize("seed", range(80))
def test_whatever_copies_promise_the_output_is_valid(seed: int) -> None:
    rng = random.Random(seed)
    sources = [ew.source(f"s{i}", COLUMNS) for i in range(rng.randint(2, 4))]
    starts = [rng.randint(0, 20) for _ in range(rng.randint(2, 8))]
    events = [(vs, vs + rng.randint(1, 15), {"k": rng.choice("ab"), "x": rng.randint(0, 1)}) for vs in starts]
    rest = {f"s{i}": copy(events, rng) for i in range(len(sources))}
    copies = sources if rng.random() < 0.7 else [each.select("k") for each in sources]
    query, emit = ew.lmerge(*copies, policy=rng.choice(POLICIES)), rng.choice(["all", "current", "final", "ended"])
    runtime, said = ew.LocalRuntime(query, emit), []
    while any(rest.values()):
        epoch = {}
        for name, part in rest.items():
            count = rng.randint(0, 2)
            epoch[name] = ew.ElementBatch.of(part[:count], sources[0].schema)
            del part[:count]
        said += runtime.push(epoch)["out"].elements()
        if rng.random() < 0.15:
            state, runtime = runtime.snapshot(), ew.LocalRuntime(query, emit)
            runtime.restore(state)
    said += runtime.close()["out"].elements()
    assert_valid(said)
    assert runtime.state_size().rows == 0


def test_a_row_that_is_promised_by_one_who_lacks_it_begins_at_the_promise() -> None:
    sources = [ew.source(name, COLUMNS) for name in "abc"]
    runtime = ew.LocalRuntime(ew.lmerge(*sources, policy=ew.MergePolicy()), "all")
    insert = ew.Insert(2, 18, {"k": "a", "x": 0})
    promise = ew.Punct(Punctuation({"k": OneOf(("a",))}, 4))
    said: list[Any] = []
    for name, element in (("c", insert), ("b", promise), ("a", insert)):
        said += runtime.push({name: ew.ElementBatch.of([element], sources[0].schema)})["out"].elements()
    said += runtime.close()["out"].elements()
    assert [str(each) for each in said] == [
        "insert [2, 18) k='a' x=0",
        "adjust [2, 18 -> 2) k='a' x=0",
        "punct k = 'a' before 4",
        "insert [4, 18) k='a' x=0",
        "cti ∞",
    ]
