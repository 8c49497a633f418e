"""The events of a stream once its corrections are applied, as columns: linear in the elements, no loop over rows.

Events are counted: an insert adds one, an adjust takes one away and adds one with another end.  What is left over is
what stands.  `stream/history.py` has the same as Python values; this is for answers of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.schema import Schema
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch


@dataclass(frozen=True, eq=False)
class Events:
    """Lifetimes and payloads; `promised`: nothing before it will change (None: no promise came)."""

    vs: np.ndarray  # int64
    ve: np.ndarray  # int64
    rows: pa.Table
    corrections: int = 0
    promised: int | None = None

    def __len__(self) -> int:
        return len(self.vs)

    def take(self, places: np.ndarray) -> Events:
        """Some of the events, in this order."""
        return Events(
            self.vs[places], self.ve[places], self.rows.take(pa.array(places)), self.corrections, self.promised
        )


def standing(batches: Sequence[ElementBatch], schema: Schema, in_order: bool = False) -> Events:
    """The events that are left when all corrections are applied, by start, else as they came; `in_order`: all as they
    came."""
    op = np.concatenate([batch.op for batch in batches]) if batches else np.empty(0, np.uint8)
    vs, ve, vnew = (_all(batches, name) for name in ("vs", "ve", "vnew"))
    rows = payload_of(batches, schema)
    ctis = vs[op == CTI]
    promised = int(ctis.max()) if len(ctis) else None
    corrections = int((op == ADJUST).sum())
    if not corrections:
        kept = np.flatnonzero(op == INSERT)
    else:
        kept, ve = _left_over(op, vs, ve, vnew, rows, schema)
    if not in_order:
        kept = kept[np.argsort(vs[kept], kind="stable")]
    found = rows if len(kept) == len(op) and (kept == np.arange(len(op))).all() else rows.take(pa.array(kept))
    return Events(vs[kept], ve[kept], found, corrections, promised)


def coalesced(events: Events, schema: Schema) -> Events:
    """The same snapshots in canonical level form: level k of a row has the longest lives with at least k copies."""
    if not len(events):
        return events
    same = _labels(events.rows, schema)
    n = len(events)
    row, time = np.concatenate([same, same]), np.concatenate([events.vs, events.ve])
    change = np.repeat(np.array([1, -1]), n)
    order = np.lexsort((time, row))
    row, time, change = row[order], time[order], change[order]
    new = np.concatenate([[True], (row[1:] != row[:-1]) | (time[1:] != time[:-1])])
    edges = np.flatnonzero(new)
    row, time, change = row[edges], time[edges], np.add.reduceat(change, edges)
    row, time, change = row[change != 0], time[change != 0], change[change != 0]
    # Each row's changes sum up to zero, so the running sum over all rows is the number of copies of this one.
    after = np.cumsum(change)
    lowest = np.minimum(after, after - change)
    count = np.abs(change)
    level = np.repeat(lowest, count) + _places_within(count)
    row, time = np.repeat(row, count), np.repeat(time, count)
    # Of one row and level, starts and ends take turns.
    turns = np.lexsort((time, level, row))
    row, time = row[turns], time[turns]
    starts, ends, row = time[0::2], time[1::2], row[0::2]
    first = np.full(int(same.max()) + 1, n)
    np.minimum.at(first, same, np.arange(n))
    found = Events(starts, ends, events.rows.take(pa.array(first[row])), events.corrections, events.promised)
    return found.take(_canonical_order(found, schema))


def _canonical_order(events: Events, schema: Schema) -> np.ndarray:
    """By start, end, and values; nulls are last.  Lists have no order: what differs in these only stays as it was."""
    unordered = (pa.types.is_nested, pa.types.is_null)
    keys = [field.name for field in schema if not any(holds(field.type) for holds in unordered)]
    columns = [pa.chunked_array([events.vs]), pa.chunked_array([events.ve]), *(events.rows.column(k) for k in keys)]
    table = pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))])
    return pc.sort_indices(table, [(name, "ascending") for name in table.column_names]).to_numpy()


def _left_over(
    op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray, rows: pa.Table, schema: Schema
) -> tuple[np.ndarray, np.ndarray]:
    """The places of the elements whose events are left, each as often as its event is, and the ends of all."""
    same = _labels(rows, schema)
    given, moved = np.flatnonzero(op <= ADJUST), np.flatnonzero((op == ADJUST) & (vnew > vs))
    place = np.concatenate([given, moved])
    end = np.concatenate([ve[given], vnew[moved]])
    weight = np.concatenate([np.where(op[given] == INSERT, 1, -1), np.ones(len(moved), np.int64)])
    order = np.lexsort((place, weight < 0, end, vs[place], same[place]))
    place, end, weight = place[order], end[order], weight[order]
    label, start = same[place], vs[place]
    new = np.concatenate([[True], (label[1:] != label[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])])
    firsts = np.flatnonzero(new)
    left = np.add.reduceat(weight, firsts)
    left = np.maximum(left, 0)
    # Of several equal events the ones that came first are kept: where they stand makes no difference but to the order.
    chosen = np.repeat(firsts, left) + _places_within(left)
    kept = place[chosen]
    ends = ve.copy()
    by_place = np.argsort(kept, kind="stable")
    ends[kept] = end[chosen]
    return kept[by_place], ends


def _labels(rows: pa.Table, schema: Schema) -> np.ndarray:
    """A number for each row, the same for equal ones."""
    codec = RowCodec(schema, Interner())
    columns = [column.combine_chunks() for column in rows.columns[: len(schema)]]
    coded = codec.encode(columns, rows.num_rows)
    order = np.lexsort(coded.T)
    ordered = coded[order]
    labels = np.empty(len(order), np.int64)
    labels[order] = np.cumsum(np.concatenate([[0], (ordered[1:] != ordered[:-1]).any(axis=1)])) if len(order) else 0
    return labels


def _places_within(counts: np.ndarray) -> np.ndarray:
    """0, 1, … for each group of so many."""
    total = int(counts.sum())
    return np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)


def _all(batches: Sequence[ElementBatch], name: str) -> np.ndarray:
    return np.concatenate([getattr(batch, name) for batch in batches]) if batches else np.empty(0, np.int64)


def payload_of(batches: Sequence[ElementBatch], schema: Schema) -> pa.Table:
    """The payloads of all elements; rows without columns have one without a name, so that they are counted."""
    columns = [pa.chunked_array([batch.columns[j] for batch in batches], field.type) for j, field in enumerate(schema)]
    if columns:
        return pa.Table.from_arrays(columns, schema=schema.to_arrow()).combine_chunks()
    return pa.table({"": pa.nulls(sum(map(len, batches)))})
