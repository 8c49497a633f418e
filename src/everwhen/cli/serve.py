"""`serve`: the page, in a browser."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from everwhen.cli.command import DONE, Command, count_option, input_option, note, tick_option, warn
from everwhen.errors import QueryError


def _declare_serve(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE.sql", nargs="?", help="statements to run first: declarations and queries")
    add(
        "--in", metavar="NAME=FILE", dest="inputs", type=input_option, action="append", default=[],
        help="the file of a stream or relation: JSON lines, .parquet or .csv; repeatable",
    )  # fmt: skip
    add("--job", metavar="DIR", help="watch a job of everwhen start instead: its checkpoint")
    add("--demo", action="store_true", help="show NEXMark: auctions, with late and corrected bids")
    add("--host", default="127.0.0.1", help="the address to listen at (default 127.0.0.1: this machine only)")
    add("--name", metavar="HOST", action="append", default=[], help="another name by which the page may be asked for")
    add("--port", type=_port, help="the port (default 8642, or a free one; 0: a free one)")
    add("--read-only", action="store_true", help="the page shows, and takes no orders")
    add("--rate", metavar="N", type=_rate, help="so many elements a second (default: as fast as it goes)")
    add("--paused", action="store_true", help="let no data move before somebody says so")
    add("--when-opened", action="store_true", help="let no data move before the page is opened")
    add(
        "--batch", metavar="N", type=count_option, default=1000, help="elements of each input per epoch, at most (1000)"
    )
    add("--tick", metavar="LENGTH", type=tick_option, default="1ms", help="how long a tick is (default 1ms)")
    add("--emit", choices=("final", "ended", "current"), default="current", help="what is said when (default current)")
    add("--allow-unbounded", action="store_true", help="run queries whose state nothing bounds")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1e9:
        raise argparse.ArgumentTypeError(f"a rate is more than 0 and at most 1,000,000,000, not {text!r}")
    return rate


def _serve(options: argparse.Namespace) -> int:
    try:
        from everwhen.serve.program import Place, serve
    except ModuleNotFoundError as missing:
        if missing.name not in ("starlette", "uvicorn", "anyio"):
            raise
        raise QueryError(
            "the page needs Starlette and uvicorn, which are not installed; pip install 'everwhen[page]'"
        ) from None
    place = Place(options.host, options.port, tuple(options.name), options.read_only or options.job is not None)
    if options.job is not None:
        if options.file or options.inputs or options.demo:
            raise QueryError("--job watches a job, which has its own text and inputs: give nothing else to run")
        from everwhen.serve.job_watch import JobWatch

        serve(JobWatch(options.job), place, note)
        return DONE
    from everwhen.engine.session.sql_session import SqlSession
    from everwhen.serve.demo import RATE, show_demo
    from everwhen.serve.engine_loop import EngineLoop
    from everwhen.shell.input import Feeds

    feeds = Feeds(options.tick, options.batch)
    feeds.attach_all(options.inputs)
    session = SqlSession(options.emit, options.tick, allow_unbounded=options.allow_unbounded, found=feeds.found)
    rate = options.rate or (RATE if options.demo else None)
    engine = EngineLoop(session, feeds, rate, playing=not (options.paused or options.when_opened))
    if options.demo:
        show_demo(engine)
    if options.file is not None:
        with open(options.file, encoding="utf-8-sig") as script:
            engine.execute(script.read())
        _check_read([name for name, _ in options.inputs], session.inputs, options)
    begin = partial(engine.submit, partial(engine.play, True)) if options.when_opened else None
    serve(engine, place, note, opened=begin)
    sys.stderr.write("everwhen: the page is closed\n")
    return DONE


def _check_read(given: Sequence[str], reads: Sequence[str], options: argparse.Namespace) -> None:
    """An input that no query of the file reads is a slip, unless somebody asks for it on the page."""
    known = {name.lower() for name in reads}
    unread = ", ".join(sorted(name for name in given if name.lower() not in known))
    if unread:
        words = f"no query of {options.file} reads {unread}; they read {', '.join(sorted(reads)) or 'nothing'}"
        if options.read_only:
            raise QueryError(words)
        warn(f"{words}; a query that is written on the page may")


@contextmanager
def page_beside() -> Iterator[str]:
    """The page of the demo in a process of its own, as long as something else runs: its address, or nothing.

    It computes nothing before somebody opens it: the other one has the machine to itself until then.
    """
    words = [sys.executable, "-m", "everwhen.cli", "serve", "--demo", "--when-opened", "--port", "0"]
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stderr is not None
    try:
        said = child.stderr.readline()
        rest = threading.Thread(target=child.stderr.read, daemon=True)  # whatever else it says
        rest.start()
        yield said.rpartition(" ")[2].strip() if "#token=" in said else ""
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        rest.join(1)
        child.stderr.close()


SERVE: Final = Command(
    "serve",
    "The page: a session in the browser. See the graph, the answers at any instant, what was corrected and who holds "
    "what back; write, start, change and stop queries.",
    (
        "everwhen serve --demo",
        "everwhen serve --in Bid=bids.jsonl queries.sql --rate 100",
        "everwhen serve queries.sql --read-only --port 9000",
        "everwhen serve --job state",
    ),
    _declare_serve,
    _serve,
)
