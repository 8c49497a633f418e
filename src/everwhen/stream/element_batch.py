"""A batch of elements in arrival order, columnar: what sources hand in and sinks hand out.

`op, vs, ve, vnew` are NumPy arrays, the payload is Arrow.  Times use `INF` for infinity.  For a CTI the time stands
in `vs`; promises with patterns stand in `promises` by their position.  `line` numbers elements for error messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from everwhen.core.moment import moment
from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, is_time, show
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import InputError
from everwhen.rows.codec import RowCodec
from everwhen.stream.batch_punctuation import TrailingPunctuation, part_of
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct

INSERT: Final = 0
ADJUST: Final = 1
CTI: Final = 2
PUNCT: Final = 3
EXTERNAL_CTI: Final = 4
_FOR_EVER: Final = np.array([[0], [INF], [0]], np.int64)
OPS: Final = ("insert", "adjust", "cti", "punct", "external_cti")


@dataclass(frozen=True, eq=False)
class ElementBatch:
    """Elements in arrival order; payload columns are null where an element carries no payload.

    >>> import pyarrow as pa
    >>> schema = Schema.of([("x", pa.int64())])
    >>> batch = ElementBatch.of([Insert(0, 5, {"x": 1}), Cti(3)], schema)
    >>> len(batch), batch.vs.tolist(), batch.columns[0].to_pylist()
    (2, [0, 3], [1, None])
    """

    INSERT: ClassVar[int] = INSERT
    ADJUST: ClassVar[int] = ADJUST
    CTI: ClassVar[int] = CTI
    PUNCT: ClassVar[int] = PUNCT

    schema: Schema
    op: np.ndarray  # uint8: one of the codes above
    vs: np.ndarray  # int64
    ve: np.ndarray  # int64
    vnew: np.ndarray  # int64, meaningful for adjusts only
    columns: tuple[pa.Array, ...]
    promises: Mapping[int, Punct | ExternalCti] = field(default_factory=dict)
    source: str | None = None
    first_line: int = 1
    lines: np.ndarray | None = None
    at: np.ndarray | None = None  # int64: the arrival order across inputs, where the source gives it

    @classmethod
    def of(cls, elements: Iterable[Element], schema: Schema) -> ElementBatch:
        """Elements as one batch; a value that does not fit its column is an `InputError`."""
        return batch_of(elements, schema)

    def __len__(self) -> int:
        return len(self.op)

    def line(self, index: int) -> int:
        """The 1-based number of an element in its source."""
        return int(self.lines[index]) if self.lines is not None else self.first_line + index

    def slice(self, offset: int, length: int) -> ElementBatch:
        end = min(offset + length, len(self))
        return ElementBatch(
            self.schema,
            self.op[offset:end],
            self.vs[offset:end],
            self.ve[offset:end],
            self.vnew[offset:end],
            tuple(column.slice(offset, end - offset) for column in self.columns),
            part_of(self.promises, offset, end) if self.promises else {},
            self.source,
            self.first_line + offset,
            None if self.lines is None else self.lines[offset:end],
            None if self.at is None else self.at[offset:end],
        )

    def scaled(self, times: int) -> ElementBatch:
        """The same elements with so many ticks for one, as on an axis of shorter ticks; not of promises."""
        if times == 1:
            return self
        found = [np.where(t == INF, INF, t * times) for t in (self.vs, self.ve, self.vnew)]
        return replace(self, vs=found[0], ve=found[1], vnew=found[2])

    def elements(self, axis: TimeAxis = TICKS) -> Iterator[Element]:
        """The same elements one by one, for people and tests; on a dated axis their times are moments."""
        names = self.schema.names
        columns = [column.to_pylist() for column in self.columns]
        vs, ve, vnew = (each.tolist() for each in (self.vs, self.ve, self.vnew))
        if axis.dated:
            vs, ve, vnew = ([moment(t, axis) for t in each] for each in (vs, ve, vnew))
        times = zip(self.op.tolist(), vs, ve, vnew, strict=True)
        for i, (op, vs, ve, vnew) in enumerate(times):
            if op == CTI:
                yield Cti(vs)
            elif op >= PUNCT:
                yield self.promises[i]
            else:
                row = {name: column[i] for name, column in zip(names, columns, strict=True)}
                yield Insert(vs, ve, row) if op == INSERT else Adjust(vs, ve, vnew, row)


def empty_elements(schema: Schema) -> ElementBatch:
    """A batch without elements."""
    none = np.empty(0, np.int64)
    return ElementBatch(
        schema, np.empty(0, np.uint8), none, none, none, tuple(pa.array([], type_) for type_ in schema.types)
    )


def taken(batch: ElementBatch, at: np.ndarray) -> ElementBatch:
    """The elements at places, and the lines that they stand in; not their promises."""
    index = pa.array(at)
    return ElementBatch(
        batch.schema, batch.op[at], batch.vs[at], batch.ve[at], batch.vnew[at],
        tuple(column.take(index) for column in batch.columns), source=batch.source,
        lines=at + batch.first_line if batch.lines is None else batch.lines[at],
        at=None if batch.at is None else batch.at[at],
    )  # fmt: skip


def batch_of(elements: Iterable[Element], schema: Schema, source: str | None = None) -> ElementBatch:
    """Elements as one columnar batch; a value that does not fit its column names the element and the type."""
    listed = list(elements)
    n = len(listed)
    op, vs, ve, vnew = np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    promises: dict[int, Punct | ExternalCti] = {}
    rows: list[Mapping[str, object]] = []
    nothing: dict[str, object] = {}
    for i, element in enumerate(listed):
        match element:
            case Insert(start, end, row):
                vs[i], ve[i] = start, end
                rows.append(row)
            case Adjust(start, end, new, row):
                op[i], vs[i], ve[i], vnew[i] = ADJUST, start, end, new
                rows.append(row)
            case Cti(t):
                op[i], vs[i], ve[i] = CTI, t, t
                rows.append(nothing)
            case Punct():
                op[i], ve[i], promises[i] = PUNCT, INF, element
                rows.append(nothing)
            case ExternalCti():
                op[i], vs[i], ve[i], promises[i] = EXTERNAL_CTI, element.vs, element.ve, element
                rows.append(nothing)
    columns = tuple(_column(rows, name, type_, source) for name, type_ in zip(schema.names, schema.types, strict=True))
    return ElementBatch(schema, op, vs, ve, vnew, columns, promises, source)


def joined(first: ElementBatch, second: ElementBatch) -> ElementBatch:
    """Both batches as one; lines are forgotten."""
    if not len(first) or not len(second):
        return first if len(first) else second
    times = [np.concatenate([getattr(first, name), getattr(second, name)]) for name in ("op", "vs", "ve", "vnew")]
    columns = tuple(pa.concat_arrays([a, b]) for a, b in zip(first.columns, second.columns, strict=True))
    promises = first.promises
    if second.promises:
        promises = {**promises, **{len(first) + i: said for i, said in second.promises.items()}}
    return ElementBatch(first.schema, times[0], times[1], times[2], times[3], columns, promises)


def _column(rows: Sequence[Mapping[str, object]], name: str, type_: pa.DataType, source: str | None) -> pa.Array:
    values = [row.get(name) for row in rows]
    try:
        return pa.array(values, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        for i, value in enumerate(values):
            try:
                pa.array([value], type_)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                raise InputError(
                    f"{value!r} in column {name!r} is not of type {type_}", source=source, line=i + 1
                ) from None
        raise


# --- what an element must satisfy on its own ------------------------------------------------------------------------

IN_RANGE: Final = f"finite times lie between {MIN_TIME} and {MAX_TIME}; a missing end is null"
"""A lifetime starts at a finite time, is not empty, and ends at a finite time or never; an adjust moves the end to no
earlier than the start; a CTI stands at a finite time or at infinity.  All file formats share these rules."""


def ill_formed(op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray) -> int | None:
    """The position of the first element that breaks a rule."""
    ok = well_formed(op, vs, ve, vnew)
    return None if ok.all() else int(np.argmin(ok))


def well_formed(op: np.ndarray, vs: np.ndarray, ve: np.ndarray, vnew: np.ndarray) -> np.ndarray:
    """Which elements keep the rules."""
    start_ok, end_ok = _finite(vs), _finite(ve) | (ve == INF)
    lived = start_ok & end_ok & (vs < ve)
    moved = lived & (_finite(vnew) | (vnew == INF)) & (vs <= vnew)
    return np.where(op == CTI, start_ok | (vs == INF), np.where(op == ADJUST, moved, (op == PUNCT) | lived))


def _finite(times: np.ndarray) -> np.ndarray:
    return (times >= MIN_TIME) & (times <= MAX_TIME)


def lifetime_problem(op: int, vs: int, ve: int, vnew: int) -> tuple[str, str]:
    """What is wrong with such an element and what to do; two empty texts if nothing is."""
    if op == PUNCT or (op == CTI and vs == INF):
        return "", ""
    times = (vs,) if op == CTI else (vs, ve, vnew) if op == ADJUST else (vs, ve)
    for i, t in enumerate(times):
        if not is_time(t) and (t != INF or i == 0):
            return f"the time {show(t)} is out of range", IN_RANGE
    if op == CTI:
        return "", ""
    if vs >= ve:
        return f"the lifetime [{vs}, {show(ve)}) is empty", '"ve" must be greater than "vs"; leave it out for vs + 1'
    if op == ADJUST and vnew < vs:
        return f'"vnew" is {vnew}, before the start {vs}', '"vnew" equal to "vs" removes the event'
    return "", ""


def coded_elements(
    codec: RowCodec,
    op: np.ndarray,
    times: np.ndarray,
    rows: np.ndarray,
    promises: Sequence[Punctuation] = (),
    cti: int | None = None,
) -> ElementBatch:
    """The elements of coded rows, their ops and times (vs, ve, vnew), then promises about data, then a CTI.

    Where ops and times have room behind the rows, it is used.
    """
    n, size = len(rows), len(rows) + len(promises) + (cti is not None)
    op = op.astype(np.uint8, copy=False)
    if len(op) < size:
        given, spans = op, times
        op, times = np.empty(size, np.uint8), np.empty((3, size), np.int64)
        op[:n], times[:, :n] = given[:n], spans[:, :n]
    if size > n:
        op[n:size], times[:, n:size] = PUNCT, _FOR_EVER
    if cti is not None:
        op[size - 1], times[:, size - 1] = CTI, (cti, cti, 0)
    columns = codec.decode(rows, nulls=size - n)
    places = TrailingPunctuation(promises, n) if promises else {}
    vs, ve, vnew = times[:, :size]
    return ElementBatch(codec.schema, op[:size], vs, ve, vnew, columns, places)
