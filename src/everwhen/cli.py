"""The program `everwhen`: files of elements in, answers out.

Exit status: 0 done; 1 the histories differ (`diff`), or something unforeseen; 2 the command is wrong; 3 an input
element is wrong, with its file and line; 130 stopped by Ctrl-C.  Errors are one message on the error output.  On 2
and 3 an output file is not touched.

A command is a function that takes the parsed options and returns the status; `_COMMANDS` lists them with the function
that declares their options, and is all there is to extend.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any, Final, NamedTuple

from everwhen.errors import EverwhenError, InputError, QueryError
from everwhen.model.elements import ElementBatch
from everwhen.model.history import History, first_difference
from everwhen.model.parquet import read_elements, write_elements
from everwhen.model.scalars import json_values
from everwhen.model.time import MAX_TIME, MIN_TIME, is_time, show
from everwhen.model.validity import Checker, checked

DONE: Final = 0
FAILED: Final = 1
WRONG_COMMAND: Final = 2
WRONG_INPUT: Final = 3
INTERRUPTED: Final = 130

_MISUSE: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_FILES: Final = "a file of elements: Parquet if its name ends in .parquet, else JSON lines; - is the standard input"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit status."""
    try:
        options = _parser().parse_args(argv)
        status: int = options.command(options)
        sys.stdout.flush()
        return status
    except SystemExit as stop:  # argparse has said what it had to say
        return stop.code if isinstance(stop.code, int) else WRONG_COMMAND
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough.  Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except InputError as error:
        return _fail(error, WRONG_INPUT)
    except QueryError as error:
        return _fail(error, WRONG_COMMAND)
    except _MISUSE as error:
        return _fail(f"{error.filename}: {error.strerror or error}", WRONG_COMMAND)
    except (EverwhenError, OSError) as error:
        return _fail(error, FAILED)
    except Exception as error:
        return _fail(f"unforeseen {type(error).__name__}: {error}", FAILED)


def _fail(error: object, status: int) -> int:
    sys.stderr.write(f"everwhen: {error}\n")
    return status


# --- check --------------------------------------------------------------------------------------------------------


def _declare_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILES)


def _check(options: argparse.Namespace) -> int:
    checker = Checker()
    for batch in _read(options.file):
        checker.take(batch)
    report = checker.report()
    sys.stdout.write(f"{report}\n")
    offence = report.first_offence
    if offence is None:
        return DONE
    return _fail(InputError(offence.why, source=offence.source, line=offence.line), WRONG_INPUT)


# --- history ------------------------------------------------------------------------------------------------------


def _declare_history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILES)
    parser.add_argument("--at", metavar="T", type=_time, help="only the snapshot at instant T: what is alive then")
    parser.add_argument(
        "--coalesce", action="store_true", help="join lifetimes of equal rows: the canonical level form"
    )
    parser.add_argument("--out", metavar="FILE", default="-", help="write elements here (- is the standard output)")


def _history(options: argparse.Namespace) -> int:
    history = History.of(checked(_read(options.file)))
    if options.at is not None:
        history = history.at(options.at)
    if options.coalesce:
        history = history.coalesced()
    if options.out != "-":
        write_elements([history.batch()], options.out, history.schema)
    elif sys.stdout.isatty():
        _show_table(history, None if options.at is None else f"alive at {options.at}")
    else:
        write_elements([history.batch()], sys.stdout)
    return DONE


def _show_table(history: History, title: str | None) -> None:
    from rich.console import Console  # only a terminal pays for it
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, caption=f"{len(history)} events")
    batch = history.batch()
    if title is None:
        table.add_column("vs", justify="right")
        table.add_column("ve", justify="right")
    for name in history.schema.names:
        table.add_column(Text(name))
    columns = [[show(int(t)) for t in times] for times in (batch.vs, batch.ve)] if title is None else []
    columns += [["null" if v is None else str(v) for v in json_values(column)] for column in batch.columns]
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    Console().print(table)


# --- diff ---------------------------------------------------------------------------------------------------------


def _declare_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help=_FILES)
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument(
        "--tolerance", metavar="R", type=_tolerance, default=0.0, help="let floats differ by this part of their size"
    )


def _diff(options: argparse.Namespace) -> int:
    if options.a == options.b == "-":
        raise QueryError("only one of the two files can be the standard input")
    a, b = (History.of(checked(_read(file))) for file in (options.a, options.b))
    # The types of JSON lines are found in the file: 2 in one and 2.0 in the other are the same number to a reader.
    difference = first_difference(a, b, options.tolerance, typed=False)
    if difference is None:
        sys.stdout.write("equal at every instant\n")
        return DONE
    sys.stdout.write(f"{difference}\n")
    return FAILED


# --- demo ---------------------------------------------------------------------------------------------------------


def _declare_demo(parser: argparse.ArgumentParser) -> None:
    # The demo reads its options itself; they are declared here for the help text, and handed on as they are.
    parser.add_argument("--seconds", metavar="N", help="stop after so long")
    parser.add_argument("--events", metavar="N", help="stop after so many events")
    parser.add_argument("--engine", choices=("spark", "local"), help="what runs the queries: spark unless given")
    parser.add_argument("--plain", action="store_true", help="lines of text instead of a live display")


def _demo(options: argparse.Namespace) -> int:
    try:
        from everwhen.demo import main as demo  # it brings the engine along, which nothing else here needs
    except ModuleNotFoundError as missing:
        return _fail(f"the demo cannot run: {missing}", FAILED)
    arguments = ["--plain"] if options.plain else []
    for name in ("seconds", "events", "engine"):
        if (value := getattr(options, name)) is not None:
            arguments += [f"--{name}", value]
    return demo(arguments)


# --- what the commands share --------------------------------------------------------------------------------------


class _Command(NamedTuple):
    name: str
    summary: str
    example: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


_COMMANDS: Final = (
    _Command(
        "check",
        "Is a file of elements a valid stream? Ordered, perfect, closed up to when, grammatical? Names the first "
        "line that breaks it; the exit status is 3 if the stream is not valid.",
        "everwhen check bids.jsonl",
        _declare_check,
        _check,
    ),
    _Command(
        "history",
        "What a file of elements says once all adjusts are applied: its events, or the snapshot at one instant. "
        "A table on a terminal, elements as JSON lines elsewhere.",
        "everwhen history bids.jsonl --at 1200",
        _declare_history,
        _history,
    ),
    _Command(
        "diff",
        "Do two files say the same at every instant, however their lifetimes are cut and corrected? Else the first "
        "instant at which they differ, and the rows; the exit status is then 1.",
        "everwhen diff expected.jsonl got.parquet --tolerance 1e-9",
        _declare_diff,
        _diff,
    ),
    _Command(
        "demo",
        "The NEXMark auction, live in the terminal: four queries on Spark, or nine in process with --engine local.",
        "everwhen demo --seconds 30",
        _declare_demo,
        _demo,
    ),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everwhen",
        description="Continuous queries over disordered, corrected streams, with an exact answer at every instant.",
        epilog="Exit status: 0 done, 1 they differ or failed, 2 the command is wrong, 3 an input element is wrong.",
    )
    parser.add_argument("--version", action="version", version=f"everwhen {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.summary.split("? ")[0].split(": ")[0].rstrip(".?"),
            description=textwrap.fill(command.summary, 90),
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.declare(sub)
        sub.set_defaults(command=command.run)
    return parser


def _version() -> str:
    try:
        return version("everwhen")
    except PackageNotFoundError:
        return "(not installed)"


def _read(file: str) -> Iterator[ElementBatch]:
    source: str | IO[Any] = sys.stdin.buffer if file == "-" else file
    return read_elements(source)


def _time(text: str) -> int:
    t = int(text) if text.lstrip("+-").isdecimal() else None
    if t is None or not is_time(t):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: a whole number of ticks, {MIN_TIME} to {MAX_TIME}")
    return t


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no tolerance: a number such as 1e-9")
    return value


if __name__ == "__main__":
    sys.exit(main())
