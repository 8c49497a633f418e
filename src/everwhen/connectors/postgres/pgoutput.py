"""The messages of PostgreSQL's own output plugin `pgoutput` (protocol 1), read into transactions of one table.

B begin · C commit · R a table's columns · I insert · U update · D delete · T truncate; others are passed over
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from everwhen.errors import SourceError

PUT, GONE, CLEAR = 0, 1, 2
_EPOCH: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from where PostgreSQL counts."""
Values = list[str | None]
UNCHANGED: Final = "\0"
"""Stands for a value that did not change and is left out; no text of PostgreSQL has it."""


@dataclass
class Transaction:
    """One transaction: where it ends in the log, when it was committed (microseconds), and its changes."""

    end: int = 0
    when: int = 0
    kinds: list[int] = field(default_factory=list)
    rows: list[Values] = field(default_factory=list)


class Decoder:
    """Messages of a slot.  `columns`: those that are wanted; `key`: those of them that tell rows apart."""

    def __init__(self, schema: str, table: str, columns: Sequence[str], key: Sequence[str], shown: str) -> None:
        self._of, self._columns, self._shown = (schema, table), list(columns), shown
        self._key = [self._columns.index(name) for name in key]
        self._places: dict[int, list[int] | None] = {}

    def transactions(self, messages: Iterable[bytes], after: int) -> list[Transaction]:
        """The transactions that end after a place of the log."""
        found: list[Transaction] = []
        now = Transaction()
        for message in messages:
            kind = message[:1]
            if kind == b"I":
                self._insert(message, now)
            elif kind == b"U":
                self._update(message, now)
            elif kind == b"D":
                self._delete(message, now)
            elif kind == b"B":
                now = Transaction()
            elif kind == b"C":
                _, _, now.end, when = struct.unpack_from(">BQQq", message, 1)
                now.when = when + _EPOCH
                if now.end > after:
                    found.append(now)
            elif kind == b"R":
                self._relation(message)
            elif kind == b"T":
                count, _ = struct.unpack_from(">iB", message, 1)
                for table in struct.unpack_from(f">{count}I", message, 6):
                    if self._places.get(table) is not None:
                        now.kinds.append(CLEAR)
                        now.rows.append([None] * len(self._columns))
        return found

    def _relation(self, message: bytes) -> None:
        (table,) = struct.unpack_from(">I", message, 1)
        space, at = _text(message, 5)
        name, at = _text(message, at)
        at += 1
        (count,) = struct.unpack_from(">H", message, at)
        at += 2
        names = []
        for _ in range(count):
            column, at = _text(message, at + 1)
            names.append(column)
            at += 8
        if ((space or "pg_catalog"), name) != self._of:
            self._places[table] = None
            return
        missing = [column for column in self._columns if column not in names]
        if missing:
            raise SourceError(
                f"{self._shown}: the column {missing[0]!r} is gone (the table has {', '.join(names)}; declare the "
                "stream anew, with a new checkpoint)"
            )
        self._places[table] = [names.index(column) for column in self._columns]

    def _insert(self, message: bytes, now: Transaction) -> None:
        places = self._wanted(message)
        if places is not None:
            values, _ = _tuple(message, 6)
            now.kinds.append(PUT)
            now.rows.append([values[place] for place in places])

    def _update(self, message: bytes, now: Transaction) -> None:
        places = self._wanted(message)
        if places is None:
            return
        at, old = 5, None
        if message[5:6] in (b"K", b"O"):
            old, at = _tuple(message, 6)
        values, _ = _tuple(message, at + 1)
        row = [values[place] for place in places]
        if old is not None:
            before = [old[place] for place in places]
            if any(before[i] != row[i] for i in self._key):  # another row by now
                now.kinds.append(GONE)
                now.rows.append(before)
                row = [before[i] if value is UNCHANGED else value for i, value in enumerate(row)]
        now.kinds.append(PUT)
        now.rows.append(row)

    def _delete(self, message: bytes, now: Transaction) -> None:
        places = self._wanted(message)
        if places is not None:
            values, _ = _tuple(message, 6)
            now.kinds.append(GONE)
            now.rows.append([values[place] for place in places])

    def _wanted(self, message: bytes) -> list[int] | None:
        return self._places.get(struct.unpack_from(">I", message, 1)[0])


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def _tuple(message: bytes, at: int) -> tuple[Values, int]:
    (count,) = struct.unpack_from(">H", message, at)
    at += 2
    values: Values = []
    for _ in range(count):
        kind = message[at : at + 1]
        at += 1
        if kind == b"t":
            (length,) = struct.unpack_from(">I", message, at)
            at += 4
            values.append(message[at : at + length].decode())
            at += length
        else:
            values.append(UNCHANGED if kind == b"u" else None)
    return values, at
