"""Sort at a sink: rows in the order of some columns, each said when nothing can come before it any more (Tucker, 5).

Tables 2 to 4 in one: passed are the rows in `init(Sort, ps)`, the promised prefix of the order (`sort_prefix`); kept
are all others; promised is the prefix, once its rows are out.  All promises that count are for all time, so a row that
is passed is final, whatever its lifetime: it is said whole, once, and nothing has to hold it back before.  The end of
the input promises everything.

Guarantee: over all steps, rows come out in one order: by the sort columns (nulls last), then by start, then by the
rest of the row.  Time alone promises no prefix, so without punctuation everything comes at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import EventChangelogEncoder
from everwhen.operators.sort.sort_prefix import SortPrefix
from everwhen.punctuation.api import Projection, PunctuationStore
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import INSERT, ElementBatch, coded_elements
from everwhen.values.columns import numbered


class SortOperator(Operator):
    """See the module's docstring; it takes segments, corrections among them, and says each row once."""

    keeps = "rows until everything before them in the order is promised"

    def __init__(self, by: Sequence[tuple[str, bool]], codec: RowCodec) -> None:
        self.codec = codec
        self._by = tuple(by)
        names = [name for name, _ in by]
        self._projection = Projection(codec.schema, {name: [name] for name in names})
        self._prefix = SortPrefix(by, codec.schema.select(names))
        self._waiting: list[Changes] = []
        codec.pool.register(self)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,), (frontier,) = inputs, frontiers
        if len(batch):
            self._waiting.append(batch)
        lasting = [promise for promise in frontier.promises if promise.t == INF]
        fresh = self._projection.project(lasting) if lasting else []
        grown = self._prefix.take([Punctuation()] if frontier.time == INF else fresh)
        # a row of the prefix may still have been on its way in this step
        if not grown and not (len(batch) and self._prefix.covered):
            return Output(no_changes(self.codec), Frontier(self._time(frontier.time)))
        passed = self._passed()
        said = self._prefix.covered if grown and not self._prefix.everything else ()
        return Output(passed, Frontier(self._time(frontier.time), said))

    def _time(self, promised: int) -> int:
        """No element to come starts before this."""
        if self._prefix.everything:
            return INF
        return min([promised, *(int(part.lo.min()) for part in self._waiting)])

    def _passed(self) -> Changes:
        """Take the rows of the prefix, in order."""
        waiting = self._all()
        if self._prefix.everything:
            out, self._waiting = waiting, []
        else:
            schema = self.codec.schema
            names = [name for name, _ in self._by]
            columns = {name: self.codec.column(waiting.rows, schema.index(name)) for name in names}
            prefix = PunctuationStore(schema.select(names))
            prefix.add(self._prefix.covered)
            ready = prefix.upto(columns, len(waiting)) == INF
            out, rest = waiting.take(ready), waiting.take(~ready)
            self._waiting = [rest] if len(rest) else []
        if (out.weight != 1).any():
            out = out.take(np.repeat(np.arange(len(out)), out.weight))
            out = Changes(self.codec, out.lo, out.hi, np.ones(len(out), np.int64), out.rows)
        return out.take(self._order(out))

    def _all(self) -> Changes:
        """What waits, netted."""
        found = no_changes(self.codec)
        if self._waiting:
            found = self._waiting[0]
            for part in self._waiting[1:]:
                found = concat(found, part)
        return netted(found)

    def _order(self, rows: Changes) -> np.ndarray:
        length, schema = len(rows), self.codec.schema
        columns = self.codec.decode(rows.rows)
        keys: list[np.ndarray] = []
        for name, down in self._by:
            column = columns[schema.index(name)]
            place = numbered([column], length)
            missing = column.is_null().to_numpy(zero_copy_only=False)
            keys.append(np.where(missing, length, -place if down else place))
        others = [column for name, column in zip(schema.names, columns, strict=True) if name not in dict(self._by)]
        keys += [rows.lo, numbered(others, length), rows.hi]
        return np.lexsort(keys[::-1])

    def needs(self, t: int) -> tuple[int, ...]:
        """No time releases a row that waits; only promises about the order do, or the end."""
        first = min((int(part.lo.min()) for part in self._waiting), default=INF)
        return (INF if first < t else t,)

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        return [(part.rows, self.codec.pooled) for part in self._waiting]

    def recoded(self) -> None:
        """Segments carry no hash."""

    def state_size(self) -> StateSize:
        arrays = [array for part in self._waiting for array in (part.lo, part.hi, part.weight, part.rows)]
        rows = sum(map(len, self._waiting))
        return StateSize(rows, sum(a.nbytes for a in arrays) + self._prefix.nbytes + self._projection.nbytes)

    def snapshot(self) -> dict[str, Any]:
        waiting = self._all()
        return {
            "lo": waiting.lo,
            "hi": waiting.hi,
            "weight": waiting.weight,
            "rows": self.codec.decode(waiting.rows),
            "prefix": self._prefix.snapshot(),
            "projection": self._projection.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        restored.ints(len(state["lo"]), state["lo"], state["hi"], state["weight"])
        restored.counts(state["weight"])
        rows = restored.rows(self.codec, state["rows"], len(state["lo"]))
        waiting = Changes(self.codec, state["lo"], state["hi"], state["weight"], rows)
        self._waiting = [waiting] if len(waiting) else []
        self._prefix.restore(state["prefix"])
        self._projection.restore(state["projection"])


class SortedChangelogEncoder(EventChangelogEncoder):
    """The sink of a sorted answer: inserts in the order in which they come, never taken back."""

    def step(self, batch: Changes, promise: int, promises: Sequence[Punctuation] = ()) -> ElementBatch:
        count = len(batch)
        cti = promise if promise > self.cti else None
        self.cti = max(self.cti, promise)
        head = np.zeros((4, count + len(promises) + 1), np.int64)
        head[0, :count], head[1, :count], head[2, :count] = INSERT, batch.lo, batch.hi
        return coded_elements(self.codec, head[0], head[1:], batch.rows, promises, cti)
