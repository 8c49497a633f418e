"""Plans and numbers of partitions that change while processes are killed: the answer is the query's, at every instant.

Run as a program it is what is killed: `python -c "from spark.test_migrate_faults import main; main()" <directory> -`.
The steps that it takes stand in `<directory>/steps.json`: a plan of one query and a number of partitions each.  Another
plan migrates while the query runs, another number of partitions is given when it is started again.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.errors import QueryError
from everwhen.sinks import ChangelogSink, read_changelog
from everwhen.spark.api import handle as handle_module
from everwhen.spark.api import replacing as replacing_module
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.session import session
from everwhen.spark.api.start import start
from everwhen.spark.driver.plan_log import read_record, write_record
from everwhen.stream.element_batch import CTI
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from spark.fault_driver import SNAPSHOT_EVERY, Driver, Faults, plan_faults, strike
from spark.spark_epochs import read_epochs, write_epochs
from spark.test_replace import BIDS, SCHEMA, epochs, events, spliced

EPOCHS = 20
TEXT = (
    "SELECT item, COUNT(*) AS n, MAX(price) AS v FROM (SELECT item, price FROM Bid WINDOW(RANGE 4 MILLISECONDS)) AS b "
    "WHERE item <> 'r' AND price + 1 > 1 GROUP BY item"
)
IN_STAGES = (
    "SELECT item, SUM(many) AS n, MAX(price) AS v FROM (SELECT item, price, COUNT(*) AS many "
    "FROM Bid WINDOW(RANGE 4 MILLISECONDS) WHERE item <> 'r' GROUP BY item, price) AS b GROUP BY item"
)


def forms() -> list[ew.Stream]:
    """Plans of one meaning."""
    return [ew.sql(TEXT, BIDS, optimize=False), ew.sql(TEXT, BIDS), ew.sql(IN_STAGES, BIDS)]


def main() -> None:
    place = Path(sys.argv[1])
    steps = json.loads((place / "steps.json").read_text())
    faults = plan_faults(place)

    def deadly(log: object, record: object) -> None:
        strike(faults, record.number, "before_record")  # type: ignore[attr-defined]
        write_record(log, record)  # type: ignore[arg-type]
        strike(faults, record.number, "after_record")  # type: ignore[attr-defined]

    for module in (handle_module, replacing_module):
        module.write_record = deadly  # type: ignore[assignment]
    settings = {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": 2}
    spark = session("local[2,4]", "faults", **settings)
    plans = forms()

    def begun(number: int) -> Handle:
        _, buckets = steps[number]
        return start(
            plans[0], {"Bid": read_epochs(spark, place / "Bid", SCHEMA)}, sink=ChangelogSink(place / "changelog"),
            checkpoint=place / "checkpoint", buckets=buckets, snapshot_every=SNAPSHOT_EVERY,
            trigger="200 milliseconds",
        )  # fmt: skip

    record = read_record(str(place / "checkpoint"))
    number = 0 if record is None else record.number
    handle, since = begun(number), -1 if record is None else record.first
    last = place / "checkpoint" / "everwhen" / "epochs" / f"{EPOCHS - 1:012d}.done"
    while not last.exists():  # also if an earlier life was killed behind its last epoch
        if not handle.is_active:
            raise handle.last_error or RuntimeError("stopped")
        done = -1 if handle.progress is None else handle.progress.epoch
        if number + 1 < len(steps) and handle.replaced_at is None and done > max(since, 0):
            number += 1
            (form, buckets), (_, before) = steps[number], steps[number - 1]
            if buckets == before:
                try:
                    handle.migrate(plans[form])
                except QueryError as bad:
                    assert "the query has come to its end" in str(bad)  # with the epoch that was done meanwhile
            else:
                handle.stop()
                handle = begun(number)
            since = done + 1
        time.sleep(0.05)
    handle.stop()
    spark.stop()


def killed(place: Path, seed: int, steps: list[tuple[int, int]], tasks: int, drivers: int) -> int:
    """A run that is killed so many times in its tasks and its driver (once at any time, else while a plan that takes
    over is written down); how many times it was."""
    rng = random.Random(seed)
    given = events(seed, 80)
    cut = epochs(given, seed, EPOCHS)
    write_epochs(place / "Bid", cut)
    (place / "steps.json").write_text(json.dumps(steps))
    faults = Faults(place / "faults")
    points = [
        (epoch, point)
        for epoch in range(1, EPOCHS - 1)
        for point in ("before_step", "after_step", "after_log", "after_part")
    ]
    for epoch, point in rng.sample(points, tasks):
        faults.plan(epoch, point, "kill")
    switches = [(number, point) for number in range(1, len(steps)) for point in ("before_record", "after_record")]
    for number, point in rng.sample(switches[:4], drivers - 1):
        faults.plan(number, point, "kill")
    faults.outside = [(rng.randrange(2, EPOCHS - 1), rng.uniform(0, 1), "driver")]
    driver = Driver(place, "-", faults, rng, program="from spark.test_migrate_faults import main; main()")
    driver.run(drivers + 12)
    found = list(read_changelog(place / "changelog"))
    assert_valid(found)
    elements = [element for batch in found for element in batch.elements()]
    assert elements[-1] == ew.Cti(ew.INF)
    assert_same_history(History.of(found, forms()[0].schema), spliced([(NEVER, forms()[0])], given))
    record = read_record(str(place / "checkpoint"))
    assert record is not None and record.number >= 3, "plans did change"
    check_pause(place, cut)
    said = f"{len(faults.struck)} kills in {len(driver.lives)} lives, {record.number} changes: {sorted(faults.struck)}"
    print(f"seed {seed}: {said}")
    return len(faults.struck)


def check_pause(place: Path, cut: list) -> None:
    """After every epoch everything is final that was promised two epochs before."""
    promised = NEVER
    told = []
    for batch in cut:
        promised = max([promised, *batch.vs[batch.op == CTI].tolist()])
        told.append(promised)
    for epoch in range(2, EPOCHS):
        known = json.loads((place / "checkpoint" / "everwhen" / "epochs" / f"{epoch:012d}.done").read_text())
        assert known["queries"]["out"] >= told[epoch - 2], (epoch, known["queries"], told)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2, 8])
def test_plans_and_partitions_change_while_processes_are_killed(tmp_path: Path, first: int) -> None:
    rng, steps = random.Random(first), [(0, first)]
    while len(steps) < 8:  # by turns another plan and another number of partitions
        form, buckets = steps[-1]
        if len(steps) % 2:
            steps.append((rng.choice([f for f in range(3) if f != form]), buckets))
        else:
            steps.append((form, rng.choice([b for b in (1, 2, 8) if b != buckets])))
    assert killed(tmp_path, first, steps, tasks=15, drivers=3) >= 17
