"""The processes that Spark starts on this machine: what they say goes to a file, and they do not outlive their use.

PySpark knows its JVM only once that is up.  Who is interrupted before that has to end the processes himself: left alone
they would end by themselves, but not without a word.  And who is interrupted while Python speaks with the JVM gets a
traceback on the screen, whatever he does; so signals are kept, and asked for between two sentences.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def heard_by(path: str | Path) -> Iterator[None]:
    """Processes started meanwhile write their errors to a file: a worker that is stopped within a task complains."""
    before = os.dup(2)
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def kept_signals() -> Iterator[Callable[[], None]]:
    """Ctrl-C and being asked to end do nothing within the block but make the function that is given raise."""
    came: list[int] = []

    def check() -> None:
        if came:
            raise KeyboardInterrupt if came[0] == signal.SIGINT else SystemExit(128 + came[0])

    with told_signals(came.append):
        yield check


@contextmanager
def told_signals(tell: Callable[[int], object]) -> Iterator[None]:
    """Ctrl-C and being asked to end do nothing within the block but tell their number, each time that they come."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda number, frame: tell(number)) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)


@contextmanager
def ended_on_failure() -> Iterator[None]:
    """If the block fails or is interrupted, the processes that it has started are asked to end."""
    others = children()
    try:
        yield
    except BaseException:
        for process in children() - others:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        raise


def children() -> frozenset[int]:
    """The processes that this one has started, where the system tells."""
    listings = Path("/proc/self/task").glob("*/children")
    with suppress(OSError):
        return frozenset(int(process) for listing in listings for process in listing.read_text().split())
    return frozenset()
