"""Values as 64-bit codes, exactly: equal values have equal codes, and a code gives its value back.

Inside the engine a row is a few 64-bit integers.  Integers, booleans, floats and temporal values are their own code;
strings, binaries, decimals and nested values are numbered by a `Dictionary`, one per Arrow type, in an `Interner` that
all operators of a running plan share.  So a string is hashed once, where it enters, and never again.

Text is numbered straight from and to Arrow buffers: no Python object per string.  An open-addressing table over entries
of the first sixteen bytes, the length and a hash; what is longer is verified byte by byte against an arena that holds
each string once.  Other values are rare, and Python objects (`dictionary.py`).

A dictionary grows with the distinct values seen.  `Interner.collect` drops those that no registered holder still uses;
holders are the tables of operators (`everwhen.containers.key_table`), so operators need not know of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from everwhen.compiled.hashing import LITTLE, mixed, store, word_at
from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers.arrays import grown
from everwhen.rows.dictionary import Dictionary

_EMPTY: Final = np.empty(0, np.uint8)
_SEED: Final = np.uint64(0x243F6A8885A308D3)
_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)
_NEAR: Final = 1 << 14
"""A table of so many slots is near enough: memory need not be asked for ahead."""
_SHORT: Final = 16
"""Bytes of a string that stand in its entry."""


def validity(valid: np.ndarray | None, n: int, nulls: int = 0) -> pa.Buffer | None:
    """Arrow's bits for `n` values (None: all are valid) and so many nulls behind them."""
    if not nulls:
        return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if valid is not None:
        return pa.py_buffer(np.packbits(np.append(valid, np.zeros(nulls, np.bool_)), bitorder="little"))
    bits = np.zeros(-(-(n + nulls) // 8), np.uint8)
    bits[: n // 8] = 255
    if n % 8:
        bits[n // 8] = (1 << n % 8) - 1
    return pa.py_buffer(bits)


class Strings(NamedTuple):
    """The arrays of a table, as loops take them; they hold until room is made."""

    slots: np.ndarray
    """Per slot of the hash table the code that stands there (-1: none)."""
    entries: np.ndarray
    """Per code the first two words of the string, its length and its hash."""
    starts: np.ndarray
    """Where each string begins in the arena; one entry more than there are strings."""
    arena: np.ndarray
    """The bytes of all strings."""


@njit(cache=True, inline="always")
def _hash(data, a, b, w0, w1):
    """The hash of a string whose first words are known."""
    h = _SEED ^ np.uint64(b - a)
    if b > a:
        h = mixed(h, w0)
    if b - a > 8:
        h = mixed(h, w1)
    for j in range(a + 16, b, 8):
        h = mixed(h, word_at(data, j, b))
    h *= _LAST
    return h ^ (h >> np.uint64(32))


@loop_of(strings=Strings)
def _encode(offsets, first, done, n, data, strings, count, codes, column, hashes):
    """Codes of `n` rows, the first of which is the row `first`, where so many are `done`, into a column of a matrix.

    New strings are appended.  Stops before a string for which there is not room enough.  Returns how many rows are done
    then, and how many strings there are.

    Strings of up to 16 bytes are compared without the arena.  `hashes` has room for all hashes if memory is to be asked
    for ahead, else none.
    """
    slots, entries, starts, arena = strings.slots, strings.entries, strings.starts, strings.arena
    mask = np.uint64(len(slots) - 1)
    used = starts[count]
    ahead = len(hashes) > 0
    for i in range(done, len(hashes)):
        a = np.int64(offsets[first + i])
        b = np.int64(offsets[first + i + 1])
        hashes[i] = _hash(data, a, b, word_at(data, a, b), word_at(data, a + 8, b) if b - a > 8 else np.uint64(0))
    for i in range(done, n):
        if ahead and i + 24 < n:
            prefetch(slots, np.int64(hashes[i + 24] & mask))
            prefetch(entries, np.int64(slots[hashes[i + 12] & mask]))
        a = np.int64(offsets[first + i])
        b = np.int64(offsets[first + i + 1])
        size = np.uint64(b - a)
        w0 = word_at(data, a, b)
        w1 = word_at(data, a + 8, b) if b - a > 8 else np.uint64(0)
        h = hashes[i] if ahead else _hash(data, a, b, w0, w1)
        at = h & mask
        while True:
            code = np.int64(slots[at])
            if code < 0:
                if 2 * count >= len(slots) or count == len(entries) or used + b - a > len(arena):
                    return i, count
                slots[at] = count
                entries[count, 0] = w0
                entries[count, 1] = w1
                entries[count, 2] = size
                entries[count, 3] = h
                for j in range(a, b):
                    arena[used] = data[j]
                    used += 1
                code = count
                count += 1
                starts[count] = used
                break
            if entries[code, 0] == w0 and entries[code, 1] == w1 and entries[code, 2] == size:
                same = True
                if b - a > 16:
                    if entries[code, 3] != h:
                        same = False
                    else:
                        s = starts[code] - a
                        for j in range(a + 16, b):
                            if arena[s + j] != data[j]:
                                same = False
                                break
                if same:
                    break
            at = (at + np.uint64(1)) & mask
        codes[i, column] = code
    return n, count


@loop
def _rehash(slots, entries, count):
    mask = np.uint64(len(slots) - 1)
    for code in range(count):
        at = entries[code, 3] & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = code


@loop
def _size(codes, starts):
    size = 0
    for i in range(len(codes)):
        size += starts[codes[i] + 1] - starts[codes[i]]
    return size


@loop
def _gather(codes, starts, arena, offsets, data):
    used = 0
    for i in range(len(codes)):
        if i + 24 < len(codes):
            prefetch(starts, codes[i + 24])
            prefetch(arena, starts[codes[i + 12]])
        offsets[i] = used
        for j in range(starts[codes[i]], starts[codes[i] + 1]):
            data[used] = arena[j]
            used += 1
    offsets[len(codes)] = used


@loop
def _gather_short(codes, entries, offsets, data):
    """The same for strings of up to 16 bytes, which stand in their entries; `data` has 16 bytes more than needed."""
    used = 0
    for i in range(len(codes)):
        if i + 16 < len(codes):
            prefetch(entries, codes[i + 16])
        offsets[i] = used
        store(data, used, entries[codes[i], 0])
        store(data, used + 8, entries[codes[i], 1])
        used += np.int64(entries[codes[i], 2])
    offsets[len(codes)] = used
    return used


class TextDictionary(Dictionary):
    """Strings and binaries with 32-bit offsets, kept as bytes beside each other."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(type_)
        self._text = pa.types.is_string(type_)
        self._clear()

    def _clear(self) -> None:
        self._count = self._longest = 0
        self._slots = np.full(256, -1, np.int32)
        self._entries = np.zeros((64, 4), np.uint64)
        self._starts = np.zeros(65, np.int64)
        self._arena = np.zeros(1024, np.uint8)

    def __len__(self) -> int:
        return self._count

    @property
    def strings(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the bytes of each code begin (those of the next one behind it), and the bytes; they hold until a string
        comes."""
        return self._starts, self._arena

    def encode(self, array: pa.Array) -> np.ndarray:
        if isinstance(array, pa.DictionaryArray):
            if not len(array.dictionary):
                return np.zeros(len(array), np.int64)
            codes = self.encode(array.dictionary.cast(self.type))
            indices = array.indices.fill_null(0) if array.indices.null_count else array.indices
            return codes[indices.to_numpy(zero_copy_only=False)]
        codes = np.empty((len(array), 1), np.int64)
        self.encode_into(codes, 0, array)
        return codes[:, 0]

    def encode_into(self, rows: np.ndarray, at: int, array: pa.Array) -> None:
        if isinstance(array, pa.DictionaryArray):
            rows[:, at] = self.encode(array)
            return
        n = len(array)
        if not n:
            return
        _, bounds, data = array.buffers()
        first, offsets = array.offset, np.frombuffer(bounds, np.int32, array.offset + n + 1)
        text = _EMPTY if data is None else np.frombuffer(data, np.uint8)
        done, known = 0, self._count
        while done < n:
            # room is made as strings come: a table for as many as might come would be far from the processor
            hashes = np.empty(n if len(self._slots) > _NEAR else 0, np.uint64)
            strings = Strings(self._slots, self._entries, self._starts, self._arena)
            done, self._count = _encode(offsets, first, done, n, text, strings, self._count, rows, at, hashes)
            if done < n:
                size = int(offsets[first + done + 1]) - int(offsets[first + done])
                self._reserve(self._count + 1, int(self._starts[self._count]) + size)
        if self._count > known:
            self._longest = max(self._longest, int(self._entries[known : self._count, 2].max()))

    def value(self, code: int) -> Any:
        raw = self._arena[self._starts[code] : self._starts[code + 1]].tobytes()
        return raw.decode() if self._text else raw

    def decode(self, codes: np.ndarray, valid: np.ndarray | None, nulls: int = 0) -> pa.Array:
        n = len(codes)
        if not self._count:
            return pa.nulls(n + nulls, self.type)
        offsets = np.empty(n + nulls + 1, np.int32)
        if LITTLE and self._longest <= _SHORT:
            data = np.empty(n * self._longest + _SHORT, np.uint8)
            size = _gather_short(codes, self._entries, offsets, data)
            data = data[:size]
        else:
            data = np.empty(_size(codes, self._starts), np.uint8)
            _gather(codes, self._starts, self._arena, offsets, data)
        if nulls:
            offsets[n + 1 :] = offsets[n]
        known = validity(valid, n, nulls)
        return pa.Array.from_buffers(self.type, n + nulls, [known, pa.py_buffer(offsets), pa.py_buffer(data)])

    def keep(self, used: np.ndarray) -> np.ndarray:
        kept = np.flatnonzero(used)
        new_codes = np.zeros(len(used), np.int64)
        new_codes[kept] = np.arange(len(kept))
        size = int((self._starts[kept + 1] - self._starts[kept]).sum())
        offsets = np.empty(len(kept) + 1, np.int32 if size < 2**31 else np.int64)
        data = np.empty(size, np.uint8)
        _gather(kept, self._starts, self._arena, offsets, data)
        entries, longest = self._entries[kept], self._longest
        self._clear()
        self._reserve(len(kept), size)
        self._count, self._longest = len(kept), longest
        self._entries[: len(kept)] = entries
        self._starts[: len(kept) + 1] = offsets
        self._arena[:size] = data
        _rehash(self._slots, self._entries, self._count)
        return new_codes

    def _reserve(self, strings: int, size: int) -> None:
        if strings > len(self._entries):
            more = max(strings, 2 * len(self._entries))
            self._entries = grown(self._entries, more, 0)
            self._starts = grown(self._starts, more + 1, 0)
        if size > len(self._arena):
            self._arena = grown(self._arena, max(size, 2 * len(self._arena)), 0)
        if 2 * strings > len(self._slots):
            slots = len(self._slots)
            while slots < 4 * strings:
                slots *= 2
            self._slots = np.full(slots, -1, np.int32)
            _rehash(self._slots, self._entries, self._count)


class Holder(Protocol):
    """Whatever keeps coded rows between steps."""

    def coded(self) -> Iterable[tuple[np.ndarray, Sequence[tuple[int, pa.DataType]]]]:
        """Matrices of rows in use with their pooled columns: (column index, type) each.  They are changed in place."""

    def recoded(self) -> None:
        """Called after codes were changed in place (hashes must be made anew)."""


def is_pooled(type_: pa.DataType) -> bool:
    """Whether values of the type need a dictionary."""
    return not (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_date(type_)
        or pa.types.is_time(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_duration(type_)
        or pa.types.is_null(type_)
    )


class Interner:
    """The dictionaries of a running plan."""

    def __init__(self) -> None:
        self._dictionaries: dict[pa.DataType, Dictionary] = {}
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._next_collection = 1 << 16

    def dictionary(self, type_: pa.DataType) -> Dictionary:
        if type_ not in self._dictionaries:
            text = pa.types.is_string(type_) or pa.types.is_binary(type_)
            self._dictionaries[type_] = TextDictionary(type_) if text else Dictionary(type_)
        return self._dictionaries[type_]

    def register(self, holder: Holder) -> None:
        self._holders.add(holder)

    @property
    def size(self) -> int:
        """Distinct values kept."""
        return sum(map(len, self._dictionaries.values()))

    def collect(self, force: bool = False) -> int:
        """Drop values that no holder uses.  Call it only between steps.  Amortised: it waits until the pool doubled."""
        if not force and self.size < self._next_collection:
            return 0
        before = self.size
        used = {type_: np.zeros(len(d), np.bool_) for type_, d in self._dictionaries.items()}
        held = [matrix for holder in self._holders for matrix in holder.coded()]
        for matrix, columns in held:
            for column, type_ in columns:
                if type_ in used and len(used[type_]):
                    used[type_][matrix[:, column]] = True
        remap = {type_: self._dictionaries[type_].keep(marks) for type_, marks in used.items()}
        for matrix, columns in held:
            for column, type_ in columns:
                if type_ in remap and len(remap[type_]):
                    matrix[:, column] = remap[type_][matrix[:, column]]
        for holder in self._holders:
            holder.recoded()
        self._next_collection = max(1 << 16, 2 * self.size)
        return before - self.size
