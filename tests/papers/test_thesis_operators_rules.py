"""The thesis's transformation rules for the physical operators: both plans of a pair have the same output history.

The same physical stream goes to both plans, in every emission policy (CEDR's theorem 9 needs the same one twice).
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.algebra.nodes import Node
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from everwhen.testing.strategies import histories, sequences
from example_counts import examples_per_case
from papers.thesis_rules import RULES, SCHEMA, Rule

FINITE = ("17.2 rstream is a split", "11.7 coalesce undoes split")
"""A lifetime without end is not cut into pieces."""

FEW = settings(max_examples=examples_per_case(6))


def result(node: Node, emit: str, epochs: list[dict[str, ElementBatch]]) -> History:
    runtime = LocalRuntime(node, emit=emit)
    out = []
    for epoch in epochs:
        out += runtime.push({name: batch for name, batch in epoch.items() if name in runtime.inputs})["out"].elements()
    out += runtime.close()["out"].elements()
    assert_valid(out)
    return History.of(out, node.schema)


@pytest.mark.parametrize("emit", ["final", "ended", "current"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@FEW
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_rule(rule: Rule, emit: str, data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    infinite = not rule.single and rule.name not in FINITE
    some = sequences(SCHEMA) if rule.single else histories(SCHEMA, max_events=6, max_time=8, allow_infinite=infinite)
    streams = {}
    for name in "ABC":
        history = data.draw(some, label=name)
        streams[name] = reorder(history, rng, disorder=rng.choice((0, 4)), infinite=infinite)
    epochs = []
    while any(streams.values()):
        epochs.append({name: batch_of(stream[:3], SCHEMA, name) for name, stream in streams.items()})
        streams = {name: stream[3:] for name, stream in streams.items()}
    assert_same_history(result(rule.left(), emit, epochs), result(rule.right(), emit, epochs))
