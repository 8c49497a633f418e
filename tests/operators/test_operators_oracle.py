"""Every operator and some compositions against the oracle: random histories, cut into random streams and epochs.

What is checked after every epoch and at the end stands in `differential.Trial`.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.stream.history import History
from everwhen.testing.strategies import histories
from example_counts import examples_per_case
from operators.differential import EMITS, SCHEMA, Trial, epochs, sources, streams_of
from plans import PLANS, Plan
from state_files import through_file

FEW = settings(max_examples=examples_per_case(5))


def some_histories(infinite: bool) -> st.SearchStrategy[History]:
    return histories(SCHEMA, max_events=7, max_time=12, allow_infinite=infinite)


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("plan", PLANS, ids=str)
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_stream_gives_the_oracle_s_snapshots(plan: Plan, emit: str, data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    query = plan.build()
    given_ = {name: data.draw(some_histories(plan.infinite), label=name) for name in sources(query)}
    trial = Trial(query, emit, given_)
    for epoch in epochs(streams_of(given_, rng, plan.infinite), rng):
        trial.push(epoch)
        match rng.randrange(8):
            case 0:
                trial.restart()
            case 1:
                trial.restart(through_file)
            case 2:
                trial.collect()
    trial.close()
