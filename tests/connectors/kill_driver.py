"""A job in a process of its own, to be killed: it logs what it is about to take, and commits it to a sink.

This is what the runtime of jobs does, reduced to what connectors promise: `take_to` a logged position gives the same
again, and a sink takes an epoch once.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.connectors.registry import (
    SinkPlace,
    SourcePlace,
    sink_connector,
    sink_options,
    source_connector,
    source_options,
)
from everwhen.core.schema import Schema
from everwhen.sinks.rows import DELETE, PUT, RowChanges
from everwhen.stream.element_batch import INSERT, ElementBatch

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])
LAST = -1
"""The item with which the input ends."""
Spec = tuple[str, tuple[Any, ...], dict[str, Any]]


def run(source: Spec, sink: Spec, form: str, log: str, time_column: str | None, lasts: int, most: int) -> None:
    """Until the last item of each of so many parts of the input is in the sink."""
    name, arguments, named = source
    connector = source_connector(name)
    place = SourcePlace("In", SCHEMA, time=time_column)
    feed = connector.open(source_options(connector, arguments, named), place)
    name, arguments, named = sink
    target = sink_connector(name)
    opened = target.elements if form == "elements" else target.rows
    assert opened is not None
    key = ("item",) if form == "upsert" else ()
    out: Any = opened(sink_options(target, arguments, named), SinkPlace("out", SCHEMA, form, key))
    out.prepare(SCHEMA)
    _work(feed, out, form, Path(log), lasts, most)


def _work(feed: Any, out: Any, form: str, log: Path, lasts: int, most: int) -> None:
    log.touch()
    whole = log.read_bytes()
    whole = whole[: whole.rfind(b"\n") + 1]
    os.truncate(log, len(whole))  # without half a line; written anew, it would be lost to who is killed meanwhile
    told = [json.loads(line) for line in whole.splitlines()]
    ended, committed = 0, out.committed()
    if committed >= 0:
        feed.seek(told[committed])
    for epoch in range(committed + 1, len(told)):
        ended += _commit(out, epoch, feed.take_to(told[epoch]), form)
    with open(log, "a") as file:
        epoch = len(told)
        while ended < lasts:
            batch = feed.take(most)
            if batch is None:
                time.sleep(0.005)
                continue
            file.write(json.dumps(feed.position) + "\n")
            file.flush()
            os.fsync(file.fileno())
            told.append(feed.position)
            ended += _commit(out, epoch, batch, form)
            if epoch % 5 == 0 and (safe := out.committed()) >= 0:
                feed.leave_word("job", told[safe], 0)
            epoch += 1


def _commit(out: Any, epoch: int, batch: ElementBatch | None, form: str) -> int:
    if batch is None:
        return 0
    if form == "elements":
        out.commit(epoch, batch)
    else:
        out.commit(epoch, _rows(batch, form))
    return batch.columns[0].to_pylist().count(LAST)


def _rows(batch: ElementBatch, form: str) -> RowChanges:
    """Inserts as rows; with a key what is ended is gone, unless another row of the key has come."""
    items, names = (column.to_pylist() for column in batch.columns)
    kept: list[tuple[int, Any, Any]] = []
    if form == "append":
        kept = [(PUT, items[i], names[i]) for i in np.flatnonzero(batch.op == INSERT).tolist()]
    else:
        last: dict[Any, tuple[int, Any, Any]] = {}
        for i in np.flatnonzero(batch.op <= 1).tolist():
            put = batch.op[i] == INSERT
            last[items[i]] = (PUT if put else DELETE, items[i], names[i] if put else None)
        kept = list(last.values())
    columns = [pa.array([i for _, i, _ in kept], pa.int64()), pa.array([n for _, _, n in kept], pa.string())]
    rows = pa.record_batch(columns, names=list(SCHEMA.names))
    return RowChanges(form, np.array([op for op, _, _ in kept], np.uint8), rows, 0)
