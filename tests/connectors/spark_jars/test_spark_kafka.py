"""Spark's own Kafka source feeds a query, as docs/spark.md writes it: over a real broker, killed and started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import everwhen as ew
from connectors.kafka_broker import Broker
from connectors.spark_jars.jars import kafka_jars
from connectors.spark_jars.kafka_query import AT_A_TIME, BOUND, queries
from everwhen.sinks import read_changelog
from everwhen.stream.history import History
from everwhen.testing import assert_valid

pytestmark = [pytest.mark.slow, pytest.mark.spark]

BEGIN = 1_700_000_000_000
SPAN = BOUND - 5_000
"""So many milliseconds a feed covers, less than rows may be late: partitions may be read in any order."""
PARTITIONS = 3
PATIENCE = 300.0
Row = tuple[int, str, float]


class Bids:
    """Bids in three partitions, in no order."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, broker.topic(topic, PARTITIONS)
        self._rng = random.Random(topic)
        self._begin = BEGIN
        self.rows: list[Row] = []

    def feed(self, count: int = 100, later: int = 0) -> None:
        """More rows, none before those of earlier feeds, `later` than they would be."""
        self._begin += later
        times = (self._begin + self._rng.randrange(SPAN) for _ in range(count))
        rows = [(at, self._rng.choice("abcde"), float(self._rng.randrange(100))) for at in times]
        for part in range(PARTITIONS):
            self._broker.put(self._topic, [_message(*row) for row in rows[part::PARTITIONS]], part)
        self.rows += rows
        self._begin += SPAN

    def answers(self) -> dict[str, History]:
        """In process, over the same rows."""
        events = [ew.Insert(at, at + 1, {"item": item, "price": price}) for at, item, price in sorted(self.rows)]
        asked = queries()
        return {name: History.of(list(ew.run(query, {"Bid": events})), query.schema) for name, query in asked.items()}


def _message(at: int, item: str, price: float) -> dict[str, Any]:
    written = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"at": written, "item": item, "price": price}


@pytest.fixture(scope="session")
def jars() -> list[Path]:
    found = kafka_jars()
    if found is None:
        pytest.skip("left out: Spark's Kafka source is not here (make test-connectors fetches its jars with mvn)")
    return found


@contextmanager
def running(jars: list[Path], broker: Broker, topic: str, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The query in a process group of its own, which is killed at the end if it is still there."""
    program, given = "connectors.spark_jars.kafka_query", ",".join(map(str, jars))
    words = [sys.executable, "-m", program, broker.servers, topic, str(place), given]
    paths = os.pathsep.join(path for path in sys.path if path)
    with open(place / "log", "ab") as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, start_new_session=True, env={**os.environ, "PYTHONPATH": paths}
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def epochs(place: Path) -> list[int]:
    """The epochs that are written."""
    return sorted(int(path.stem) for path in (place / "rows" / "_epochs").glob("*.json"))


def taken(place: Path) -> Counter[Row]:
    """The rows that have come through, by what is written."""
    elements = [element for batch in read_changelog(place / "rows") for element in batch.elements()]
    assert all(isinstance(element, ew.Insert | ew.Cti) for element in elements)
    inserts = [element for element in elements if isinstance(element, ew.Insert)]
    return Counter((each.vs, each.row["item"], each.row["price"]) for each in inserts)


def until_epoch(process: subprocess.Popen[bytes], place: Path, count: int) -> None:
    """Waits until so many epochs are written."""
    end = time.monotonic() + PATIENCE
    while len(epochs(place)) < count:
        assert process.poll() is None and time.monotonic() < end, (place / "log").read_text()
        time.sleep(0.02)


def until_all(process: subprocess.Popen[bytes], place: Path, bids: Bids) -> None:
    """Waits until all rows are taken."""
    written = 1
    until_epoch(process, place, written)
    while taken(place).total() < len(bids.rows):
        written += 1  # counted before the next look, so that none is waited for that is there already
        until_epoch(process, place, written)


def same_up_to(found: History, expected: History, last: int) -> None:
    """Both say the same of every instant up to the last; of later ones a run that goes on has not spoken yet."""
    instants = {t for history in (found, expected) for start, end, _ in history.events() for t in (start, end)}
    for t in sorted(instant for instant in instants if instant <= last):
        assert found.snapshot(t) == expected.snapshot(t), t


def test_killed_and_started_again_it_answers_as_in_process(jars: list[Path], broker: Broker, tmp_path: Path) -> None:
    print(*(jar.name for jar in jars))
    topic = "spark-bids"
    bids = Bids(broker, topic)
    bids.feed()
    with running(jars, broker, topic, tmp_path) as process:  # killed within an epoch, with more to read
        until_all(process, tmp_path, bids)
        bids.feed(5 * AT_A_TIME)
        until_epoch(process, tmp_path, len(epochs(tmp_path)) + 2)
        time.sleep(0.15)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    killed_at = len(epochs(tmp_path))
    planned, done = (
        len(list((tmp_path / "checkpoint" / "spark" / log).glob("[0-9]*"))) for log in ("offsets", "commits")
    )
    assert taken(tmp_path).total() < len(bids.rows), "it was killed too late: nothing was left to read"
    with running(jars, broker, topic, tmp_path) as process:
        until_all(process, tmp_path, bids)
        bids.feed(10, later=3_600_000)  # all before is final
        until_all(process, tmp_path, bids)
        (tmp_path / "stop").touch()
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    report = json.loads((tmp_path / "report.json").read_text())
    print(
        report, f"killed with {killed_at} of {len(epochs(tmp_path))} epochs written,", planned, "planned,", done, "done"
    )
    assert report["sources"] == [f"KafkaV2[Subscribe[{topic}]]"]
    assert not any(report["late"].values())
    assert epochs(tmp_path) == list(range(len(epochs(tmp_path))))
    assert taken(tmp_path) == Counter(bids.rows)
    for name, expected in bids.answers().items():
        found = list(read_changelog(tmp_path / name))
        assert_valid(found)
        same_up_to(History.of(found, queries()[name].schema), expected, max(bids.rows)[0])
