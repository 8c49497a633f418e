"""State as data: a tree of plain values as frames of bytes, and back.  No code is ever run by reading it.

A snapshot is a tree of dict, list, tuple, None, bool, int, float, str, bytes, Decimal, date, time, datetime, timedelta,
NumPy arrays and numbers, Arrow arrays and tables.  Its frames, which `sealed` puts into a file:

    frame 0      JSON: {"format": 1, "software": "everwhen 0.5.0", "frames": n, "groups": [...], "state": the tree}
    other ones   the memory of one NumPy array; or an Arrow IPC stream with one batch: a table, or a group of Arrow
                 arrays of one length (`groups` lists the frames that are groups)

In the tree None, booleans, text, finite floats, lists and integers of 64 bits stand for themselves; everything else is
an object with one key, its tag:

    t  a tuple: [items]                 d  a dict: {text: value}            m  a dict with other keys: [[key, value]]
    i  a large integer: hexadecimal     f  a float: its 8 bytes             b  bytes: base64 (o: in a frame of its own)
    n  a NumPy number: [type, bytes]    x  an array: [type, shape, frame]   z, y, c, u  Decimal, date, time, timedelta
    s  a datetime: ISO text, with a zone in UTC                             a  an Arrow array: [group, column]
    p  an Arrow table: frame            l  a long list: an Arrow array      r  a long list of tuples: their columns

Large arrays are written from where they lie.  Those read may be written to, and lie in the memory of their frame.

**Guarantee.**  `decode(encode(tree))` is the tree again: the same types, and floats bit by bit.  Two exceptions: a
datetime with a zone comes back as the same instant in UTC, and containers that were one object are two.  Whatever
else `decode` is given is `CorruptFile`: it makes nothing but the types above, follows no more than `MAX_DEPTH`
levels, and asks for no more memory than the frames have bytes, times a constant.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.errors import StateError
from everwhen.storage.arrow_ipc import stream_of
from everwhen.storage.folder import Chunk
from everwhen.storage.framed_file import CorruptFile, OtherVersion
from everwhen.storage.state_arrow import read_batch, storable

FORMAT: Final = 1
MAX_DEPTH: Final = 100
_LONG_LIST: Final = 256
_LONG_BYTES: Final = 4096
_DTYPES: Final = {
    dtype.str: dtype for dtype in map(np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
}
_COLUMNS: Final = {int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}
_SMALL: Final = 1 << 63
_DOUBLE: Final = struct.Struct("<d")
_HEX: Final = re.compile(r"-?[0-9a-f]+")
_FAILURES: Final = (
    LookupError, TypeError, ValueError, OverflowError, InvalidOperation, RecursionError, OSError, StopIteration,
    struct.error, pa.ArrowException,
)  # fmt: skip
"""What reading raises where values are not what they should be."""
_MISFITS: Final = (
    LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError, MemoryError, pa.ArrowException
)  # fmt: skip
"""What restoring raises where a state is of another form than it was."""
_PROGRAM: Final = re.compile(r"[\w.+ -]{1,60}")


@cache
def software() -> str:
    """The name and version of this program, as it stands in what it writes."""
    try:
        return f"everwhen {version('everwhen')}"
    except PackageNotFoundError:
        return "everwhen (not installed)"


def encode(state: object) -> list[list[Chunk]]:
    """The frames of a state; a value that is no plain data is a `StateError` that says where it is."""
    writer = _Writer()
    try:
        tree = writer.value(state, 0)
    except _NotPlainError as bad:
        path = "".join(reversed(bad.path)).lstrip(".") or "the state itself"
        raise StateError(
            f"this state cannot be written: {path} is {bad}, which is no plain data (this is a defect of Everwhen: "
            "please report it)"
        ) from None
    return writer.frames(tree)


def decode(frames: Sequence[memoryview]) -> Any:
    """The state of frames; what they hold may be written to."""
    reader = _Reader(frames)
    try:
        return reader.state()
    except _FAILURES as bad:
        raise CorruptFile(f"it holds no state: {_said(bad)}") from None


def restore(into: Any, state: Any, place: str) -> None:
    """Let a runtime or kernel go on from a state that was read at a place; one of another form is a `StateError`."""
    try:
        into.restore(state)
    except (StateError, *_MISFITS) as bad:
        what = str(bad) if isinstance(bad, StateError) else f"the state does not fit the query: {_said(bad)}"
        raise StateError(f"{place}: {what} (restore the file from a copy, or start with a new checkpoint)") from bad


def _said(bad: BaseException) -> str:
    return (str(bad).splitlines() or [""])[0][:200] or type(bad).__name__


# -- writing ----------------------------------------------------------------------------------------------------------


class _NotPlainError(Exception):
    """A value that has no form here; `path` leads to it, from the inside out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []


class _Writer:
    def __init__(self) -> None:
        self._frames: list[list[Chunk]] = [[]]
        self._groups: dict[int, tuple[int, list[pa.Array]]] = {}
        self._by_type: dict[type, Callable[[Any, int], Any]] = {
            NoneType: _itself, bool: _itself, str: _itself, int: _int, float: _float, list: self._list,
            tuple: lambda value, depth: {"t": self._items(value, depth)}, dict: self._dict, bytes: self._bytes,
            Decimal: lambda value, _: {"z": str(value)}, date: lambda value, _: {"y": value.isoformat()},
            time: _time, datetime: _datetime, timedelta: _timedelta, np.ndarray: self._array,
            pa.Table: lambda value, _: {"p": self._frame(self._table(value))},
        }  # fmt: skip

    def value(self, value: Any, depth: int) -> Any:
        write = self._by_type.get(type(value))
        if write is None:
            if isinstance(value, pa.Array):
                return self._arrow(value)
            if isinstance(value, np.generic) and value.dtype.str in _DTYPES:
                return {"n": [value.dtype.str, value.tobytes().hex()]}
            raise _NotPlainError(f"a {type(value).__module__}.{type(value).__qualname__}")
        if depth > MAX_DEPTH:
            raise _NotPlainError(f"more than {MAX_DEPTH} levels deep")
        return write(value, depth)

    def frames(self, tree: Any) -> list[list[Chunk]]:
        """All frames, the tree's first."""
        groups = []
        for _, arrays in self._groups.values():
            batch = pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])
            groups.append(self._frame(stream_of(pa.Table.from_batches([batch]))))
        head = {"format": FORMAT, "software": software(), "frames": len(self._frames), "groups": groups, "state": tree}
        self._frames[0] = [json.dumps(head, separators=(",", ":"), allow_nan=False).encode("ascii")]
        return self._frames

    def _frame(self, chunks: list[Chunk]) -> int:
        self._frames.append(chunks)
        return len(self._frames) - 1

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        named = all(type(key) is str for key in value)
        found = []
        for key, each in value.items():
            try:
                found.append((key if named else self.value(key, depth + 1), self.value(each, depth + 1)))
            except _NotPlainError as bad:
                bad.path.append(f".{key}" if named else f"[{key!r}]")
                raise
        return {"d": dict(found)} if named else {"m": found}

    def _items(self, values: Sequence[Any], depth: int) -> list[Any]:
        found = []
        for at, each in enumerate(values):
            try:
                found.append(self.value(each, depth + 1))
            except _NotPlainError as bad:
                bad.path.append(f"[{at}]")
                raise
        return found

    def _list(self, value: list[Any], depth: int) -> Any:
        if len(value) >= _LONG_LIST:
            column = _column(value)
            if column is not None:
                return {"l": self._arrow(column)["a"]}
            if set(map(type, value)) == {tuple} and len(widths := set(map(len, value))) == 1 and 0 not in widths:
                columns = [_column(each) for each in zip(*value, strict=True)]
                if all(each is not None for each in columns):
                    return {"r": [self._arrow(each)["a"] for each in columns]}
        return self._items(value, depth)

    def _bytes(self, value: bytes, _: int) -> Any:
        if len(value) < _LONG_BYTES:
            return {"b": base64.b64encode(value).decode("ascii")}
        return {"o": self._frame([value])}

    def _array(self, value: np.ndarray, _: int) -> Any:
        kind = value.dtype.str
        if kind not in _DTYPES:
            raise _NotPlainError(f"a NumPy array of type {value.dtype}")
        whole = np.ascontiguousarray(value)
        return {"x": [kind, list(value.shape), self._frame([whole.reshape(-1).view(np.uint8).data])]}

    def _table(self, value: pa.Table) -> list[Chunk]:
        if not all(map(storable, value.schema.types)):
            raise _NotPlainError(f"an Arrow table of {value.schema}")
        return stream_of(value.combine_chunks())

    def _arrow(self, value: pa.Array) -> dict[str, list[int]]:
        if not storable(value.type):
            raise _NotPlainError(f"an Arrow array of type {value.type}")
        group, arrays = self._groups.setdefault(len(value), (len(self._groups), []))
        arrays.append(value)
        return {"a": [group, len(arrays) - 1]}


def _itself(value: Any, _: int) -> Any:
    return value


def _int(value: int, _: int) -> Any:
    return value if -_SMALL <= value < _SMALL else {"i": format(value, "x")}


def _float(value: float, _: int) -> Any:
    return value if math.isfinite(value) else {"f": _DOUBLE.pack(value).hex()}


def _time(value: time, _: int) -> Any:
    if value.tzinfo is not None:
        raise _NotPlainError("a time with a zone")
    return {"c": value.isoformat()}


def _datetime(value: datetime, _: int) -> Any:
    return {"s": (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()}


def _timedelta(value: timedelta, _: int) -> Any:
    return {"u": [value.days, value.seconds, value.microseconds]}


def _column(values: Sequence[Any]) -> pa.Array | None:
    """Many values of one type, or None, as Arrow has them; None: they have to be written one by one."""
    kinds = set(map(type, values)) - {NoneType}
    type_ = _COLUMNS.get(kinds.pop()) if len(kinds) == 1 else None
    if type_ is None:
        return None
    try:
        found = pa.array(values, type_, from_pandas=False)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None
    return found if isinstance(found, pa.Array) else None


# -- reading ----------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, frames: Sequence[memoryview]) -> None:
        self._frames = frames
        self._groups: list[pa.RecordBatch] = []
        self._by_tag: dict[str, Callable[[Any, int], Any]] = {
            "t": lambda value, depth: tuple(self._items(value, depth)), "d": self._dict, "m": self._pairs,
            "i": _read_int, "f": lambda value, _: _DOUBLE.unpack(bytes.fromhex(value))[0],
            "b": lambda value, _: base64.b64decode(_text(value), validate=True),
            "o": lambda value, _: bytes(self._frame(value)), "n": _read_number, "x": self._array,
            "z": lambda value, _: Decimal(_text(value)), "y": lambda value, _: date.fromisoformat(value),
            "c": lambda value, _: time.fromisoformat(value), "u": _read_timedelta, "s": _read_datetime,
            "a": lambda value, _: self._arrow(value), "p": self._table,
            "l": lambda value, _: self._listed(value), "r": self._records,
        }  # fmt: skip

    def state(self) -> Any:
        if not len(self._frames):
            raise CorruptFile("it holds no state: there are no frames")
        head = json.loads(bytes(self._frames[0]).decode("ascii"), parse_constant=_no_constant)
        if not isinstance(head, dict) or type(head.get("format")) is not int:
            raise CorruptFile("it holds no state: no format is given")
        if head["format"] != FORMAT:
            raise OtherVersion(
                f"{_shown(head.get('software'))} has written it, in format {head['format']}, and {software()} reads "
                f"format {FORMAT} only"
            )
        if head["frames"] != len(self._frames):
            raise CorruptFile(f"it holds no state: {len(self._frames)} frames, not {head['frames']}")
        self._groups = [read_batch(self._frame(at)) for at in _list(head["groups"])]
        return self.value(head["state"], 0)

    def value(self, value: Any, depth: int) -> Any:
        if type(value) is dict:
            if len(value) != 1 or depth > MAX_DEPTH:
                raise ValueError("an object with more than one tag" if len(value) != 1 else "too many levels")
            ((tag, inner),) = value.items()
            if tag not in self._by_tag:
                raise ValueError(f"an object with the tag {tag[:20]!r}")
            return self._by_tag[tag](inner, depth)
        return self._items(value, depth) if type(value) is list else value

    def _items(self, values: Any, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise ValueError("too many levels")
        return [self.value(each, depth + 1) for each in _list(values)]

    def _dict(self, value: Any, depth: int) -> dict[str, Any]:
        if type(value) is not dict:
            raise ValueError("a dict that is none")
        return {key: self.value(each, depth + 1) for key, each in value.items()}

    def _pairs(self, value: Any, depth: int) -> dict[Any, Any]:
        return {self.value(key, depth + 1): self.value(each, depth + 1) for key, each in map(_list, _list(value))}

    def _frame(self, at: Any) -> memoryview:
        if type(at) is not int or not 0 < at < len(self._frames):
            raise ValueError("a frame that is not there")
        return self._frames[at]

    def _array(self, value: Any, _: int) -> np.ndarray:
        kind, shape, at = _list(value)
        dtype, frame = _DTYPES[_text(kind)], self._frame(at)
        if len(_list(shape)) > 8 or not all(type(n) is int and 0 <= n < _SMALL for n in shape):
            raise ValueError("an array of an impossible shape")
        if math.prod(shape) * dtype.itemsize != frame.nbytes:
            raise ValueError(f"an array of shape {tuple(shape)} in {frame.nbytes} bytes")
        flat = np.frombuffer(frame, dtype) if frame.nbytes else np.empty(0, dtype)
        return flat.reshape(shape)

    def _table(self, value: Any, _: int) -> pa.Table:
        return pa.Table.from_batches([read_batch(self._frame(value))])

    def _arrow(self, value: Any) -> pa.Array:
        group, column = _list(value)
        if type(group) is not int or type(column) is not int or not 0 <= group < len(self._groups):
            raise ValueError("an Arrow array that is not there")
        if not 0 <= column < self._groups[group].num_columns:
            raise ValueError("an Arrow array that is not there")
        return self._groups[group].column(column)

    def _records(self, value: Any, _: int) -> list[tuple[Any, ...]]:
        return list(zip(*map(self._listed, _list(value)), strict=True))

    def _listed(self, value: Any) -> list[Any]:
        column = self._arrow(value)
        if column.type not in _COLUMNS.values():
            raise ValueError(f"a list of {column.type}")
        return column.to_pylist()


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("a list was expected")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("text was expected")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"the word {text}")


def _shown(program: object) -> str:
    return program if isinstance(program, str) and _PROGRAM.fullmatch(program) else "another program"


def _read_int(value: Any, _: int) -> int:
    if not _HEX.fullmatch(_text(value)):
        raise ValueError("an integer that is none")
    return int(value, 16)


def _read_number(value: Any, _: int) -> Any:
    kind, data = _list(value)
    (found,) = np.frombuffer(bytes.fromhex(_text(data)), _DTYPES[_text(kind)])
    return found


def _read_timedelta(value: Any, _: int) -> timedelta:
    days, seconds, micros = _list(value)
    if not all(type(each) is int for each in (days, seconds, micros)):
        raise ValueError("a duration that is none")
    return timedelta(days, seconds, micros)


def _read_datetime(value: Any, _: int) -> datetime:
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is None else found.astimezone(UTC)
