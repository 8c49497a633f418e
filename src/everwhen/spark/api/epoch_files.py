"""The epochs of a run over files as Spark reads them, and its answer as the driver writes it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.sinks.base import EpochSink
from everwhen.sinks.changelog import ChangelogSink, changelog_format
from everwhen.spark.sources.changelog_stream import element_arrays
from everwhen.stream.element_batch import ElementBatch


def epoch_table(batch: ElementBatch, schema: Schema) -> pa.Table:
    """The elements of an epoch as Spark reads them; columns have names of our own, since Spark knows no upper case."""
    arrow = pa.schema(
        [("op", pa.int8()), ("vs", pa.int64()), ("ve", pa.int64()), ("vnew", pa.int64())]
        + [(f"c{i}", type_) for i, type_ in enumerate(schema.types)]
        + [("match", pa.string())]
    )
    return pa.Table.from_arrays([pa.array(batch.op.astype(np.int8)), *element_arrays(batch)], schema=arrow)


class AnswerFolder(EpochSink):
    """A changelog that is written by the driver, so that an epoch of final answers is in order."""

    lasting = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._log = ChangelogSink(path)

    def resume(self, published: int) -> None:
        self._log.resume(published)

    def prepare(self, schema: Schema) -> None:
        self._log = ChangelogSink(self._path, changelog_format(schema))
        self._log.prepare(schema)

    def committed(self) -> int:
        return self._log.committed()

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        self._log.commit(epoch, batch)
