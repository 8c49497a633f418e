"""`Answer`: what a query says, element by element as it is computed, or as a table, a text, a picture.

**Guarantee.**  Iteration is lazy: the query goes on when the next element is asked for.  The first `KEPT` elements are
kept, so that a small answer can be looked at again; a longer one that is only iterated over takes no more memory.  A
table reads the answer to its end, and keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from functools import cached_property
from time import monotonic
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import Unfit
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.core.time_axis import TimeAxis, asked_axis, tick_length
from everwhen.errors import QueryError
from everwhen.formats.time_columns import ticks_of_text
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ADJUST, CTI, OPS, PUNCT, ElementBatch
from everwhen.tables.events import Events, coalesced, payload_of, standing
from everwhen.tables.html import answer_html, answer_text, texts
from everwhen.tables.optional import package
from everwhen.tables.plot import lifetimes_chart

KEPT: Final = 1_000_000
"""So many elements are kept while an answer is iterated over."""
LOOKED: Final = 100_000
"""To be shown, an answer is read to its end, but at most to so many elements;"""
SECONDS: Final = 2.0
"""and where they do not come, for so long,"""
EPOCHS: Final = 20
"""and for so many epochs at least, since the first ones may load compiled loops."""

Instant = int | str | date | datetime
Times = Literal["auto", "ticks"]


class Answer(Iterator[Element]):
    """The answer of a query, as `run` gives it: elements one by one, or all of them as a table.

    `batches` are the elements in columns, of `run` or of a session.  `tick` says how long a tick is, `dated` whether
    times are timestamps in tables.  `in_order`: rows have an order of their own (ORDER BY).

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(1, 5, {"x": 2}), ew.Insert(3, 8, {"x": 4}), ew.Adjust(3, 8, 6, {"x": 4})]
    >>> answer = ew.run(s.aggregate(n=ew.count()), {"S": rows})
    >>> answer.to_arrow().to_pylist()
    [{'vs': 1, 've': 3, 'n': 1}, {'vs': 3, 've': 5, 'n': 2}, {'vs': 5, 've': 6, 'n': 1}]
    >>> answer.snapshot(4).to_pylist()
    [{'n': 2}]
    >>> print(next(answer))
    insert [1, 3) n=1
    """

    def __init__(
        self,
        batches: Iterable[ElementBatch],
        schema: Schema | None = None,
        tick: str = "1ms",
        dated: bool = False,
        in_order: bool = False,
    ) -> None:
        self._unread = iter(batches)
        self._kept: list[ElementBatch] = []
        self._taken = self._count = 0  # batches and elements that were read
        self._lost = self._ended = False
        self._failure: Exception | None = None
        self._schema = schema
        self.axis = TimeAxis(tick_length(tick), dated)
        self._in_order = in_order
        self._cursor = self._from(0)

    # -- element by element -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Element]:
        """Goes on where the last `next` stopped, as a generator does; `elements()` begins anew."""
        return self._cursor

    def __next__(self) -> Element:
        return next(self._cursor)

    def elements(self) -> Iterator[Element]:
        """All elements, from the first one on, as often as you like."""
        self._require_kept()
        return self._from(0)

    def batches(self) -> Iterator[ElementBatch]:
        """The same elements in columns, a batch for each epoch."""
        self._require_kept()
        return self._batches_from(0)

    def _from(self, place: int) -> Iterator[Element]:
        for batch in self._batches_from(place):
            yield from batch.elements(self.axis)

    def _batches_from(self, place: int) -> Iterator[ElementBatch]:
        while True:
            if place < self._taken:
                self._require_kept()
                batch: ElementBatch | None = self._kept[place]
            else:
                batch = self._next()
            if batch is None:
                return
            place += 1
            yield batch

    def _next(self, keep: bool = False) -> ElementBatch | None:
        if self._failure is not None:
            raise self._failure
        try:
            batch = next(self._unread, None)
        except BaseException as failure:
            if isinstance(failure, Exception):
                self._failure = failure
            raise
        if batch is None:
            self._ended = True
            return None
        self._taken += 1
        self._count += len(batch)
        self._schema = self._schema or batch.schema
        if keep or (self._count <= KEPT and not self._lost):
            self._kept.append(batch)
        else:
            self._lost, self._kept = True, []
        return batch

    def _require_kept(self) -> None:
        if self._lost:
            raise QueryError(
                f"more than {KEPT} elements of this answer were iterated over, and are not kept; ask for the table "
                "first, or run the query again"
            )

    @cached_property
    def _all(self) -> list[ElementBatch]:
        self._require_kept()
        while self._next(keep=True) is not None:
            pass
        return self._kept

    @property
    def schema(self) -> Schema:
        """The columns of its rows."""
        if self._schema is None:
            _ = self._all
        return self._schema if self._schema is not None else Schema(())

    # -- tables -----------------------------------------------------------------------------------------------------

    @cached_property
    def _events(self) -> Events:
        batches = self._all
        return standing(batches, self.schema, self._in_order)

    def to_arrow(self, changes: bool = False, times: Times = "auto") -> pa.Table:
        """The rows with their lifetimes `vs`, `ve` (null: for ever), all corrections applied, in the order of `vs`.

        With `changes` the elements as they were emitted, corrections and CTIs among them: the columns of a Parquet
        file of elements, which `run` takes as an input.  Promises about data are left out.  `times="ticks"` gives
        numbers where there are timestamps.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> ew.run(s, {"S": [ew.Insert(1, 5, {"x": 2})]}).to_arrow(changes=True).to_pylist()[-1]
        {'op': 'cti', 'vs': None, 've': None, 'vnew': None, 'x': None}
        """
        return self._changes(times) if changes else self._table(self._events, times)

    def history(self, times: Times = "auto") -> pa.Table:
        """As `to_arrow`, in the one form that all equal answers share: lifetimes of equal rows that meet are one.

        >>> import everwhen as ew
        >>> s = ew.source("S", {"x": "int64"})
        >>> parts = [ew.Insert(1, 5, {"x": 2}), ew.Insert(5, 8, {"x": 2})]
        >>> ew.run(s, {"S": parts}).history().to_pylist()
        [{'vs': 1, 've': 8, 'x': 2}]
        """
        return self._table(coalesced(self._events, self.schema), times)

    def snapshot(self, t: Instant) -> pa.Table:
        """The rows alive at an instant: a number of ticks, a datetime, or text such as '2024-05-01 12:30'."""
        at, events = self._ticks(t), self._events
        alive = np.flatnonzero((events.vs <= at) & (at < events.ve))
        return self._rows(events.rows.take(pa.array(alive)))

    def to_pandas(self, changes: bool = False, times: Times = "auto") -> Any:
        """`to_arrow` as a pandas DataFrame.  Whole numbers stay whole: with nulls among them they are `Int64`."""
        package("pandas", "to_pandas()")
        return frame_of(self.to_arrow(changes, times))

    def to_polars(self, changes: bool = False, times: Times = "auto") -> Any:
        """`to_arrow` as a Polars DataFrame."""
        return package("polars", "to_polars()").from_arrow(self.to_arrow(changes, times))

    def to_duckdb(self, connection: Any = None, changes: bool = False, times: Times = "auto") -> Any:
        """`to_arrow` as a DuckDB relation, of a connection or of DuckDB's own."""
        duckdb = package("duckdb", "to_duckdb()") if connection is None else connection
        return duckdb.from_arrow(self.to_arrow(changes, times))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """`to_arrow` for any package that speaks Arrow's C stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plot(self, by: str | None = None, rows: int = 500) -> Any:
        """An Altair chart of the first `rows` lifetimes: a bar for each row, what was taken back below it, CTIs as
        lines.  `by` names the column whose values are the bars' names and colours.  Needs `everwhen[plot]`."""
        changes = self.to_arrow(changes=True)
        return lifetimes_chart(self.to_arrow(), changes, self.schema, by, rows)

    def __repr__(self) -> str:
        read = f"{self._count} elements{'' if self._ended else ' so far'}" if self._taken else "not read yet"
        return f"<Answer {'' if self._schema is None else f'{self._schema}, '}{read}>"

    def __str__(self) -> str:
        """The first rows as text; of an answer that goes on for long, those that have come so far."""
        return answer_text(*self._shown())

    def _repr_html_(self) -> str:
        """The first rows for a notebook; of an answer that goes on for long, those that have come so far."""
        return answer_html(*self._shown())

    def _shown(self) -> tuple[pa.Table, Events, str, bool]:
        """A table of what has come, its events, what is promised, and whether more may come."""
        events = self._events if self._look() else standing(self._kept, self.schema, self._in_order)
        promised = INF if events.promised is None else events.promised
        found = pa.chunked_array([self._column(np.array([promised]), "auto")])
        return self._table(events, "auto"), events, str(texts(found)[0]), not self._ended

    def _look(self) -> bool:
        """Read on, but not for ever; whether the answer has been read to its end."""
        self._require_kept()
        begin, epochs = monotonic(), 0
        while not self._ended and self._count < LOOKED and (epochs < EPOCHS or monotonic() < begin + SECONDS):
            self._next(keep=True)
            epochs += 1
        return self._ended

    # -- conversions ------------------------------------------------------------------------------------------------

    def _column(self, times: np.ndarray, asked: Times) -> pa.Array:
        if asked not in ("auto", "ticks"):
            raise QueryError(f"times={asked!r}: there are 'auto' and 'ticks'")
        return asked_axis(self.axis, asked).array(times)

    def _rows(self, rows: pa.Table) -> pa.Table:
        return rows.select(self.schema.names)

    def _table(self, events: Events, times: Times) -> pa.Table:
        lives = [("vs", self._column(events.vs, times)), ("ve", self._column(events.ve, times))]
        return _put_together(lives, events.rows, self.schema)

    def _changes(self, times: Times) -> pa.Table:
        batches = self._all
        none = np.empty(0, np.int64)
        op, vs, ve, vnew = (
            np.concatenate([getattr(batch, name) for batch in batches] or [none]) for name in ("op", "vs", "ve", "vnew")
        )
        kept = np.flatnonzero(op < PUNCT)
        op, vs, ve, vnew = op[kept], vs[kept], ve[kept], vnew[kept]
        ve, vnew = np.where(op == CTI, INF, ve), np.where(op == ADJUST, vnew, INF)
        lives = [(name, self._column(each, times)) for name, each in (("vs", vs), ("ve", ve), ("vnew", vnew))]
        rows = payload_of(batches, self.schema).take(pa.array(kept))
        return _put_together([("op", pa.array(OPS).take(pa.array(op))), *lives], rows, self.schema)

    def _ticks(self, t: Instant) -> int:
        if isinstance(t, bool) or not isinstance(t, int | np.integer | str | date | np.datetime64):
            raise QueryError(f"{t!r} is no instant: a number of ticks, a datetime, or text such as '2024-05-01 12:30'")
        if isinstance(t, int | np.integer):
            if not MIN_TIME <= int(t) <= MAX_TIME:
                raise QueryError(f"the instant {t} is out of range")
            return int(t)
        text = t.isoformat() if isinstance(t, date) else str(t)
        if not self.axis.dated and not text.strip().removeprefix("-").isdecimal():
            raise QueryError(f"{text!r} is a timestamp, and the times of this answer are numbers of ticks")
        try:
            return ticks_of_text(text, "t", self.axis.tick)
        except Unfit as bad:
            raise QueryError(f"{bad.problem} ({bad.remedy})") from None


def _put_together(first: list[tuple[str, pa.Array]], rows: pa.Table, schema: Schema) -> pa.Table:
    taken = [name for name in schema.names if name in dict(first)]
    if taken:
        raise QueryError(f"a column named {taken[0]!r} has no place in a table of elements; rename it")
    names = [*(name for name, _ in first), *schema.names]
    columns = [*(column for _, column in first), *(rows.column(name) for name in schema.names)]
    return pa.Table.from_arrays(columns, names=names)


def frame_of(table: pa.Table) -> Any:
    """A table as a pandas DataFrame in which whole numbers, true and false stay so beside nulls."""
    pandas = package("pandas", "to_pandas()")
    series = {name: _series(column, pandas) for name, column in zip(table.column_names, table.columns, strict=True)}
    return pandas.DataFrame(series, copy=False)


def _series(column: pa.ChunkedArray, pandas: Any) -> Any:
    type_ = column.type
    if column.null_count and pa.types.is_integer(type_):
        name = f"{'U' if pa.types.is_unsigned_integer(type_) else ''}Int{type_.bit_width}"
        return column.to_pandas(types_mapper={type_: pandas.api.types.pandas_dtype(name)}.get)
    if column.null_count and pa.types.is_boolean(type_):
        return column.to_pandas(types_mapper={type_: pandas.BooleanDtype()}.get)
    return column.to_pandas()
