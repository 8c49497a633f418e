"""The shell: statements and commands, one after the other, from a person at a terminal or from a script.

Statements go to an `SqlSession`; commands, which begin with a backslash, feed it and show what it does.  Data moves
only when it is told to (`\\step`, `\\run`), epoch by epoch, so every answer can be looked at while nothing happens.

**Guarantee.**  At a terminal no error ends it and none shows a traceback.  A script stops at its first error, which is
raised.  Ctrl-C cancels what is being typed; during a run it takes effect between two epochs, never within one.  An
epoch that takes long can only be left together with the shell: at a terminal by a second Ctrl-C, in a script after a
moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TextIO

from everwhen.core.late_count import LateCount
from everwhen.core.time import NEVER, show
from everwhen.core.time_axis import TimeAxis, Times, asked_axis, times_shown
from everwhen.engine.epochs import Epoch
from everwhen.engine.interruption import Abandoned, apart
from everwhen.engine.session.sql_session import Outcome, SqlSession
from everwhen.errors import EverwhenError, InputError, QueryError
from everwhen.shell.commands import COMMANDS, Order, order_of
from everwhen.shell.completion import Names, line_editing, names_of, remember
from everwhen.shell.input import Feeds
from everwhen.shell.reader import Piece, Reader
from everwhen.shell.result import Answer
from everwhen.shell.view import instant, number, plain, rows_shown
from everwhen.stream.element import Adjust, Insert, Punct
from everwhen.stream.element_batch import ElementBatch

PROMPT: Final = "everwhen> "
CONTINUED: Final = "      ..> "
_SHOWN_CHANGES: Final = 10
_SHOWN_ROWS: Final = 40
_GRACE: Final = 0.4
"""Seconds in which an epoch may end after Ctrl-C."""
INTERRUPTED: Final = 130


class Shell:
    """One session, its data and its answers.  `is_live`: the output is a terminal that may be drawn on."""

    def __init__(
        self,
        session: SqlSession,
        feeds: Feeds,
        out: TextIO,
        is_live: bool = False,
        clock: Callable[[], float] = time.monotonic,
        times: Times = "auto",
    ) -> None:
        self.session = session
        self.feeds = feeds
        self.is_live = is_live
        self.clock = clock
        self.times = times
        self.answers: dict[str, Answer] = {}
        self.latest: str | None = None
        self.is_over = False
        self._asked: list[float] | None = None
        """When Ctrl-C was pressed, while something runs that it stops."""
        self._is_warned = self._is_stepping = False
        self._out = out
        self._failed: set[str] = set()
        self._given_up: dict[str, int] = {}
        self._late: dict[str, LateCount] = {}
        self._late_told: dict[str, int] = {}

    @property
    def width(self) -> int | None:
        """How wide a table may be: as the terminal is; elsewhere as wide as it needs."""
        return max(self._terminal().columns, 40) if self.is_live else None

    @property
    def most_rows(self) -> int | None:
        """How many rows of an answer are shown: as many as the terminal can, with the prompt."""
        return max(min(self._terminal().lines - 6, _SHOWN_ROWS), 5) if self.is_live else None

    def _terminal(self) -> os.terminal_size:
        try:
            return os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):
            return os.terminal_size((80, 24))

    def say(self, *lines: str) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))

    # -- reading ------------------------------------------------------------------------------------------------

    def run_script(self, lines: Iterable[str]) -> None:
        """All of a script, up to its first error, which is raised."""
        reader = Reader(numbered=True)
        for line in lines:
            for piece in reader.take(line.rstrip("\r\n")):
                self.do(piece)
                if self.is_over:
                    return
        for piece in reader.finish():
            self.do(piece)

    def run_unread(self) -> None:
        """A script that has not moved its data gets its answers in the end."""
        if self.session.epoch == 0 and self.session.inputs and not self.feeds.is_endless and not self.is_over:
            with times_shown(self.axis):
                COMMANDS["run"].run(self, Order("run", (), ""))

    def interact(self, read: Callable[[str], str] = input) -> None:
        """Read and do until the person leaves."""
        reader = Reader()
        typed: list[str] = []
        with line_editing(self.names):
            while not self.is_over:
                try:
                    line = read(CONTINUED if reader.is_under_way else PROMPT)
                except EOFError:
                    self.say("")
                    return
                except KeyboardInterrupt:
                    self.say("^C")
                    reader.cancel()
                    typed.clear()
                    continue
                typed.append(line)
                pieces = reader.take(line)
                if not reader.is_under_way:
                    remember(typed)
                    typed.clear()
                for piece in pieces:
                    if not self.tried(partial(self.do, piece)) or self.is_over:
                        reader.cancel()
                        typed.clear()
                        break
                self._out.flush()

    def names(self) -> Names:
        return names_of(self.session, list(self.feeds.files), list(COMMANDS))

    def tried(self, action: Callable[[], None]) -> bool:
        """Do something; whether it went well.  What went wrong is said, and all goes on."""
        try:
            action()
            return True
        except Abandoned:
            raise
        except KeyboardInterrupt:
            self.say("^C")
        except OSError as error:
            self.say(f"error: {error.filename or ''}: {error.strerror or error}".replace(": : ", ": "))
        except EverwhenError as error:
            self.say(f"error: {error}")
        except Exception as error:  # whatever it is, the person's session goes on
            self.say(f"error: unforeseen {type(error).__name__}: {error}")
        return False

    # -- doing --------------------------------------------------------------------------------------------------

    @property
    def axis(self) -> TimeAxis:
        """On which times are shown: if one of the streams that are read has timestamps, with timestamps."""
        return asked_axis(self.feeds.axis(self.session.inputs, self.session.catalog), self.times)

    def do(self, piece: Piece) -> None:
        """Run a statement or a command."""
        with times_shown(self.axis):
            self._do(piece)

    def _do(self, piece: Piece) -> None:
        if piece.is_command:
            order = order_of(piece.text)
            COMMANDS[order.name].run(self, order)
            return
        for outcome in self.session.execute(piece.text):
            self.note(outcome)

    def note(self, outcome: Outcome) -> None:
        """Tell what a statement did; a query gets a place for its answer."""
        for warning in outcome.warnings:
            self.say(f"warning: {warning}")
        if outcome.kind != "started":
            if outcome.kind in ("dropped", "replaced"):
                self.feeds.begin_anew(outcome.name)
            self.say(str(outcome))
            return
        query = self.session.query(outcome.name)
        self.answers[query.name] = Answer(query.schema, query.consistency.emit)
        self.latest = query.name
        self._failed.discard(query.name)
        since = "" if query.valid_from == NEVER else f"; its answer is right from {show(query.valid_from)} on"
        self.say(f"{outcome}{since}")
        for name in self.feeds.missing(self.session):
            if name in query.sources:
                self.say(f"  {name} comes from nowhere yet: \\open {name} FILE")
        for name in query.sources:
            if name in self.feeds.ended:
                self.say(f"  {name} has ended: stop what reads it and \\open it anew to read it again")

    # -- data ---------------------------------------------------------------------------------------------------

    def epoch(self) -> tuple[Epoch, Mapping[str, list[ElementBatch]]] | None:
        """Push one epoch; what came and what each query said to it.  None if there is nothing to push."""
        found = self.feeds.epoch(self.session)
        if found is None:
            return None
        said: dict[str, list[ElementBatch]] = {}
        try:
            for name in found.closes:
                self.feeds.ended.add(name)
                if name in self.session.inputs:
                    self._take(self._stepped(partial(self.session.close_input, name)), said)
            batches = {name: batch for name, batch in found.batches.items() if name in self.session.inputs}
            if batches:
                self._take(self._stepped(partial(self.session.push, batches)), said)
                self._late |= self.session.late()
        except InputError:
            self.feeds.back()
            raise
        self._report_failures()
        return found, said

    def _stepped(self, step: Callable[[], Mapping[str, ElementBatch]]) -> Mapping[str, ElementBatch]:
        """A step of the session, which Ctrl-C does not have to wait for."""
        asked = self._asked
        if asked is None:
            return step()

        def gives_up() -> int | None:
            if not asked or self.clock() - asked[0] < _GRACE:
                return None
            if len(asked) > 1 or not self.is_live:
                return INTERRUPTED
            if not self._is_warned:
                self._is_warned = True
                self.say("^C: an epoch is under way, which takes long; Ctrl-C once more leaves the shell")
            return None

        self._is_warned, self._is_stepping = False, True
        try:
            return apart(step, gives_up)
        finally:
            self._is_stepping = False

    def _take(self, results: Mapping[str, ElementBatch], said: dict[str, list[ElementBatch]]) -> None:
        for name, batch in results.items():
            sources = self.session.query(name).sources
            tau = max((self.feeds.tau.get(source, NEVER) for source in sources), default=NEVER)
            self.answers[name].take(batch, tau)
            said.setdefault(name, []).append(batch)

    def _report_failures(self) -> None:
        failed = [query for query in self.session.queries() if query.state == "failed"]
        fresh = [query for query in failed if query.name not in self._failed]
        self._failed |= {query.name for query in fresh}
        if fresh:
            self.feeds.release(self.session)
            raise EverwhenError("; ".join(f"the query {query.name} failed: {query.error}" for query in fresh))

    def require_data(self) -> None:
        """QueryError if there is nothing that could be pushed."""
        if not self.session.inputs:
            raise QueryError("no query is running, so nothing is read; start one with SELECT … ;")
        missing = self.feeds.missing(self.session)
        if missing and len(missing) == len(self.session.inputs):
            hints = ", ".join(f"\\open {name} FILE" for name in missing)
            raise QueryError(f"{', '.join(missing)} come{'s' * (len(missing) == 1)} from nowhere yet: {hints}")

    def say_changes(self, said: Mapping[str, list[ElementBatch]]) -> None:
        """What queries said, line by line; at a terminal the last lines of it.  Then what they had to give up."""
        for name, batches in said.items():
            changes = [str(e) for batch in batches for e in batch.elements() if isinstance(e, Insert | Adjust | Punct)]
            if self.is_live and len(changes) > _SHOWN_CHANGES:
                self.say(f"{name}: … {number(len(changes) - _SHOWN_CHANGES, 'change')} before these")
                changes = changes[-_SHOWN_CHANGES:]
            self.say(*(f"{name}: {plain(change)}" for change in changes))
        self.say_given_up()

    def say_given_up(self) -> None:
        """How many elements queries have had to give up at their levels, of those where it has become more."""
        for query in self.session.queries():
            lost = {} if query.state != "running" else self.session.dropped(query.name)
            total = sum(sum(counts.values()) for counts in lost.values())
            if total > self._given_up.get(query.name, 0):
                parts = (f"{n} {why.value} in {source}" for source, counts in lost.items() for why, n in counts.items())
                self.say(f"{query.name}: given up so far: {total} ({', '.join(parts)})")
            self._given_up[query.name] = total
        for name, count in self._late.items():
            if count.late > self._late_told.get(name, 0):
                self.say(count.words(name))
            self._late_told[name] = count.late

    def show(self, name: str) -> None:
        """A query's answer as it is now."""
        query = self.session.query(name)
        answer = self.answers[query.name]
        rows = answer.rows()
        self.say(*rows_shown(answer.schema.names, rows, self.width, self.most_rows))
        early = NEVER < answer.now < query.valid_from
        right = f"; right from {show(query.valid_from)} on" if early else ""
        self.say(f"{number(len(rows), 'row')} {instant(answer.now, answer.final)}{right}")

    @contextmanager
    def interruptible(self) -> Iterator[Callable[[], bool]]:
        """Within it Ctrl-C asks to stop, which the function tells; a second one does not wait for the epoch under way.
        It stops a display, or else the whole script."""
        asked: list[float] = []
        if threading.current_thread() is not threading.main_thread():
            yield lambda: bool(asked)
            return

        def ask(_: int, __: object) -> None:
            if asked and not self._is_stepping:
                raise KeyboardInterrupt
            asked.append(self.clock())

        before = signal.signal(signal.SIGINT, ask)
        self._asked = asked
        try:
            yield lambda: bool(asked)
        finally:
            self._asked = None
            with contextlib.suppress(ValueError, TypeError):  # a handler that Python did not set cannot be put back
                signal.signal(signal.SIGINT, before)
        if asked and not self.is_live:
            raise KeyboardInterrupt
