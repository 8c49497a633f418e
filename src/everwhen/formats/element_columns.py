"""Elements as columns: those that a Parquet file of elements has (`parquet.py`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.time import INF
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.punctuation.api import write_match
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import ADJUST, CTI, EXTERNAL_CTI, OPS, PUNCT, ElementBatch

MATCH, COUNT, AT = "_match", "_count", "_at"


def columns_of_elements(batch: ElementBatch, axis: TimeAxis = TICKS) -> dict[str, Any]:
    """The columns of a file of elements, all of those that one may have; times are as on the axis."""
    vs, ve = batch.vs.copy(), batch.ve.copy()
    counts = np.zeros(len(batch), np.int64)
    matches: list[str | None] = [None] * len(batch)
    for i, promise in batch.promises.items():
        if isinstance(promise, Punct):
            vs[i] = promise.promise.t
            match = write_match(promise.promise.match, batch.schema)
            matches[i] = json.dumps(match, ensure_ascii=False, separators=(",", ":"))
        else:
            vs[i], ve[i], counts[i] = promise.vs, promise.ve, promise.count
    op = batch.op
    columns: dict[str, Any] = {
        "op": pa.array(OPS).take(pa.array(op)),
        "vs": axis.array(vs, vs == INF),
        "ve": axis.array(ve, (op == CTI) | (op == PUNCT)),
        "vnew": axis.array(batch.vnew, op != ADJUST),
    }
    columns |= {
        MATCH: pa.array(matches, pa.string()),
        COUNT: pa.array(counts, mask=op != EXTERNAL_CTI),
        AT: batch.at,
    }
    columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
    return columns
