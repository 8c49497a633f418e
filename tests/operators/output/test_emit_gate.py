"""The gate before a sink: what each policy lets through, that wrong things are taken back at once, and what waits."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.output.emit_gate import EmitGate
from operators.stepping import Said, changes, codec_of, said
from state_files import through_file

CODEC = codec_of({"k": pa.int64()})
GIVEN = changes(CODEC, (0, 4, 1, 1), (2, 9, 1, 2), (6, 8, 1, 3))


@pytest.mark.parametrize(
    ("emit", "first", "last"),
    [
        (Emit.FINAL, {(0, 3, 1): 1, (2, 3, 2): 1}, {(3, 4, 1): 1, (3, 9, 2): 1, (6, 8, 3): 1}),
        (Emit.ENDED, {(0, 4, 1): 1, (2, 3, 2): 1}, {(3, 9, 2): 1, (6, 8, 3): 1}),
        (Emit.CURRENT, {(0, 4, 1): 1, (2, 9, 2): 1}, {(6, 8, 3): 1}),
        (Emit.ALL, {(0, 4, 1): 1, (2, 9, 2): 1, (6, 8, 3): 1}, {}),
    ],
    ids=lambda value: value.value if isinstance(value, Emit) else "",
)
def test_what_each_policy_lets_through(emit: Emit, first: Said, last: Said) -> None:
    """At τ = 5, with everything before 3 promised; then the end."""
    gate = EmitGate(CODEC, emit)
    assert said(gate.step(GIVEN, 5, 3)) == first
    assert said(gate.step(changes(CODEC), 5, INF)) == last
    assert gate.state_size().rows == 0


@pytest.mark.parametrize("emit", Emit)
def test_what_is_wrong_is_taken_back_at_once_and_what_waits_is_cut(emit: Emit) -> None:
    gate = EmitGate(CODEC, emit)
    went = said(gate.step(changes(CODEC, (0, 9, 1, 1)), 2, NEVER))
    back = said(gate.step(changes(CODEC, (4, 9, -1, 1)), 2, NEVER))
    rest = said(gate.step(changes(CODEC), 2, INF))
    total = {(0, 9, 1): 1, (4, 9, 1): -1} if went else {(0, 4, 1): 1}
    assert {**went, **back, **rest} == total


def test_a_stricter_policy_takes_nothing_back_and_a_laxer_one_lets_go() -> None:
    gate = EmitGate(CODEC, Emit.CURRENT)
    gate.step(GIVEN, 5, 3)
    gate.emit = Emit.FINAL
    assert said(gate.step(changes(CODEC), 7, 3)) == {}
    gate.emit = Emit.ALL
    assert said(gate.step(changes(CODEC), 7, 3)) == {(6, 8, 3): 1}


def test_a_promise_waits_for_the_rows_that_it_covers_and_a_restart_keeps_them() -> None:
    gate = EmitGate(CODEC, Emit.FINAL)
    gate.step(GIVEN, 5, NEVER)
    again = EmitGate(CODEC, Emit.FINAL)
    again.restore(through_file(gate.snapshot()))
    assert again.state_size().rows == 3
    assert again.holds(Punctuation.constants({"k": 2}, 5))
    assert not again.holds(Punctuation.constants({"k": 2}, 2)), "it begins then"
    assert not again.holds(Punctuation.constants({"k": 4}, INF))
