"""Recursion on Spark is exactly once: whatever is killed, and whenever, between rounds of a loop too."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.sinks import read_changelog
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from spark.fault_driver import Driver, Faults, epochs
from spark.recursion_faults import ROUNDS, queries
from spark.spark_epochs import write_epochs

IN_TASKS = ("before_step", "after_step", "after_log", "before_snapshot", "after_snapshot", "after_part")


def killed_and_restarted(place: Path, seed: int, count: int, tasks: int, rounds: int, outside: tuple[int, int]) -> int:
    """A run of so many epochs; workers are killed at points of their tasks, the driver between rounds of a loop, both
    from outside at random moments.  How many were killed."""
    rng = random.Random(seed)
    batches = epochs(count, seed)
    write_epochs(place / "S", batches)
    faults = Faults(place / "faults")
    moments = range(1, count - 1)
    points = [(epoch, point) for epoch in moments for point in IN_TASKS]
    for epoch, point in rng.sample(points, tasks):
        faults.plan(epoch, point, "kill")
    for epoch, number in rng.sample([(epoch, number) for epoch in moments for number in ROUNDS], rounds):
        faults.plan(epoch, f"round_{number}", "kill")
    for whom, times in zip(("worker", "driver"), outside, strict=True):
        faults.outside += [(rng.choice(moments), rng.uniform(0, 2), whom) for _ in range(times)]
    faults.outside.sort()
    driver = Driver(place, "", faults, rng, program="from spark.recursion_faults import main; main()")
    driver.run(2 * (rounds + outside[1]) + tasks // 4 + 2)
    runtime = LocalRuntime(queries())
    expected = [runtime.push({"S": batch}) for batch in batches]
    for name in queries():
        check_changelog(place / name, [answer[name] for answer in expected], name)
    between = [each for each in faults.struck if ".round_" in each]
    assert len(between) == rounds, faults.struck
    return len(faults.struck)


def check_changelog(folder: Path, expected: list[ElementBatch], name: str) -> None:
    """Every epoch is there once, and together they say what a run without faults says."""
    manifests = sorted((folder / "_epochs").iterdir(), key=lambda path: int(path.stem))
    assert [json.loads(path.read_text())["epoch"] for path in manifests] == list(range(len(expected)))
    found = list(read_changelog(folder))
    assert_valid(found)
    assert list(found[-1].elements())[-1] == ew.Cti(ew.INF)
    schema = queries()[name].schema
    assert_same_history(History.of(found, schema), History.of(expected, schema))


@pytest.mark.slow
def test_killed_between_rounds_and_restarted(tmp_path: Path) -> None:
    assert killed_and_restarted(tmp_path, seed=5, count=5, tasks=3, rounds=1, outside=(1, 0)) >= 4


@pytest.mark.slow
def test_killed_fifty_times_and_restarted(tmp_path: Path) -> None:
    assert killed_and_restarted(tmp_path, seed=6, count=40, tasks=32, rounds=9, outside=(9, 7)) >= 50
