"""A batch of elements as plain data, and back: what snapshots hold of what waits to be said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.punctuation.api import promises_of, promises_state
from everwhen.stream.element import ExternalCti, Punct
from everwhen.stream.element_batch import ElementBatch


def batch_state(batch: ElementBatch) -> dict[str, Any]:
    """A batch of elements as plain data; where it came from is left out."""
    said = {
        i: (each.vs, each.ve, each.count) if isinstance(each, ExternalCti) else promises_state([each.promise])[0]
        for i, each in batch.promises.items()
    }
    schema = batch.schema.to_arrow().serialize().to_pybytes()
    times = [batch.op, batch.vs, batch.ve, batch.vnew]
    return {"schema": schema, "times": times, "columns": list(batch.columns), "promises": said}


def batch_of_state(state: Mapping[str, Any]) -> ElementBatch:
    """The batch of `batch_state`."""
    schema = Schema.of(pa.ipc.read_schema(pa.py_buffer(state["schema"])))
    said = {
        i: ExternalCti(*each) if len(each) == 3 else Punct(promises_of([each])[0])
        for i, each in state["promises"].items()
    }
    op, vs, ve, vnew = state["times"]
    return ElementBatch(schema, op, vs, ve, vnew, tuple(state["columns"]), said)
