"""The catalogue: the streams, relations and functions that queries may name.

A catalogue is a value: `with_…` and `without` give a new one, so a text that fails half-way has changed nothing.
Names are found without regard to case.  A stream that others are made from cannot be dropped (thesis, 7.2.2).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import UserAggregate
from everwhen.core.schema import Schema
from everwhen.core.source_policy import SourcePolicy
from everwhen.errors import QueryError


@dataclass(frozen=True, slots=True)
class Connector:
    """name(arguments, options): where a declared stream's elements come from, or an answer goes to.

    `places`: where in the text the connector ("") and each option stands, arguments by their number.
    """

    name: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    places: Mapping[str | int, tuple[int, int]] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )

    def __str__(self) -> str:
        named = (f"{name} = {value!r}" for name, value in self.options.items())
        return f"{self.name}({', '.join([*map(repr, self.arguments), *named])})"


@dataclass(frozen=True, slots=True)
class Declaration:
    """How the elements of an input are to be read.

    `ordered_by` names the column whose value is a row's start, `period` those that are its start and end: they are in
    the data, not in the stream.  `declared` tells whether the text said so, or the schema was found in the data.
    """

    source: n.Source
    ordered_by: tuple[str, pa.DataType] | None = None
    period: tuple[tuple[str, pa.DataType], tuple[str, pa.DataType]] | None = None
    connector: Connector | None = None
    declared: bool = True

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def kind(self) -> n.SourceKind:
        return self.source.kind

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def policy(self) -> SourcePolicy:
        """How it makes progress, and what becomes of late rows."""
        return self.source.policy


@dataclass(frozen=True, slots=True)
class Entry:
    """A name of the catalogue: a source with its declaration, or a derived stream."""

    name: str
    node: n.Node
    declaration: Declaration | None = None
    reads: frozenset[str] = frozenset()  # the entries it is made from
    text: str = ""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A Python function of values that queries may call; not called where an argument is null.

    >>> import everwhen as ew
    >>> import pyarrow as pa
    >>> s = ew.source("S", {"word": "string"})
    >>> shout = ew.UserFunction(lambda text: text.upper() + "!", pa.string())
    >>> query = ew.sql("SELECT SHOUT(word) AS word FROM S", s, functions={"shout": shout})
    >>> print(next(ew.run(query, {"S": [ew.Insert(0, 1, {"word": "hi"})]})))
    insert [0, 1) word='HI!'
    """

    function: Callable[..., Any]
    result: pa.DataType


Found = Callable[[str], Declaration | None]


@dataclass(frozen=True)
class Catalog:
    """What queries may name.  `found` is asked for a stream that nobody has declared."""

    entries: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))
    functions: Mapping[str, UserFunction | UserAggregate] = field(default_factory=lambda: MappingProxyType({}))
    found: Found | None = None

    def __post_init__(self) -> None:
        lower = {name.lower(): value for name, value in self.functions.items()}
        object.__setattr__(self, "functions", MappingProxyType(lower))

    def stream(self, name: str, quoted: bool = False) -> Entry | None:
        """The entry of that name; a quoted name is compared letter by letter."""
        if name in self.entries:
            return self.entries[name]
        if quoted:
            return None
        matches = [entry for known, entry in self.entries.items() if known.lower() == name.lower()]
        if len(matches) > 1:
            raise QueryError(
                f"{name} could be any of {', '.join(e.name for e in matches)}; write the name in quotation marks"
            )
        return matches[0] if matches else None

    def unknown(self, name: str) -> str:
        """What to say of a stream that is not there."""
        lower = {known.lower(): known for known in self.entries}
        near = difflib.get_close_matches(name.lower(), lower, n=1)
        there = f"there is {', '.join(self.entries)}" if self.entries else "no stream is declared"
        hint = f"did you mean {lower[near[0]]!r}?" if near else there
        return f"unknown stream {name!r}; {hint}"

    def with_entry(self, entry: Entry, replacing: bool = False) -> Catalog:
        """The catalogue with one more entry."""
        known = self.stream(entry.name)
        if known is not None and not replacing:
            raise QueryError(f"there is a stream {known.name!r} already; write CREATE OR REPLACE STREAM, or drop it")
        entries = dict(self.entries)
        if known is not None:
            self._require_unused(known, "replaced")
            del entries[known.name]
        return replace(self, entries=MappingProxyType({**entries, entry.name: entry}))

    def without(self, name: str, quoted: bool = False) -> Catalog:
        """The catalogue without an entry that nothing is made from."""
        entry = self.stream(name, quoted)
        if entry is None:
            raise QueryError(self.unknown(name))
        self._require_unused(entry, "dropped")
        kept = {known: other for known, other in self.entries.items() if known != entry.name}
        return replace(self, entries=MappingProxyType(kept))

    def _require_unused(self, entry: Entry, what: str) -> None:
        users = [other.name for other in self.entries.values() if entry.name in other.reads]
        if users:
            raise QueryError(
                f"{entry.name} cannot be {what}: {', '.join(users)} {'is' if len(users) == 1 else 'are'} made from it; "
                f"drop {'that' if len(users) == 1 else 'those'} first"
            )
