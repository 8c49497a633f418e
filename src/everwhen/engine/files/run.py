"""A query over files, in this process: elements in, the answer in a file that appears whole or not at all.

**Guarantee.**  On any error, and when it is interrupted, the output is as it was.  With a checkpoint a run that was
killed goes on when it is started again with the same inputs, and ends with the same output as one that was not; where
it replays its inputs at another rate, with the same answer, said in other elements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final

from everwhen.algebra.builder import node_of
from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.core.replay import EpochSize
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, show
from everwhen.engine.epochs import EpochReader, require_batch
from everwhen.engine.files.axis import axis_of_inputs
from everwhen.engine.files.checkpoint import RATE, Checkpoint, Saved, fingerprint, finished
from everwhen.engine.files.late_book import LateBook, given_up, silence
from everwhen.engine.files.output_file import write_answer
from everwhen.engine.files.query_forms import QueryForms
from everwhen.engine.files.replans import Replans
from everwhen.engine.local import LocalRuntime, Query
from everwhen.engine.run import SMALL_PIECE
from everwhen.errors import QueryError
from everwhen.formats.changelog.reading import header_of
from everwhen.formats.input_file import STANDARD_INPUT, InputFile, is_folder, read_input, require_columns
from everwhen.operators.ingress.finalize import Reason
from everwhen.storage.atomic_file import is_regular
from everwhen.stream.element_batch import ElementBatch

_PATIENCE: Final = 2.0
"""Seconds between two checkpoints, at the least."""
_EFFORT: Final = 10
"""So many times as long as a checkpoint took is the time to the next one."""
_SAID: Final = 500_000
"""A checkpoint is due when so many elements were said since the last one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come: elements read and said, the CTI of each input, the latest start, and the share of all
    that is done, where the run knows it."""

    words: str
    read: int = 0
    said: int = 0
    ctis: Mapping[str, int] | None = None
    latest: int = NEVER
    share: float | None = None


Watch = Callable[[Progress], None]
Losses = Mapping[str, Mapping[Reason, int]]
"""By input and reason, how many elements were given up."""


def run_files(
    query: Query | Replans,
    inputs: Mapping[str, str | InputFile],
    out: str = "-",
    *,
    consistency: Consistency = MIDDLE,
    emit: str | Emit | None = None,
    batch: int | EpochSize = 10_000,
    open: bool = False,
    checkpoint: str | None = None,
    progress: Watch | None = None,
    every: float | None = None,
    losses: Callable[[Losses], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> int:
    """Runs a query over files and writes its answer; returns how many elements it has.

    `inputs` are files of elements by the names of the query's sources, or `InputFile`s; "-" is the standard input.
    `batch` elements of each input make an epoch, fewer when the inputs are replayed slowly (`EpochSize`); a run may go
    on with other epochs of a replay, unless what it drops depends on them.
    `every`: seconds between checkpoints; by default a few.  `losses` is told in the end how much had to be given up,
    `tell` from when on the answer is right, if a changelog among the inputs is right from an instant on only, and of
    late rows.
    """
    replans = query if isinstance(query, Replans) else Replans.of(query)
    watch: Watch = progress or (lambda _: None)
    size = batch if isinstance(batch, EpochSize) else EpochSize(batch, batch)
    tell = tell or (lambda _: None)
    books: list[LateBook] = []

    def make(node: Node) -> LocalRuntime:
        made = LocalRuntime(
            node, emit, consistency=consistency, dropped=lambda name, lost: books[0].note(name, lost),
            keep_relations=replans.keeps,
        )  # fmt: skip
        if books:
            _begin(made, given, lambda _: None)
        return made

    runtime = make(replans.now)
    level = runtime.consistency
    given = input_files(inputs, {name: runtime.schema_of(name) for name in runtime.inputs}, size.asked)
    axis = axis_of_inputs(replans.shown or replans.now, given)
    books.append(LateBook(given, tell, axis))
    _begin(runtime, given, tell)
    schema = replans.forms.asked.schema
    work = _Work(runtime, given, size.replayed, open, watch, books[0], replans)
    if checkpoint is None:
        with work.accounted(losses):
            return write_answer(chain.from_iterable(work.epochs(Saved())), out, schema, axis)
    store = Checkpoint(checkpoint, schema)

    def of(forms: QueryForms) -> dict[str, str]:
        found = identity(forms.asked, given, level.emit, size.asked, open, "local", level)
        if size.replayed != size.asked and _drops_by_epoch(runtime, level):
            found[RATE] = f"epochs of {size.replayed} elements"
        return found

    whose = replans.claim(of)
    with store.held(whose.begin) as saved:
        if saved.done and whose.goes_over(store.place):
            raise finished(store.place)
        if not saved.done:
            if saved.state is None:
                replans.begin_anew()
            else:
                work.runtime = replans.restored(saved.state, make, str(store.place), whose.owner(store.place))
                replans.settle(work.runtime)
            whose.confirm(store.place)
            with work.accounted(losses):
                saved = work.saved(store, saved, every)
        return write_answer(store.answer(saved), out, schema, axis)


def watch_files(
    runtime: LocalRuntime,
    inputs: Mapping[str, str | InputFile],
    *,
    batch: int = 10_000,
    progress: Watch | None = None,
) -> Progress:
    """Let a runtime read files, for what it does on the way: the answer is counted, not kept."""
    given = input_files(inputs, {name: runtime.schema_of(name) for name in runtime.inputs}, batch)
    _begin(runtime, given, lambda _: None)
    last = Progress("running")

    def watch(seen: Progress) -> None:
        nonlocal last
        last = seen
        if progress is not None:
            progress(seen)

    for _ in _Work(runtime, given, batch, True, watch, LateBook({}, lambda _: None)).epochs(Saved()):
        pass
    return last


def _begin(runtime: LocalRuntime, given: Mapping[str, InputFile], tell: Callable[[str], None]) -> None:
    """Changelogs that are right from an instant on only: a merge takes them so, of other answers it is told."""
    starts = {name: header_of(each.file).start.since for name, each in given.items() if is_folder(each.file)}
    late = {name: since for name, since in starts.items() if since > NEVER}
    for name in late.keys() & runtime.merged:
        runtime.detach(name)
        runtime.attach(name, late[name])
    right = runtime.right_from(late) if late else NEVER
    if right > NEVER:
        inputs = ", ".join(f"{name} is right from {show(since)} on" for name, since in sorted(late.items()))
        tell(f"{inputs}, so the answer is right " + ("nowhere" if right == INF else f"from {show(right)} on"))


def input_files(
    inputs: Mapping[str, str | InputFile], schemas: Mapping[str, Schema], batch: int
) -> dict[str, InputFile]:
    """Every source of a query with its file, in the order given; a misfit is an error that says what is read."""
    given = given_files(inputs, schemas, batch)
    if sum(file.file == STANDARD_INPUT for file in given.values()) > 1:
        raise QueryError("only one input can be the standard input")
    for file in given.values():
        if is_folder(file.file):
            require_columns(file)
        elif file.file != STANDARD_INPUT and is_regular(file.file):
            with open(file.file, "rb"):
                pass  # whether it can be read is known before anything is done
    return given


def given_files(
    inputs: Mapping[str, str | InputFile], schemas: Mapping[str, Schema], batch: int
) -> dict[str, InputFile]:
    """The file of each source; an error if one has none, or is none."""
    reads = ", ".join(sorted(schemas))
    require_batch(batch)
    if missing := sorted(set(schemas) - set(inputs)):
        raise QueryError(f"no input for {', '.join(missing)}; the query reads {reads}")
    if unknown := sorted(set(inputs) - set(schemas)):
        raise QueryError(f"the query does not read {', '.join(unknown)}; it reads {reads}")
    return {
        name: file if isinstance(file, InputFile) else InputFile(str(file), schemas[name])
        for name, file in inputs.items()
    }


def identity(
    query: Query,
    given: Mapping[str, InputFile],
    emit: Emit,
    batch: int,
    open: bool,
    engine: str,
    level: Consistency = MIDDLE,
) -> dict[str, str]:
    """What must not change while a checkpoint is used."""
    node = node_of(query)
    if any(file.file == STANDARD_INPUT for file in given.values()):
        raise QueryError("a checkpoint cannot go on from the standard input; write it to a file first")
    found = {"engine": engine, "query": explain(node), "emit": emit.value, "batch": str(batch), "open": str(open)}
    return {**found, **bounds_and_inputs(level, given, fingerprint)}


def bounds_and_inputs(level: Consistency, given: Mapping[str, InputFile], told: Callable[[str], str]) -> dict[str, str]:
    """What a level gives up, and the inputs, each file as it is told: a part of what must not change."""
    found: dict[str, str] = {}
    if level.finalizes or level.aligns:
        found["bounds"] = f"block {level.block}, remember {level.remember}, repair {level.repair}"
    for name, file in given.items():
        meant = "" if not file.times and file.kind == "stream" else f" ({file.kind} {', '.join(file.times)})".rstrip()
        found[f"input {name}"] = f"{told(file.file)}{meant}"
    return found


def _drops_by_epoch(runtime: LocalRuntime, level: Consistency) -> bool:
    """Whether the answer depends on how the inputs are cut into epochs: which rows are late does."""
    late = any(source.policy.late != "error" for source in runtime.plan.sources.values())
    return late or level.finalizes or level.aligns


class _Work:
    """A runtime over files, epoch by epoch."""

    def __init__(
        self,
        runtime: LocalRuntime,
        given: Mapping[str, InputFile],
        batch: int,
        open: bool,
        watch: Watch,
        book: LateBook,
        replans: Replans | None = None,
    ) -> None:
        self.runtime, self.given, self.batch, self.open, self.watch = runtime, given, batch, open, watch
        self.book, self.replans = book, replans
        self.taken: dict[str, int] = {}
        self.said = 0

    @contextmanager
    def accounted(self, losses: Callable[[Losses], None] | None) -> Iterator[None]:
        """What is given up within is kept, and told in the end."""
        self.book.begin(given_up(self.runtime))
        try:
            yield
            self.book.end(self.runtime.late)
            final = self.runtime.consistency.emit is Emit.FINAL
            if self.open and (words := silence(self.runtime.progress, final, self.said)) is not None:
                self.book.tell(words)
            if losses is not None:
                losses(self.runtime.dropped)
        finally:
            self.book.close()

    def epochs(self, saved: Saved) -> Iterator[list[ElementBatch]]:
        """What is said to each epoch after those that were saved; `taken` is how much of each input that took."""
        pieces = {
            name: read_input(file, max(self.batch, SMALL_PIECE), saved.taken.get(name, 0))
            for name, file in self.given.items()
        }
        whole = [name for name, file in self.given.items() if file.known_whole]
        arrival = EpochReader(pieces, self.batch, self.open, whole, taken=dict(saved.taken))
        self.taken = arrival.taken
        said = saved.said
        for epoch in arrival:
            if self.replans is not None:
                self.replans.look(self.runtime)
            found = list(self.runtime.answers([epoch]))
            said += sum(map(len, found))
            self.said = said
            self.book.look(self.runtime.late)
            self.watch(Progress("running", sum(self.taken.values()), said, self.runtime.progress, self.runtime.tau))
            yield found

    def saved(self, store: Checkpoint, saved: Saved, every: float | None) -> Saved:
        """Runs to the end, with checkpoints on the way."""
        news: list[ElementBatch] = []
        due = time.monotonic() + (_PATIENCE if every is None else every)
        for said in self.epochs(saved):
            news += said
            began = time.monotonic()
            if began >= due or sum(map(len, news)) >= _SAID:
                self.book.flush()
                assert self.replans is not None, "a run with a checkpoint has plans"
                state = self.replans.state(self.runtime)
                saved = store.save(saved, news, self.taken, state)
                news = []
                ended = time.monotonic()
                due = ended + (max(_PATIENCE, _EFFORT * (ended - began)) if every is None else every)
        return store.save(saved, news, self.taken, None)
