"""The late rows of a run over files: kept where they can be read, told in the end, and at once if they are many.

An input may name a file for its late rows (`InputFile.late_rows`).  They stand there as elements, JSON lines that can
be read again as input.  The file is written as the run goes on and begins anew with it.  A run that goes on from a
checkpoint knows how many rows had been given up by then: what stands behind these is of work that is done again, and is
cut off.  So each row stands there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import IO

from everwhen.core.late_count import LateCount, LateWarnings
from everwhen.core.time import NEVER
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.engine.local import LocalRuntime
from everwhen.errors import QueryError
from everwhen.formats.input_file import InputFile
from everwhen.formats.json.lines import jsonlines
from everwhen.operators.ingress.finalize import DroppedElements
from everwhen.plan.sanity.silence import never_promised
from everwhen.storage.blamed import blamed

Tell = Callable[[str], None]


class LateBook:
    """Hand `note` to whoever drops elements; then `begin`, `look` now and then, and `close`.  Times are written on the
    axis of the answer."""

    def __init__(self, given: Mapping[str, InputFile], tell: Tell, axis: TimeAxis = TICKS) -> None:
        self.axis = axis
        self._places = {name: each.late_rows for name, each in given.items() if each.late_rows}
        twice = [place for place in self._places.values() if list(self._places.values()).count(place) > 1]
        if twice:
            names = ", ".join(sorted(name for name, place in self._places.items() if place == twice[0]))
            raise QueryError(f"the late rows of {names} cannot all go to {twice[0]}; give each a file: NAME=FILE")
        self.tell = tell
        self._warnings = LateWarnings()
        self._files: dict[str, IO[bytes]] = {}

    def begin(self, kept: Mapping[str, int]) -> None:
        """Open the files; `kept` says how many rows of each input stay from before."""
        for name, place in self._places.items():
            lines = kept.get(name, 0)
            file = self._files[name] = open(place, "r+b" if lines else "wb")  # noqa: SIM115 - until `close`
            for _ in range(lines):
                file.readline()
            if lines:
                file.truncate(file.tell())

    def note(self, name: str, dropped: DroppedElements) -> None:
        """Elements of an input were given up."""
        if name in self._files:
            text = "".join(f"{line}\n" for line in jsonlines(dropped.elements, self.axis))
            with self._blamed(name):
                self._files[name].write(text.encode())

    def look(self, counts: Mapping[str, LateCount]) -> None:
        """Say so, if late rows have become many."""
        for words in self._warnings.look(counts):
            self.tell(words)

    def flush(self) -> None:
        """What was noted is in the files."""
        for name, file in self._files.items():
            with self._blamed(name):
                file.flush()

    def end(self, counts: Mapping[str, LateCount]) -> None:
        """The run is over: the totals are told."""
        for name, count in sorted(counts.items()):
            if count.late:
                place = self._places.get(name)
                where = "--late-rows FILE keeps them" if place is None else f"those that were dropped are in {place}"
                kept = f"; {where}" if count.dropped else ""
                self.tell(f"{count.words(name)}{kept}")

    def close(self) -> None:
        files, self._files = self._files, {}
        with ExitStack() as each:
            for name, file in files.items():
                each.enter_context(self._blamed(name))
                each.callback(file.close)

    def _blamed(self, name: str) -> AbstractContextManager[None]:
        return blamed(str(self._places[name]), f"keep the late rows of {name}")


def silence(promised: Mapping[str, int], final: bool, said: int) -> str | None:
    """One line if inputs have ended, open, and some have never promised anything, so that the answer says nothing."""
    silent = sorted(name for name, cti in promised.items() if cti == NEVER)
    return never_promised(silent, final) if silent and (final or not said) else None


class SilenceWatch:
    """Tells once, after so many seconds in which elements came, that nothing can be said because nobody promises."""

    def __init__(self, tell: Tell, final: bool, after: float) -> None:
        self._tell, self._final, self._after = tell, final, after
        self._since: float | None = None
        self._told = not final

    def look(self, promised: Mapping[str, int], said: int, now: float) -> None:
        """Elements came; so far so many were said."""
        if self._told or said:
            self._told = True
            return
        self._since = now if self._since is None else self._since
        if now - self._since >= self._after and (words := silence(promised, self._final, said)) is not None:
            self._told = True
            self._tell(words)


def given_up(runtime: LocalRuntime) -> dict[str, int]:
    """How many elements of each input were handed to `dropped` so far."""
    found = {name: count.dropped for name, count in runtime.late.items()}
    for name, reasons in runtime.dropped.items():
        found[name] = found.get(name, 0) + sum(reasons.values())
    return found
