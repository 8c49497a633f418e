"""A merge that is killed, with copies that join late and end early: it says what it says when nobody dies.

Run as a program it is what is killed: `python -c "from spark.test_merge_faults import main; main()" <directory> -`.
"""

from __future__ import annotations

import json
import random
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.sinks import ChangelogSink, read_changelog
from everwhen.spark.api.session import session
from everwhen.spark.api.start import start
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, reorder
from spark.fault_driver import SNAPSHOT_EVERY, Driver, Faults, plan_faults
from spark.spark_epochs import read_epochs, write_epochs

COPIES = {name: ew.source(name, {"k": "string", "x": "int64"}) for name in "abc"}
SCHEMA = COPIES["a"].schema
EPOCHS = 9
ENDS = {"b": 3, "a": 6}


def query() -> ew.Stream:
    """Answers of three copies over two stages, one of them right from 6 on."""
    counts = [each.group_by("k", "x").agg(n=ew.count()).select("x", "n") for each in COPIES.values()]
    return ew.lmerge(*counts, since={2: 6}, policy=ew.MergePolicy(leader=True))


def copies(seed: int) -> dict[str, list[ElementBatch]]:
    """Three streams, two of which lack some events: the rule must decide the same whoever dies."""
    rng = random.Random(seed)
    events = []
    for at in range(EPOCHS * 5):
        vs = at // 2 + rng.randrange(3)
        events.append(ew.Insert(vs, vs + rng.choice([1, 2, 9]), {"k": rng.choice("pqr"), "x": rng.randrange(3)}))
    cut = {}
    for name in COPIES:
        held = [event for event in events if name == "c" or rng.random() < 0.9]
        elements = reorder(History.of(held, SCHEMA), rng, disorder=6, close=True, infinite=False)
        bounds = [len(elements) * at // EPOCHS for at in range(EPOCHS + 1)]
        cut[name] = [batch_of(elements[i:j], SCHEMA) for i, j in pairwise(bounds)]
    return cut


def main() -> None:
    place = Path(sys.argv[1])
    plan_faults(place)
    spark = session("local[2,4]", "faults", **{"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": 2})
    handle = start(
        query(),
        {name: read_epochs(spark, place / name, SCHEMA) for name in COPIES},
        sink=ChangelogSink(place / "changelog"),
        checkpoint=place / "checkpoint",
        trigger="available",
        buckets=2,
        snapshot_every=SNAPSHOT_EVERY,
        ends=ENDS,
    )
    handle.await_termination()
    spark.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_merge_that_is_killed_says_the_same(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    cut = copies(seed)
    for name, batches in cut.items():
        write_epochs(tmp_path / name, batches)
    faults = Faults(tmp_path / "faults")
    for point in ("after_step", "after_log", "before_snapshot"):
        fitting = [e for e in range(1, EPOCHS) if "snapshot" not in point or e % SNAPSHOT_EVERY != 1]
        faults.plan(rng.choice(fitting), point, "kill")
    faults.plan(ENDS["b"], "before_manifest", "kill")
    faults.plan(ENDS["a"], "after_job", "raise")
    faults.outside = sorted((rng.randrange(1, EPOCHS), rng.uniform(0, 1), whom) for whom in ("driver", "worker"))
    driver = Driver(tmp_path, "-", faults, rng, program="from spark.test_merge_faults import main; main()")
    driver.run(8)
    assert len(driver.lives) > 2 and len(faults.struck) >= 4, faults.struck
    found = list(read_changelog(tmp_path / "changelog"))
    manifests = sorted(int(path.stem) for path in (tmp_path / "changelog" / "_epochs").iterdir())
    assert manifests == list(range(EPOCHS))
    local = ew.LocalRuntime(query())
    said: list[ElementBatch] = []
    for epoch in range(EPOCHS):
        ended = [name for name, last in ENDS.items() if last == epoch]
        if ended:
            local._end(ended)  # with the epoch, as on Spark
        said.append(local.push({name: cut[name][epoch] for name in COPIES if ENDS.get(name, EPOCHS) > epoch})["out"])
    assert_valid(found)
    elements = [element for batch in found for element in batch.elements()]
    assert elements[-1] == ew.Cti(ew.INF)
    assert_same_history(History.of(found, query().schema), History.of(said, query().schema))


def test_what_is_decided_of_copies_is_logged(tmp_path: Path) -> None:
    """As the log of an epoch and the context of its tasks hold it."""
    from everwhen.core.consistency import MIDDLE
    from everwhen.spark.driver.copy_changes import CopyChanges
    from everwhen.spark.driver.epoch_log import EpochDecision, EpochLog
    from everwhen.spark.worker.epoch_context import EpochContext

    log = EpochLog(str(tmp_path))
    asked = EpochDecision(frozenset(), 1.0, MIDDLE.to_plain(), ended=frozenset("a"))

    def decided(changes: CopyChanges, epoch: int) -> EpochDecision:
        return changes.decide(changes.wanted(asked, epoch), epoch)

    changes = CopyChanges.of(log)
    changes.detach("b", None)
    changes.detach("c", 9)
    first = decided(changes, 0)
    assert (first.ended, first.detached, first.anew, first.until) == ({"a"}, {"b"}, {}, {"c": 9})
    changes.attach("b", since=7, after=1)  # Spark has planned epoch 1 already
    again = CopyChanges.of(log)
    second = decided(again, 1)
    assert (second.detached, second.anew) == ({"b"}, {})
    third = decided(again, 2)
    assert (third.detached, third.anew, third.numbers) == (frozenset(), {"b": 7}, {"b": 1})
    assert decided(CopyChanges.of(log), 3).anew == {}, "once, whoever dies"
    assert decided(CopyChanges.of(log), 2) == third, "an epoch that is run again is the same"
    again.attach("c", since=9, after=-1)
    assert decided(CopyChanges.of(log), 4).until == {}, "another stream takes its place"
    context = EpochContext(2, ended=third.ended, detached=frozenset("c"), anew=third.anew, until=third.until)
    assert EpochContext.from_plain(json.loads(json.dumps(context.to_plain()))) == context
