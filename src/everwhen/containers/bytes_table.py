"""Distinct byte strings numbered from 0, straight from and to Arrow buffers: no Python object per string.

An open-addressing table over entries of the first sixteen bytes, the length and a hash; what is longer is verified byte
by byte against an arena that holds each string once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from everwhen.compiled.hashing import LITTLE, mixed, store, word_at
from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers.arrays import grown

_SEED: Final = np.uint64(0x243F6A8885A308D3)
_LAST: Final = np.uint64(0xBF58476D1CE4E5B9)
_NEAR: Final = 1 << 14
"""A table of so many slots is near enough: memory need not be asked for ahead."""
_SHORT: Final = 16
"""Bytes of a string that stand in its entry."""


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


class BytesTable:
    """Byte strings to codes and back."""

    def __init__(self) -> None:
        self.count = 0
        self._slots = np.full(256, -1, np.int32)
        self._entries = np.zeros((64, 4), np.uint64)
        self._starts = np.zeros(65, np.int64)
        self._arena = np.zeros(1024, np.uint8)
        self._longest = 0

    def encode(self, offsets: np.ndarray, first: int, n: int, data: np.ndarray) -> np.ndarray:
        """Codes of `n` strings that stand in `data` between offsets."""
        codes = np.empty((n, 1), np.int64)
        self.encode_into(codes, 0, offsets, first, n, data)
        return codes[:, 0]

    def encode_into(
        self, codes: np.ndarray, column: int, offsets: np.ndarray, first: int, n: int, data: np.ndarray
    ) -> None:
        """The same, into a column of a matrix."""
        done, known = 0, self.count
        while done < n:
            # room is made as strings come: a table for as many as might come would be far from the processor
            hashes = np.empty(n if len(self._slots) > _NEAR else 0, np.uint64)
            strings = Strings(self._slots, self._entries, self._starts, self._arena)
            done, self.count = _encode(offsets, first, done, n, data, strings, self.count, codes, column, hashes)
            if done < n:
                size = int(offsets[first + done + 1]) - int(offsets[first + done])
                self._reserve(self.count + 1, int(self._starts[self.count]) + size)
        if self.count > known:
            self._longest = max(self._longest, int(self._entries[known : self.count, 2].max()))

    def decode(self, codes: np.ndarray, type_: pa.DataType, validity: pa.Buffer | None, more: int = 0) -> pa.Array:
        """Strings of codes as an Arrow array of a string or binary type with 32-bit offsets, then `more` empty ones."""
        n = len(codes)
        offsets = np.empty(n + more + 1, np.int32)
        if LITTLE and self._longest <= _SHORT:
            data = np.empty(n * self._longest + _SHORT, np.uint8)
            size = _gather_short(codes, self._entries, offsets, data)
            data = data[:size]
        else:
            data = np.empty(_size(codes, self._starts), np.uint8)
            _gather(codes, self._starts, self._arena, offsets, data)
        if more:
            offsets[n + 1 :] = offsets[n]
        return pa.Array.from_buffers(type_, n + more, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])

    @property
    def strings(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the bytes of each code begin, and the bytes; they hold until a string comes."""
        return self._starts, self._arena

    def value(self, code: int) -> bytes:
        return self._arena[self._starts[code] : self._starts[code + 1]].tobytes()

    def keep(self, kept: np.ndarray) -> None:
        """Drop all strings but those with the given (ascending) codes, which are renumbered from 0."""
        lengths = self._starts[kept + 1] - self._starts[kept]
        offsets, data = (
            np.empty(len(kept) + 1, np.int32 if lengths.sum() < 2**31 else np.int64),
            np.empty(int(lengths.sum()), np.uint8),
        )
        _gather(kept, self._starts, self._arena, offsets, data)
        entries, longest = self._entries[kept], self._longest
        self.__init__()  # type: ignore[misc]
        self._reserve(len(kept), len(data))
        self.count, self._longest = len(kept), longest
        self._entries[: len(kept)] = entries
        self._starts[: len(kept) + 1] = offsets
        self._arena[: len(data)] = data
        _rehash(self._slots, self._entries, self.count)

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
            _rehash(self._slots, self._entries, self.count)
