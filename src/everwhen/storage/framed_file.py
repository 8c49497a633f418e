"""Sealed files: frames of bytes behind a header that makes any damage visible.

    magic `EVERWHEN` · format version u16 · kind u16 · number of frames u32      little endian
    per frame: length u64 · CRC-32 u32
    CRC-32 of the header so far u32, zeros up to a multiple of 64
    the frames, each filled up with zeros to a multiple of 64

Whatever is read was written so: a file that is cut short, grown, of another kind or changed in any byte that counts
is `CorruptFile`.  The frames are written from where they lie in memory, without a copy; each is read into memory of
its own, which may be written to and is freed by itself.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import IO, Final

import numpy as np

from everwhen.storage.folder import Chunk

MAGIC: Final = b"EVERWHEN"
VERSION: Final = 1
LOG: Final = 1
PICKLED: Final = 2
"""Snapshots and checkpoints up to Everwhen 0.4: pickles, which are never read again."""
SNAPSHOT: Final = 3

_HEAD: Final = struct.Struct("<8sHHI")
_FRAME: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_ALIGN: Final = 64
_MOST_FRAMES: Final = 10_000_000
"""More is no file of ours: a damaged count must not ask for all the memory there is."""


class CorruptFile(Exception):
    """The file is not what was written; the text says in which way."""


class OtherVersion(CorruptFile):
    """The file is whole, but another version of the program has written it; the text says which."""


def write_frames(kind: int, frames: Iterable[Sequence[Chunk]]) -> list[Chunk]:
    """The chunks of a file, the header first; a frame is given in pieces that follow one another."""
    body: list[Chunk] = []
    table: list[bytes] = []
    for pieces in frames:
        length, crc = 0, 0
        for piece in pieces:
            view = memoryview(piece)
            length += view.nbytes
            crc = zlib.crc32(view, crc)
            body.append(piece)
        if fill := -length % _ALIGN:
            body.append(bytes(fill))
        table.append(_FRAME.pack(length, crc))
    head = _HEAD.pack(MAGIC, VERSION, kind, len(table)) + b"".join(table)
    head += _CRC.pack(zlib.crc32(head))
    return [head + bytes(-len(head) % _ALIGN), *body]


def size(chunks: Iterable[Chunk]) -> int:
    """The bytes of a sealed file."""
    return sum(memoryview(chunk).nbytes for chunk in chunks)


def read_frames(file: IO[bytes], kind: int, most: int | None = None) -> list[memoryview]:
    """The frames of a file (the first `most` of them), each in writable memory of its own."""
    table = _table(file, kind)
    found: list[memoryview] = []
    for number, (length, crc) in enumerate(table if most is None else table[:most]):
        if length > _left(file):  # before so much memory is asked for
            raise CorruptFile(f"it ends within frame {number}")
        frame = np.empty(length, np.uint8).data
        _fill(file, frame, f"frame {number}")
        if zlib.crc32(frame) != crc:
            raise CorruptFile(f"the checksum of frame {number} does not fit its {length} bytes")
        _exactly(file, -length % _ALIGN, f"the end of frame {number}")
        found.append(frame)
    if most is None and file.read(1):
        raise CorruptFile("it goes on after its end")
    return found


def is_whole(file: IO[bytes], kind: int, length: int) -> bool:
    """Whether the header is right and the file as long as it says; the content is not read."""
    try:
        table = _table(file, kind)
    except CorruptFile:
        return False
    return length == _head_size(len(table)) + sum(frame + -frame % _ALIGN for frame, _ in table)


def _head_size(frames: int) -> int:
    used = _HEAD.size + frames * _FRAME.size + _CRC.size
    return used + -used % _ALIGN


def _table(file: IO[bytes], kind: int) -> list[tuple[int, int]]:
    """Length and checksum of each frame; the file then stands at the first one."""
    head = _exactly(file, _HEAD.size, "the header")
    magic, version, found, count = _HEAD.unpack(head)
    if magic != MAGIC:
        raise CorruptFile(f"it starts with {magic!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise CorruptFile(f"it has format version {version}; this is a program for version {VERSION}")
    if count > _MOST_FRAMES:
        raise CorruptFile(f"the header speaks of {count} frames")
    if count * _FRAME.size > _left(file):
        raise CorruptFile("it ends within the header")
    table = _exactly(file, count * _FRAME.size, "the header")
    (crc,) = _CRC.unpack(_exactly(file, _CRC.size, "the header"))
    if crc != zlib.crc32(table, zlib.crc32(head)):
        raise CorruptFile("the checksum of the header does not fit")
    if found == PICKLED and kind == SNAPSHOT:
        raise OtherVersion(
            "Everwhen 0.4 or an older version has written it, as a pickle, which this version does not read, since "
            "reading it could run code"
        )
    if found != kind:
        raise CorruptFile(f"it is a file of kind {found}, not {kind}")
    _exactly(file, _head_size(count) - _HEAD.size - len(table) - _CRC.size, "the header")
    return [_FRAME.unpack_from(table, i * _FRAME.size) for i in range(count)]


def _left(file: IO[bytes]) -> int:
    """How many bytes of a file are still to be read."""
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here


def _exactly(file: IO[bytes], length: int, what: str) -> bytes:
    found = file.read(length) if length else b""
    if len(found) != length:
        raise CorruptFile(f"it ends within {what}")
    return found


def _fill(file: IO[bytes], frame: memoryview, what: str) -> None:
    at = 0
    while at < len(frame):
        got = file.readinto(frame[at:])  # type: ignore[attr-defined]  # every binary file that can be read has it
        if not got:
            raise CorruptFile(f"it ends within {what}")
        at += got
