"""What the tasks of an epoch are told: all in which it differs from other epochs, except for its rows.

It goes with the job as one of its properties.  So the function that Spark is given is the same in every epoch, and is
pickled and planned once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext, TaskContext

from everwhen.core.emit import Emit
from everwhen.spark.worker.stage_task import StageTask

_PROPERTY: Final = "everwhen.epoch"


@dataclass(frozen=True)
class EpochContext:
    """`present` is the emission policy, `promised` what the sources had promised before; `marks` are control rows that
    every bucket of the first stage gets."""

    epoch: int
    idle: frozenset[str]
    present: Emit | None
    promised: Mapping[str, int]
    marks: Sequence[Mapping[str, Any]] = field(default=())

    def tell(self, context: SparkContext) -> None:
        """Tell the tasks of the jobs that this thread starts next."""
        plain = asdict(self) | {"idle": sorted(self.idle), "present": self.present and self.present.value}
        context.setLocalProperty(_PROPERTY, json.dumps(plain))


@dataclass(frozen=True)
class EpochScopedTask:
    """The function that `mapInArrow` runs: the task of a stage in the epoch that it is told."""

    task: StageTask
    first: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        told = json.loads(str(context.getLocalProperty(_PROPERTY)))
        yield from self.task.told(told)(self._marked(batches, told["marks"]))

    def _marked(self, batches: Iterator[pa.RecordBatch], marks: list[dict[str, object]]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if self.first and marks:
            yield self.task.into.controls(marks)
