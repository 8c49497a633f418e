"""`shell`: SQL typed at a terminal, or a script of it."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Final

from everwhen.cli.command import DONE, Command, count_option, declare_times, input_option, tick_option
from everwhen.errors import QueryError


def _declare_shell(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE.sql", nargs="?", help="a script to run first; without a terminal it is all that is run")
    add(
        "--in", metavar="NAME=FILE", dest="inputs", type=input_option, action="append", default=[],
        help="the file of a stream or relation: JSON lines, .parquet or .csv; repeatable",
    )  # fmt: skip
    add("--tick", metavar="LENGTH", type=tick_option, default="1ms", help="how long a tick is (default 1ms)")
    add("--emit", choices=("final", "ended", "current"), default="current", help="what is said when (default current)")
    add("--batch", metavar="N", type=count_option, default=1000, help="elements of each input per epoch (1000)")
    add("--no-optimize", action="store_true", help="run plans as they are written, without rewriting")
    add("--allow-unbounded", action="store_true", help="run queries whose state nothing bounds")
    declare_times(parser)


def _shell(options: argparse.Namespace) -> int:
    from everwhen import __version__  # the engine comes with it, which other commands may not need
    from everwhen.engine.session.sql_session import SqlSession
    from everwhen.shell.input import Feeds
    from everwhen.shell.session import Shell

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an answer may have letters that the terminal has not
    feeds = Feeds(options.tick, options.batch)
    feeds.attach_all(options.inputs)
    session = SqlSession(
        options.emit,
        options.tick,
        optimize=not options.no_optimize,
        allow_unbounded=options.allow_unbounded,
        found=feeds.found,
    )
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    shell = Shell(session, feeds, sys.stdout, is_live=is_typed and sys.stdout.isatty(), times=options.times)
    script = None if options.file is None else _script(options.file).splitlines()
    if is_typed:
        shell.say(f"Everwhen {__version__}.  Statements end with ;  \\help lists the commands.")
        shell.tried(lambda: shell.run_script(script or ()))
        shell.interact()
    else:
        shell.run_script(sys.stdin if script is None else script)
        shell.run_unread()
    return DONE


def _script(file: str) -> str:
    try:
        with open(file, encoding="utf-8-sig") as script:
            return script.read()
    except UnicodeDecodeError as bad:
        raise QueryError(f"{file}: byte {bad.start + 1} is not UTF-8; save the script as UTF-8") from None


SHELL: Final = Command(
    "shell",
    "SQL typed at a terminal: declare streams, start and stop queries while data moves, look at answers as they "
    "change. Without a terminal it runs a script and stops at its first error.",
    (
        "everwhen shell",
        "everwhen shell --in Bid=bids.jsonl declarations.sql",
        "everwhen shell --in Bid=bids.jsonl < script.sql",
    ),
    _declare_shell,
    _shell,
)
