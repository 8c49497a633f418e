"""Random plans of two to five operators against the oracle, in every emission policy."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everwhen.testing.strategies import histories
from operators.differential import EMITS, SCHEMA, Trial, epochs, sources, streams_of
from operators.random_plans import Grown, plans

MANY = settings(max_examples=2 * settings().max_examples, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("emit", EMITS)
@MANY
@given(data=st.data(), grown=plans(), seed=st.integers(0, 2**32))
def test_any_plan_gives_the_oracle_s_snapshots(emit: str, data: st.DataObject, grown: Grown, seed: int) -> None:
    rng = random.Random(seed)
    some = histories(SCHEMA, max_events=5, max_time=8, allow_infinite=grown.sources)
    given_ = {name: data.draw(some, label=name) for name in sources(grown.stream)}
    trial = Trial(grown.stream, emit, given_)
    for epoch in epochs(streams_of(given_, rng, grown.sources), rng):
        trial.push(epoch)
        if rng.random() < 0.15:
            trial.restart()
        if rng.random() < 0.15:
            trial.collect()
    trial.close()
