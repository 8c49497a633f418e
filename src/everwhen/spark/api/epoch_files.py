"""The epochs of a run over files as Spark reads them, and its answer as the driver writes it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import INF
from everwhen.formats.parquet import AT, COUNT, MATCH
from everwhen.punctuation.api import write_match
from everwhen.sinks.base import EpochSink
from everwhen.sinks.changelog import ChangelogSink
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import ADJUST, CTI, ElementBatch


def epoch_table(batch: ElementBatch, schema: Schema) -> pa.Table:
    """The elements of an epoch as Spark reads them; columns have names of our own, since Spark knows no upper case."""
    arrow = pa.schema(
        [("op", pa.int8()), ("vs", pa.int64()), ("ve", pa.int64()), ("vnew", pa.int64())]
        + [(f"c{i}", type_) for i, type_ in enumerate(schema.types)]
        + [("match", pa.string())]
    )
    op, vs = batch.op, batch.vs.copy()
    matches: list[str | None] = [None] * len(batch)
    for i, said in batch.promises.items():
        if isinstance(said, Punct):
            vs[i], matches[i] = said.promise.t, json.dumps(write_match(said.promise.match, schema))
    times = (
        pa.array(op.astype(np.int8)),
        pa.array(vs, mask=vs == INF),
        pa.array(batch.ve, mask=(batch.ve == INF) | (op >= CTI)),
        pa.array(batch.vnew, mask=(batch.vnew == INF) | (op != ADJUST)),
    )
    plain = (c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in batch.columns)
    return pa.Table.from_arrays([*times, *plain, pa.array(matches, pa.string())], schema=arrow)


class AnswerFolder(EpochSink):
    """A changelog that is written by the driver, so that an epoch of final answers is in order."""

    lasting = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._log = ChangelogSink(path)

    def resume(self, published: int) -> None:
        self._log.resume(published)

    def prepare(self, schema: Schema) -> None:
        if any(name in (*RESERVED, MATCH, COUNT, AT) for name in schema.names):  # Parquet has no room for them
            self._log = ChangelogSink(self._path, "jsonl")
        self._log.prepare(schema)

    def committed(self) -> int:
        return self._log.committed()

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        self._log.commit(epoch, batch)
