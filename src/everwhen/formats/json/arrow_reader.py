"""The quick way to read JSON lines: Arrow decodes a piece of a file as a whole, or nothing is said.

Guarantee: what `FastReader.read` returns is what the careful reader (`python_reader`) would return for the same lines.
Whatever might differ (a wrong element, a rare one, a value at the edge of its type) returns None, and the careful
reader decides.  So nothing here reports an error.

Arrow's decoder is as strict as needed: a name given twice, an unknown field of an element, a value of another type, an
integer beyond 64 bits are errors to it.  Left to check here are line ends, nulls that are written out (it takes them
like fields left out), NaN literals, integers that a float cannot hold, and encodings.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME
from everwhen.core.time_axis import TICKS
from everwhen.formats.time_columns import texts_as_ticks
from everwhen.stream.element_batch import ADJUST, CTI, ElementBatch, ill_formed

SAFE_FLOAT: Final = 2.0**53
"""Below it every whole number is a float of its own."""
_PLAIN: Final = (pa.int64(), pa.float64(), pa.string(), pa.bool_())
_FIELDS: Final = ("op", "vs", "ve", "vnew", "t", "at", "row")
_TIMES: Final = ("vs", "ve", "vnew", "t")
_OTHER: Final = {  # times that are not of this type
    pa.int64(): re.compile(rb'"(vs|t)"[ \t]*:[ \t]*"'),
    pa.string(): re.compile(rb'"(vs|t)"[ \t]*:[ \t]*[0-9-]'),
}
_QUICK_OPS: Final = pa.array(["insert", "adjust", "cti"])
_NULL: Final = {name: re.compile(rb'"%s"[ \t]*:[ \t]*null' % name.encode()) for name in _FIELDS}
_ANY_NULL: Final = re.compile(rb'"(op|vs|ve|vnew|t|at|row)"[ \t]*:[ \t]*null')
_LARGEST_BLOCK: Final = 2**30
DEEPEST: Final = 100
"""How deep objects and arrays of a line may be nested; an element needs three levels."""
_SHORT_LINE: Final = 1000


def may_be_deep(line: bytes) -> bool:
    """Whether a line has so many brackets that it may be nested too deeply: decoders recurse, Arrow's dies of it."""
    return len(line) > _SHORT_LINE and line.count(b"{") + line.count(b"[") > DEEPEST


def decode(text: bytes, lines: int, schema: pa.Schema | None, more: bool = False) -> pa.Table | None:
    """Text of so many lines, an object on each, as a table; without a schema Arrow finds the types, and also (`more`)
    those of fields that the schema lacks."""
    if not text.startswith(b"{") or text.count(b"\n{") != lines - 1 or len(text) > _LARGEST_BLOCK:
        return None
    if text.count(b"}\n") + text.endswith(b"}") != lines or not _is_utf8(text):
        return None
    unexpected = "infer" if schema is None or more else "error"
    try:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
    except pa.ArrowException:
        return None
    return table if table.num_rows == lines else None


def _is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode("utf-8"))
    except UnicodeDecodeError:
        return False


class FastReader:
    """Reads pieces of one file; `read` gives None for a piece that the careful reader has to look at."""

    def __init__(self, schema: Schema, source: str, tick: int = TICKS.tick) -> None:
        self.schema = schema
        self.source = source
        self.tick = tick
        self._usable = len(schema) > 0 and all(type_ in _PLAIN for type_ in schema.types)
        self._more: bool | None = False  # whether rows have more attributes; None: they cannot be decoded like that
        self._ambiguous = bool(set(_FIELDS) & set(schema.names))
        row = ("row", pa.struct(list(schema.to_arrow())))
        self._forms = [  # times are numbers, or text
            pa.schema([("op", pa.string()), *((name, type_) for name in _TIMES), ("at", pa.int64()), row])
            for type_ in (pa.int64(), pa.string())
        ]

    def read(self, piece: list[bytes], first: int) -> ElementBatch | None:
        if not self._usable or any(map(may_be_deep, piece)):
            return None
        text = b"".join(piece)
        nulls = b"null" in text
        if nulls and (self._ambiguous or b"\\u" in text):
            return None  # a null written out could not be told from an attribute's, or not be seen
        table = self._decoded(text, len(piece))
        columns = None if table is None or (nulls and self._hides_nulls(table)) else self._columns(table)
        if columns is None:
            return None
        op = pc.index_in(columns["op"].fill_null("insert"), value_set=_QUICK_OPS)
        if op.null_count:
            return None
        code = op.to_numpy().astype(np.uint8)
        missing = {name: column.is_null().to_numpy(zero_copy_only=False) for name, column in columns.items()}
        times = _times(code, columns, missing, _Written(piece, text) if nulls else None)
        payload = _payload(columns["row"], self.schema.names)
        if times is None or payload is None:
            return None
        vs, ve, vnew, at = times
        return ElementBatch(self.schema, code, vs, ve, vnew, payload, {}, self.source, first, None, at)

    def _decoded(self, text: bytes, lines: int) -> pa.Table | None:
        """The lines as a table; that a file has text for times is remembered for its next piece."""
        table = self._in_form(text, lines, self._forms[0])
        if table is None and _OTHER[self._forms[0].field("vs").type].search(text):
            self._forms.reverse()
            self._more = False
            table = self._in_form(text, lines, self._forms[0])
        return table

    def _in_form(self, text: bytes, lines: int, form: pa.Schema) -> pa.Table | None:
        """The same with times of one form.  A file whose rows have more attributes than are declared is decoded with
        them."""
        if not self._more:
            table = decode(text, lines, form)
            if table is not None or self._more is None:
                return table
        table = decode(text, lines, form, more=True)
        fits = table is not None and table.schema.names == form.names
        self._more = True if fits else self._more or None
        return table if fits else None

    def _columns(self, table: pa.Table) -> dict[str, pa.Array] | None:
        """The fields of all lines, with times in ticks."""
        columns = {name: table.column(name).combine_chunks() for name in _FIELDS}
        for name in _TIMES:
            if columns[name].type == pa.string():
                numbers = texts_as_ticks(columns[name], self.tick, numbers=False)
                if numbers is None:
                    return None
                columns[name] = numbers
        return columns

    def _hides_nulls(self, table: pa.Table) -> bool:
        """Whether a null of an attribute that is not declared could be taken for one of an element's own fields."""
        return any(field.name in _FIELDS for field in table.schema.field("row").type)


class _Written:
    """Which fields are written out as null."""

    def __init__(self, piece: list[bytes], text: bytes) -> None:
        self.piece = piece
        self.counts = dict.fromkeys(_FIELDS, 0)
        for name in _ANY_NULL.findall(text):
            self.counts[name.decode()] += 1

    def among(self, name: str, rows: np.ndarray) -> np.ndarray | None:
        """Whether the null of each of these rows is written out; None if some other row has one."""
        if not self.counts[name]:
            return np.zeros(len(rows), bool)
        pattern = _NULL[name]
        found = np.array([pattern.search(self.piece[i]) is not None for i in rows.tolist()], bool)
        return found if found.sum() == self.counts[name] else None


def _times(
    code: np.ndarray, columns: dict[str, pa.Array], missing: dict[str, np.ndarray], written: _Written | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None] | None:
    cti, adjust = code == CTI, code == ADJUST
    if (missing["vs"] != cti).any() or (missing["row"] != cti).any():
        return None
    if not missing["t"][~cti].all() or not missing["ve"][cti].all() or not missing["vnew"][~adjust].all():
        return None
    if written is not None and any(written.counts[name] for name in ("op", "vs", "at", "row")):
        return None
    open_ends, endless, never = (
        np.flatnonzero(missing["ve"] & ~cti),
        np.flatnonzero(missing["t"] & cti),
        np.flatnonzero(missing["vnew"] & adjust),
    )
    vs, ve, vnew, t = (columns[name].fill_null(0).to_numpy().copy() for name in ("vs", "ve", "vnew", "t"))
    if any(times.min() < MIN_TIME or times.max() > MAX_TIME for times in (vs, ve, vnew, t)):
        return None  # infinity itself is no number that may be written
    # An end left out is vs + 1, an end that is null is infinity; a time of a CTI or a new end may not be left out.
    infinite: list[np.ndarray] = []
    for name, rows in (("ve", open_ends), ("t", endless), ("vnew", never)):
        found = np.zeros(len(rows), bool) if written is None else written.among(name, rows)
        if found is None or (name != "ve" and not found.all()):
            return None
        infinite.append(found)
    ve[open_ends] = np.where(infinite[0], INF, vs[open_ends] + 1)
    vnew[never] = t[endless] = INF
    vs[cti] = ve[cti] = t[cti]
    if ill_formed(code, vs, ve, vnew) is not None:
        return None
    numbered = int(missing["at"].sum())
    if numbered not in (0, len(code)):
        return None
    at = None if numbered else columns["at"].to_numpy().copy()
    if at is not None and (at.min() < MIN_TIME or at.max() > MAX_TIME):
        return None
    return vs, ve, vnew, at


def _payload(rows: pa.StructArray, names: tuple[str, ...]) -> tuple[pa.Array, ...] | None:
    found = rows.flatten()
    columns = tuple(found[rows.type.get_field_index(name)] for name in names)
    for column in columns:
        if column.type == pa.float64() and not safe_floats(column):
            return None
    return columns


def safe_floats(column: pa.Array) -> bool:
    """Whether no value may have been a NaN literal or an integer that lost digits."""
    values = column.to_numpy(zero_copy_only=False)
    if column.null_count:
        values = values[column.is_valid().to_numpy(zero_copy_only=False)]
    return bool((np.abs(values) < SAFE_FLOAT).all())
