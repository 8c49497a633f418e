"""The program `everwhen`: files of elements in, answers out.

Exit status: 0 done; 1 the histories differ (`diff`), or something unforeseen; 2 the command or the SQL is wrong; 3 an
input element is wrong, with its file and line; 130 stopped by Ctrl-C, 143 by SIGTERM.  Errors are one message on the
error output.  On 2, 3, 130 and 143 an output file is not touched.

A command is a `Command` of one of the modules of this package; `_COMMANDS` lists them, and is all there is to extend.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from everwhen.cli import explain, jobs, run, serve, shell, streams
from everwhen.cli.command import (
    DONE,
    FAILED,
    WRONG_COMMAND,
    WRONG_INPUT,
    Command,
    Interrupted,
    fail,
    note,
    terminated,
    warn,
)
from everwhen.engine.interruption import leave
from everwhen.errors import EverwhenError, InputError, QueryError
from everwhen.startup import is_program, loaded
from everwhen.storage.atomic_file import FULL
from everwhen.storage.folder import blame

_GLANCE: Final = 3.0
"""Seconds in which the address of the page can be read."""
_MISUSE: Final = (FileNotFoundError, NotADirectoryError, PermissionError)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit status."""
    try:
        loaded()
        _say_warnings()
        with terminated():
            options = _parser().parse_args(argv)
            status: int = options.command(options)
            sys.stdout.flush()
            return status
    except SystemExit as stop:  # argparse has said what it had to say
        return stop.code if isinstance(stop.code, int) else WRONG_COMMAND
    except KeyboardInterrupt as stop:
        ended = stop if isinstance(stop, Interrupted) else Interrupted("interrupted", stop)
        fail(ended, ended.status)
        if not ended.must_leave:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
        return leave(ended.status) if ended.must_leave or _may_hurry() else ended.status
    except BrokenPipeError:
        # Whoever read our output has seen enough.  Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except InputError as error:
        return fail(error, WRONG_INPUT)
    except QueryError as error:
        return fail(error, WRONG_COMMAND)
    except IsADirectoryError as error:
        remedy = "of folders only changelogs are read, which have a _changelog.json"
        return fail(f"{error.filename}: {error.strerror} ({remedy})", WRONG_COMMAND)
    except _MISUSE as error:
        return fail(f"{error.filename}: {error.strerror or error}", WRONG_COMMAND)
    except (EverwhenError, OSError) as error:
        if isinstance(error, OSError) and error.errno in FULL and error.filename is not None:
            return fail(blame(error, str(error.filename), "write it"), FAILED)
        return fail(error, FAILED)
    except Exception as error:
        return fail(f"unforeseen {type(error).__name__}: {error}", FAILED)


class _Warnings(logging.Handler):
    """What the library warns of, in the words of the program."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _say_warnings() -> None:
    logger = logging.getLogger("everwhen")
    if not any(isinstance(each, _Warnings) for each in logger.handlers):
        logger.addHandler(_Warnings(logging.WARNING))


def _may_hurry() -> bool:
    """Whether nothing is lost if the interpreter does not take itself apart, which can take a second: all is undone by
    now, and no Spark runs that would have to be stopped."""
    return is_program(sys.orig_argv) and "pyspark" not in sys.modules


# --- demo ---------------------------------------------------------------------------------------------------------


def _declare_demo(parser: argparse.ArgumentParser) -> None:
    # The demo reads its options itself; they are declared here for the help text, and handed on as they are.
    parser.add_argument("--seconds", metavar="N", help="stop after so long")
    parser.add_argument("--events", metavar="N", help="stop after so many events")
    parser.add_argument("--engine", choices=("spark", "local"), help="what runs the queries: spark unless given")
    parser.add_argument("--plain", action="store_true", help="lines of text instead of a live display")
    parser.add_argument("--page", action="store_true", help="show the auction in the browser as well")


def _demo(options: argparse.Namespace) -> int:
    try:
        from everwhen.demo.program import main as demo  # it brings the engine along, which nothing else here needs
    except ModuleNotFoundError as missing:
        return fail(f"the demo cannot run: {missing}", FAILED)
    arguments = ["--plain"] if options.plain else []
    for name in ("seconds", "events", "engine"):
        if (value := getattr(options, name)) is not None:
            arguments += [f"--{name}", value]
    if not options.page:
        return demo(arguments)
    with serve.page_beside() as address:
        note(f"the page is at {address}" if address else "there is no page: pip install 'everwhen[page]'")
        if address and sys.stdout.isatty():
            time.sleep(_GLANCE)  # the live display takes the whole terminal
        return demo(arguments)


_DEMO: Final = Command(
    "demo",
    "The NEXMark auction, live in the terminal: four queries on Spark, or nine in process with --engine local.",
    ("everwhen demo --seconds 30",),
    _declare_demo,
    _demo,
)


# --- the commands -------------------------------------------------------------------------------------------------

_COMMANDS: Final[tuple[Command, ...]] = (
    run.RUN,
    explain.EXPLAIN,
    shell.SHELL,
    serve.SERVE,
    *jobs.COMMANDS,
    *streams.COMMANDS,
    _DEMO,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everwhen",
        description="Continuous queries over disordered, corrected streams, with an exact answer at every instant.",
        epilog="Exit status: 0 done, 1 they differ or failed, 2 the command or the SQL is wrong, 3 an input element "
        "is wrong, 130 stopped by Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"everwhen {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        examples = "\n".join(f"  {line}" for line in command.examples)
        sub = commands.add_parser(
            command.name,
            help=command.summary.split("? ")[0].split(": ")[0].rstrip(".?"),
            description=textwrap.fill(command.summary, 90),
            epilog=f"example{'s' if len(command.examples) > 1 else ''}:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a word that is cut off is a slip, not an option
        )
        command.declare(sub)
        sub.set_defaults(command=command.run)
    return parser


def _version() -> str:
    try:
        return version("everwhen")
    except PackageNotFoundError:
        return "(not installed)"
