"""The changes of a table as a log: a replication slot, decoded by PostgreSQL's own plugin.

A position is a place in the server's write-ahead log, at which transactions end.  At first the table is read as of the
moment at which the slot is made (`first_rows.py`); then come the transactions since.  They are looked at (peek) and
stay in the slot; what a job has a checkpoint of is given up (`passed`), and only then does the server forget it.

**A table at rest.**  The server's time and the end of its log are noted together.  If, a `heartbeat` later, everything
up to that end can be read and nothing of the table is there, the table was at rest until the noted time: that is a
record of its own (`Beat`), by which the input promises and the slot moves on, so that the server need not keep the log
of other tables.  A transaction takes its time just before it is written; should one be written after a beat with an
earlier time than the beat's (it was held up for longer than a heartbeat, or the clock was put back), it counts from the
beat on.  The position says so (`moved`), so it is the same whenever the log is read again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from everwhen.connectors.changes.live_rows import TableChanges
from everwhen.connectors.changes.log import Plain
from everwhen.connectors.postgres.database import Database
from everwhen.connectors.postgres.first_rows import ANEW, CLOCK, FirstRows
from everwhen.connectors.postgres.pgoutput import CLEAR, GONE, UNCHANGED, Decoder, Transaction
from everwhen.connectors.postgres.values import columns_of
from everwhen.core.schema import Schema
from everwhen.errors import SourceError, StateError

PART: Final = "0"
_PEEK: Final = """
SELECT data
FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"""
_SLOT: Final = (
    "SELECT confirmed_flush_lsn - '0/0'::pg_lsn, active, plugin FROM pg_replication_slots WHERE slot_name = %s"
)
_END: Final = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn"


@dataclass(frozen=True)
class Beat:
    """Nothing of the table has changed up to a time of the server, in microseconds."""

    when: int


Taken: TypeAlias = "Transaction | Beat | tuple[pa.Table, dict[str, Any]]"
"""A transaction, a word that nothing changed, or the rows of the start and what is known of them."""


class Slot:
    """The changes of one table.  `heartbeat`: seconds between two words about a table at rest."""

    def __init__(
        self, database: Database, schema: Schema, key: tuple[str, ...], slot: str, state: str, heartbeat: float = 1.0
    ) -> None:
        self.database, self.schema, self.slot, self._heartbeat = database, schema, slot, heartbeat
        self._lsn, self._last, self._initial, self._clock = 0, 0, 0, 0
        self._moved: list[list[int]] = []
        self._kept, self._looked = 0, -1
        self._noted: tuple[float, int, int] | None = None
        self._connection: Any = None
        self._first = FirstRows(database, schema, slot, state)
        self._decoder = Decoder(database.schema, database.table, schema.names, key, database.shown)

    def __getstate__(self) -> dict[str, Any]:
        assert self._connection is None, "it is open"
        return self.__dict__

    @property
    def shown(self) -> str:
        return self.database.shown

    @property
    def is_there(self) -> bool:
        with self.database.explained(SourceError, "look for it"):
            return bool(self._connected().execute("SELECT to_regclass(%s)", [self.database.quoted]).fetchone()[0])

    @property
    def position(self) -> dict[str, Any]:
        """`lsn`: how far the log was read; `last`: where the last transaction of the table ended; `clock`: the last
        beat; `moved`: after which place in the log transactions count from which beat on."""
        found = {"lsn": self._lsn, "last": self._last, "initial": self._initial, "clock": self._clock}
        return {**found, "moved": [list(each) for each in self._moved]}

    @property
    def parts(self) -> tuple[str, ...]:
        return (PART,)

    def begin(self) -> None:
        """Makes the publication and the slot, and keeps the rows that the table has at that moment."""
        with self.database.explained(SourceError, f"make the slot {self.slot!r}"):
            connection = self._connected()
            self._require_columns(connection)
            found = connection.execute(_SLOT, [self.slot]).fetchone()
            if found is not None and not self._first.are_there:
                if found[1] or not self._first.are_begun:
                    raise SourceError(
                        f"{self.shown}: there is a slot {self.slot!r} already, of another job or program (give the "
                        f"option slot another name; or, if nobody needs it: SELECT pg_drop_replication_slot("
                        f"'{self.slot}'))"
                    )
                # this job was ended before it had kept the rows, and nobody has read anything
                connection.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
                found = None
            if found is None:
                self._first.make(connection)
        self._lsn = self._last = self._first.read()[1]["lsn"]
        self._initial = 0

    def seek(self, position: Plain) -> None:
        self._lsn, self._initial = position["lsn"], position["initial"]
        self._last, self._clock = position.get("last", self._lsn), position.get("clock", 0)
        self._moved = [list(each) for each in position.get("moved", ())]
        self._noted, self._looked = None, -1
        with self.database.explained(SourceError, f"read the slot {self.slot!r}"):
            self._require_unread()

    def take(self, most: int) -> list[Taken] | None:
        if not self._initial:
            self._initial = 1
            return [self._first.read()]
        with self.database.explained(SourceError, f"read the slot {self.slot!r}"):
            (now,) = self._connected().execute(f"SELECT {CLOCK}").fetchone()
            insert, flush = map(int, self._connected().execute(_END).fetchone())
            whole = True
            found: list[Transaction] = []
            if flush != self._looked:
                whole, found = self._peek(None, self._kept + most)
                self._looked = flush if whole and not found else -1
        if found:
            self._noted = None
            known = any(beat == self._clock for _, beat in self._moved)
            if not known and any(each.when < self._clock for each in found):
                self._moved.append([self._lsn, self._clock])
            self._lsn = self._last = found[-1].end
            return list(found)
        return self._beat(int(now), insert, flush) if whole else None

    def take_to(self, position: Plain) -> list[Taken] | None:
        found: list[Taken] = []
        if position["initial"] and not self._initial:
            self._initial = 1
            found.append(self._first.read())
        lsn, clock = position["lsn"], position.get("clock", 0)
        self._moved = [list(each) for each in position.get("moved", ())]
        if lsn > self._lsn:
            with self.database.explained(SourceError, f"read the slot {self.slot!r}"):
                _, since = self._peek(_lsn_text(lsn), None)
            since = [each for each in since if each.end <= lsn]
            if (since[-1].end if since else self._last) != position.get("last", lsn):
                raise StateError(f"{self.shown}: transactions that were read are not in the slot {self.slot!r} {ANEW}")
            for each in since:
                each.when = max([each.when, *(beat for place, beat in self._moved if place < each.end)])
            found += since
            self._lsn, self._last = lsn, position.get("last", lsn)
        if clock > self._clock:
            self._clock = clock
            found.append(Beat(clock))
        return found or None

    def passed(self, position: Plain) -> None:
        if not position["initial"]:
            return
        with self.database.explained(SourceError, f"move the slot {self.slot!r} on"):
            connection = self._connected()
            there = connection.execute(_SLOT, [self.slot]).fetchone()
            if there is not None and int(there[0]) < position["lsn"]:
                connection.execute(
                    "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.slot, _lsn_text(position["lsn"])]
                )
                self._kept = 0
        self._moved = [each for each in self._moved if each[0] >= position["lsn"]]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # -- inside -------------------------------------------------------------------------------------------------

    def _beat(self, now: int, insert: int, flush: int) -> list[Taken] | None:
        """Nothing of the table is in the log up to `flush`.  A word about it, if one is due."""
        here = time.monotonic()
        noted = self._noted
        if noted is None:
            self._noted = here, now, insert
            return None
        since, clock, end = noted
        if here - since < self._heartbeat or flush < end:
            return None
        self._noted = here, now, insert
        if clock <= self._clock:
            return None
        self._clock, self._lsn = clock, max(self._lsn, end)
        return [Beat(clock)]

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self.database.connect()
        return self._connection

    def _require_columns(self, connection: Any) -> None:
        cursor = connection.execute(self.database.sql("SELECT * FROM {table} LIMIT 0"))
        names = [column.name for column in cursor.description or ()]
        for name in self.schema.names:
            if name not in names:
                raise SourceError(f"{self.shown}: there is no column {name!r} (it has {', '.join(names)})")

    def _peek(self, upto: str | None, most: int | None) -> tuple[bool, list[Transaction]]:
        """Whether that is all there is; and the transactions of the table that are not read yet."""
        self._require_unread()
        rows = self._connected().execute(_PEEK, [self.slot, upto, most, self.slot]).fetchall()
        self._kept = len(rows)
        found = self._decoder.transactions((bytes(row[0]) for row in rows), self._lsn)
        return most is None or len(rows) < most, [each for each in found if each.kinds]

    def _require_unread(self) -> None:
        """The slot must still have what comes after the present position."""
        found = self._connected().execute(_SLOT, [self.slot]).fetchone()
        if found is None:
            raise StateError(f"{self.shown}: the slot {self.slot!r} is gone, and what came since with it {ANEW}")
        if int(found[0]) > self._lsn:
            raise StateError(f"{self.shown}: somebody else has read on in the slot {self.slot!r} {ANEW}")

    def decode(self, found: list[Taken], tick: int) -> list[tuple[str, TableChanges]]:
        """What was taken, as changes."""
        pieces: list[tuple[str, TableChanges]] = []
        changes = [each for each in found if isinstance(each, Transaction)]
        times = [each.when * 1000 // tick for each in changes for _ in each.kinds]
        kinds = [kind for each in changes for kind in each.kinds]
        rows: list[Any] = [row for each in changes for row in each.rows]
        pieces += [(PART, _first_rows(*each, tick)) for each in found if isinstance(each, tuple)]
        at = 0
        for i in [*(i for i, kind in enumerate(kinds) if kind == CLEAR), len(kinds)]:
            if i > at:
                pieces.append((PART, self._changes(times[at:i], kinds[at:i], rows[at:i])))
            if i < len(kinds):
                none = tuple(pa.nulls(1, type_) for type_ in self.schema.types)
                pieces.append((PART, TableChanges(np.array(times[i : i + 1]), np.ones(1, np.bool_), none, clears=True)))
            at = i + 1
        pieces += [(PART, _nothing_until(each.when * 1000 // tick)) for each in found if isinstance(each, Beat)]
        return pieces

    def _changes(self, times: list[int], kinds: list[int], rows: list[Any]) -> TableChanges:
        left_out = np.array([[value is UNCHANGED for value in row] for row in rows], np.bool_)
        some = bool(left_out.any())
        if some:
            rows = [[None if value is UNCHANGED else value for value in row] for row in rows]
        columns = columns_of(rows, self.schema, self.shown)
        gone = np.array(kinds) == GONE
        return TableChanges(np.array(times, np.int64), gone, columns, left_out if some else None)


def _first_rows(table: pa.Table, about: Plain, tick: int) -> TableChanges:
    when = about["when"] * 1000 // tick
    columns = tuple(
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type) for column in table.columns
    )
    return TableChanges(np.full(table.num_rows, when), np.zeros(table.num_rows, np.bool_), columns, until=when)


def _nothing_until(when: int) -> TableChanges:
    return TableChanges(np.zeros(0, np.int64), np.zeros(0, np.bool_), (), until=when)


def _lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
