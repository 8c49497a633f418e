"""Logical nodes that change lifetimes: windows, granularity, the conversions of CQL, and CEDR's operators on events.

They leave payloads alone.  Windows and conversions depend on snapshots only; `AlterLifetime` and `Deletes` depend on
the boundaries of events, so they stand on sources or behind `Coalesce`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from everwhen.algebra.node import Node, SameColumns
from everwhen.core.schema import Field, Schema
from everwhen.core.time import INF
from everwhen.errors import QueryError


@dataclass(frozen=True, eq=False)
class TimeWindow(SameColumns):
    """ω: at t, what was alive during the last `size` instants; with `slide`, as of the last multiple of it (17.1)."""

    size: int
    slide: int = 1

    def __post_init__(self) -> None:
        if self.size < 1 or self.slide < 1:
            raise QueryError(f"a window's size and slide are at least one tick, not {self.size} and {self.slide}")
        if self.size == INF and self.slide != 1:
            raise QueryError("an unbounded window does not slide")


@dataclass(frozen=True, eq=False)
class RowsWindow(SameColumns):
    """ω: at t, the last `rows` rows, per partition if given; with `slide`, as of the last multiple of it in rows."""

    rows: int
    slide: int = 1
    partition: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rows < 1 or self.slide < 1:
            raise QueryError(f"a window's rows and slide are at least 1, not {self.rows} and {self.slide}")
        self.input.schema.select(self.partition, "PARTITION BY")


@dataclass(frozen=True, eq=False)
class Granularity(SameColumns):
    """Γ: the snapshot at t is the input's at the last multiple of `granule`."""

    granule: int

    def __post_init__(self) -> None:
        if self.granule < 1:
            raise QueryError(f"a granule is at least one tick, not {self.granule}")


@dataclass(frozen=True, eq=False)
class RelationToStream(SameColumns):
    """CQL: `istream` what came at t, `dstream` what went at t, `rstream` all that is alive at t, as chronons."""

    kind: Literal["istream", "dstream", "rstream"]


@dataclass(frozen=True, eq=False)
class Split(SameColumns):
    """ς: lifetimes cut into pieces of at most `length`; the snapshots stay the same."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise QueryError(f"a split's length is at least one tick, not {self.length}")


@dataclass(frozen=True, eq=False)
class Coalesce(SameColumns):
    """ζ: canonical level form; the snapshots stay the same, level k is where the multiplicity is at least k.

    `longest` bounds the length of an output event (thesis, 11.7.2); without it events are maximal.
    """

    longest: int | None = None

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < 1:
            raise QueryError(f"the longest lifetime of a coalesce is at least one tick, not {self.longest}")

    @property
    def keeps_events(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class AlterLifetime(SameColumns):
    """Π: a new lifetime for each event (CEDR report, definition 6), in a vocabulary that is legal by construction.

    start: `⌊vs/hop⌋·hop + shift`; end: start + `length` (`INF`: for ever), or with `length=None` the old end + `shift`.
    With hop > 1 a kept end must not be shifted into the future, and `hop` alone moves starts back: see `legal`.
    """

    hop: int = 1
    shift: int = 0
    length: int | None = None

    def __post_init__(self) -> None:
        if not self.input.keeps_events:
            raise QueryError(
                "lifetimes can be altered on a source or after .coalesce(): elsewhere events have no fixed boundaries"
            )
        if self.hop < 1:
            raise QueryError(f"a hop is at least one tick, not {self.hop}")
        if self.length is not None and self.length < 1:
            raise QueryError(f"a lifetime is at least one tick long, not {self.length}")

    @property
    def keeps_events(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Deletes(SameColumns):
    """CEDR: every event's end, from then on for ever."""

    def __post_init__(self) -> None:
        if not self.input.keeps_events:
            raise QueryError(
                "deletes can be taken on a source or after .coalesce(): elsewhere events have no fixed boundaries"
            )

    @property
    def keeps_events(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Stamp(Node):
    """The events with the instant at which each starts as a column `start`, and its end as `end` if that has a name.

    An end without end is null.  While an end may still move, nothing from the event's start on is final.
    """

    input: Node
    start: str
    end: str | None = None

    def __post_init__(self) -> None:
        if not self.input.keeps_events:
            raise QueryError(
                "events can be stamped on a source or after .coalesce(): elsewhere they have no fixed boundaries"
            )
        _ = self.schema

    @cached_property
    def schema(self) -> Schema:
        names = (self.start,) if self.end is None else (self.start, self.end)
        return Schema((*self.input.schema.fields, *(Field(name, pa.int64()) for name in names)))

    @property
    def keeps_events(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Span(SameColumns):
    """Each instant of a row becomes a row that lives from its column `start` to its column `end`.

    So a row that lives for one tick is there for all of its window.  What may still come must start at or after the
    input's progress, as windows do that are open as long as anything can change in them: `windows` builds such plans.
    """

    start: str
    end: str

    def __post_init__(self) -> None:
        for name in (self.start, self.end):
            if self.input.schema.field(name, "the span of a row").type != pa.int64():
                raise QueryError(f"the span of a row is given in ticks; {name} is of another type")
