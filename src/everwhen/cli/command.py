"""What the commands of the program share: what a command is, how it ends, how its options are read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, NamedTuple

from everwhen.core.time import MAX_TIME, MIN_TIME, is_time, ticks
from everwhen.engine.interruption import Abandoned
from everwhen.errors import QueryError
from everwhen.formats.changelog.reading import read_changelog
from everwhen.formats.input_file import is_folder
from everwhen.formats.parquet import read_elements
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


def read(file: str) -> Iterator[ElementBatch]:
    """The elements of a file, of a changelog folder, or of the standard input."""
    if is_folder(file):
        return read_changelog(file)
    source: str | IO[Any] = sys.stdin.buffer if file == "-" else file
    return read_elements(source)


def time_option(text: str) -> int:
    """A time in ticks."""
    t = int(text) if text.lstrip("+-").isdecimal() else None
    if t is None or not is_time(t):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: a whole number of ticks, {MIN_TIME} to {MAX_TIME}")
    return t


def tolerance_option(text: str) -> float:
    """How much two numbers may differ."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no tolerance: a number such as 1e-9")
    return value


def count_option(text: str) -> int:
    """A number of elements."""
    if not text.isdecimal() or not 1 <= int(text) <= MAX_TIME:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of elements: 1 or more")
    return int(text)


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
