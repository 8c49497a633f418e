"""What the commands of the program share: what a command is, how it ends, how its options are read."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, Any, Final, NamedTuple

from everwhen.core.time import MAX_TIME, MIN_TIME, is_time, ticks
from everwhen.core.time_axis import TIMES, TimeAxis
from everwhen.engine.interruption import Abandoned
from everwhen.errors import QueryError
from everwhen.formats.changelog.reading import header_of, read_changelog
from everwhen.formats.input_file import is_folder
from everwhen.formats.parquet import open_elements
from everwhen.formats.time_columns import nanoseconds_of_text
from everwhen.stream.element_batch import ElementBatch

DONE: Final = 0
FAILED: Final = 1
WRONG_COMMAND: Final = 2
WRONG_INPUT: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143

FILES: Final = (
    "a file of elements: Parquet if its name ends in .parquet, a changelog folder, else JSON lines; - is the standard "
    "input"
)


class Command(NamedTuple):
    """A command: `declare` adds its options to a parser, `run` takes what was read and returns the exit status."""

    name: str
    summary: str
    examples: tuple[str, ...]
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class Interrupted(KeyboardInterrupt):
    """A command was interrupted: what is to be said, and how the program ends."""

    def __init__(self, words: str, stop: KeyboardInterrupt | SystemExit) -> None:
        super().__init__(words)
        self.must_leave = isinstance(stop, Abandoned)
        self.status = INTERRUPTED
        match stop:
            case Abandoned(status=status) | Interrupted(status=status) | SystemExit(code=int(status)):
                self.status = status


@contextmanager
def terminated() -> Iterator[None]:
    """Being asked to end is an end like any other: it is told, what was written aside is removed, Spark is stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise Interrupted("interrupted", SystemExit(TERMINATED))

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(error: object, status: int) -> int:
    """Says what went wrong and returns the status."""
    sys.stderr.write(f"everwhen: {error}\n")
    return status


def note(words: object) -> None:
    """Says what a user may like to know."""
    sys.stderr.write(f"everwhen: {words}\n")


def warn(words: object) -> None:
    """Says what a user should know, and goes on."""
    sys.stderr.write(f"everwhen: warning: {words}\n")


def read(file: str, tick: int | None = None) -> tuple[TimeAxis, Iterator[ElementBatch]]:
    """The elements of a file, of a changelog folder, or of the standard input, and the axis of their times."""
    if is_folder(file):
        axis = header_of(file).axis
        if tick is not None and axis.dated and tick != axis.tick:
            raise QueryError(f"{file}: the changelog has ticks of {axis.tick_text}; leave --tick out")
        return TimeAxis(tick or axis.tick, axis.dated), read_changelog(file)
    source: str | IO[Any] = sys.stdin.buffer if file == "-" else file
    return open_elements(source, tick)


def declare_times(parser: argparse.ArgumentParser, with_tick: bool = False) -> None:
    """The options that tell how times are written; `with_tick`: and how long a tick is, if the file does not say so."""
    parser.add_argument(
        "--times", choices=TIMES, default="auto",
        help="how times are written: as timestamps (iso), as numbers of ticks, or as the input has them (auto)",
    )  # fmt: skip
    if with_tick:
        parser.add_argument(
            "--tick", metavar="LENGTH", type=tick_option, help="how long a tick is (as the file says, else 1ms)"
        )


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant that a user has written: a number of ticks, or a moment in nanoseconds since 1970."""

    number: int | None
    moment: int | Fraction = 0

    def on(self, axis: TimeAxis) -> int:
        """The tick that it is, or that holds it."""
        t = int(self.moment // axis.tick) if self.number is None else self.number
        if not is_time(t):
            raise QueryError(f"the instant is out of range for ticks of {axis.tick_text}")
        return t


def time_option(text: str) -> Instant:
    """An instant: ticks, or a date, or a date and a time, with or without a zone."""
    if text.lstrip("+-").isdecimal():
        if is_time(t := int(text)):
            return Instant(t)
        raise argparse.ArgumentTypeError(f"{text!r} is no time: ticks are {MIN_TIME} to {MAX_TIME}")
    moment = nanoseconds_of_text(text.strip())
    if moment is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: a whole number of ticks, or a date or a timestamp such as '2015-09-02 06:45'"
        )
    return Instant(None, moment)


def tolerance_option(text: str) -> float:
    """How much two numbers may differ."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no tolerance: a number such as 1e-9")
    return value


def out_option(text: str) -> str:
    """Where elements are written."""
    if text.lower().endswith((".csv", ".tsv")):
        raise argparse.ArgumentTypeError(
            f"{text!r} would be read as plain rows, and elements are written: give FILE.jsonl or FILE.parquet"
        )
    return text


def count_of(things: str) -> Callable[[str], int]:
    """An option that counts things: 1 or more."""

    def count(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= MAX_TIME:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of {things}: 1 or more")
        return int(text)

    return count


count_option: Final = count_of("elements")


def number_option(text: str) -> int:
    """A number of processes."""
    if not text.isdecimal() or not 1 <= int(text) <= 1_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of copies: 1 to 1000")
    return int(text)


def tick_option(text: str) -> str:
    """How long a tick is."""
    try:
        length = ticks(text, "1ns")
    except QueryError as bad:
        raise argparse.ArgumentTypeError(str(bad)) from None
    if length == 0:
        raise argparse.ArgumentTypeError(f"a tick is longer than nothing, not {text!r}")
    return text


def input_option(text: str) -> tuple[str, str]:
    """NAME=FILE."""
    name, equals, file = text.partition("=")
    if not name or not equals or not file:
        raise argparse.ArgumentTypeError(f"{text!r} names no input: write NAME=FILE, such as Bid=bids.jsonl")
    return name, file
