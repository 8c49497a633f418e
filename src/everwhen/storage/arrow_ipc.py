"""Tables as bytes and back, without copying them on the way."""

from __future__ import annotations

import pyarrow as pa

from everwhen.storage.folder import Chunk


class _Chunks:
    """A file that keeps references to what is written to it, so that a table is not copied before it is written."""

    closed = False

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def write(self, chunk: Chunk) -> int:
        self.chunks.append(chunk)
        return memoryview(chunk).nbytes

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing waits anywhere."""

    def close(self) -> None:
        """What was written stays."""


def stream_of(table: pa.Table) -> list[Chunk]:
    """The table as an uncompressed Arrow stream, in pieces that lie in the table's own memory."""
    kept = _Chunks()
    with pa.ipc.new_stream(pa.PythonFile(kept, mode="w"), table.schema) as writer:
        writer.write_table(table)
    return kept.chunks


def table_of(frame: memoryview | pa.Buffer) -> pa.Table:
    """The table of an Arrow stream, lying in the frame's memory."""
    with pa.ipc.open_stream(pa.py_buffer(frame)) as reader:
        return reader.read_all()
