"""The token alone: what each strategy sends and gives, and that no promise is ever broken.

The paper's own examples are in `papers/test_ffp_progress.py`."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from everwhen.core.loop_options import ProgressStrategy
from everwhen.core.time import INF, NEVER
from everwhen.operators.loop.progress import ProgressToken
from state_files import through_file

STRATEGIES = get_args(ProgressStrategy)
SOUND = [each for each in STRATEGIES if each != "high water mark"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_at_first_nothing_is_promised(strategy: ProgressStrategy) -> None:
    token = ProgressToken(strategy)
    token.returned(external=9)  # no token was under way
    assert (token.promise, token.token, token.sent, token.given) == (NEVER, None, 0, 0)


@pytest.mark.parametrize("strategy", SOUND)
def test_settled_it_promises_what_the_inputs_have(strategy: ProgressStrategy) -> None:
    token = ProgressToken(strategy)
    token.settle(external=7)
    assert token.promise == 7
    token.settle(external=7)
    token.settle(external=12)
    assert (token.promise, token.given) == (12, 2)


def test_settled_the_high_water_mark_promises_what_has_come() -> None:
    token = ProgressToken("high water mark")
    token.settle(external=7)
    assert token.promise == NEVER
    token.arrived(2, 4)
    token.settle(external=7)
    assert token.promise == 5
    token.arrived(9, 9)
    token.settle(external=9)
    assert (token.promise, token.token) == (5, 10)  # it waits until the inputs have promised 10
    token.settle(external=11)
    assert token.promise == 10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_when_all_inputs_have_ended_so_has_the_loop(strategy: ProgressStrategy) -> None:
    token = ProgressToken(strategy)
    token.settle(external=INF)
    assert token.promise == INF


def test_hybrid_sends_nothing_while_nothing_was_promised_outside() -> None:
    hybrid, probing = ProgressToken("hybrid"), ProgressToken("probing")
    for token in (hybrid, probing):
        token.settle(external=5)
        for _ in range(100):
            token.leave(external=5)
            token.returned(external=5)
    assert (hybrid.promise, probing.promise) == (5, 5)
    assert probing.sent >= hybrid.sent + 100


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_came_since_the_token_left_holds_it(strategy: ProgressStrategy) -> None:
    token = ProgressToken(strategy)
    token.arrived(6, 6)
    token.leave(external=9)
    token.arrived(4, 8)
    token.returned(external=9)
    assert token.promise == (NEVER if strategy == "high water mark" else 4)


class Model:
    """Data that goes round: what has come to the head is sent next, and brings later or equal starts, or nothing."""

    def __init__(self, strategy: ProgressStrategy, rng: random.Random) -> None:
        self.token = ProgressToken(strategy)
        self.rng = rng
        self.external = 0
        self.circulating: list[int] = []
        self.unmet: list[int] = []

    def round(self) -> None:
        """Input, what follows from what circulates, and the token; whatever comes must not break a promise."""
        rng, token = self.rng, self.token
        token.leave(self.external)
        came = [t + rng.choice((0, 0, 1, 3)) for t in self.circulating for _ in range(rng.choice((0, 0, 1, 2)))]
        # rows met by others that come from outside later: they wait in a join, at their own instants or later
        came += [rng.randrange(self.external, self.external + 6) for _ in range(rng.choice((0, 0, 0, 1)))]
        assert all(t >= token.promise for t in came), f"{min(came)} after the promise {token.promise}"
        if came:
            token.arrived(min(came), max(came))
        token.returned(self.external)
        self.circulating = came[:20]
        if rng.random() < 0.3:
            self.external += rng.randrange(4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_promise_is_broken(strategy: ProgressStrategy) -> None:
    for seed in range(60):
        model = Model(strategy, random.Random(seed))
        for _ in range(120):
            model.round()
        assert model.token.given > 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_goes_on_from_a_file(strategy: ProgressStrategy) -> None:
    one, other = (Model(strategy, random.Random(8)) for _ in range(2))
    for _ in range(80):
        one.round()
        other.round()
        state = through_file(other.token.snapshot())
        other.token = ProgressToken(strategy)
        other.token.restore(state)
        assert one.token.snapshot() == other.token.snapshot()
