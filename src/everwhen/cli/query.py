"""A text of SQL and the files it reads, as `run` and `explain` get them: compiled, checked, rewritten.

Streams that the text does not declare take their columns from their files.  Names are found without regard to case, as
in SQL.  What is not a regular file (the standard input, a pipe) is copied aside first if its columns must be found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from everwhen.algebra.nodes import Node, Source, sources_of
from everwhen.cli.command import input_option, tick_option, warn
from everwhen.cli.source_options import SourceOptions, declare_sources
from everwhen.core.schema import Schema
from everwhen.core.time_axis import TimeAxis, tick_length
from everwhen.engine.files.axis import axis_of_inputs
from everwhen.errors import LoopError, QueryError, SqlError
from everwhen.formats.input_file import STANDARD_INPUT, InputFile, contents_in_file, is_folder
from everwhen.formats.json.inference import Contents
from everwhen.formats.plain_rows import plain_columns
from everwhen.storage.atomic_file import is_regular

if TYPE_CHECKING:
    from everwhen.language.catalog import Declaration
    from everwhen.language.program import Program
    from everwhen.rewrite.driver import Applied

_FILE: Final = "file"


def declare_query(parser: argparse.ArgumentParser) -> None:
    """The options that tell which query over which files."""
    parser.add_argument(
        "query", metavar="QUERY.sql", help="the query: any CREATE statements, then one SELECT; - is the standard input"
    )
    parser.add_argument(
        "--in", metavar="NAME=FILE", dest="inputs", type=input_option, action="append", default=[],
        help="the file of a stream or relation: JSON lines, .parquet or .csv, or a changelog folder; - is the standard "
        "input; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--tick", metavar="LENGTH", type=tick_option, default="1ms", help="how long a tick is (default 1ms)"
    )
    declare_sources(parser)
    parser.add_argument("--no-optimize", action="store_true", help="run the plan as it is written, without rewriting")


@dataclass(frozen=True)
class Compiled:
    """A query ready to be run or explained: as written, as rewritten and by which rules, and what it reads."""

    program: Program
    logical: Node
    node: Node
    applied: Sequence[Applied]
    inputs: Mapping[str, InputFile]
    axis: TimeAxis
    text: str = ""
    again: Callable[[str], Node] | None = None
    """Another text over the same inputs, as it is written."""

    @property
    def sources(self) -> dict[str, Source]:
        """What is read, by name."""
        return sources_of(self.node)


@contextmanager
def compiled(
    options: argparse.Namespace,
    need_files: bool,
    columns: Callable[[str, str], Schema] | None = None,
    check: Callable[[Collection[str]], None] = lambda _: None,
) -> Iterator[Compiled]:
    """The query of a command line; `need_files`: every input must have its file.  `columns` finds those of an input
    that is not declared, by its name and file, in another way than by reading it once.  `check` is told what the text
    reads, before anything is asked of the inputs."""
    given = _Given(_by_name(options.inputs), SourceOptions.of(options), columns)
    if STANDARD_INPUT in given.files.values() and options.query == STANDARD_INPUT:
        raise QueryError("the query and an input cannot both be the standard input")
    if list(given.files.values()).count(STANDARD_INPUT) > 1:
        raise QueryError("only one input can be the standard input")
    text = query_text(options.query)
    with given:
        program = _program(text, given, options.tick)
        given.said.check(program.sources)
        logical = given.said.apply(program.query.node)
        node, applied = _planned(logical, text, options.no_optimize)
        reads = set(sources_of(node))
        check(reads)
        found = given.inputs(program, options.tick, need_files)
        inputs = {name: found[name] for name in found if name in reads}
        axis = TimeAxis(tick_length(options.tick), axis_of_inputs(node, inputs).dated)

        def again(other: str) -> Node:
            return given.said.apply(_program(other, given, options.tick).query.node)

        yield Compiled(program, logical, node, applied, inputs, axis, text, again)


def _program(text: str, given: _Given, tick: str) -> Program:
    from everwhen.language.catalog import Catalog
    from everwhen.language.program import program as compile_program  # only these commands pay for the parser

    try:
        return compile_program(text, Catalog(found=given.found), tick)
    except SqlError as error:
        if not error.problem.startswith("unknown stream"):
            raise
        named = f"; --in names {', '.join(given.files)}" if given.files else ""
        hint = f"a stream that is not declared takes its columns from its file: --in NAME=FILE{named}"
        raise QueryError(f"{error}\n{hint}") from None


def _planned(node: Node, text: str, as_written: bool) -> tuple[Node, Sequence[Applied]]:
    from everwhen.rewrite.driver import Rewritten, rewrite
    from everwhen.rewrite.legal_loops import legal_loops

    found = Rewritten(node, ()) if as_written else rewrite(node)
    try:
        return legal_loops(found.node), found.applied
    except LoopError as error:
        raise error.within(text) from None


def query_text(file: str) -> str:
    """The text of a file, or of the standard input."""
    try:
        if file == STANDARD_INPUT:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as bad:
        raise QueryError(f"{file}: byte {bad.start + 1} is not UTF-8; save the query as UTF-8") from None


def _by_name(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, file in pairs:
        if name.lower() in (known.lower() for known in found):
            raise QueryError(f"the input {name} is given twice; it has one file")
        found[name] = file
    return found


@dataclass
class _Given:
    """The files of a command line, by name."""

    files: Mapping[str, str]
    said: SourceOptions
    columns: Callable[[str, str], Schema] | None = None
    _aside: dict[str, str] = field(default_factory=dict)
    _place: TemporaryDirectory[str] | None = None

    def __enter__(self) -> _Given:
        return self

    def __exit__(self, *_: object) -> None:
        if self._place is not None:
            self._place.cleanup()

    def name_of(self, name: str) -> str | None:
        """The name on the command line that means a stream of the query."""
        if name in self.files:
            return name
        return next((known for known in self.files if known.lower() == name.lower()), None)

    def found(self, name: str) -> Declaration | None:
        """A stream that nobody has declared, with the columns of its file; None if it has no file."""
        known = self.name_of(name)
        return None if known is None else self.said.declared(name, self._contents(known))

    def _contents(self, name: str) -> Contents:
        file = self.files[name]
        if self.columns is not None:
            return Contents(self.columns(name, file))
        if not is_folder(file) and (file == STANDARD_INPUT or not is_regular(file)):
            file = self._copied(name, file)
        return contents_of_file(name, file, self.said, _shown(self.files[name]))

    def _copied(self, name: str, file: str) -> str:
        if name not in self._aside:
            self._place = self._place or TemporaryDirectory(prefix="everwhen-")
            path = Path(self._place.name, f"{len(self._aside)}{Path(file).suffix}")
            if file == STANDARD_INPUT:
                with open(path, "wb") as copy:
                    shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                with open(file, "rb") as found, open(path, "wb") as copy:
                    shutil.copyfileobj(found, copy)
            self._aside[name] = str(path)
        return self._aside[name]

    def inputs(self, program: Program, tick: str, need_files: bool) -> dict[str, InputFile]:
        """Every input of the query with its file, in the order of the command line."""
        sources = program.sources
        places = {name: self._place_of(declaration) for name, declaration in sources.items()}
        missing = sorted(name for name, place in places.items() if place is None)
        reads = ", ".join(sorted(sources))
        if missing and need_files:
            give = " ".join(f"--in {name}=FILE" for name in missing)
            raise QueryError(f"no input for {', '.join(missing)}; the query reads {reads}; give {give}")
        for name in self.files:
            if name.lower() not in (known.lower() for known in sources):
                if program.catalog.stream(name) is None:
                    raise QueryError(f"the query does not read {name}; it reads {reads}")
                warn(f"the query does not read {name}, so its file is not read either")
        order = [name.lower() for name in self.files]
        found = {name: place for name, place in places.items() if place is not None}
        kept = self.said.kept(name for name, declaration in sources.items() if not declaration.source.is_finite)
        ranked = sorted(found, key=lambda name: order.index(name.lower()) if name.lower() in order else len(order))
        inputs = {name: self._input(sources[name], found[name], tick) for name in ranked}
        return {name: replace(each, late_rows=kept.get(name, "")) for name, each in inputs.items()}

    def _place_of(self, declaration: Declaration) -> str | None:
        known = self.name_of(declaration.name)
        if known is not None:
            return self._aside.get(known, self.files[known])
        connector = declaration.connector
        if connector is None:
            return None
        given = [*connector.arguments, *connector.options.values()]
        if connector.name.lower() == _FILE and len(given) == 1 and set(connector.options) <= {"path"}:
            return str(given[0])
        return None

    def _input(self, declaration: Declaration, file: str, tick: str) -> InputFile:
        known = self.name_of(declaration.name)
        shown = "" if known is None or file == self.files[known] else _shown(self.files[known])
        time = None if declaration.ordered_by is None else declaration.ordered_by[0]
        period = None if declaration.period is None else (declaration.period[0][0], declaration.period[1][0])
        return InputFile(file, declaration.schema, declaration.kind, time, period, tick, shown)


def contents_of_file(name: str, file: str, said: SourceOptions, shown: str = "") -> Contents:
    """What a file holds whose stream is not declared; plain rows need to be told which column is the time."""
    from everwhen.language.declaration_text import require_elements

    if not said.orders(name):
        require_elements(name, file, shown)
    columns = None if is_folder(file) else plain_columns(file)
    return contents_in_file(file) if columns is None else Contents(Schema.of(columns))


def _shown(file: str) -> str:
    return "<stdin>" if file == STANDARD_INPUT else os.fspath(file)
