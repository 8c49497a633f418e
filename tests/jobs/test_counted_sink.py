"""Sinks of jobs on Spark: what they were given is counted, and epochs without elements are remembered."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.jobs.spark_job import CountedSink
from everwhen.sinks.base import EpochSink
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of

SCHEMA = Schema.of([("x", pa.int64())])
NOTHING = batch_of([], SCHEMA)


class Silent(EpochSink):
    """Keeps no trace of an epoch without elements, as Kafka and Delta do."""

    lasting = True
    last = -1

    def prepare(self, schema: Schema) -> None:
        pass

    def committed(self) -> int:
        return self.last

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if len(batch):
            self.last = epoch


def test_epochs_without_elements_are_in_and_lost_ones_are_not(tmp_path: Path) -> None:
    target = Silent()
    sink = CountedSink(target, tmp_path / "note")
    sink.prepare(SCHEMA)
    assert sink.committed() == -1
    for epoch, batch in enumerate([batch_of([Insert(0, 5, {"x": 1}), Cti(3)], SCHEMA), NOTHING, NOTHING]):
        sink.commit(epoch, batch)
    again = CountedSink(target, tmp_path / "note")
    again.prepare(SCHEMA)
    assert (target.committed(), again.committed(), again.counts["elements"]) == (0, 2, 2)
    target.last = -1
    assert again.committed() == -1, "the epoch that had elements is lost"
