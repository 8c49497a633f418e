"""Every operator and some compositions against the oracle: random histories, cut into random streams and epochs.

What is checked after every epoch and at the end stands in `differential.Trial`.
"""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.model.history import History
from everwhen.testing_strategies import histories, physical
from operators.differential import EMITS, PLANS, SCHEMA, Plan, Trial, epochs

FEW = settings(max_examples=12)


def some_histories(infinite: bool) -> st.SearchStrategy[History]:
    return histories(SCHEMA, max_events=7, max_time=12, allow_infinite=infinite)


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("plan", PLANS, ids=str)
@FEW
@given(data=st.data(), rng=st.randoms(use_true_random=False))
def test_any_stream_gives_the_oracle_s_snapshots(plan: Plan, emit: str, data: st.DataObject, rng: random.Random) -> None:
    given_ = {name: data.draw(some_histories(plan.infinite), label=name) for name in "ST"}
    trial = Trial(plan.build(), emit, given_)
    streams = {
        name: data.draw(physical(given_[name], infinite=plan.infinite), label=f"stream {name}")
        for name in trial.runtime.inputs
    }
    for epoch in epochs(streams, rng):
        trial.push(epoch)
        match rng.randrange(8):
            case 0:
                trial.restart()
            case 1:
                trial.restart(lambda state: pickle.loads(pickle.dumps(state)))
            case 2:
                trial.collect()
    trial.close()
