"""Hashes of rows by their values: the same in every process and after a restart, unlike codes of a pool."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa

from everwhen.operators.merge.row_hash_loops import hash_bytes, hash_words
from everwhen.rows.codec import RowCodec
from everwhen.rows.dictionary import freeze


def row_hashes(codec: RowCodec, rows: np.ndarray) -> np.ndarray:
    """A hash per coded row; equal rows have equal ones.  A value of a pool is hashed once per batch."""
    words = rows.view(np.uint64).copy()
    for column, type_ in codec.pooled:
        codes, of = np.unique(rows[:, column], return_inverse=True)
        values = codec.pool.dictionary(type_).decode(codes, None)
        words[:, column] = _value_hashes(values, type_)[of]
        missing = codec.valid(rows, column - codec.words)
        if missing is not None:
            words[~missing, column] = 0  # the mask says so already
    out = np.empty(len(rows), np.uint64)
    hash_words(words, out)
    return out


def _value_hashes(values: pa.Array, type_: pa.DataType) -> np.ndarray:
    out = np.empty(len(values), np.uint64)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32, values.offset + len(values) + 1)[values.offset :]
        hash_bytes(bounds, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), out)
        return out
    texts = (repr(freeze(value)).encode() for value in values.to_pylist())  # decimals, nested values
    return np.array([int.from_bytes(blake2b(text, digest_size=8).digest(), "little") for text in texts], np.uint64)
