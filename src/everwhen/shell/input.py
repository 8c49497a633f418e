"""Where the shell's data comes from: files and the NEXMark generator, epoch by epoch, for whatever is being read.

Files are read as `everwhen run` reads them (`EpochReader`): relations first and whole, streams in turn or by their
arrival numbers.  A stream that no query reads does not move on; one that is read again goes on where it was left.
When a query begins or stops to read a file, the order of arrival is made up anew from there on.

**Guarantee.**  No element is passed over: an epoch that was refused is read again the next time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from everwhen.algebra.nodes import Source
from everwhen.core.time import NEVER
from everwhen.core.time_axis import TimeAxis, common_axis, tick_length
from everwhen.demo.nexmark import STREAMS, NexmarkConfig, NexmarkGenerator
from everwhen.engine.epochs import Epoch, EpochReader
from everwhen.engine.run import SMALL_PIECE
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import InputError, QueryError
from everwhen.formats.dated import shows_dates
from everwhen.formats.input_file import STANDARD_INPUT, InputFile, contents_in_file, read_input
from everwhen.language.catalog import Catalog, Declaration
from everwhen.language.declaration_text import require_elements
from everwhen.storage.atomic_file import is_regular
from everwhen.stream.element_batch import INSERT, ElementBatch

_FILE: Final = "file"


@dataclass
class Nexmark:
    """The generator, and how far it has been read.  Without `events` it has no end."""

    config: NexmarkConfig
    events: int | None = None
    slot: int = 0

    def __post_init__(self) -> None:
        self._generator = NexmarkGenerator(self.config)
        self.end = None if self.events is None else self._generator.last_slot(self.events)

    def next(self, count: int) -> Mapping[str, ElementBatch] | None:
        """The batches of the next slots; None at the end."""
        if self.end is not None and self.slot >= self.end:
            return None
        stop = self.slot + count if self.end is None else min(self.slot + count, self.end)
        found = self._generator.read(self.slot, stop, self.events)
        self.slot = stop
        return found


@dataclass
class Feeds:
    """Files by the names of streams, and perhaps NEXMark."""

    tick: str = "1ms"
    batch: int = 1000
    files: dict[str, str] = field(default_factory=dict)
    nexmark: Nexmark | None = None
    taken: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    tau: dict[str, int] = field(default_factory=dict)
    _reading: tuple[str, ...] = ()
    _epochs: Iterator[Epoch] | None = None
    _before: Mapping[str, int] = field(default_factory=dict)
    _slot: int = 0
    _dated: dict[str, bool | None] = field(default_factory=dict)

    # -- attaching ----------------------------------------------------------------------------------------------

    def attach(self, name: str, file: str) -> None:
        """Let a stream come from a file, from its beginning on."""
        if file == STANDARD_INPUT:
            raise QueryError("the standard input is the shell's own; give a file")
        path = str(Path(file).expanduser())
        with open(path, "rb"):
            pass  # whether it can be read is known at once
        if not is_regular(path):
            raise QueryError(f"{file} is no regular file; the shell may have to read it more than once")
        self.detach(name)
        self.files[name] = path

    def attach_all(self, files: Iterable[tuple[str, str]]) -> None:
        """Let streams come from files, each from one."""
        for name, file in files:
            if name.lower() in (known.lower() for known in self.files):
                raise QueryError(f"the input {name} is given twice; it has one file")
            self.attach(name, file)

    def detach(self, name: str) -> None:
        """Let a stream begin anew."""
        for known in [known for known in (*self.files, *self.ended, *self.tau) if known.lower() == name.lower()]:
            self.files.pop(known, None)
            self.taken.pop(known, None)
            self.tau.pop(known, None)
            self.ended.discard(known)
        self._epochs = None
        self._dated.clear()

    def begin_anew(self, name: str) -> None:
        """A stream was dropped or declared anew: what is read next is the beginning of its file."""
        self.taken.pop(name, None)
        self.tau.pop(name, None)
        self.ended.discard(name)
        self._epochs = None
        self._dated.clear()

    def release(self, session: SqlSession) -> None:
        """Relations that nobody reads any more begin anew when they are read again, as the session wants it."""
        for stream in session.streams():
            if stream.kind in ("constant", "temporal") and stream.name not in session.inputs:
                self.taken.pop(stream.name, None)
                self.ended.discard(stream.name)

    def generate(self, settings: Mapping[str, str]) -> None:
        """Let the four NEXMark streams come from the generator, with settings of its configuration and `events`."""
        values: dict[str, Any] = {}
        known: dict[str, Any] = {each.name: type(each.default) for each in fields(NexmarkConfig)} | {"events": int}
        for name, text in settings.items():
            if name not in known:
                raise QueryError(f"NEXMark has no setting {name!r}; there is {', '.join(known)}")
            try:
                values[name] = known[name](text)
            except ValueError:
                raise QueryError(f"NEXMark: {name} is a number, not {text!r}") from None
        events = values.pop("events", None)
        self.nexmark = Nexmark(NexmarkConfig(**values), events)
        for name in STREAMS:
            self.detach(name)

    def found(self, name: str) -> Declaration | None:
        """A stream that nobody declared takes its columns from its file (see `Catalog.found`)."""
        known = next((known for known in self.files if known.lower() == name.lower()), None)
        if known is None:
            return None
        require_elements(known, self.files[known])
        contents = contents_in_file(self.files[known])
        axis = TimeAxis(tick_length(self.tick), contents.axis.dated)
        return Declaration(Source(known, contents.schema, axis=axis), declared=False)

    def axis(self, names: Collection[str], catalog: Catalog) -> TimeAxis:
        """On which axis some streams tell their times: as their files show, else as declared."""
        axes = [TimeAxis(tick_length(self.tick), self._is_dated(name, catalog)) for name in names]
        return common_axis(axes or [TimeAxis(tick_length(self.tick))])

    def _is_dated(self, name: str, catalog: Catalog) -> bool:
        node = catalog.entries[name].node if name in catalog.entries else None
        if name not in self._dated:
            shown = None if self.place(name, catalog) is None else shows_dates(self._input(name, catalog))
            self._dated[name] = shown if shown is not None or not self._generates(name) else False
        found = self._dated[name]
        return isinstance(node, Source) and node.axis.dated if found is None else found

    def place(self, name: str, catalog: Catalog) -> str | None:
        """The file of a stream: what was attached, else what its declaration says."""
        known = next((known for known in self.files if known.lower() == name.lower()), None)
        if known is not None:
            return self.files[known]
        entry = catalog.stream(name, quoted=True)
        connector = None if entry is None or entry.declaration is None else entry.declaration.connector
        if connector is not None and connector.name.lower() == _FILE and set(connector.options) <= {"path"}:
            given = [*connector.arguments, *connector.options.values()]
            if len(given) == 1:
                return str(Path(str(given[0])).expanduser())
        return None

    def shown(self, name: str, catalog: Catalog) -> str:
        """Where a stream comes from, in a word."""
        file = self.place(name, catalog)
        if file is not None:
            return file
        return "NEXMark" if self._generates(name) else ""

    def _generates(self, name: str) -> bool:
        return self.nexmark is not None and name in STREAMS and name not in self.files

    @contextmanager
    def in_steps(self, batch: int) -> Iterator[None]:
        """Within it so many elements of an input make an epoch."""
        before = self.batch
        if batch == before:
            yield
            return
        self.batch, self._epochs = batch, None
        try:
            yield
        finally:
            self.batch, self._epochs = before, None

    def set_batch(self, batch: int) -> None:
        """From now on so many elements of an input make an epoch."""
        self.batch, self._epochs = batch, None

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def is_endless(self) -> bool:
        """Whether what is read now goes on for ever."""
        return self.nexmark is not None and self.nexmark.end is None

    def missing(self, session: SqlSession) -> list[str]:
        """Streams that are read and come from nowhere."""
        catalog = session.catalog
        return [
            name
            for name in session.inputs
            if name not in self.ended and not self._generates(name) and self.place(name, catalog) is None
        ]

    def epoch(self, session: SqlSession) -> Epoch | None:
        """What comes next for the streams that are read; None if nothing does."""
        reading = tuple(
            name for name in session.inputs if name not in self.ended and self.place(name, session.catalog) is not None
        )
        if reading != self._reading or self._epochs is None:
            self._reading = reading
            self._epochs = iter(self._arrival(reading, session.catalog))
        self._before = dict(self.taken)
        try:
            epoch = next(self._epochs, None)
        except BaseException:
            self.back()
            raise
        wanted = [name for name in session.inputs if name not in self.ended and self._generates(name)]
        if self.nexmark is None or not wanted:
            return self._noted(epoch)
        self._slot = self.nexmark.slot
        generated = self.nexmark.next(self.batch)
        batches = {} if epoch is None else dict(epoch.batches)
        closes = () if epoch is None else epoch.closes
        if generated is None:
            closes += tuple(wanted)
        else:
            batches |= {name: generated[name] for name in wanted}
            for name in wanted:
                self.taken[name] = self.taken.get(name, 0) + len(generated[name])
        return self._noted(Epoch(batches, closes))

    def note(self, batches: Mapping[str, ElementBatch]) -> None:
        """Elements that came from elsewhere."""
        for name, batch in batches.items():
            self.taken[name] = self.taken.get(name, 0) + len(batch)
        self._noted(Epoch(dict(batches), ()))

    def _noted(self, epoch: Epoch | None) -> Epoch | None:
        for name, batch in {} if epoch is None else epoch.batches.items():
            starts = batch.vs[batch.op == INSERT]
            if len(starts):
                self.tau[name] = max(self.tau.get(name, NEVER), int(starts.max()))
        return epoch

    def back(self) -> None:
        """The last epoch was refused: it comes again."""
        self.taken = dict(self._before)
        self._epochs = None
        if self.nexmark is not None:
            self.nexmark.slot = self._slot

    def _arrival(self, names: tuple[str, ...], catalog: Catalog) -> EpochReader:
        given = {name: self._input(name, catalog) for name in names}
        pieces = {
            name: read_input(file, max(self.batch, SMALL_PIECE), self.taken.get(name, 0))
            for name, file in given.items()
        }
        whole = [name for name, file in given.items() if file.known_whole]
        return EpochReader(pieces, self.batch, relations=whole, taken=self.taken)

    def _input(self, name: str, catalog: Catalog) -> InputFile:
        file, entry = self.place(name, catalog), catalog.entries[name]
        if file is None:
            raise InputError(f"no file for {name}")
        declared = entry.declaration
        if declared is None:
            return InputFile(file, entry.node.schema, tick=self.tick)
        time = None if declared.ordered_by is None else declared.ordered_by[0]
        period = None if declared.period is None else (declared.period[0][0], declared.period[1][0])
        return InputFile(file, declared.schema, declared.kind, time, period, self.tick)
