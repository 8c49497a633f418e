"""The changelog encoders: every adjust names an event that stands, and what cannot be named again is forgotten."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.output.changelog import (
    ChangelogEncoder,
    EventChangelogEncoder,
    with_punctuation,
    without_punctuation,
)
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from operators.stepping import Segment, changes, codec_of
from state_files import through_file

CODEC = codec_of({"k": pa.int64()})


def row(k: int) -> dict[str, int]:
    return {"k": k}


def elements(encoder: ChangelogEncoder | EventChangelogEncoder, *given: Segment, cti: int = NEVER) -> list[Element]:
    return list(encoder.step(changes(CODEC, *given), cti).elements())


def test_a_segment_taken_back_shortens_removes_or_cuts_an_event() -> None:
    encoder = ChangelogEncoder(CODEC)
    assert elements(encoder, (0, 10, 1, 1), (0, 10, 1, 2), (0, 10, 1, 3)) == [Insert(0, 10, row(k)) for k in (1, 2, 3)]
    assert elements(encoder, (6, 10, -1, 1)) == [Adjust(0, 10, 6, row(1))]
    assert elements(encoder, (0, 10, -1, 2)) == [Adjust(0, 10, 0, row(2))]
    assert elements(encoder, (4, 6, -1, 3)) == [Adjust(0, 10, 4, row(3)), Insert(6, 10, row(3))]
    assert elements(encoder, cti=20) == [Cti(20)]


def test_what_was_never_said_cannot_be_taken_back() -> None:
    encoder = ChangelogEncoder(CODEC)
    elements(encoder, (0, 10, 1, 1))
    with pytest.raises(EverwhenError, match="never said"):
        elements(encoder, (0, 10, -1, 2))


def test_within_a_step_only_the_difference_is_said() -> None:
    encoder = ChangelogEncoder(CODEC)
    elements(encoder, (0, 10, 1, 1))
    assert elements(encoder, (0, 10, -1, 1), (0, 8, 1, 1)) == [Adjust(0, 10, 8, row(1))]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [ChangelogEncoder, EventChangelogEncoder])
def test_the_elements_mean_the_sum_of_the_changes(
    kind: type[ChangelogEncoder] | type[EventChangelogEncoder], seed: int
) -> None:
    """Whole events come and go, in random steps, with restarts; an adjust names one that stands."""
    rng = random.Random(seed)
    encoder = kind(CODEC)
    events: Counter[tuple[int, int, int]] = Counter()
    stands: Counter[tuple[int, int, int]] = Counter()
    for _ in range(25):
        given: list[Segment] = []
        for _ in range(rng.randint(0, 4)):
            there = [event for event, n in events.items() if n > 0]
            if there and rng.random() < 0.4:
                lo, hi, k = rng.choice(there)
                given.append((lo, hi, -1, k))
                events[lo, hi, k] -= 1
            lo, k = rng.randint(0, 20), rng.randint(0, 3)
            hi = lo + rng.randint(1, 9)
            given.append((lo, hi, 1, k))
            events[lo, hi, k] += 1
        for each in elements(encoder, *given):
            assert isinstance(each, Insert | Adjust)
            name = each.vs, each.ve, each.row["k"]
            if isinstance(each, Insert):
                stands[name] += 1
                continue
            assert stands[name] > 0, each
            stands[name] -= 1
            if each.vnew > each.vs:
                stands[each.vs, each.vnew, name[2]] += 1
        if rng.random() < 0.3:
            state, encoder = through_file(encoder.snapshot()), kind(CODEC)
            encoder.restore(state)
    for t in range(40):
        alive = [Counter({e: n for e, n in each.items() if e[0] <= t < e[1]}) for each in (events, stands)]
        assert sum(alive[0].values()) == sum(alive[1].values())
        for k in range(4):
            assert len({sum(n for e, n in each.items() if e[2] == k) for each in alive}) == 1


def test_events_are_forgotten_when_nothing_can_change_them() -> None:
    encoder = ChangelogEncoder(CODEC)
    elements(encoder, (0, 10, 1, 1), (0, 30, 1, 2), (0, INF, 1, 3))
    assert encoder.state_size().rows == 3
    elements(encoder, cti=10)
    assert encoder.state_size().rows == 2
    encoder.step(changes(CODEC), 10, [Punctuation.constants({"k": 2})])
    assert encoder.state_size().rows == 1, "its row is promised"
    assert encoder.standing()[0] == 30, "and what is known of the past begins behind it"
    elements(encoder, cti=INF)
    assert encoder.state_size().rows == 0


def test_an_event_said_again_with_the_same_start_is_one_adjust() -> None:
    encoder = EventChangelogEncoder(CODEC)
    assert elements(encoder, (3, 10, -1, 1), (3, 12, 1, 1), (0, 5, 1, 2)) == [
        Insert(0, 5, row(2)),
        Adjust(3, 10, 12, row(1)),
    ]
    assert elements(encoder, (3, 12, -1, 1), (4, 12, 1, 1), cti=2) == [
        Adjust(3, 12, 3, row(1)),
        Insert(4, 12, row(1)),
        Cti(2),
    ]
    assert encoder.state_size().rows == 0


def test_promises_stand_behind_the_elements_and_before_the_cti() -> None:
    promise = Punctuation.constants({"k": 1}, 9)
    batch = ChangelogEncoder(CODEC).step(changes(CODEC, (0, 5, 1, 1)), 3)
    told = with_punctuation(batch, [promise])
    assert list(told.elements()) == [Insert(0, 5, row(1)), Punct(promise), Cti(3)]
    assert list(without_punctuation(told).elements()) == list(batch.elements())
    assert with_punctuation(batch, []) is batch


def test_a_promise_goes_behind_what_its_step_takes_back_also_when_the_dead_go_in_that_step() -> None:
    encoder = ChangelogEncoder(CODEC)
    elements(encoder, *((0, 10, 1, k) for k in range(400)))
    promise = Punctuation({"k": OneOf((1,))})
    said = encoder.step(changes(CODEC, (0, 10, -1, 1)), NEVER, [promise]).elements()
    assert list(said) == [Adjust(0, 10, 0, row(1)), Punct(promise)]


@pytest.mark.parametrize("seed", range(6))
def test_passing_events_on_changes_nothing_that_is_said(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In steps of a few events, beside an encoder that always lets all of the dead go at once."""
    rng = random.Random(seed)
    plain, passing = ChangelogEncoder(CODEC), ChangelogEncoder(CODEC)
    alive: Counter[tuple[int, int, int]] = Counter()
    passed, longest, cti = 0, 0, NEVER
    for step in range(400):
        given: list[Segment] = []
        for lo, hi, k in rng.sample(sorted(alive), min(len(alive), rng.randrange(5))):
            since = max(lo, cti, min(hi - 1, lo + rng.randrange(8)))
            given.append((since, hi, -1, k))
        for _ in range(rng.randrange(24)):
            lo = step + rng.randrange(5)
            hi = lo + 1 + rng.randrange(60) if rng.random() < 0.9 else INF
            given.append((lo, hi, 1, rng.randrange(30)))
        cti = max(cti, step - rng.randrange(4)) if rng.random() < 0.5 else cti
        said = elements(plain, *given, cti=cti)
        monkeypatch.setattr("everwhen.operators.output.changelog._MANY", 8)
        before = passing._first
        assert sorted(map(str, elements(passing, *given, cti=cti))) == sorted(map(str, said)), step
        passed += passing._first > before
        longest = max(longest, passing._length)
        monkeypatch.undo()
        for each in said:
            if isinstance(each, Insert | Adjust):
                alive[each.vs, each.ve, each.row["k"]] += 1 if isinstance(each, Insert) else -1
                if isinstance(each, Adjust):
                    alive[each.vs, each.vnew, each.row["k"]] += each.vnew > each.vs
        alive = Counter({event: n for event, n in alive.items() if n and event[1] > cti})
        if rng.random() < 0.02:
            state, passing = through_file(passing.snapshot()), ChangelogEncoder(CODEC)
            passing.restore(state)
    assert passed >= 5 and longest < 4 * alive.total()
    assert plain.state_size().rows == passing.state_size().rows == alive.total()
    for parts in (1, 4, 64):
        found: Counter[tuple[int, int, int]] = Counter()
        for part in range(parts):
            each = passing.standing_of(part, part + 1, parts)
            found.update(zip(each.lo.tolist(), each.hi.tolist(), each.rows[:, -1].tolist(), strict=True))
        assert Counter({event: n for event, n in found.items() if event[1] > cti}) == alive
