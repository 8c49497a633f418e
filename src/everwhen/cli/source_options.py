"""Options that say of inputs what a declaration says: which column is the time, how far rows are out of order, when an
input is idle, what becomes of late rows, and where they are kept.

    --within 30m            of every stream
    --within Bid=30m        of one
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast, get_args

from everwhen.algebra.nodes import Node, Source, rebuilt
from everwhen.core.kinds import kind
from everwhen.core.schema import Schema
from everwhen.core.source_policy import Late, SourcePolicy
from everwhen.core.time import ticks
from everwhen.core.time_axis import TimeAxis, tick_length
from everwhen.errors import QueryError
from everwhen.formats.json.inference import Contents

if TYPE_CHECKING:
    from everwhen.language.catalog import Declaration

_EVERY: Final = ""
Given = Mapping[str, str]
"""Values by the names of streams in lower case; "" stands for every stream."""


def declare_sources(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add = parser.add_argument_group(
        "progress of inputs", "each is for every stream, or for one: --within 30m, --within Bid=30m"
    ).add_argument
    add(
        "--ordered-by",
        metavar="[NAME=]COLUMN",
        action="append",
        default=[],
        help="the column that is the time of a row",
    )
    add("--within", metavar="[NAME=]LENGTH", action="append", default=[], help="how far rows are out of order at most")
    add("--idle", metavar="[NAME=]LENGTH", action="append", default=[], help="after so long it holds nobody back")
    add(
        "--late", metavar="[NAME=]POLICY", action="append", default=[],
        help="what becomes of a row behind what its stream has promised: error (default), drop or adjust",
    )  # fmt: skip
    add("--late-rows", metavar="[NAME=]FILE", action="append", default=[], help="where late rows are kept: JSON lines")


@dataclass(frozen=True)
class SourceOptions:
    """What the options say, by stream."""

    ordered_by: Given
    within: Given
    idle: Given
    late: Given
    late_rows: Given
    tick: str

    @staticmethod
    def of(options: argparse.Namespace) -> SourceOptions:
        names = ("ordered_by", "within", "idle", "late", "late_rows")
        given = {name: _by_stream(getattr(options, name, []), f"--{name.replace('_', '-')}") for name in names}
        for value in given["late"].values():
            if value.lower() not in get_args(Late):
                raise QueryError(f"--late is one of {', '.join(get_args(Late))}, not {value!r}")
        return SourceOptions(**given, tick=options.tick)

    def check(self, streams: Iterable[str]) -> None:
        """A name that the query does not read is a slip."""
        known = {name.lower() for name in streams}
        for option in ("ordered_by", "within", "idle", "late", "late_rows"):
            for name in getattr(self, option):
                if name != _EVERY and name not in known:
                    raise QueryError(
                        f"--{option.replace('_', '-')}: the query does not read {name!r}; it reads "
                        f"{', '.join(sorted(streams))}"
                    )

    def declared(self, name: str, contents: Contents) -> Declaration:
        """A stream that is not declared, as these options say; `contents` is what its file holds."""
        from everwhen.language.catalog import Declaration  # only commands with a query pay for the language

        column, schema = _of(self.ordered_by, name), contents.schema
        if column is None:
            axis = TimeAxis(tick_length(self.tick), contents.axis.dated)
            return Declaration(Source(name, schema, axis=axis), declared=False)
        if column not in schema:
            raise QueryError(f"--ordered-by: {name} has no column {column!r}; there is {', '.join(schema.names)}")
        type_ = schema.field(column).type
        rest = Schema(tuple(field for field in schema.fields if field.name != column))
        axis = TimeAxis(tick_length(self.tick), kind(type_) in ("timestamp", "date"))
        source = Source(name, rest, chronons=True, policy=SourcePolicy(time=column), axis=axis)
        return Declaration(source, (column, type_), declared=False)

    def orders(self, name: str) -> bool:
        """Whether the column of the time of a stream is given."""
        return _of(self.ordered_by, name) is not None

    def policy(self, source: Source) -> SourcePolicy:
        """The policy of a source, with what is said here instead of what its declaration says."""
        if source.is_finite:
            return source.policy
        within, idle, late = (_of(given, source.name) for given in (self.within, self.idle, self.late))
        found = source.policy
        if within is not None:
            found = replace(found, within=_length(within, "--within", self.tick))
        if idle is not None:
            found = replace(found, idle=_length(idle, "--idle", "1ns") / 1e9)
        return found if late is None else replace(found, late=cast(Late, late.lower()))

    def kept(self, names: Iterable[str]) -> dict[str, str]:
        """The files of late rows, by stream."""
        found = {name: place for name in names if (place := _of(self.late_rows, name)) is not None}
        if len(found) > 1 and len(set(found.values())) < len(found):
            raise QueryError(
                f"--late-rows: {', '.join(sorted(found))} are several streams, whose rows cannot be read again from "
                "one file; give each its own: --late-rows NAME=FILE"
            )
        return found

    def apply(self, node: Node) -> Node:
        """A plan whose sources are as these options say."""
        if not (self.within or self.idle or self.late):
            return node
        said = lambda each: replace(each, policy=self.policy(each)) if isinstance(each, Source) else None  # noqa: E731
        return rebuilt(said, node)[0]


def _by_stream(texts: Iterable[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = (name.lower(), value) if equals else (_EVERY, text)
        if not value or (equals and not name):
            raise QueryError(f"{option}: {text!r} says nothing; write {option} VALUE, or {option} NAME=VALUE")
        if name in found:
            raise QueryError(f"{option} is given twice" + (f" for {name}" if name else ""))
        found[name] = value
    return found


def _of(given: Given, name: str) -> str | None:
    return given.get(name.lower(), given.get(_EVERY))


def _length(text: str, option: str, tick: str) -> int:
    try:
        return int(text) if text.isdecimal() and tick != "1ns" else ticks(text, tick)
    except QueryError as bad:
        raise QueryError(f"{option}: {bad}") from None
