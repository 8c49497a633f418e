"""Rows that live for ever, with punctuation between them, as batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.stream.batch_punctuation import punctuations
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import PUNCT, ElementBatch


def embedded(
    schema: Schema,
    starts: np.ndarray,
    columns: Sequence[pa.Array],
    promises: Sequence[tuple[int, Punctuation]] = (),
    ends: np.ndarray | None = None,
) -> ElementBatch:
    """Inserts with these starts, each promise in front of the row with its number; numbers rise."""
    n, m = len(starts), len(promises)
    ends = np.full(n, INF, np.int64) if ends is None else ends
    op, vs, ve = np.zeros(n + m, np.uint8), np.zeros(n + m, np.int64), np.full(n + m, INF, np.int64)
    places = np.array([at for at, _ in promises], np.int64) + np.arange(m)
    op[places] = PUNCT
    rows = np.flatnonzero(op != PUNCT)
    vs[rows], ve[rows] = starts, ends
    if m:
        of_row = np.zeros(n + m, np.int64)
        of_row[rows] = np.arange(n)
        take = pa.array(of_row, mask=op == PUNCT)
        columns = [column.take(take) for column in columns]
    said: dict[int, Punct] = {int(place): Punct(promise) for place, (_, promise) in zip(places, promises, strict=True)}
    return ElementBatch(schema, op, vs, ve, np.zeros(n + m, np.int64), tuple(columns), punctuations(said, schema))
