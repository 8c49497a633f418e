"""A table of another system as a relation: read once, at the start, and known whole.

Its position says which state of the table was read (`version`, where the system keeps versions) and a digest of it: if
it is read again and is another, that is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from everwhen.engine.epochs import joined
from everwhen.engine.files.live.inputs import LiveInput, Position
from everwhen.errors import InputError, StateError
from everwhen.formats.input_file import InputFile
from everwhen.stream.element_batch import ElementBatch


class RelationInput(LiveInput):
    """`read` gives the rows, as of a version or as they are, and the version that they are of."""

    def __init__(
        self, name: str, given: InputFile, shown: str, read: Callable[[int | None], tuple[pa.Table, int | None]]
    ) -> None:
        super().__init__(name, given)
        self._shown, self._read = shown, read
        self._version: int | None = None
        self._digest: str | None = None

    @property
    def is_there(self) -> bool:
        return True

    @property
    def position(self) -> dict[str, Any]:
        return {"version": self._version, "digest": self._digest, "ended": self.ended}

    def seek(self, position: Position) -> None:
        self._version, self._digest, self.ended = position["version"], position["digest"], position["ended"]

    def take(self, most: int) -> ElementBatch | None:
        return None if self.ended else self._taken(None)

    def take_to(self, position: Position) -> ElementBatch | None:
        if self.ended or not position["ended"]:
            return None
        found = self._taken(position["version"])
        if self._digest != position["digest"]:
            raise StateError(
                f"{self._shown} has other rows than when it was read at the start (take a new checkpoint and a new "
                "output, or put it back as it was)"
            )
        return found

    def _taken(self, version: int | None) -> ElementBatch | None:
        table, self._version = self._read(version)
        order = [
            (name, "ascending") for name in table.column_names if not pa.types.is_nested(table.schema.field(name).type)
        ]
        table = table.sort_by(order).combine_chunks() if order else table
        digest = hashlib.blake2b(digest_size=8)
        found: list[ElementBatch] = []
        for piece in table.to_batches():
            digest.update(repr(piece.to_pydict()).encode())
            try:
                found += self.given.rows.of_table(piece, self._shown, 1)
            except InputError as bad:
                raise InputError(bad.problem, source=self._shown, remedy=bad.remedy) from None
        self._digest, self.ended = digest.hexdigest(), True
        return joined(found) if found else None
