"""The live demo: NEXMark with late, wrong and doubled bids, on Spark or in process.

It shows for every query what holds now, what it has said, what it had to correct and what is final; for every input how
far it has promised to be complete, and which one is waited for; and how much is kept where.  Without a terminal, or
with `--plain`, it prints a few lines of progress and the summary instead.  The demo ends by itself, or cleanly on
Ctrl-C, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console

from everwhen.demo.local import Make, run_local

DEFAULT_SECONDS: Final = 60.0


def main(argv: Sequence[str] | None = None, *, console: Console | None = None, runtime: Make | None = None) -> int:
    """Run the demo and return the exit status; `console` and `runtime` (in process) can be handed in by tests."""
    options = _arguments().parse_args(argv)
    console = console or Console()
    plain = options.plain or not console.is_terminal
    seconds = options.seconds if options.seconds is not None or options.events else DEFAULT_SECONDS
    if options.engine == "local" or runtime is not None:
        return run_local(console, plain, seconds, options.events, runtime)
    from everwhen.spark import require_pyspark

    require_pyspark()
    from everwhen.demo.spark import run_spark  # only here, since it brings PySpark along

    return run_spark(console, plain, seconds, options.events)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="everwhen demo", description="NEXMark, live in the terminal.")
    words = f"how long to run (default {DEFAULT_SECONDS:g} unless --events is given)"
    parser.add_argument("--seconds", type=_positive(float), help=words)
    parser.add_argument("--events", type=_positive(int), help="stop after so many events")
    engine = "four queries on Spark (the default), or nine in this process"
    parser.add_argument("--engine", choices=("spark", "local"), default="spark", help=engine)
    parser.add_argument("--plain", action="store_true", help="lines of progress instead of the live view")
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = kind(0)
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"a positive number is needed, not {text!r}")
        return number

    return convert
