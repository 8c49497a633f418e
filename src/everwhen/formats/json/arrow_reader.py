"""The quick way to read JSON lines: Arrow decodes a piece of a file as a whole, or nothing is said.

Guarantee: what `FastReader.read` returns is what the careful reader of `jsonlines` would return for the same lines.
Whatever might differ (a wrong element, a rare one, a value at the edge of its type) returns None, and the careful
reader decides.  So nothing here reports an error.

Arrow's decoder is as strict as needed: a name given twice, an unknown field, a value of another type, an integer
beyond 64 bits are errors to it.  Left to check here are line ends, nulls that are written out (it takes them like
fields left out), NaN literals, integers that a float cannot hold, and encodings.
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
from everwhen.stream.element_batch import ADJUST, CTI, ElementBatch, ill_formed

SAFE_FLOAT: Final = 2.0**53
"""Below it every whole number is a float of its own."""
_PLAIN: Final = (pa.int64(), pa.float64(), pa.string(), pa.bool_())
_FIELDS: Final = ("op", "vs", "ve", "vnew", "t", "at", "row")
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
    """Text of so many lines, an object on each, as a table; without a schema Arrow finds the types, with `more` those
    of fields that the schema has not."""
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

    def __init__(self, schema: Schema, source: str) -> None:
        self.schema = schema
        self.source = source
        self._usable = len(schema) > 0 and all(type_ in _PLAIN for type_ in schema.types)
        self._ambiguous = bool(set(_FIELDS) & set(schema.names))
        times = [(name, pa.int64()) for name in ("vs", "ve", "vnew", "t", "at")]
        self._arrow = pa.schema([("op", pa.string()), *times, ("row", pa.struct(list(schema.to_arrow())))])

    def read(self, piece: list[bytes], first: int) -> ElementBatch | None:
        if not self._usable or any(map(may_be_deep, piece)):
            return None
        text = b"".join(piece)
        nulls = b"null" in text
        if nulls and (self._ambiguous or b"\\u" in text):
            return None  # a null written out could not be told from an attribute's, or not be seen
        table = decode(text, len(piece), self._arrow)
        if table is None:
            return None
        columns = {name: table.column(name).combine_chunks() for name in _FIELDS}
        op = pc.index_in(columns["op"].fill_null("insert"), value_set=_QUICK_OPS)
        if op.null_count:
            return None
        code = op.to_numpy().astype(np.uint8)
        missing = {name: column.is_null().to_numpy(zero_copy_only=False) for name, column in columns.items()}
        times = _times(code, columns, missing, _Written(piece, text) if nulls else None)
        payload = _payload(columns["row"])
        if times is None or payload is None:
            return None
        vs, ve, vnew, at = times
        return ElementBatch(self.schema, code, vs, ve, vnew, payload, {}, self.source, first, None, at)


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


def _payload(rows: pa.StructArray) -> tuple[pa.Array, ...] | None:
    columns = tuple(rows.flatten())
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
