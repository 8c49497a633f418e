"""Arrow data of files that anybody may have written: it is read only if it can do no harm.

Arrow itself follows offsets without a look, takes memory for compressed buffers by the length that they claim, and lets
registered classes make extension types.  Here buffers are not compressed, types are Arrow's own, all is validated.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa

MAX_ROWS: Final = 1 << 31
"""Arrays of some types need no memory; longer ones are no state of ours."""
_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")


def read_batch(frame: memoryview) -> pa.RecordBatch:
    """The one batch of an IPC stream, lying in the frame's memory.  Anything else raises one of several errors:
    `ValueError`, `OSError`, `struct.error` or an `ArrowException`."""
    data = pa.py_buffer(frame)
    if any(_is_compressed(message) for message in pa.ipc.MessageReader.open_stream(data)):
        raise ValueError("compressed columns")  # which may be any number of times as long
    with pa.ipc.open_stream(data) as reader:
        if not all(map(storable, reader.schema.types)):
            raise ValueError("a column of a type that is not Arrow's own")
        rows = reader.read_all()
    batch, *more = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]  # of no rows there is no batch
    if more:
        raise ValueError("more than one batch")
    if batch.num_rows > MAX_ROWS:
        raise ValueError(f"{batch.num_rows} rows")
    batch.validate(full=True)
    return batch


def storable(type_: pa.DataType) -> bool:
    """Whether a type means the same to every reader: of extension types those of Arrow do, those in Python do not."""
    if isinstance(type_, pa.ExtensionType):
        return False
    if isinstance(type_, pa.BaseExtensionType):
        return storable(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return storable(type_.value_type)
    return all(storable(type_.field(i).type) for i in range(type_.num_fields))


def _is_compressed(message: Any) -> bool:
    """Whether the buffers of an Arrow message are compressed: a matter of its metadata, a FlatBuffers table, whose
    fields are found by `_field`.  Arrow has checked that all offsets lie within it."""
    data = bytes(message.metadata)
    header = _field(data, _U32.unpack_from(data)[0], 2)
    if header is None:
        return False
    if message.type == "dictionary":
        header = _field(data, header, 1)
        if header is None:
            raise ValueError("a dictionary without values")
    return message.type != "schema" and _field(data, header, 3) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where the table lies that is a field of another one; None if it is not there."""
    fields = table - _I32.unpack_from(data, table)[0]
    if _U16.unpack_from(data, fields)[0] <= 4 + 2 * number:
        return None
    offset = _U16.unpack_from(data, fields + 4 + 2 * number)[0]
    at = table + offset
    return at + _U32.unpack_from(data, at)[0] if offset else None
