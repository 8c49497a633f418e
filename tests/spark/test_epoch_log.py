"""The driver's files of a checkpoint, without Spark: whose they are, and which version wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everwhen.errors import StateError
from everwhen.plan.stages.model import LoopRange, StagePlan
from everwhen.spark.driver.epoch_log import EpochLog, EpochState, Identity
from everwhen.spark.driver.loop_rounds import first_steps
from everwhen.spark.worker.epoch_context import EpochContext, LoopRound
from everwhen.storage.state_format import software

WHO = Identity("plan", 2, "final")


def test_a_checkpoint_tells_who_has_written_it(tmp_path: Path) -> None:
    found = EpochLog(str(tmp_path)).open(WHO)
    about = json.loads((tmp_path / "everwhen" / "query.json").read_text())
    assert about["software"] == software() and about["format"] == 2
    assert EpochLog(str(tmp_path)).open(WHO) == found


@pytest.mark.parametrize(
    ("changed", "writer"),
    [
        ({"format": 1, "software": None}, r"Everwhen 0\.4 or an older version, in format 1"),
        ({"format": 3, "software": "everwhen 9.1"}, r"everwhen 9\.1, in format 3"),
        ({"format": "x" * 1000, "software": "y" * 1000}, r"y{60}, in format x{20};"),
    ],
)
def test_a_checkpoint_of_another_version_is_refused_by_name(
    changed: dict[str, Any], writer: str, tmp_path: Path
) -> None:
    EpochLog(str(tmp_path)).open(WHO)
    about = tmp_path / "everwhen" / "query.json"
    found = {**json.loads(about.read_text()), **changed}
    about.write_text(json.dumps({name: value for name, value in found.items() if value is not None}))
    with pytest.raises(StateError, match=rf"was written by {writer}.* Go on with the version that wrote it, or start"):
        EpochLog(str(tmp_path)).open(WHO)


def test_a_journal_that_somebody_has_written_is_damaged_and_nothing_else(tmp_path: Path) -> None:
    journal = EpochLog(str(tmp_path))
    journal.open(WHO)
    for text in ("[" * 100_000, "[]", "{", '{"format": 2}'):
        (tmp_path / "everwhen" / "query.json").write_text(text)
        with pytest.raises(StateError, match=r"query\.json is damaged"):
            journal.open(WHO)


def test_what_is_told_of_rounds_arrives_as_it_was_sent() -> None:
    rounds = {0: LoopRound(4, 31, "settle", 17, 22), 1: LoopRound(0, 9, "retract", kept=5)}
    context = EpochContext(3, rounds=rounds)
    assert EpochContext.from_plain(json.loads(json.dumps(context.to_plain()))) == context
    assert [context.version(loop) for loop in (None, 0, 1)] == [3, 31, 9]


def test_the_steps_of_loops_are_known_after_an_epoch(tmp_path: Path) -> None:
    journal = EpochLog(str(tmp_path))
    journal.done(0, EpochState(steps={"0": (0, 7)}))
    loops = LoopRange("r", 2, 3, frozenset(), 10, 10), LoopRange("s", 5, 5, frozenset(), 10, 10)
    plan = StagePlan((), loops=loops)
    assert first_steps(plan, journal.known(0).steps) == {2: 7, 3: 7, 5: 0}
    assert first_steps(plan, journal.known(-1).steps) == {2: 0, 3: 0, 5: 0}
