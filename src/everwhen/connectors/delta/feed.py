"""The change feed of a table as a log: its versions are the positions.

Within a version rows have no order, so they are sorted: what is gone before what is there, then by their values.  So a
stretch of versions always reads the same.

**A table at rest.**  The clock of this machine is noted.  If there is no newer version a `heartbeat` later, the table
was at rest until the noted time, and the input promises so.  Should a commit come afterwards with an earlier time (the
clock of its writer is behind, or it took longer than a heartbeat), it counts from what was promised on.  The position
says so (`moved`), so it is the same whenever the feed is read again.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.connectors.changes.live_rows import TableChanges
from everwhen.connectors.changes.log import Plain
from everwhen.connectors.delta.table import Place, plain
from everwhen.core.schema import Schema
from everwhen.errors import InputError, SourceError, StateError

PART: Final = "0"
_AT_ONCE: Final = 50
"""So many versions are read at a time."""
_GONE: Final = pa.array(["delete", "update_preimage"])
KIND, VERSION, WHEN = "_change_type", "_commit_version", "_commit_timestamp"
_UNTIL: Final = b"everwhen.until"
_COMMITTED: Final = pa.timestamp("ms")


class ChangeFeed:
    """Versions of a table, from `start` on: 'earliest', 'latest', or a number.  `heartbeat`: seconds between two words
    about a table at rest."""

    def __init__(
        self,
        place: Place,
        schema: Schema,
        times: tuple[str, ...] = (),
        start: str = "earliest",
        heartbeat: float = 1.0,
    ) -> None:
        self.place, self.schema, self.times, self.start, self._heartbeat = place, schema, times, start, heartbeat
        self._version, self._clock = -1, 0
        self._moved: list[list[int]] = []
        self._noted: tuple[float, int] | None = None
        self._table: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    @property
    def shown(self) -> str:
        return self.place.shown

    @property
    def is_there(self) -> bool:
        return self.place.is_there

    @property
    def position(self) -> dict[str, Any]:
        """`version`: how far it was read; `clock`: until when it was at rest, in milliseconds; `moved`: after which
        version commits count from which clock on."""
        return {"version": self._version, "clock": self._clock, "moved": [list(each) for each in self._moved]}

    @property
    def parts(self) -> tuple[str, ...]:
        return (PART,)

    @property
    def lag(self) -> int | None:
        return None if self._table is None else int(self._table.version()) - self._version

    def begin(self) -> None:
        with self.place.explained(SourceError, "read its change feed"):
            self._require_columns()
            last = int(self._fresh().version())
        if self.start in ("earliest", "latest"):
            self._version = -1 if self.start == "earliest" else last
        else:
            self._version = int(self.start) - 1

    def seek(self, position: Plain) -> None:
        self._version, self._clock = position["version"], position.get("clock", 0)
        self._moved = [list(each) for each in position.get("moved", ())]
        self._noted = None

    def take(self, most: int) -> pa.Table | None:
        now = time.time_ns() // 10**6
        with self.place.explained(SourceError, "read its change feed"):
            last = min(int(self._fresh().version()), self._version + _AT_ONCE)
        if last <= self._version:
            return self._beat(now)
        before, found = self._version, self._read(last)
        self._noted = None
        known = any(clock == self._clock for _, clock in self._moved)
        if not known and len(found) and _earliest(found) < self._clock:
            self._moved.append([before, self._clock])
        return self._counted(found)

    def take_to(self, position: Plain) -> pa.Table | None:
        last, clock = position["version"], position.get("clock", 0)
        self._moved = [list(each) for each in position.get("moved", ())]
        with self.place.explained(SourceError, "read its change feed"):
            there = int(self._fresh().version())
        if there < last:
            raise StateError(
                f"{self.shown}: it has {there + 1} versions, and version {last} was read before: it was made anew "
                "(take a new checkpoint and a new output, or restore the table)"
            )
        found = self._counted(self._read(last)) if last > self._version else None
        if clock > self._clock:
            self._clock = clock
            found = _until(self._nothing() if found is None else found, clock)
        return found

    def passed(self, position: Plain) -> None:
        """A table keeps what it keeps."""
        self._moved = [each for each in self._moved if each[0] >= position["version"]]

    def close(self) -> None:
        self._table = None

    def _beat(self, now: int) -> pa.Table | None:
        """There is no newer version.  A word about it, if one is due."""
        here, noted = time.monotonic(), self._noted
        if noted is not None and here - noted[0] < self._heartbeat:
            return None
        self._noted = here, now
        if noted is None or noted[1] <= self._clock:
            return None
        self._clock = noted[1]
        return _until(self._nothing(), self._clock)

    def _counted(self, table: pa.Table) -> pa.Table:
        """Commits from when on they count: not before what was promised when they came."""
        if not self._moved or not len(table):
            return table
        version = table.column(VERSION).to_numpy()
        when = table.column(WHEN).cast(_COMMITTED).cast(pa.int64()).to_numpy()
        for place, clock in self._moved:
            when = np.where(version > place, np.maximum(when, clock), when)
        at = table.column_names.index(WHEN)
        return table.set_column(at, WHEN, pa.array(when, pa.int64()).cast(_COMMITTED))

    def _nothing(self) -> pa.Table:
        types = {WHEN: _COMMITTED, VERSION: pa.int64(), KIND: pa.string()}
        fields = [(field.name, field.type) for field in self.schema]
        fields += [(name, pa.int64()) for name in self.times if name not in self.schema]
        return pa.schema([*fields, *types.items()]).empty_table()

    def _fresh(self) -> Any:
        if self._table is None:
            self._table = self.place.table()
        else:
            self._table.update_incremental()
        return self._table

    def _require_columns(self) -> None:
        there = {field.name for field in self._fresh().schema().fields}
        for name in (*self.schema.names, *self.times):
            if name not in there:
                raise SourceError(
                    f"{self.shown}: there is no column {name!r} (declare the stream with its columns: "
                    f"{', '.join(sorted(there))})"
                )

    def _read(self, last: int) -> pa.Table:
        wanted = [*self.schema.names, *(name for name in self.times if name not in self.schema)]
        with self.place.explained(StateError, f"read the versions {self._version + 1} to {last}"):
            found = plain(self._fresh().load_cdf(self._version + 1, last, columns=[*wanted, KIND, VERSION, WHEN]))
        self._version = last
        return _ordered(found, wanted)


def _ordered(table: pa.Table, columns: list[str]) -> pa.Table:
    """Rows by version; in it what is gone first; then by their values."""
    gone = pc.is_in(table.column(KIND), _GONE)
    by: dict[str, Any] = {"0": table.column(VERSION), "1": pc.cast(pc.invert(gone), pa.int8())}
    for i, name in enumerate(columns):
        if not pa.types.is_nested(table.schema.field(name).type):
            by[str(i + 2)] = table.column(name)
    return table.take(pc.sort_indices(pa.table(by), [(name, "ascending") for name in by])).combine_chunks()


def _earliest(table: pa.Table) -> int:
    return int(pc.min(table.column(WHEN).cast(_COMMITTED).cast(pa.int64())).as_py())


def _until(table: pa.Table, clock: int) -> pa.Table:
    return table.replace_schema_metadata({_UNTIL: str(clock)})


def at_rest(table: pa.Table, tick: int) -> int | None:
    """Until when nothing else changes, in ticks of so many nanoseconds, if that is said."""
    found = (table.schema.metadata or {}).get(_UNTIL)
    return None if found is None else int(found) * 10**6 // tick


def stamps(table: pa.Table, tick: int) -> np.ndarray:
    """When rows were committed, in ticks of so many nanoseconds."""
    return table.column(WHEN).cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy() * 10**6 // tick


class FeedReader:
    """The feed as changes of rows."""

    def __init__(self, schema: Schema, tick: int, shown: str) -> None:
        self.schema, self.tick, self.shown = schema, tick, shown

    def decode(self, table: pa.Table) -> list[tuple[str, TableChanges]]:
        gone = pc.is_in(table.column(KIND), _GONE).to_numpy(zero_copy_only=False).astype(np.bool_)
        found = [(PART, TableChanges(stamps(table, self.tick), gone, payload(table, self.schema, self.shown)))]
        until = at_rest(table, self.tick)
        if until is not None:
            found.append((PART, TableChanges(np.zeros(0, np.int64), np.zeros(0, np.bool_), (), until=until)))
        return found


def payload(table: pa.Table, schema: Schema, shown: str) -> tuple[pa.Array, ...]:
    """The columns of a schema, with its types."""
    found = []
    for field in schema:
        column = table.column(field.name)
        try:
            found.append(pa.concat_arrays(column.cast(field.type).chunks) if len(column) else pa.array([], field.type))
        except pa.ArrowException as bad:
            problem = (
                f"the column {field.name!r} is {column.type}, declared as {field.type}: {str(bad).splitlines()[0]}"
            )
            raise InputError(problem, source=shown, remedy="declare it with its type") from None
    return tuple(found)
